//! Rows of a table by key, and what was written by key and value.

use super::table::{NONE, Table};
use std::collections::BTreeSet;

/// Rows in groups: those of a key side by side, in the order in which they were told. Two passes, no comparison.
pub(super) struct Groups<T> {
    /// By key: where its rows begin, and at last where all end.
    starts: Vec<u32>,
    rows: Vec<T>,
}

impl<T: Copy + Default> Groups<T> {
    /// `tell` says all rows with their keys, each time that it is called the same.
    pub(super) fn new(key_count: usize, mut tell: impl FnMut(&mut dyn FnMut(u32, T))) -> Groups<T> {
        let mut starts = vec![0_u32; key_count + 1];
        tell(&mut |key, _| starts[key as usize + 1] += 1);
        for key in 0..key_count {
            starts[key + 1] += starts[key];
        }
        let mut rows = vec![T::default(); starts[key_count] as usize];
        let mut next = starts.clone();
        tell(&mut |key, row| {
            let place = &mut next[key as usize];
            rows[*place as usize] = row;
            *place += 1;
        });
        Groups { starts, rows }
    }

    /// The rows of a key.
    pub(super) fn of(&self, key: u32) -> &[T] {
        let [start, end] = [key, key + 1].map(|at| self.starts[at as usize] as usize);
        &self.rows[start..end]
    }

    /// The groups of all keys.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        let mut rest = &mut self.rows[..];
        self.starts.array_windows().map(move |[start, end]| {
            let (group, others) = std::mem::take(&mut rest).split_at_mut((end - start) as usize);
            rest = others;
            group
        })
    }
}

/// What was written, so that it is found by key and value.
pub(super) struct Written {
    /// By key: sorted by value and writer.
    all: Groups<Write>,
}

/// A write; the writer's number is doubled, and one more if it wrote the key again afterwards.
#[derive(Clone, Copy, Default)]
struct Write {
    value: i64,
    writer: u32,
}

/// Who wrote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) transaction: u32,
    /// Was this the last that it wrote to the key?
    pub(super) is_last: bool,
}

impl Write {
    fn writer(self) -> Writer {
        Writer {
            transaction: self.writer / 2,
            is_last: self.writer & 1 == 0,
        }
    }
}

impl Written {
    /// What these transactions append or write.
    pub(super) fn new(table: &Table, whose: impl Fn(u32) -> bool) -> Written {
        Written::select(table, |_| true, whose)
    }

    /// What these transactions append or write to these keys.
    pub(super) fn of_keys(
        table: &Table,
        keys: &BTreeSet<u32>,
        whose: impl Fn(u32) -> bool,
    ) -> Written {
        let mut is_wanted = vec![false; table.key_count()];
        for &key in keys {
            is_wanted[key as usize] = true;
        }
        Written::select(table, |key| is_wanted[key as usize], whose)
    }

    fn select(
        table: &Table,
        is_wanted: impl Fn(u32) -> bool,
        whose: impl Fn(u32) -> bool,
    ) -> Written {
        // By key: the last transaction of which a write was told.
        let mut told = vec![NONE; table.key_count()];
        let mut all = Groups::new(table.key_count(), |tell| {
            told.fill(NONE);
            for (number, _, events) in table.each().filter(|(number, ..)| whose(*number)) {
                for event in events.iter().rev().filter(|event| is_wanted(event.key)) {
                    if let Some(value) = event.appended().or(event.written()) {
                        let later = std::mem::replace(&mut told[event.key as usize], number);
                        let writer = 2 * number + u32::from(later == number);
                        tell(event.key, Write { value, writer });
                    }
                }
            }
        });
        for group in all.each_mut() {
            group.sort_unstable_by_key(|one| (one.value, one.writer));
        }
        Written { all }
    }

    /// Who wrote a value to a key.
    pub(super) fn of(&self, key: u32, value: i64) -> impl Iterator<Item = Writer> {
        let group = self.all.of(key);
        let start = group.partition_point(|one| one.value < value);
        let same = group[start..]
            .iter()
            .take_while(move |one| one.value == value);
        same.map(|one| one.writer())
    }

    /// A value that two of these wrote to a key, if there is any: key, value.
    pub(super) fn twice(&self, counts: impl Fn(u32) -> bool) -> Option<(u32, i64)> {
        let mut keys = 0..self.all.starts.len() as u32 - 1;
        keys.find_map(|key| {
            let mut same = self.all.of(key).chunk_by(|a, b| a.value == b.value);
            let found = same.find(|same| {
                let writers = same.iter().map(|one| one.writer().transaction);
                writers.filter(|&one| counts(one)).count() > 1
            })?;
            Some((key, found[0].value))
        })
    }
}
