//! Checks of this workspace.
fn main() {}
