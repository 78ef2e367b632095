//! Inserts that become visible before earlier ones: Jepsen's `causal-reverse` and `comments`.

use crate::workload_check::{WorkloadCheck, WorkloadEvent, WorkloadTally, workload_checker};
use seatrial_checker::{CertainAnomalies, Robustness};
use seatrial_history::{FixedMap, OpType, Value};

/// A later insert was visible without an earlier one.
const CAUSAL_REVERSE: &str = "causal-reverse";
/// An element was read that nothing inserted.
const UNEXPECTED: &str = "unexpected";

/// Checks blind inserts and reads of all: if one insert completed before another was invoked, a read that shows the second one
/// must show the first one, which strict serializability demands and serializability does not. Jepsen's
/// `jepsen.tests.causal-reverse`: `write` element, `read` → set or list of elements, for each independent key.
///
/// The inserts that completed before another one was invoked are a prefix of all in the order of their completions, so one
/// number for each element is enough: a read must show the longest prefix of its elements. Time O(n) with the elements of all
/// reads; memory 40 bytes for each element.
///
/// Anomalies: `causal-reverse`, once for each read, with the missing elements; `unexpected` in addition to Jepsen's, for a read
/// of an element whose insert had not been invoked, or failed. Of an element that was inserted twice, the first insert counts
/// (in Jepsen, the last one).
#[derive(Clone, Copy, Debug, Default)]
pub struct CausalReverse;

/// The same for Jepsen's `comments` of CockroachDB: inserts of numbered rows into several tables, and reads of all tables in one
/// transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comments;

/// The inserts and the reads of one key so far.
#[derive(Default)]
pub(crate) struct InsertOrder {
    numbers: ElementNumbers,
    /// By element: inserts that had completed when the first insert of it was invoked; its place among the completed ones.
    inserts: Vec<ElementInsert>,
    /// Completed inserts: the element, and the index of the completion.
    completed: Vec<(u32, u64)>,
    reads: u64,
    contradictions: Vec<InsertContradiction>,
    unexpected: Vec<(u64, String)>,
    refused: Option<(u64, String)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ElementInsert {
    index: u64,
    earlier: u32,
    /// Its place among the completed inserts plus one.
    place: u32,
    /// Inserts that may have taken effect: all that did not fail.
    attempts: u32,
}

/// A read that shows an insert and misses an earlier one.
struct InsertContradiction {
    read: u64,
    /// The element that it shows.
    seen: u32,
    /// The elements that it misses, in the order of their completions.
    missing: Vec<u32>,
    expected: u32,
}

/// Elements, numbered in order of appearance.
#[derive(Default)]
struct ElementNumbers {
    integers: FixedMap<i64, u32>,
    others: FixedMap<String, u32>,
    known: Vec<Value>,
}

impl ElementNumbers {
    fn find(&self, value: &Value) -> Option<u32> {
        match value {
            Value::Int(integer) => self.integers.get(integer).copied(),
            other => self.others.get(&other.to_string()).copied(),
        }
    }

    fn number(&mut self, value: &Value) -> u32 {
        let next = self.known.len() as u32;
        let number = match value {
            Value::Int(integer) => *self.integers.entry(*integer).or_insert(next),
            other => *self.others.entry(other.to_string()).or_insert(next),
        };
        if number == next {
            self.known.push(value.clone());
        }
        number
    }
}

impl InsertOrder {
    fn apply(&mut self, event: &WorkloadEvent<'_>) {
        match (event.f.as_str(), event.kind) {
            ("write", OpType::Invoke) => self.invoke(event.index, event.value),
            ("write", OpType::Ok) => self.complete(event.index, event.argument()),
            ("write", OpType::Fail) => self.fail(event.argument()),
            ("read", OpType::Ok) => self.read(event.index, event.value),
            _ => {}
        }
    }

    fn invoke(&mut self, index: u64, value: &Value) {
        let number = self.numbers.number(value) as usize;
        if number == self.inserts.len() {
            self.inserts.push(ElementInsert {
                index,
                earlier: self.completed.len() as u32,
                ..ElementInsert::default()
            });
        }
        self.inserts[number].attempts += 1;
    }

    fn complete(&mut self, index: u64, value: &Value) {
        if self.numbers.find(value).is_none() {
            // Its invocation is missing: it may have begun before all others.
            self.numbers.number(value);
            self.inserts.push(ElementInsert {
                attempts: 1,
                ..ElementInsert::default()
            });
        }
        let number = self.numbers.number(value);
        let insert = &mut self.inserts[number as usize];
        if insert.place == 0 {
            self.completed.push((number, index));
            insert.place = self.completed.len() as u32;
        }
    }

    fn fail(&mut self, value: &Value) {
        if let Some(number) = self.numbers.find(value) {
            let attempts = &mut self.inserts[number as usize].attempts;
            *attempts = attempts.saturating_sub(1);
        }
    }

