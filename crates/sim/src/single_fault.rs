//! Single faults: one block of one file fails once or permanently, at one access, and everything else works. The method of
//! CORDS for replicated systems (Ganesan et al., "Redundancy Does Not Imply Fault Tolerance", FAST 2017), for code over a
//! [`Storage`].
//!
//! [`SingleFaults`] runs a program once to find the blocks that it reads and writes, then once for each block, access and fault,
//! and checks each run. [`FaultRun::is_honest`] is the check that nearly every program should pass: the right answer, or an
//! error that names file and position; never another answer, never a panic.
//!
//! ```
//! use seatrial_machine::Storage;
//! use seatrial_sim::{FileTree, single_fault::SingleFaults};
//! use std::path::Path;
//!
//! /// Adds up the bytes of a file.
//! fn sum(storage: &dyn Storage) -> Result<u64, String> {
//!     let unreadable = |error| format!("cannot read numbers at 0: {error}");
//!     let file = storage.open(Path::new("numbers")).map_err(unreadable)?;
//!     let mut bytes = vec![0; file.len() as usize];
//!     file.read_at(0, &mut bytes).map_err(unreadable)?;
//!     Ok(bytes.iter().map(|&byte| u64::from(byte)).sum())
//! }
//!
//! let mut files = FileTree::default();
//! files.insert("numbers", vec![1; 10_000]);
//! let report = SingleFaults::new(files).run(|storage| sum(&*storage), |run| run.is_honest());
//! println!("{report}");
//! // Read errors are reported, flipped bits are silent: there is no checksum.
//! assert!(report.errors > 0 && report.failures.len() > 0);
//! assert!(report.failures[0].reason.contains("another answer"), "{}", report.failures[0]);
//! ```
//!
//! [`Storage`]: seatrial_machine::Storage

pub(crate) mod accesses;
mod fault_run;

pub use accesses::{Access, BlockFault, Site};
pub use fault_run::{FaultFailure, FaultReport, FaultRun, SingleFaults};

#[cfg(test)]
mod tests;
