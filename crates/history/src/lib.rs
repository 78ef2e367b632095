//! Operations, histories, the test file, and folds over them.
//!
//! A *history* records what the processes of a test did, in the order in which it happened. This crate stores histories of
//! any length, and answers many questions about one in a single pass. Everything above it, generators, checkers and reports,
//! reads and writes histories through it.
//!
//! ```text
//!   time ──►                                            history: one sequence of operations
//!   process 0   invoke write 1 ─────────── ok            index 0  process 0  invoke write 1
//!   process 1         invoke read ────── ok 1            index 1  process 1  invoke read  nil
//!   nemesis                  info kill                   index 2  nemesis    info   kill
//!                                                        index 3  process 1  ok     read  1
//!                                                        index 4  process 0  ok     write 1
//! ```
//!
//! # Operations
//!
//! An [`Op`] is one element of a history: an *invocation*, by which a process begins an operation, or its *completion*. The
//! type of a completion is its outcome:
//!
//! | type | meaning |
//! | --- | --- |
//! | [`OpType::Ok`] | the operation took place |
//! | [`OpType::Fail`] | it did not take place, and never will |
//! | [`OpType::Info`] | unknown: it may have taken place, or still take place later |
//!
//! `f` is the function (`read`, `write`, `txn`), and the [`Value`] its argument, in a completion its result. A [`Process`] is
//! single-threaded: it invokes again only after its completion. After an `info` a process never appears again, and its thread
//! continues under a new number, since the lost operation may still be running.
//!
//! ```
//! use seatrial_history::{Op, OpType, Process, Value};
//!
//! let invocation = Op::invoke(Process::Client(0), "write", Value::Int(1));
//! let completion = Op { index: 1, time: 700, ..invocation.complete(OpType::Ok, Value::Int(1)) };
//! assert_eq!(completion.to_string(), "{:index 1, :time 700, :type :ok, :process 0, :f :write, :value 1}");
//! ```
//!
//! # Histories
//!
//! A [`History`] is a history in memory. It pairs each invocation with its completion on first use ([`OpenInvocations`] is
//! the rule). An *index* is the number of an operation in the whole history, and survives filters; a *position* is its place
//! in what is at hand. In an unfiltered, dense history they are equal.
//!
//! ```
//! use seatrial_history::{History, Op, OpType, Process, Value};
//!
//! let write = Op::invoke(Process::Client(0), "write", Value::Int(1));
//! let read = Op::invoke(Process::Client(1), "read", Value::Nil);
//! let history = History::from_unindexed(vec![
//!     write.clone(),
//!     read.clone(),
//!     read.complete(OpType::Ok, Value::Int(1)),
//!     write.complete(OpType::Ok, Value::Int(1)),
//! ]);
//! assert_eq!(history.completion(0).unwrap().index, 3);
//! let reads = history.filter(|op| op.f == "read");
//! assert_eq!((reads.ops()[1].index, reads.pair(0)), (2, Some(1)));
//! ```
//!
//! Pairing is lenient, for histories of other programs: what has no partner stays alone. [`History::strict`] returns an
//! error instead.
//!
//! # The test file
//!
//! A test of hours does not fit in memory. Its [`HistoryWriter`] appends operations to a *test file* (`history.sea`) while
//! it runs, in constant memory; results of analyses are appended later. A [`TestFile`] reads it lazily, also while the test is
//! still writing ([`TestFile::refresh`]).
//!
//! ```text
//!  page │ attributes │ root │ chunk 0 │ chunk 1 │ journal │ chunk 2 │ ... │ directory │ root │ results │ root
//!   └─ hint: where the newest root was      └─ flushed operations     └─ which chunk holds which operations
//!                                              of the open chunk
//! ```
//!
//! Every block is checksummed, and none is changed in place: the newest valid root names what is live. A process that is killed
//! loses nothing that was flushed, a power failure nothing that was synced. Damage is an error with file, offset, and what
//! is wrong; [`TestFile::salvage`] reads everything else, and [`TestFile::repair`] cuts a torn end off, keeping a copy.
//!
//! ```
//! use seatrial_history::{HistoryWriter, Op, OpType, Process, TestFile, Value};
//!
//! # let path = std::env::temp_dir().join(format!("doc-lib-{}.sea", std::process::id()));
//! let mut writer = HistoryWriter::create(&path, &serde_json::json!({"name": "tutorial"}))?;
//! let read = Op { time: 5, ..Op::invoke(Process::Client(0), "read", Value::Nil) };
//! writer.push(&read)?;
//! writer.push(&Op { index: 1, time: 9, ..read.complete(OpType::Ok, Value::Int(3)) })?;
//! writer.seal()?;
//!
//! let file = TestFile::open(&path)?;
//! assert_eq!((file.len(), file.is_complete()), (2, true));
//! assert_eq!(file.operation(1)?.unwrap().value, Value::Int(3));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Chunks
//!
//! The unit of reading, folding and checking is a [`Chunk`]: up to 65,536 operations (16,384 by default) in columns. Names,
//! keys and processes are stored once and referred to by id; a list that was read again and again is stored once, and each
//! read is a length. A chunk is validated completely when it is read, so that access cannot fail afterwards.
//!
//! ```text
//!  column     0       1       2       3   ...         dictionary
//!  process    0       1       1       0               f: write, read
//!  template   0       1       2       3               template 2: type ok, f read, an integer value
//!  time       0      +5      +2      +9               (differences)
//!  operand    1               1       1
//! ```
//!
//! There are three ways to read one: whole columns ([`Chunk::kinds`], [`Chunk::times`], [`Chunk::mops`]), some nanoseconds per
//! operation; borrowed operations ([`Chunk::views`]); and built ones ([`Chunk::ops`]), some hundred nanoseconds each.
//!
//! # Folds: many questions in one pass
//!
//! A question about a whole history is a [`Fold`]: *reduce* adds a chunk to an accumulator, *combine* joins the accumulators
//! of adjacent chunks, *finish* turns the last one into the answer. A fold never sees threads, files or other folds.
//!
//! ```text
//!   chunk 0 ──reduce──► a0 ┐
//!   chunk 1 ──reduce──► a1 ┴─combine──► a01 ┐
//!   chunk 2 ──reduce──► a2 ─────────────────┴─combine──► a012 ──finish──► answer
//! ```
//!
//! ```
//! use seatrial_history::{Chunk, Fold, Folder, History, Op, OpType, Process, Value};
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//!
//! /// Counts the operations of one type.
//! struct Count(OpType);
//!
//! impl Fold for Count {
//!     type Accumulator = u64;
//!     type Output = u64;
//!     fn start(&self) -> u64 {
//!         0
//!     }
//!     fn reduce(&self, count: &mut u64, chunk: &Chunk) -> ControlFlow<()> {
//!         *count += chunk.kinds().iter().filter(|kind| **kind == self.0).count() as u64;
//!         ControlFlow::Continue(())
//!     }
//!     fn combine(&self, count: &mut u64, later: u64) -> ControlFlow<()> {
//!         *count += later;
//!         ControlFlow::Continue(())
//!     }
//!     fn finish(&self, count: u64) -> u64 {
//!         count
//!     }
//! }
//!
//! let read = Op::invoke(Process::Client(0), "read", Value::Nil);
//! let ops = (0..30_000).map(|_| [read.clone(), read.complete(OpType::Ok, Value::Int(7))]);
//! let history = Arc::new(History::from_unindexed(ops.flatten().collect()));
//!
//! // Both questions share the pass: each of the four chunks is decoded once.
//! let folder = Folder::new(history, 2);
//! let (invoked, ok) = folder.together(|batch| {
//!     (batch.submit(Count(OpType::Invoke)), batch.submit(Count(OpType::Ok)))
//! });
//! assert_eq!((invoked.wait()?, ok.wait()?), (30_000, 30_000));
//! assert_eq!(folder.statistics().chunks_reduced, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Folder`] runs all folds over one history, submitted at any time from any thread: a fold that arrives during a pass joins
//! it, and gets the chunks that it missed afterwards. [`Order`] declares what a fold permits (one accumulator in order, or
//! combining in any grouping); `Break` ends it early. A damaged chunk or a panic fails only the folds that it concerns.
//! Most questions need no `Fold` of their own: the crate `query` builds them from small parts.
//!
//! # Provenance
//!
//! Not every history has times, and not every file is complete. [`Provenance`] keeps such facts when a history is converted
//! between formats, so that a checker never claims more than the history supports: a violation of real-time order in a
//! history without times, say, or the loss of an element whose append is in a damaged chunk.
//!
//! # What this crate never does
//!
//! - It never generates or checks: it knows no generator, checker or model, and computes no verdict.
//! - It reads and writes no format of another program: the crate `interchange` does.
//! - It opens files in `store` only, and overwrites nothing but the hint on a test file's first page.
//! - It reads no clock and draws no random number. Hash maps have no random keys: the same operations give the same bytes.
//! - It trusts no byte of a file: every decoder is total, and bounds what a forged length can make it allocate.
//! - It never shortens a file, except in [`TestFile::repair`], which first copies the bytes that it removes.
//! - No lock is held while code of a fold runs, and no queue is without bound.
//!
//! # Files in reading order
//!
//! 1. `op.rs`, `value.rs`, `value/typed.rs`, `value/equality.rs`, `symbol.rs`: an operation and its parts
//! 2. `history.rs`, `pair.rs`, `validate.rs`: a history in memory, pairing, and its checks
//! 3. `chunk.rs`, `chunk/layout.rs`: a chunk and its format; `chunk/encode.rs`, `chunk/dictionary.rs`, `chunk/shared_lists.rs`,
//!    `chunk/tape.rs`: writing; `chunk/column.rs`, `chunk/decode.rs`: reading and validation; `chunk/widen.rs`,
//!    `chunk/value_view.rs`, `chunk/op_view.rs`, `chunk/ops.rs`: access
//! 4. `store.rs`, then `store/writer.rs`, `store/append.rs`, `store/directory.rs`: writing; `store/survey.rs`, `store/reader.rs`,
//!    `store/documents.rs`: reading; `store/pack.rs`, `store/salvage.rs`, `store/torn_tail.rs`: copies and damage
//! 5. `fold.rs`, then `fold/matrix.rs` (which chunk for which fold), `fold/folder.rs` (threads around it), `fold/erased.rs`,
//!    `fold/resident.rs`; `fold/concurrent.rs`: one fold without a folder
//! 6. `chunk_source.rs`, `sink.rs`, `provenance.rs`: how other crates read histories

