//! Validates histories: rising indices, one operation at a time per process, values that can be stored.

use crate::chunk::{Unstorable, measure};
use crate::pair::OpenInvocations;
use crate::{History, Op, OpType, Process};

/// The first violation found in a history, with the operation's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// An index does not rise.
    #[error("operation {index} comes after operation {previous}")]
    Order {
        /// The index that does not rise.
        index: u64,
        /// The one before.
        previous: u64,
    },
    /// A process invokes before its previous operation completed.
    #[error(
        "operation {index}: process {process} invokes while its operation {running} is running"
    )]
    DoubleInvoke {
        /// The second invocation.
        index: u64,
        /// Its process.
        process: Process,
        /// The first invocation.
        running: u64,
    },
    /// A completion without invocation.
    #[error("operation {index}: process {process} completes ({}) what it did not invoke", kind.name())]
    NotRunning {
        /// The completion.
        index: u64,
        /// Its process.
        process: Process,
        /// Its type.
        kind: OpType,
    },
    /// An operation that the chunk format cannot represent.
    #[error("operation {index} cannot be stored: {reason}")]
    Unstorable {
        /// Its index.
        index: u64,
        /// Why.
        reason: Unstorable,
    },
}

/// Fails unless `index` is above `previous`, which it then replaces.
fn rise(index: u64, previous: &mut Option<u64>) -> Result<(), HistoryError> {
    match previous.replace(index) {
        Some(previous) if index <= previous => Err(HistoryError::Order { index, previous }),
        _ => Ok(()),
    }
}

impl History {
    /// Creates a history, or returns its first violation; see [`History::validate`].
    pub fn strict(ops: Vec<Op>) -> Result<History, HistoryError> {
        check(&ops)?;
        Ok(History::from_ops(ops))
    }

    /// Checks that a test could have recorded this history: indices rise, no process invokes while an operation of its own
    /// is open, every completion has an invocation, and every operation can be stored. Pairing itself is lenient, so
    /// histories of other programs and filtered ones are usable without passing.
    pub fn validate(&self) -> Result<(), HistoryError> {
        check(self.ops())
    }
}

fn check(ops: &[Op]) -> Result<(), HistoryError> {
    let mut previous = None;
    for op in ops {
        rise(op.index, &mut previous)?;
    }
    check_pairs(ops)?;
    for op in ops {
        let index = op.index;
        measure(op).map_err(|reason| HistoryError::Unstorable { index, reason })?;
    }
    Ok(())
}

fn check_pairs(ops: &[Op]) -> Result<(), HistoryError> {
    let mut open = OpenInvocations::default();
    for (position, op) in ops.iter().enumerate() {
        let (index, process, kind) = (op.index, op.process, op.kind);
        match (kind, open.running(op)) {
            (OpType::Invoke, Some(running)) => {
                return Err(HistoryError::DoubleInvoke {
                    index,
                    process,
                    running: ops[running as usize].index,
                });
            }
            // A nemesis operation begins with an `info`.
            (OpType::Info, None) if !process.is_client() => {}
            (OpType::Ok | OpType::Fail | OpType::Info, None) => {
                return Err(HistoryError::NotRunning {
                    index,
                    process,
                    kind,
                });
            }
            _ => {}
        }
        open.follow(position as u64, op);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
