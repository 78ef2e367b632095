//! The real disk as [`Storage`](seatrial_machine::Storage): files, folders, locks and mapped views.
//!
//! `host` runs machines on it; archives, test files and logs are written with it outside of simulations. Its counterpart
//! in memory, which injects every fault of a disk, is `seatrial_sim::MemoryStorage`.
//!
//! # What this crate does not do
//!
//! - It does not interpret the contents of a file.
//! - It does not retry a failed sync: after one, the state of the medium is unknown, and the caller has to recover.
//! - It keeps no table of open files and no cache, and no thread but the one that reads the next MiB of a log.
//!
//! # Files in reading order
//!
//! - `real.rs`: the operating system's files as `Storage`
//! - `direct_file.rs`, `direct_reads.rs`: files that are written and read past the page cache
//! - `map.rs`: mapped views that report errors instead of raising SIGBUS; the only unsafe code
//! - `memory.rs`: the memory that the system leaves to caches

mod direct_file;
mod direct_reads;
mod map;
mod memory;
mod real;

pub use memory::SystemMemory;
pub use real::{Files, ReadFiles};
