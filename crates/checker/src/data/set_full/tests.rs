//! `set-full` beside a twin that looks at every element of the set at each read.

use super::*;
use seatrial_history::{Extra, Process};
use seatrial_machine::Rng;

/// Known, present, absent, reader: the definition of [`SetFull`], word by word.
type SlowElement = (
    Option<OperationTime>,
    Option<OperationTime>,
    Option<OperationTime>,
    Option<u64>,
);

#[derive(Default)]
struct SlowState {
    elements: BTreeMap<Element, SlowElement>,
}

impl SlowState {
    fn read(&mut self, read: &[Element], began: OperationTime, completed: OperationTime) {
        for (element, one) in &mut self.elements {
            let is_there = read.contains(element);
            let latest = if is_there { &mut one.1 } else { &mut one.2 };
            if latest.is_none_or(|latest| latest.index < began.index) {
                *latest = Some(began);
            }
            if is_there {
                one.0.get_or_insert(completed);
                one.3.get_or_insert(completed.index);
            }
        }
    }
}

/// The state under test, its twin, and the number of the next operation.
struct Twins {
    fast: SetFullState,
    slow: SlowState,
    index: u64,
}

impl Twins {
    fn apply(&mut self, kind: OpType, f: &'static str, value: &Value, began: u64) {
        let invocation = StartedOperation {
            index: began,
            time: began as i64 * 10,
            value: Value::Nil,
        };
        // As a chunk has them: lists of integers as they are.
        let integers = match value {
            Value::List(items) if f == "read" && self.index.is_multiple_of(2) => items
                .iter()
                .map(Value::as_int)
                .collect::<Option<Vec<i64>>>(),
            _ => None,
        };
        let event = OperationEvent {
            index: self.index,
            time: self.index as i64 * 10,
            kind,
            process: Process::Client(0),
            f: f.into(),
            value: if integers.is_some() {
                &Value::Nil
            } else {
                value
            },
            integers: integers.as_deref(),
            is_set: false,
            extra: &Extra::default(),
            invocation: Some(&invocation),
        };
        SetFull::default().apply(&mut self.fast, &event);
        self.index += 1;
    }

    fn add(&mut self, value: &Value, is_acknowledged: bool) {
        self.apply(OpType::Invoke, "add", value, 0);
        let one = self.slow.elements.entry(value.into()).or_default();
        if is_acknowledged {
            let (index, time) = (self.index, self.index as i64 * 10);
            one.0.get_or_insert(OperationTime { index, time });
            self.apply(OpType::Ok, "add", value, 0);
        }
    }

    fn read(&mut self, values: &[Value], began: u64) {
        let index = self.index;
        self.apply(OpType::Ok, "read", &Value::List(values.into()), began);
        let read: Vec<Element> = values.iter().map(Element::from).collect();
        let time = |index: u64| OperationTime {
            index,
            time: index as i64 * 10,
        };
        self.slow.read(&read, time(began), time(index));
    }

    fn check(&mut self, seed: u64) {
        self.fast.settle_all();
        assert_eq!(self.fast.followed.len(), self.slow.elements.len());
        for (element, slow) in &self.slow.elements {
            let fast = *self.fast.followed.get_mut(element).unwrap();
            let index = |at: Option<OperationTime>| at.map(|at| (at.index, at.time));
            assert_eq!(
                (
                    index(fast.known),
                    index(fast.present),
                    index(fast.absent),
                    fast.reader
                ),
                (index(slow.0), index(slow.1), index(slow.2), slow.3),
                "seed {seed}, {element} at op {}",
                self.index
            );
        }
    }
}

#[test]
fn equals_the_twin_on_growing_changed_and_damaged_reads() {
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let mut twins = Twins {
            fast: SetFullState::default(),
            slow: SlowState::default(),
            index: 100,
        };
        let mut set: Vec<Value> = Vec::new();
        let mut next = 0;
        for _ in 0..60 {
            if rng.chance(0.5) {
                let is_text = rng.chance(0.02);
                let value = match next {
                    number if is_text => Value::text(format!("t{number}")),
                    number => Value::Int(number),
                };
                next += 1;
                twins.add(&value, rng.chance(0.7));
                let place = if rng.chance(0.3) {
                    rng.index(set.len() + 1)
                } else {
                    set.len()
                };
                if rng.chance(0.9) {
                    set.insert(place, value);
                }
                continue;
            }
            let mut read = set.clone();
            for _ in 0..rng.index(3) {
                let place = rng.index(read.len().max(1));
                match rng.index(12) {
                    0..=3 if !read.is_empty() => _ = read.remove(place),
                    4 if !read.is_empty() => read.swap(0, place),
                    5 if !read.is_empty() => read.truncate(place),
                    6 if !read.is_empty() => read.push(read[place].clone()), // twice
                    7 => read.insert(place.min(read.len()), Value::Int(next + 5)), // not added yet
                    _ => {}
                }
            }
            // Reads overlap: one that began later may complete earlier.
            let began = twins.index - 1 - rng.below(50);
            twins.read(&read, began);
            if rng.chance(0.1) {
                twins.check(seed); // settling is no change
            }
        }
        twins.check(seed);
    }
}

#[test]
fn parts_that_two_reads_have_in_common_are_found() {
    let long: Vec<i64> = (0..1_000).collect();
    let mut other = long.clone();
    other.insert(700, -1);
    assert_eq!(changed_parts(&long, &other), (&[][..], &[-1][..]));
    other.remove(10);
    assert_eq!(changed_parts(&long, &other).0, &long[10..700]);
    assert_eq!(changed_parts(&long, &long[..999]), (&[999][..], &[][..]));
    assert_eq!(changed_parts(&[1, 1], &[1]), (&[1][..], &[][..]));
    assert_eq!(changed_parts(&[], &[]), (&[][..], &[][..]));
}
