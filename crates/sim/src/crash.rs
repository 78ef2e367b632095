//! Crash states: what may be on the disk after a loss of power at any point of what a program did, and whether its recovery
//! copes with all of them. The idea is that of ALICE and BOB (Pillai et al., "All File Systems Are Not Created Equal", OSDI
//! 2014): record the program's disk operations, rebuild every state that an abstract disk may be in after a crash, run the
//! program's own recovery on each and check what it promised. The abstract disk here is as bad as [`Storage`] allows:
//!
//! - Bytes and lengths that were not synced may be lost, each write for itself and in any order, or be torn at sectors (512
//!   bytes) or pages (4,096 bytes), with old bytes, zeros or noise where the new ones are missing.
//! - The length of a file arrives or not, whatever its bytes do.
//! - Names (created, renamed, removed) may be lost, each for itself, until their folder was synced; a renamed file may have
//!   the name and not the bytes. Syncing a file says nothing about its name.
//!
//! A program runs on [`Recorder::storage`] and marks what it told its users with [`Recorder::promise`]; [`Explorer`] does the
//! rest. This one saves a number and forgets a sync:
//!
//! ```
//! use seatrial_machine::Storage;
//! use seatrial_sim::crash::{Explorer, Recorder};
//! use std::{io, path::Path};
//!
//! fn save(storage: &dyn Storage, number: u64, is_synced: bool) -> io::Result<()> {
//!     let file = storage.create(Path::new("saved.new"))?;
//!     file.write_at(0, &number.to_le_bytes())?;
//!     if is_synced {
//!         file.sync()?;
//!     }
//!     storage.rename(Path::new("saved.new"), Path::new("saved"))?;
//!     storage.sync_folder(Path::new(""))
//! }
//!
//! fn load(storage: &dyn Storage) -> io::Result<u64> {
//!     let mut bytes = [0; 8];
//!     storage.open(Path::new("saved"))?.read_at(0, &mut bytes)?;
//!     Ok(u64::from_le_bytes(bytes))
//! }
//!
//! for is_synced in [true, false] {
//!     let recorder = Recorder::new();
//!     save(&*recorder.storage(), 7, is_synced)?;
//!     recorder.promise(7); // from here on, 7 is durable
//!
//!     let trace = recorder.trace();
//!     let report = Explorer::new(&trace).explore(|crash| match load(&crash.storage()) {
//!         Ok(7) => Ok(()),
//!         Err(error) if error.kind() == io::ErrorKind::NotFound && crash.promises().is_empty() => Ok(()),
//!         found => Err(format!("found {found:?}")),
//!     });
//!     println!("{report}");
//!     assert_eq!(report.failure.is_none(), is_synced);
//!     if let Some(failure) = report.failure {
//!         let missing = failure.vulnerability.to_string();
//!         let [first, then] = missing.split(" has to be durable before ").collect::<Vec<_>>()[..] else { panic!() };
//!         assert_eq!(first, "write of 8 bytes at 0 to saved.new (operation 1)");
//!         assert_eq!(then, "rename of saved.new to saved (operation 2)");
//!         // The very state can be had again.
//!         let crash = trace.crash(failure.point, &failure.choice);
//!         assert_ne!(load(&crash.storage()).ok(), Some(7));
//!     }
//! }
//! # Ok::<(), io::Error>(())
//! ```
//!
//! A recovery that is itself interrupted: [`Crash::recorder`] records the recovery of one crash state, and its trace is
//! explored in turn.
//!
//! [`Storage`]: seatrial_machine::Storage

mod choice;
mod enumerate;
mod explorer;
mod failure;
mod recorder;
mod replay;

pub use choice::{Arrival, Choice, Fate, Rest, Tear, TearUnit};
pub(crate) use enumerate::tears;
pub use explorer::{Crash, CrashReport, Explorer, Limits};
pub use failure::{CrashFailure, Vulnerability};
pub use recorder::{Operation, Recorder, Trace};

#[cfg(test)]
mod tests;
