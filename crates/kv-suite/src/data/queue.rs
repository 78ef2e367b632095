//! A queue: registers for the numbers of its first and its last element, and one register per element.

use super::{Consumer, MISSING, Procedure, ProcedureStep, cannot, ok, word};
use crate::encoding::{RegisterCell, bytes, decimal, number};
use seatrial_history::{Op, OpType, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// Number of the last dequeued element.
const HEAD: &[u8] = b"head";
/// Number of the last enqueued element.
const TAIL: &[u8] = b"tail";
/// Maximum number of elements that a drain dequeues at a time.
const TAKEN_AT_ONCE_MAX: i64 = 64;

/// An enqueue reads the tail, then swaps it and writes an element. A dequeue reads both ends, then the next elements (which
/// never change), then swaps the head; a drain repeats that until the queue is empty.
#[derive(Debug, Default)]
pub(super) struct QueueProcedure {
    stage: QueueStage,
    /// Elements dequeued by a drain so far.
    taken: Vec<i64>,
}

/// Purpose of the last transaction.
#[derive(Debug, Default)]
enum QueueStage {
    /// Read both ends.
    #[default]
    Ends,
    /// Read the elements after this head.
    Elements(RegisterCell),
    /// Enqueue an element.
    Put,
    /// Dequeue these elements.
    Take(Vec<i64>),
}

impl Procedure for QueueProcedure {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        self.stage = QueueStage::Ends;
        let mut transaction = Transaction::new();
        let put = match op.f.as_str() {
            "enqueue" => transaction.read(TAIL),
            _ => transaction.read(HEAD).and_then(|()| transaction.read(TAIL)),
        };
        put.map_err(|error| error.to_string())?;
        Ok(ProcedureStep::Look(transaction))
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        consumer: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        match std::mem::take(&mut self.stage) {
            QueueStage::Ends => self.after_ends(op, answers),
            QueueStage::Elements(head) => self.after_elements(&head, answers),
            QueueStage::Put => Ok(ok(op, op.value.clone())),
            QueueStage::Take(elements) if op.f == "drain" => {
                self.taken.extend(elements);
                self.begin(op, consumer)
            }
            QueueStage::Take(elements) => {
                let element = elements.first().ok_or(MISSING)?;
                Ok(ok(op, Value::Int(*element)))
            }
        }
    }

    /// A drain that has dequeued elements must not complete as `fail`.
    fn failed(&self, op: &Op, reason: &'static str) -> Op {
        if !self.taken.is_empty() {
            return self.perhaps_taken(op, &[], reason);
        }
        let failed = op.complete(OpType::Fail, op.value.clone());
        failed.with("error", word(reason))
    }

    fn unknown(&self, op: &Op, reason: &'static str) -> Op {
        match &self.stage {
            QueueStage::Take(elements) => self.perhaps_taken(op, elements, reason),
            _ => op
                .complete(OpType::Info, op.value.clone())
                .with("error", word(reason)),
        }
    }
}

impl QueueProcedure {
    fn after_ends(&mut self, op: &Op, answers: &Answers) -> Result<ProcedureStep, String> {
        let ends = answers.iter().map(|answer| RegisterCell::new(&answer, 0));
        let ends = ends.collect::<Result<Vec<RegisterCell>, String>>()?;
        let mut transaction = Transaction::new();
        match (op.f.as_str(), &ends[..]) {
            ("enqueue", [tail]) => {
                let element = op.value.as_int().ok_or_else(|| cannot(op))?;
                let name = element_key(tail.value + 1);
                let put = tail.add(&mut transaction, TAIL, 1);
                let put = put.and_then(|()| transaction.write(&name, &decimal(element)));
                put.map_err(|error| error.to_string())?;
                self.stage = QueueStage::Put;
                Ok(ProcedureStep::Change(transaction))
            }
            ("dequeue", [head, tail]) if head.value >= tail.value => {
                Ok(ProcedureStep::Done(self.failed(op, "empty")))
            }
            ("drain", [head, tail]) if head.value >= tail.value => {
                Ok(ok(op, Value::integers(&self.taken)))
            }
            (f, [head, tail]) => {
                let most = if f == "drain" { TAKEN_AT_ONCE_MAX } else { 1 };
                let count = most.min(tail.value - head.value);
                let mut elements = head.value + 1..=head.value + count;
                let put = elements.try_for_each(|one| transaction.read(&element_key(one)));
                put.map_err(|error| error.to_string())?;
                self.stage = QueueStage::Elements(head.clone());
                Ok(ProcedureStep::Look(transaction))
            }
            _ => Err(MISSING.into()),
        }
    }

    /// Dequeues the elements that were read.
    fn after_elements(
        &mut self,
        head: &RegisterCell,
        answers: &Answers,
    ) -> Result<ProcedureStep, String> {
        let elements = answers.iter().map(|answer| match bytes(&answer) {
            Some(bytes) => number(&bytes),
            None => Err("an element of the queue is missing".into()),
        });
        let elements = elements.collect::<Result<Vec<i64>, String>>()?;
        let mut transaction = Transaction::new();
        let put = head.add(&mut transaction, HEAD, elements.len() as i64);
        put.map_err(|error| error.to_string())?;
        self.stage = QueueStage::Take(elements);
        Ok(ProcedureStep::Change(transaction))
    }

    /// The completion of an unknown outcome: its value has all elements that may have been dequeued.
    fn perhaps_taken(&self, op: &Op, elements: &[i64], reason: &'static str) -> Op {
        let value = match elements {
            [element] if op.f == "dequeue" => Value::Int(*element),
            _ => Value::integers(&[&self.taken, elements].concat()),
        };
        op.complete(OpType::Info, value).with("error", word(reason))
    }
}

fn element_key(element: i64) -> Vec<u8> {
    format!("element {element}").into_bytes()
}
