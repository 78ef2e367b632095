//! An operation of a test as transactions of the store, one after the other until it is done. Processes and simulation share
//! it.

use crate::data::{Consumer, Next, Procedure, procedure};
use seatrial_history::{Op, OpType, Value};
use seatrial_kv::{Failure, Outcome, Transaction};

/// One operation in progress: the procedure of its kind of data decides which transactions it takes, this type what becomes
/// of it when one fails or has no answer.
#[derive(Debug)]
pub(crate) struct Operation {
    op: Op,
    procedure: Box<dyn Procedure>,
    last: Last,
    /// Changes that found other values than were read just before.
    conflicts: u32,
}

/// What the last transaction was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Whole,
    Look,
    Change,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Action {
    /// Ask the store this.
    Ask(Transaction),
    /// Complete the operation with this.
    Complete(Op),
}

/// Conflicts after which an operation gives up.
const CONFLICTS_MAX: u32 = 32;

impl Operation {
    /// Begins an operation of this workload (empty: of a plan). An operation that the store cannot do is completed at once.
    pub(crate) fn begin(workload: &str, op: &Op, consumer: &mut Consumer) -> (Operation, Action) {
        let mut operation = Operation {
            procedure: procedure(workload, op),
            op: op.clone(),
            last: Last::Whole,
            conflicts: 0,
        };
        let action = match operation.procedure.begin(&operation.op, consumer) {
            Ok(next) => operation.follow(next),
            Err(reason) => {
                let failed = op.complete(OpType::Fail, op.value.clone());
                Action::Complete(failed.with("error", Value::text(reason)))
            }
        };
        (operation, action)
    }

    /// Continues after the outcome of the last transaction.
    pub(crate) fn resume(&mut self, outcome: &Outcome, consumer: &mut Consumer) -> Action {
        let next = match (outcome, self.last) {
            (Outcome::Ok(answers), _) => self.procedure.resume(&self.op, answers, consumer),
            (Outcome::Failed(Failure::CompareFailed { .. }), Last::Change) => {
                self.conflicts += 1;
                if self.conflicts > CONFLICTS_MAX {
                    return self.fail("contention");
                }
                self.procedure.begin(&self.op, consumer)
            }
            // A transaction that only reads has changed nothing.
            (Outcome::Unknown(doubt), Last::Look) => return self.fail(doubt.name()),
            (Outcome::Unknown(doubt), _) => {
                let unknown = self.procedure.unknown(&self.op, doubt.name());
                return Action::Complete(unknown);
            }
            (Outcome::Failed(failure), _) => return self.fail(failure.name()),
        };
        match next {
            Ok(next) => self.follow(next),
            // The store broke its protocol; whatever it did, the operation may have taken place.
            Err(error) => {
                let unknown = self.op.complete(OpType::Info, self.op.value.clone());
                Action::Complete(unknown.with("error", Value::text(error)))
            }
        }
    }

    /// Completes the operation before it asks for more: its time is over.
    pub(crate) fn time_out(&self) -> Op {
        self.procedure.failed(&self.op, "timeout")
    }

    fn fail(&self, reason: &'static str) -> Action {
        Action::Complete(self.procedure.failed(&self.op, reason))
    }

    fn follow(&mut self, next: Next) -> Action {
        let (last, transaction) = match next {
            Next::Done(op) => return Action::Complete(op),
            Next::Whole(transaction) => (Last::Whole, transaction),
            Next::Look(transaction) => (Last::Look, transaction),
            Next::Change(transaction) => (Last::Change, transaction),
        };
        self.last = last;
        Action::Ask(transaction)
    }
}
