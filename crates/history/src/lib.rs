//! Operations, histories, the test file, and folds over them.

pub mod chunk;
pub mod export;
mod fold;
mod hash;
mod history;
pub mod import;
mod op;
mod pair;
mod provenance;
pub mod query;
mod store;
mod symbol;
pub mod task;
mod validate;
mod value;
pub mod view;

pub use chunk::{Chunk, ChunkError, OpView};
pub use fold::{
    Batch, Chunks, Fold, FoldError, Folder, FolderStatistics, Folding, Order, fold_linear,
};
pub use history::History;
pub use op::{Extra, Op, OpType, Process};
pub use pair::OpenInvocations;
pub use provenance::Provenance;
pub use store::{
    Analysis, ChunkBuffer, Codec, Damaged, HistoryWriter, Missing, OpenError, Packed, REPAIRED,
    Repaired, SALVAGED, Salvaged, SystemMemory, Tail, TestFile, WriteError, WriterOptions, repack,
    salvage_to,
};
pub use symbol::Symbol;
pub use validate::{HistoryError, HistoryOptions, Indices, Pairing, Times};
pub use value::{Key, LogMop, Mop, Observed, Polled, Transfer, Value};
pub use view::{ChunkCache, Filter, OpRef, View, ViewError, ViewOp};
