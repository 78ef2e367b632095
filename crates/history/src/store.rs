//! The test file `history.sea`: written while a test runs, read lazily, results appended. Byte map:
//! `docs/formats/test-file.md`.
//!
//! ```
//! use seatrial_history::{HistoryWriter, Op, OpType, Process, TestFile, Value};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("history.sea");
//! let mut writer = HistoryWriter::create(&path, &serde_json::json!({"suite": "kv"}))?;
//! let read = Op { time: 5, ..Op::invoke(Process::Client(0), "read", Value::Nil) };
//! writer.push(&read)?;
//! writer.push(&Op { index: 1, time: 9, ..read.complete(OpType::Ok, Value::Int(3)) })?;
//! writer.seal()?;
//! TestFile::append_results(&path, &serde_json::json!({"valid": true}))?;
//!
//! let file = TestFile::open(&path)?;
//! assert_eq!((file.len(), file.attributes()?["suite"].as_str()), (2, Some("kv")));
//! assert_eq!(file.operation(1)?.unwrap().value, Value::Int(3));
//! assert_eq!(file.validity()?, Some(true.into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append;
mod block_kinds;
mod directory;
mod documents;
mod pack;
mod reader;
mod salvage;
mod survey;
mod torn_tail;
mod writer;

pub use documents::Analysis;
pub use pack::{Packed, repack};
pub(crate) use reader::ReadScratch;
pub use reader::{ChunkBuffer, TestFile};
pub use salvage::{Missing, SALVAGED, Salvaged, salvage_to};
pub use seatrial_blocks::codec::Codec;
pub use seatrial_blocks::damage_scan::Damaged;
pub use survey::{FileTail, OpenError};
pub use torn_tail::{REPAIRED, RepairedFile};
pub use writer::{HistoryWriter, WriteError, WriterOptions};

/// The purpose in the first page.
const PURPOSE: [u8; 4] = *b"hist";

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod salvage_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod version_tests;
