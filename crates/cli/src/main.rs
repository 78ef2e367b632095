//! Puts distributed systems through their sea trials.
fn main() {}