    fn read(&mut self, index: u64, value: &Value) {
        let elements: &[Value] = match value {
            Value::List(items) | Value::Set(items) => items,
            Value::Nil => &[],
            Value::Txn(mops) if mops.is_empty() => &[],
            Value::Cas(first, second) => {
                let pair = [Value::Int(*first), Value::Int(*second)];
                return self.read_elements(index, &pair);
            }
            other => {
                let reason = format!("it read {other}, and a read has a set or a list");
                self.refused.get_or_insert((index, reason));
                return;
            }
        };
        self.read_elements(index, elements);
    }

    fn read_elements(&mut self, index: u64, elements: &[Value]) {
        self.reads += 1;
        let mut seen = Vec::new();
        for element in elements {
            match self.numbers.find(element) {
                Some(number) if self.inserts[number as usize].attempts > 0 => seen.push(number),
                _ => self.unexpected.push((index, element.to_string())),
            }
        }
        seen.sort_unstable();
        seen.dedup();
        let latest = seen.iter().copied();
        let Some(latest) = latest.max_by_key(|&it| self.inserts[it as usize].earlier) else {
            return;
        };
        let expected = self.inserts[latest as usize].earlier;
        let is_shown = |number: &u32| {
            let place = self.inserts[*number as usize].place;
            place > 0 && place <= expected
        };
        let shown = seen.iter().filter(|number| is_shown(number)).count();
        if shown == expected as usize {
            return;
        }
        let missing = self.completed[..expected as usize].iter();
        let missing = missing.map(|&(number, _)| number);
        let missing = missing.filter(|number| seen.binary_search(number).is_err());
        self.contradictions.push(InsertContradiction {
            read: index,
            seen: latest,
            missing: missing.collect(),
            expected,
        });
    }

    fn finish(self, tally: &mut WorkloadTally) {
        tally.count("reads", self.reads);
        tally.count("writes", self.inserts.len() as u64);
        if let Some((index, reason)) = self.refused {
            tally.unknown(&format!("op {index}: {reason}"));
        }
        if self.reads > 0 && !self.inserts.is_empty() {
            tally.note_evidence();
        }
        let name = |number: u32| self.numbers.known[number as usize].to_string();
        for it in &self.contradictions {
            let missing: Vec<String> = it.missing.iter().map(|&one| name(one)).collect();
            tally.count("missing", missing.len() as u64);
            tally.list("errors", || {
                format!(
                    "op {}: missing {} of {} expected",
                    it.read,
                    missing[..missing.len().min(LISTED_MAX)].join(" "),
                    it.expected
                )
            });
            tally.anomaly(CAUSAL_REVERSE, || {
                let first = it.missing[0];
                let later = &self.inserts[it.seen as usize];
                let (_, completion) =
                    self.completed[self.inserts[first as usize].place as usize - 1];
                let more = match it.missing.len() {
                    1 => String::new(),
                    count => format!(" ({} more are missing)", count - 1),
                };
                let summary = format!(
                    "Op {} read {} and not {}: the write of {} completed in op {completion}, before the write of {} was \
                     invoked in op {}{more}.",
                    it.read,
                    name(it.seen),
                    name(first),
                    name(first),
                    name(it.seen),
                    later.index
                );
                (vec![completion, later.index, it.read], summary)
            });
        }
        for (index, element) in &self.unexpected {
            tally.anomaly(UNEXPECTED, || {
                let summary = format!(
                    "Op {index} read {element}, and no write of it had begun that did not fail."
                );
                (vec![*index], summary)
            });
        }
    }
}

/// Elements of a list in the details.
const LISTED_MAX: usize = 16;

/// No missing operation explains that an insert is missing which completed before another one was invoked.
const INSERTS_ROBUST: Robustness = Robustness {
    certain: CertainAnomalies::Only(&[CAUSAL_REVERSE]),
    ..Robustness::OF_PREFIX
};

impl WorkloadCheck for CausalReverse {
    type State = InsertOrder;
    const NAME: &'static str = "causal-reverse";
    const FUNCTIONS: &'static [&'static str] = &["write", "read"];

    fn apply(&self, state: &mut InsertOrder, event: &WorkloadEvent<'_>) {
        state.apply(event);
    }

    fn finish(&self, state: InsertOrder, tally: &mut WorkloadTally) {
        state.finish(tally);
    }
}

impl WorkloadCheck for Comments {
    type State = InsertOrder;
    const NAME: &'static str = "comments";
    const FUNCTIONS: &'static [&'static str] = &["write", "read"];

    fn apply(&self, state: &mut InsertOrder, event: &WorkloadEvent<'_>) {
        state.apply(event);
    }

    fn finish(&self, state: InsertOrder, tally: &mut WorkloadTally) {
        state.finish(tally);
    }
}

workload_checker!(CausalReverse, INSERTS_ROBUST);
workload_checker!(Comments, INSERTS_ROBUST);
