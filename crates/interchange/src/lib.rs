//! Histories in the formats of other tools: [`import`] reads them, [`export`] writes them.
//!
//! What is absent: no file, thread, clock or socket (readers and writers come from outside), and no verdict. A reader holds a
//! window of its input, never all of it.

pub mod export;
mod header;
pub mod import;
