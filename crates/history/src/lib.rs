//! Operations, histories, the test file, and folds over them.
//!
//! An [`Op`] is what one process did or was about to do, a [`History`] many of them in memory; a [`Chunk`] is some thousands in
//! columns, and a [`TestFile`] chunks in checksummed blocks. A [`Fold`] asks a question of chunks, a [`Folder`] many in one pass.
//!
//! What is absent: nothing here knows a generator, a checker or the format of another program, and files are opened in
//! `store` alone.

pub mod chunk;
mod fold;
mod hash;
mod history;
mod op;
mod pair;
mod provenance;
mod sink;
mod source;
mod store;
mod symbol;
mod validate;
mod value;

pub use seatrial_blocks::leb128;

pub use chunk::{Chunk, ChunkError, OpView};
pub use fold::{
    Chunks, Fold, FoldBatch, FoldError, Folder, FolderStatistics, Folding, Order, fold_concurrent,
    fold_linear,
};
pub use hash::FixedMap;
pub use history::{History, UNPAIRED};
pub use op::{Extra, Op, OpType, Process};
pub use pair::OpenInvocations;
pub use provenance::Provenance;
pub use sink::{Stamp, Stamps, TransactionSink};
pub use source::{ChunkSource, SourceError, Take};
pub use store::{
    Analysis, ChunkBuffer, Codec, Damaged, FileTail, HistoryWriter, Missing, OpenError, Packed,
    Pressure, REPAIRED, RepairedFile, SALVAGED, Salvaged, SystemMemory, TestFile, WriteError,
    WriterOptions, repack, salvage_to,
};
pub use symbol::Symbol;
pub use validate::HistoryError;
pub use value::{Key, LogMop, Mop, Observed, Polled, Transfer, Value};
