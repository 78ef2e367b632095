//! Transactions on registers, dense and in columns: what every checker of registers works on.
//!
//! [`Columns`] are made by a [`Builder`], which is fed chunk by chunk from a history ([`Columns::gather`]) or
//! transaction by transaction by whoever reads a foreign file, without operations in between.
//!
//! ```
//! use seatrial_checker::txn::registers::{Builder, Fault};
//! use seatrial_history::OpType;
//!
//! let mut builder = Builder::default();
//! builder.begin(0);
//! builder.write(7, 1);
//! builder.end(OpType::Ok);
//! builder.begin(1);
//! builder.read(7, Some(1));
//! builder.read(8, Some(5));
//! builder.end(OpType::Ok);
//! let columns = builder.finish()?;
//! let read = columns.events(1)[0];
//! assert_eq!(columns.writer(read.version()), 0);
//! let mut faults = Vec::new();
//! columns.faults(|wrong| faults.push(wrong.fault));
//! assert_eq!(faults, [Fault::Garbage]);
//! # Ok::<(), seatrial_checker::txn::registers::Refusal>(())
//! ```

mod builder;
mod columns;
mod faults;
mod gather;
mod runs;
mod table;
mod words;

pub use builder::{Builder, Refusal};
pub use columns::{Columns, Event, NONE};
pub use faults::{Fault, Faulty};

#[cfg(test)]
mod tests;
