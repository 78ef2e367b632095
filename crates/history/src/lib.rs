//! Operations, histories, the test file, and folds over them.

mod history;
pub mod import;
mod op;
mod symbol;
mod value;

pub use history::History;
pub use op::{Extra, Op, OpType, Process};
pub use symbol::Symbol;
pub use value::{Key, Mop, Observed, Value};
