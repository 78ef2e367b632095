//! What clients do at the very end.

use super::keys::keyed;
use crate::{Context, Generator, Next, Tree, operation};
use seatrial_history::{Key, Op, Process, Symbol, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The least time between two last operations: one that fails at once must not be tried again without end.
const INTERVAL: Duration = Duration::from_micros(100);

/// The least time between two drains.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

const READ: Symbol = Symbol::new("read");

/// One client takes all that is left, once nothing else is under way, and tries again until that succeeds.
pub fn drain() -> impl Generator {
    let drains = operation("drain", Value::Nil).repeat().concurrency_limit(1);
    let drains = drains.delay(DRAIN_INTERVAL).until_ok();
    drains.clients().synchronize()
}

/// One client reads everything, once nothing else is under way, and tries again until that succeeds.
pub fn final_read() -> impl Generator {
    let reads = operation("read", Value::Nil).repeat().concurrency_limit(1);
    reads
        .delay(DRAIN_INTERVAL)
        .until_ok()
        .clients()
        .synchronize()
}

/// Every key that there has been is read once more, again until that succeeds. For keys that are numbers from 0 on; it has
/// to be shown the events of the whole test, which tell the keys.
pub fn final_reads() -> impl Generator {
    FinalReads::default().delay(INTERVAL).clients()
}

/// Reads of all keys, in order; those that did not succeed are tried again first.
#[derive(Debug, Default)]
struct FinalReads {
    /// Keys that there have been.
    known: i64,
    /// The first key that was not read yet.
    fresh: i64,
    /// Keys whose read did not succeed.
    again: BTreeSet<i64>,
    /// Which process reads which key.
    open: BTreeMap<Process, i64>,
    /// What was answered last.
    offered: Option<(Process, i64)>,
}

impl Generator for FinalReads {
    fn next(&mut self, context: &Context) -> Next {
        let key = match self.again.first() {
            Some(&key) => key,
            None if self.fresh < self.known => self.fresh,
            None if self.open.is_empty() => return Next::Exhausted,
            None => return Next::Pending,
        };
        let Some(process) = context.some_free_process() else {
            return Next::Pending;
        };
        self.offered = Some((process, key));
        Next::Op(context.operation_by(process, READ, keyed(key, Value::Nil)))
    }

    fn commit(&mut self) {
        if let Some((process, key)) = self.offered.take() {
            self.open.insert(process, key);
            if !self.again.remove(&key) {
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
            self.again.insert(key);
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
    use crate::{Answer, CourseOptions, Interpreter, InterpreterOptions, Simulation, course};
    use seatrial_history::OpType;
    use seatrial_machine::Rng;

    #[test]
    fn every_key_is_read_until_that_succeeds() {
        let mut key = 0;
        let writes = crate::function(move || {
            key += 1;
            Some(operation("add", keyed(key % 7, Value::Int(key))))
        });
        let options = CourseOptions {
            duration: Duration::from_secs(1),
            recovery: Duration::from_secs(1),
        };
        let test = course(writes.limit(100), None, options);
        let test = test.and_last(Some(final_reads().boxed()), Duration::from_secs(10));
        let interpreter = Interpreter::new(test, &InterpreterOptions::new(4, Rng::from_seed(1)));
        let mut rng = Rng::from_seed(2);
        let client = move |op: &Op| {
            let kinds = [OpType::Ok, OpType::Fail, OpType::Info];
            let latency = rng.duration_below(Duration::from_millis(5));
            Answer::After(latency, kinds[rng.index(3)], op.value.clone())
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
