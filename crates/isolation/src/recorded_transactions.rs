//! Transactions in columns: the table and the pass over chunks that checkers of lists and of registers share.
//!
//! [`TransactionColumns`] has what every transaction has: process, invocation, completion and status.
//! [`CompletionRows`] are the reads or writes of the transactions, a row each. [`record_chunk`] walks over a chunk, pairs
//! invocations with completions also across chunks, and hands each transaction to a [`TransactionRecorder`], which knows
//! lists or registers.

mod chunk_transactions;
mod completion_rows;
mod transaction_columns;

pub use chunk_transactions::{
    OpenTransaction, OpenTransactions, RefusedOperation, TransactionRanges, TransactionRecorder,
    record_chunk,
};
pub use completion_rows::CompletionRows;
pub use transaction_columns::{ProcessNumber, TransactionColumns};

#[cfg(test)]
mod tests;
