//! Turns transactions into the operations of a history.

use super::TransactionReader;
use crate::import::ImportError;
use seatrial_history::{Extra, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_history::{Stamps, TransactionSink};
use std::collections::VecDeque;
use std::io::Read;

/// Makes an invocation and a completion of each transaction: process = session, no time, `f` = `txn`. That one completes
/// before the next is invoked says nothing but in its own session.
#[derive(Default)]
struct Collector {
    ops: VecDeque<Op>,
    session: u64,
    extra: Extra,
    mops: Vec<Mop>,
    /// Operations so far.
    count: u64,
}

impl TransactionSink for Collector {
    fn begin(&mut self, session: u64, stamps: Option<Stamps>) {
        self.session = session;
        self.extra = stamps.map_or(Extra::NONE, Stamps::fields);
    }

    fn read(&mut self, key: i64, value: Option<i64>) {
        let key = Key::Int(key);
        let observed = value.map_or(Observed::Nil, Observed::Register);
        self.mops.push(Mop::Read { key, observed });
    }

    fn write(&mut self, key: i64, value: i64) {
        let key = Key::Int(key);
        self.mops.push(Mop::Write { key, value });
    }

    fn append(&mut self, key: i64, element: i64) {
        let key = Key::Int(key);
        self.mops.push(Mop::Append { key, element });
    }

    fn read_list(&mut self, key: i64, elements: &[i64]) {
        let key = Key::Int(key);
        let observed = Observed::List(elements.into());
        self.mops.push(Mop::Read { key, observed });
    }

    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        let asked = self.mops.iter().map(|mop| match mop {
            Mop::Read { key, .. } => Mop::Read {
                key: key.clone(),
                observed: Observed::Nil,
            },
            other => other.clone(),
        });
        let process = Process::Client(self.session);
        let mut invocation = Op::invoke(process, "txn", Value::Txn(asked.collect()));
        invocation.index = self.count;
        let done = Value::Txn(self.mops.drain(..).collect());
        let mut completion = invocation.complete(outcome, done);
        completion.index = self.count + 1;
        completion.extra = std::mem::take(&mut self.extra);
        self.count += 2;
        self.ops.extend([invocation, completion]);
        Ok(())
    }
}

/// The operations of a file of transactions, one after another.
pub(in crate::import) struct RegisterOperations<R> {
    reader: TransactionReader<R>,
    collector: Collector,
}

impl<R: Read> RegisterOperations<R> {
    pub(in crate::import) fn new(reader: TransactionReader<R>) -> RegisterOperations<R> {
        RegisterOperations {
            reader,
            collector: Collector::default(),
        }
    }

    /// The next operation; `None` at the end.
    pub(in crate::import) fn read(&mut self) -> Result<Option<Op>, ImportError> {
        while self.collector.ops.is_empty() {
            if !self.reader.advance(&mut self.collector)? {
                if self.collector.count == 0 {
                    return Err(self.reader.error("no transaction found"));
                }
                return Ok(None);
            }
        }
        Ok(self.collector.ops.pop_front())
    }

    /// Bytes that the operations so far have taken.
    pub(in crate::import) fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// An error at the operation that was handed out last.
    pub(in crate::import) fn error(&self, problem: impl Into<String>) -> ImportError {
        self.reader.error(problem)
    }
}