pub mod chunk;
mod chunk_source;
mod fold;
mod hash;
mod history;
mod op;
mod pair;
mod provenance;
mod sink;
mod store;
mod symbol;
mod validate;
mod value;

pub use seatrial_blocks::leb128;

pub use chunk::{Chunk, ChunkError, OpView};
pub use chunk_source::{ChunkSource, SourceError, Take};
pub use fold::{
    Chunks, Fold, FoldBatch, FoldError, Folder, FolderStatistics, Folding, Order, fold_concurrent,
    fold_linear,
};
pub use hash::{FixedMap, FixedSet, fixed_hash};
pub use history::{History, UNPAIRED};
pub use op::{Extra, Op, OpType, Process};
pub use pair::OpenInvocations;
pub use provenance::Provenance;
pub use sink::{Stamp, Stamps, TransactionSink};
pub use store::{
    Analysis, ChunkBuffer, Codec, Damaged, FileTail, HistoryWriter, Missing, OpenError, Packed,
    REPAIRED, RepairedFile, SALVAGED, Salvaged, TestFile, WriteError, WriterOptions, repack,
    salvage_to,
};
pub use symbol::Symbol;
pub use validate::HistoryError;
pub use value::{Key, LogMop, Mop, Observed, Polled, Transfer, Value};
