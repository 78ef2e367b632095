//! Objects: the operations of a history by key, as monitors and the search need them.

use crate::model::{Action, Taken};
use crate::values::StateId;
use seatrial_history::{Key, Op, Value};
use seatrial_monitors::{ZoneAction, ZoneCall};

/// An operation that took effect or may have. Positions are those of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectOperation<A = Action> {
    /// What it does.
    pub(crate) action: A,
    /// Position of its invocation.
    pub(crate) call: u32,
    /// Position of its successful completion; [`NEVER`] if its outcome is unknown.
    pub(crate) ret: u32,
}

impl ZoneCall for ObjectOperation {
    fn action(&self) -> ZoneAction {
        match self.action {
            Action::Read(value) => ZoneAction::Read(value),
            Action::Write(value) => ZoneAction::Write(value),
            Action::Cas(from, to) => ZoneAction::Cas(from, to),
            _ => ZoneAction::Other,
        }
    }

    fn call(&self) -> u32 {
        self.call
    }

    fn ret(&self) -> u32 {
        self.ret
    }
}

/// The completion of an operation of unknown outcome: it stays concurrent to the end of the history.
pub(crate) use seatrial_monitors::NEVER;

impl<A> ObjectOperation<A> {
    /// Did it certainly take effect?
    pub(crate) fn is_required(&self) -> bool {
        self.ret != NEVER
    }
}

/// One register, mutex or key, with its operations by time of invocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinearObject {
    /// Its key, when the history has independent keys.
    pub(crate) key: Option<Key>,
    /// Its operations.
    pub(crate) entries: Vec<ObjectOperation>,
    /// Number of operations of unknown outcome that were left out, since no operation depends on their effect.
    pub(crate) dropped: usize,
}

/// The operations of a history by key, in the order of keys: a compressed-row table. One object is built at a time.
///
/// Holds 20 bytes for each operation, 4 more where there are several keys, and the values.
pub(crate) struct LinearObjects {
    rows: Vec<ObjectOperation>,
    keys: Vec<Option<Key>>,
    /// Start of each key's range in `order`, then the end of the last range; empty if there is one key at most.
    starts: Vec<u32>,
    /// Numbers of rows, by key and in order.
    order: Vec<u32>,
    /// Are calls out of order?
    is_unsorted: bool,
    /// Number of values.
    values: usize,
}

impl LinearObjects {
    /// Groups rows by key, without those that stayed empty (their call is [`NEVER`]). `row_keys` has the number of each row's key
    /// in `keys`, or is empty if all have the first one; there are `values` values.
    pub(crate) fn new(
        mut rows: Vec<ObjectOperation>,
        row_keys: &[u32],
        keys: Vec<Option<Key>>,
        values: usize,
        is_unsorted: bool,
    ) -> Result<LinearObjects, String> {
        let mut objects = LinearObjects {
            rows: Vec::new(),
            keys: Vec::new(),
            starts: Vec::new(),
            order: Vec::new(),
            values,
            is_unsorted,
        };
        if row_keys.is_empty() {
            rows.retain(|row| row.call != NEVER);
            if !rows.is_empty() {
                objects.keys = keys;
            }
            objects.rows = rows;
            return Ok(objects);
        }
        assert!(row_keys.len() == rows.len(), "each row has a key");
        let mut counts = vec![0u32; keys.len()];
        for (row, &key) in rows.iter().zip(row_keys) {
            counts[key as usize] += u32::from(row.call != NEVER);
        }
        // Keys are numbered by appearance; the table is in the order of keys, so that reports are deterministic.
        let mut used: Vec<u32> = (0..keys.len() as u32).collect();
        used.retain(|&key| counts[key as usize] > 0);
        used.sort_by(|&a, &b| keys[a as usize].cmp(&keys[b as usize]));
        objects.keys = used.iter().map(|&key| keys[key as usize].clone()).collect();
        if objects.keys.len() > 1 && objects.keys[0].is_none() {
            return Err("some operations have a key and some have none".into());
        }
        let mut ends = vec![0u32; keys.len()];
        let mut end = 0;
        for &key in &used {
            objects.starts.push(end);
            ends[key as usize] = end;
            end += counts[key as usize];
        }
        objects.starts.push(end);
        objects.order = vec![0; end as usize];
        for (number, (row, &key)) in rows.iter().zip(row_keys).enumerate() {
            if row.call != NEVER {
                let place = &mut ends[key as usize];
                objects.order[*place as usize] = number as u32;
                *place += 1;
            }
        }
        assert!(
            objects.starts.is_sorted(),
            "the ranges follow one another, and end with the rows"
        );
        objects.rows = rows;
        Ok(objects)
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key of an object, when the history has independent keys.
    pub(crate) fn key(&self, number: usize) -> Option<&Key> {
        self.keys[number].as_ref()
    }

    /// Number of operations of an object, those of unknown outcome included.
    pub(crate) fn length(&self, number: usize) -> usize {
        match self.starts.get(number..number + 2) {
            Some(range) => (range[1] - range[0]) as usize,
            None => self.rows.len(),
        }
    }

    /// Number of operations of all objects, those that failed included.
    pub(crate) fn operations(&self) -> usize {
        self.rows.len()
    }

    /// Number of values.
    pub(crate) fn values(&self) -> usize {
        self.values
    }

    /// Marks for [`LinearObjects::object`].
    pub(crate) fn marks(&self) -> ValueMarks {
        ValueMarks::new(self.values)
    }

    /// Builds the object of this number.
    pub(crate) fn object(&self, number: usize, marks: &mut ValueMarks) -> LinearObject {
        if self.starts.is_empty() {
            return self.build(number, self.rows.clone(), marks);
        }
        let range = self.starts[number] as usize..self.starts[number + 1] as usize;
        let rows = self.order[range].iter();
        let entries = rows.map(|&row| self.rows[row as usize]).collect();
        self.build(number, entries, marks)
    }

    /// The only object of a history without several keys, whose rows are moved.
    pub(crate) fn only(&mut self, marks: &mut ValueMarks) -> Option<LinearObject> {
        let is_only = self.keys.len() == 1 && self.starts.is_empty();
        is_only.then(|| {
            let rows = std::mem::take(&mut self.rows);
            self.build(0, rows, marks)
        })
    }

    fn build(
        &self,
        number: usize,
        mut entries: Vec<ObjectOperation>,
        marks: &mut ValueMarks,
    ) -> LinearObject {
        if self.is_unsorted {
            entries.sort_by_key(|entry| entry.call);
        }
        debug_assert!(entries.is_sorted_by_key(|entry| entry.call));
        let all = entries.len();
        marks.drop_unseen(&mut entries);
        LinearObject {
            key: self.keys[number].clone(),
            dropped: all - entries.len(),
            entries,
        }
    }
}

/// A mark for each value, cleared in one step: the values that some operation of an object depends on.
pub(crate) struct ValueMarks {
    marks: Vec<u32>,
    round: u32,
}

impl ValueMarks {
    pub(crate) fn new(count: usize) -> ValueMarks {
        let marks = vec![0; count];
        ValueMarks { marks, round: 0 }
    }

