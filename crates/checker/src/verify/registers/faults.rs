//! Looks up reads of registers with something wrong.

use super::writer;
use crate::certificate::Evidence;
use crate::verify::table::{Event, State, Table, Transaction, Written};
use std::collections::BTreeMap;

/// The transactions that findings name.
pub(super) struct Faults<'a> {
    table: &'a Table,
    named: BTreeMap<u64, u32>,
    written: Written,
}

/// A transaction that was named.
#[derive(Clone, Copy)]
struct One<'a> {
    row: &'a Transaction,
    events: &'a [Event],
}

impl One<'_> {
    /// What it read of which key.
    fn reads(self) -> impl Iterator<Item = (u32, Option<i64>)> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.key, event.read()?.0)))
    }

    /// Does it write this value, and leave it behind?
    fn writes(self, key: u32, value: Option<i64>) -> Option<bool> {
        let events = self.events.iter().filter(|event| event.key == key);
        let values: Vec<i64> = events.filter_map(Event::written).collect();
        let place = values.iter().position(|&other| Some(other) == value)?;
        Some(place + 1 == values.len())
    }
}

impl<'a> Faults<'a> {
    pub(super) fn new(table: &'a Table, findings: &[Evidence]) -> Faults<'a> {
        let operations = findings.iter().flat_map(|finding| &finding.operations);
        let steps = findings.iter().flat_map(|finding| &finding.steps);
        let steps = steps.flat_map(|step| [step.from, step.to]);
        Faults {
            table,
            named: table.by_index(operations.copied().chain(steps)),
            written: Written::new(table, |_| true),
        }
    }

    fn one(&self, index: u64) -> Result<One<'a>, String> {
        let found = self.named.get(&index);
        let &number = found.ok_or_else(|| format!("op {index} completes no transaction"))?;
        Ok(One {
            row: &self.table.all[number as usize],
            events: self.table.events(number),
        })
    }

    /// Did nobody write this value but a transaction that failed?
    fn is_aborted(&self, key: u32, value: Option<i64>) -> bool {
        let known = value.and_then(|value| writer(self.table, &self.written, key, value));
        known.is_some_and(|known| self.table.all[known.transaction as usize].is_fail())
    }

    /// Is this evidence what it says it is?
    pub(super) fn finding(&self, finding: &Evidence) -> Result<(), String> {
        let all = finding.operations.iter();
        let all: Vec<One<'_>> = all
            .map(|&index| self.one(index))
            .collect::<Result<_, _>>()?;
        let written = |key, value: Option<i64>| {
            value.is_none_or(|value| writer(self.table, &self.written, key, value).is_some())
        };
        let holds = match (finding.anomaly.as_str(), &all[..]) {
            ("garbage-read", &[one]) => one.reads().any(|(key, value)| !written(key, value)),
            ("internal", &[one]) => contradicts_itself(one),
            ("future-read", &[one]) => reads_its_future(one),
            ("G1a", &[reader, writer]) => {
                let mut reads = reader.reads();
                let is_read = reads.any(|(key, value)| {
                    writer.writes(key, value).is_some() && self.is_aborted(key, value)
                });
                writer.row.is_fail() && is_read
            }
            ("G1b", &[reader, writer]) => {
                let mut reads = reader.reads();
                reads.any(|(key, value)| writer.writes(key, value) == Some(false))
            }
            _ => false,
        };
        if holds && all.first().is_some_and(|one| one.row.is_ok()) {
            Ok(())
        } else {
            Err(format!(
                "{}: the operations do not show it",
                finding.anomaly
            ))
        }
    }
}

fn contradicts_itself(one: One<'_>) -> bool {
    let mut own: BTreeMap<u32, i64> = BTreeMap::new();
    one.events.iter().any(|event| {
        own.extend(event.written().map(|value| (event.key, value)));
        let known = own.get(&event.key);
        let known = |State(value)| known.is_some_and(|&known| Some(known) != value);
        event.read().is_some_and(known)
    })
}

fn reads_its_future(one: One<'_>) -> bool {
    one.events.iter().enumerate().any(|(at, event)| {
        let mut later = one.events[at..].iter();
        let written =
            |value| later.any(|later| later.key == event.key && later.written() == Some(value));
        event.read().and_then(|read| read.0).is_some_and(written)
    })
}
