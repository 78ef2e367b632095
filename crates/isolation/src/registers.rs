//! Transactions on registers, numbered and in columns: the table that every checker of registers reads.
//!
//! [`Columns`] are made by a [`ColumnsBuilder`], which is fed chunk by chunk from a history ([`Columns::gather`]) or
//! transaction by transaction from a foreign file, which has no operations.
//!
//! ```
//! use seatrial_isolation::registers::{ColumnsBuilder, ReadFault};
//! use seatrial_cycles::Txn;
//! use seatrial_history::OpType;
//!
//! let mut builder = ColumnsBuilder::default();
//! builder.begin(0);
//! builder.write(7, 1);
//! builder.end(OpType::Ok);
//! builder.begin(1);
//! builder.read(7, Some(1));
//! builder.read(8, Some(5));
//! builder.end(OpType::Ok);
//! let columns = builder.finish()?;
//! let read = columns.events(1)[0];
//! assert_eq!(columns.writer(read.version()).map(Txn::get), Some(0));
//! let mut faults = Vec::new();
//! columns.faults(|wrong| faults.push(wrong.fault));
//! assert_eq!(faults, [ReadFault::Garbage]);
//! # Ok::<(), seatrial_isolation::registers::ColumnsError>(())
//! ```

mod columns;
mod columns_builder;
mod gather_registers;
mod read_faults;
mod register_text;
mod value_runs;
mod version_table;

pub use columns::{Columns, RegisterEvent};
pub use columns_builder::{ColumnsBuilder, ColumnsError};
pub use gather_registers::{OPEN_IN_STRETCHES, start};
pub use read_faults::{FaultyRead, ReadFault};

#[cfg(test)]
mod tests;
