//! One operation of a test as a sequence of transactions of the store. Real and simulated tests share it.

use crate::data::{Consumer, Procedure, ProcedureStep, procedure};
use seatrial_history::{Op, OpType, Value};
use seatrial_kv_protocol::{Failure, Outcome, Transaction};

/// An operation in progress. The procedure of its data type chooses the transactions; this type handles conflicts, failures and
/// unknown outcomes.
#[derive(Debug)]
pub(crate) struct OperationInProgress {
    op: Op,
    procedure: Box<dyn Procedure>,
    last: Last,
    /// Number of conflicts: changes that found other values than those read before.
    conflicts: u32,
}

/// Kind of the last transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Whole,
    Look,
    Change,
}

/// The next action of the caller.
#[derive(Debug)]
pub(crate) enum OperationAction {
    /// Send this transaction.
    Ask(Transaction),
    /// Complete the operation with this.
    Complete(Op),
}

/// Maximum number of conflicts; then the operation fails.
const CONFLICTS_MAX: u32 = 32;

impl OperationInProgress {
    /// Begins an operation of this workload (empty: of a plan). An unsupported operation completes at once.
    pub(crate) fn begin(
        workload: &str,
        op: &Op,
        consumer: &mut Consumer,
    ) -> (OperationInProgress, OperationAction) {
        let mut operation = OperationInProgress {
            procedure: procedure(workload, op),
            op: op.clone(),
            last: Last::Whole,
            conflicts: 0,
        };
        let action = match operation.procedure.begin(&operation.op, consumer) {
            Ok(next) => operation.follow(next),
            Err(reason) => {
                let failed = op.complete(OpType::Fail, op.value.clone());
                OperationAction::Complete(failed.with("error", Value::text(reason)))
            }
        };
        (operation, action)
    }

    /// Continues with the outcome of the last transaction.
    pub(crate) fn resume(&mut self, outcome: &Outcome, consumer: &mut Consumer) -> OperationAction {
        let next = match (outcome, self.last) {
            (Outcome::Ok(answers), _) => self.procedure.resume(&self.op, answers, consumer),
            (Outcome::Failed(Failure::CompareFailed { .. }), Last::Change) => {
                self.conflicts += 1;
                if self.conflicts > CONFLICTS_MAX {
                    return self.fail("contention");
                }
                self.procedure.begin(&self.op, consumer)
            }
            // A transaction that only reads had no effect.
            (Outcome::Unknown(doubt), Last::Look) => return self.fail(doubt.name()),
            (Outcome::Unknown(doubt), _) => {
                let unknown = self.procedure.unknown(&self.op, doubt.name());
                return OperationAction::Complete(unknown);
            }
            (Outcome::Failed(failure), _) => return self.fail(failure.name()),
        };
        match next {
            Ok(next) => self.follow(next),
            // The store broke its protocol: the operation may have taken place.
            Err(error) => {
                let unknown = self.op.complete(OpType::Info, self.op.value.clone());
                OperationAction::Complete(unknown.with("error", Value::text(error)))
            }
        }
    }

    /// The completion if the time limit is reached before the next transaction.
    pub(crate) fn time_out(&self) -> Op {
        self.procedure.failed(&self.op, "timeout")
    }

    fn fail(&self, reason: &'static str) -> OperationAction {
        OperationAction::Complete(self.procedure.failed(&self.op, reason))
    }

    fn follow(&mut self, next: ProcedureStep) -> OperationAction {
        let (last, transaction) = match next {
            ProcedureStep::Done(op) => return OperationAction::Complete(op),
            ProcedureStep::Whole(transaction) => (Last::Whole, transaction),
            ProcedureStep::Look(transaction) => (Last::Look, transaction),
            ProcedureStep::Change(transaction) => (Last::Change, transaction),
        };
        self.last = last;
        OperationAction::Ask(transaction)
    }
}