    /// Marks a value; true if it was not marked.
    fn mark(&mut self, value: StateId) -> bool {
        std::mem::replace(&mut self.marks[value as usize], self.round) != self.round
    }

    /// Drops writes and compare-and-sets of unknown outcome whose new value is neither read nor compared with, or is the old
    /// one: a linearization stays one without them.
    pub(crate) fn drop_unseen(&mut self, entries: &mut Vec<ObjectOperation>) {
        let is_sum = |entry: &ObjectOperation| {
            matches!(entry.action, Action::Append(_) | Action::Increment(_))
        };
        if entries.iter().all(ObjectOperation::is_required) || entries.iter().any(is_sum) {
            return;
        }
        self.round += 1;
        // The compare-and-sets of unknown outcome: the value that they lead to, and the one that they need.
        let mut uncertain = Vec::new();
        for entry in entries.iter() {
            match entry.action {
                Action::Read(value) => _ = self.mark(value),
                Action::Cas(from, _) if entry.is_required() => _ = self.mark(from),
                Action::Cas(from, to) if from != to => uncertain.push((to, from)),
                Action::Take(_, Taken::Element(element))
                | Action::Peek(_, Taken::Element(element)) => _ = self.mark(element),
                _ => {}
            }
        }
        // One that is needed needs the value that it compares with, too.
        uncertain.sort_unstable();
        uncertain.dedup();
        let is_marked = |marks: &ValueMarks, value| marks.marks[value as usize] == marks.round;
        let mut needed: Vec<StateId> = uncertain.iter().map(|&(to, _)| to).collect();
        needed.retain(|&to| is_marked(self, to));
        needed.dedup();
        while let Some(value) = needed.pop() {
            let first = uncertain.partition_point(|&(to, _)| to < value);
            let leading = uncertain[first..].iter();
            for &(_, from) in leading.take_while(|&&(to, _)| to == value) {
                if self.mark(from) {
                    needed.push(from);
                }
            }
        }
        entries.retain(|entry| match entry.action {
            _ if entry.is_required() => true,
            Action::Write(value) | Action::Put(_, value) => is_marked(self, value),
            Action::Cas(from, to) => from != to && is_marked(self, to),
            _ => true,
        });
    }
}

/// "key 3: ", or nothing.
pub(crate) fn key_prefix(key: Option<&Key>) -> String {
    key.map_or(String::new(), |key| format!("key {key}: "))
}

/// Is this the invocation of a read of a tuple `[key nil]` that was imported as a plain list?
pub(crate) fn is_tuple(op: &Op) -> bool {
    match &op.value {
        Value::List(items) => op.is_invoke() && matches!(&items[..], [_, Value::Nil]),
        _ => false,
    }
}
