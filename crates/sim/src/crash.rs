//! Crash states: every content that a disk may have after a power failure at any point of a program's run, each given to the
//! program's own recovery. The method is that of ALICE and BOB (Pillai et al., "All File Systems Are Not Created Equal", OSDI
//! 2014): record the program's disk operations, rebuild every state that an abstract disk may be in after a crash, run the
//! program's recovery on each, and check it against what the program had acknowledged. The abstract disk is as weak as
//! [`Storage`] permits:
//!
//! - Bytes and lengths that were not synced may be lost, each write on its own and in any order, or torn at sectors (512 bytes)
//!   or pages (4,096 bytes), with old bytes, zeros or noise in place of the missing ones.
//! - The length of a file may arrive without its bytes, and the bytes without the length.
//! - Names (created, renamed, removed) may be lost, each on its own, until their folder was synced; a renamed file may have its
//!   name and not its bytes. Syncing a file does not sync its name.
//!
//! A program runs on [`DiskRecorder::storage`] and marks what it acknowledges to its users with [`DiskRecorder::acknowledge`];
//! [`Explorer`] does the rest. This one saves a number and omits a sync:
//!
//! ```
//! use seatrial_machine::Storage;
//! use seatrial_sim::crash::{DiskRecorder, Explorer};
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
//!     let recorder = DiskRecorder::new();
//!     save(&*recorder.storage(), 7, is_synced)?;
//!     recorder.acknowledge(7); // from here on, 7 is durable
//!
//!     let trace = recorder.trace();
//!     let report = Explorer::new(&trace).explore(|crash| match load(&crash.storage()) {
//!         Ok(7) => Ok(()),
//!         Err(error) if error.kind() == io::ErrorKind::NotFound && crash.acknowledged().is_empty() => Ok(()),
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
//! A recovery that is itself interrupted: [`CrashState::recorder`] records the recovery of one crash state, and its trace is
//! explored in turn.
//!
//! [`Storage`]: seatrial_machine::Storage

mod choice;
mod disk_recorder;
mod enumerate;
mod explorer;
mod failure;
mod trace_replay;

pub use choice::{Choice, Fate, Rest, Tear, TearUnit, TornUnits};
pub use disk_recorder::{DiskOperation, DiskRecorder, DiskTrace};
pub(crate) use enumerate::tears;
pub use explorer::{CrashReport, CrashState, Explorer, ExplorerLimits};
pub use failure::{CrashFailure, Vulnerability};

#[cfg(test)]
mod tests;
