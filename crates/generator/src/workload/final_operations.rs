//! Final operations: reads and drains at the end of a test, retried until they succeed.

use super::rotating_keys::keyed;
use crate::{Context, Generator, Next, Tree, operation};
use seatrial_history::{Key, Op, Process, Symbol, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Minimum interval of final reads: one that fails at once must not be retried in a busy loop.
const INTERVAL: Duration = Duration::from_micros(100);

/// Minimum interval of drains.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

const READ: Symbol = Symbol::new("read");

/// Drains a queue: one client dequeues all elements, once no other operation is open, and retries until that succeeds.
pub fn drain() -> impl Generator {
    let drains = operation("drain", Value::Nil).repeat().concurrency_limit(1);
    let drains = drains.delay(DRAIN_INTERVAL).until_ok();
    drains.clients().synchronize()
}

/// One client reads everything, once no other operation is open, and retries until that succeeds.
pub fn final_read() -> impl Generator {
    let reads = operation("read", Value::Nil).repeat().concurrency_limit(1);
    reads
        .delay(DRAIN_INTERVAL)
        .until_ok()
        .clients()
        .synchronize()
}

/// Reads every key once more, and retries until each read has succeeded. For keys that are integers from 0. The generator
/// must receive the events of the whole test, from which it derives the keys.
pub fn final_reads() -> impl Generator {
    FinalReads::default().delay(INTERVAL).clients()
}

/// Reads of all keys, in ascending order; failed reads are retried first.
#[derive(Debug, Default)]
struct FinalReads {
    /// Number of keys in the events so far.
    known: i64,
    /// The first key without a read.
    fresh: i64,
    /// Keys whose read failed.
    retries: BTreeSet<i64>,
    /// By process: the key of its open read.
    open: BTreeMap<Process, i64>,
    /// The read returned last.
    proposed: Option<(Process, i64)>,
}

impl Generator for FinalReads {
    fn next(&mut self, context: &Context) -> Next {
        let key = match self.retries.first() {
            Some(&key) => key,
            None if self.fresh < self.known => self.fresh,
            None if self.open.is_empty() => return Next::Exhausted,
            None => return Next::Pending,
        };
        let Some(process) = context.some_free_process() else {
            return Next::Pending;
        };
        self.proposed = Some((process, key));
        Next::Op(context.operation_by(process, READ, keyed(key, Value::Nil)))
    }

    fn commit(&mut self) {
        if let Some((process, key)) = self.proposed.take() {
            self.open.insert(process, key);
            if !self.retries.remove(&key) {
                self.fresh += 1;
            }
        }
    }

    fn update(&mut self, _context: &Context, event: &Op) {
        if event.is_invoke() {
            if let Value::Keyed(Key::Int(key), _) = event.value {
                self.known = self.known.max(key + 1);
            }
        } else if let Some(key) = self.open.remove(&event.process)
            && !event.is_ok()
        {
            self.retries.insert(key);
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf(format!(
            "final reads, {} of {} keys begun",
            self.fresh, self.known
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Interpreter, InterpreterOptions, SimulatedReply, Simulation, TestPhasesOptions, test_phases,
    };
    use seatrial_history::OpType;
    use seatrial_machine::Rng;

    #[test]
    fn every_key_is_read_until_the_read_succeeds() {
        let mut key = 0;
        let writes = crate::function(move || {
            key += 1;
            Some(operation("add", keyed(key % 7, Value::Int(key))))
        });
        let options = TestPhasesOptions {
            duration: Duration::from_secs(1),
            recovery: Duration::from_secs(1),
        };
        let test = test_phases(writes.limit(100), None, options);
        let test = test.with_final(Some(final_reads().boxed()), Duration::from_secs(10));
        let interpreter = Interpreter::new(test, &InterpreterOptions::new(4, Rng::from_seed(1)));
        let mut rng = Rng::from_seed(2);
        let client = move |op: &Op| {
            let kinds = [OpType::Ok, OpType::Fail, OpType::Info];
            let latency = rng.duration_below(Duration::from_millis(5));
            SimulatedReply::After(latency, kinds[rng.index(3)], op.value.clone())
        };
        let history = Simulation::new(interpreter, client).run().unwrap();
        let reads: Vec<&Op> = history.iter().filter(|op| op.f == "read").collect();
        let mut done: Vec<String> = reads
            .iter()
            .filter(|op| op.is_ok())
            .map(|op| op.value.to_string())
            .collect();
        done.sort();
        done.dedup();
        assert_eq!(done.len(), 7, "{done:?}");
        assert_eq!(reads.iter().filter(|op| op.is_ok()).count(), 7);
        assert!(reads.iter().filter(|op| op.is_invoke()).count() > 10);
    }
}
