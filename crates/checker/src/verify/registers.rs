//! Replays certificates of transactions on registers, whose values are written once.

use super::groups::{Writer, Written};
use super::table::{Event, NONE, State, Table, Transaction};
use super::{Unproven, models};
use crate::certificate::{Certificate, Evidence, Proof};
use commits::{Commits, is_weak};
use faults::Faults;
use std::ops::Range;

mod commits;
mod committed;
pub(super) mod core;
mod faults;
mod orders;
mod versions;
mod visible;

/// Does the proof hold of these transactions on registers, for the model of its name? A core may take so many steps.
pub(super) fn verify(
    table: &Table,
    certificate: &Certificate,
    steps_max: u64,
) -> Result<(), Unproven> {
    if let Proof::Core(places) = &certificate.proof {
        let (axiom, follows) = promise(models::cores(&certificate.model))?;
        return core::core(&Facts::new(table)?, (axiom, follows), places, steps_max);
    }
    Ok(replay(table, certificate)?)
}

/// Do the operations show that the proof, which is no core, holds?
fn replay(table: &Table, certificate: &Certificate) -> Result<(), String> {
    let (model, proof) = (certificate.model.as_str(), &certificate.proof);
    match proof {
        Proof::Findings(findings) => return lookup(table, certificate, findings),
        Proof::Commits(order) if committed::is_proven(model) => {
            return committed::replay(table, model, order);
        }
        _ => {}
    }
    if let Proof::Commits(places) = proof
        && is_weak(models::commits(model))
    {
        let facts = Facts::new(table)?;
        return Commits::new(&facts).replay(models::commits(model), &facts.at_all(places)?);
    }
    // What proves a stronger model proves this one.
    let stronger = match proof {
        Proof::Serial(_) => models::serializability(model).unwrap_or(model),
        _ => models::snapshots(model),
    };
    let (axiom, follows) = promise(stronger)?;
    match proof {
        Proof::Serial(order) => orders::replay(table, "serializable", follows, order),
        Proof::Snapshots(order) if axiom != "serializable" => {
            orders::replay(table, axiom, follows, order)
        }
        Proof::Visible(order) if axiom == "parallel-snapshot-isolation" => {
            visible::visible(&Facts::new(table)?, follows, order)
        }
        _ => Err(format!("this says nothing about {model}")),
    }
}

/// Do the operations show these findings?
fn lookup(table: &Table, certificate: &Certificate, findings: &[Evidence]) -> Result<(), String> {
    let model = certificate.model.as_str();
    let faults = Faults::new(table, certificate, findings);
    let mut told = findings.iter();
    let is_told = |finding: &&Evidence| finding.steps.is_empty();
    if !is_weak(model) || told.clone().all(|finding| is_told(&finding)) {
        return told.try_for_each(|finding| faults.finding(model, finding));
    }
    let facts = Facts::new(table)?;
    let commits = Commits::new(&facts);
    told.try_for_each(|finding| commits.finding(model, finding))
}

/// What the name of a model asks for: how transactions see each other, and what their order follows.
fn promise(model: &str) -> Result<(&str, &'static str), String> {
    let (axiom, follows) = match model {
        "strict-serializable" => ("serializable", "realtime"),
        "strong-snapshot-isolation" => ("snapshot-isolation", "realtime"),
        other => match other.strip_prefix("strong-session-") {
            Some(axiom) => (axiom, "process"),
            None => (other, ""),
        },
    };
    let known = [
        "serializable",
        "snapshot-isolation",
        "prefix",
        "parallel-snapshot-isolation",
    ];
    if known.contains(&axiom) {
        Ok((axiom, follows))
    } else {
        Err(format!("no order of registers proves or refutes {model}"))
    }
}

/// A transaction that was named.
#[derive(Clone, Copy)]
struct One<'a> {
    number: u32,
    row: &'a Transaction,
    events: &'a [Event],
    /// Did it take place?
    happened: bool,
}

/// How a transaction met a version: at which of its micro-operations.
#[derive(Clone, Copy)]
struct Met {
    at: usize,
    is_write: bool,
}

impl<'a> One<'a> {
    /// What it read of which key.
    fn reads(self) -> impl Iterator<Item = (u32, State)> + use<'a> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.key, event.read()?)))
    }

    /// Does it write this value, and leave it behind?
    fn writes(self, key: u32, value: Option<i64>) -> Option<bool> {
        let events = self.events.iter().filter(|event| event.key == key);
        let values: Vec<i64> = events.filter_map(Event::written).collect();
        let place = values.iter().position(|&other| Some(other) == value)?;
        Some(place + 1 == values.len())
    }

    /// Does it leave this value behind?
    fn leaves(self, key: u32, value: Option<i64>) -> bool {
        self.writes(key, value) == Some(true)
    }

    /// How it met a version of a key, each time: read it, or left it behind.
    fn meetings(
        self,
        key: u32,
        value: Option<i64>,
    ) -> impl DoubleEndedIterator<Item = Met> + use<'a> {
        let is_left = self.leaves(key, value);
        let events = self.events.iter().enumerate();
        events.filter_map(move |(at, event)| {
            let is_write = is_left && event.written().is_some() && event.written() == value;
            let is_read = event.read() == Some(State(value));
            (event.key == key && (is_write || is_read)).then_some(Met { at, is_write })
        })
    }

    /// How it first met a version of a key.
    fn meets(self, key: u32, value: Option<i64>) -> Option<Met> {
        self.meetings(key, value).next()
    }

    /// Did it meet one version, and then (perhaps again) another?
    fn meets_in_turn(self, key: u32, (one, other): (Option<i64>, Option<i64>)) -> bool {
        let later = self.meetings(key, other).next_back();
        let earlier = self.meets(key, one);
        earlier.zip(later).is_some_and(|(a, b)| a.at < b.at)
    }

    /// What it left behind, if it read this version, which is another, before.
    fn updates(self, key: u32, value: Option<i64>) -> Option<i64> {
        let read = self.meets(key, value).filter(|met| !met.is_write)?;
        let later = self.events[read.at..].iter().rev();
        let mut later = later.filter(|event| event.key == key);
        let written = later.find_map(Event::written);
        written.filter(|&written| Some(written) != value)
    }

    /// What it read before it left this value behind.
    fn updated(self, key: u32, value: i64) -> Option<State> {
        let mut reads = self.reads().filter(|read| read.0 == key);
        reads.find_map(|(_, State(read))| {
            (self.updates(key, read) == Some(value)).then_some(State(read))
        })
    }
}

/// A read that no own write answers: of the version that `source` left behind; [`NONE`]: of the initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    key: u32,
    source: u32,
}

/// What the transactions that took place read of others and left behind. Reads with something wrong are no facts.
struct Facts<'a> {
    table: &'a Table,
    /// By transaction: did it take place?
    took_place: Vec<bool>,
    /// By transaction: where its reads are, in their order, and where its keys are.
    starts: Vec<(u32, u32)>,
    reads: Vec<Read>,
    /// The keys that a transaction wrote, sorted.
    writes: Vec<u32>,
}

/// Who left the value behind that was read.
fn writer(table: &Table, written: &Written, key: u32, value: i64) -> Option<Writer> {
    let writers = || written.of(key, value);
    let is_fail = |writer: &Writer| table.one(writer.transaction).is_fail();
    let sound = writers().find(|writer| !is_fail(writer));
    sound.or_else(|| writers().next())
}

impl<'a> Facts<'a> {
    fn new(table: &'a Table) -> Result<Facts<'a>, String> {
        let written = Written::new(table, |number| !table.one(number).is_fail());
        if let Some((key, value)) = written.twice(|_| true) {
            let name = table.name(key);
            return Err(format!("{value} is written to key {name} more than once"));
        }
        let mut facts = Facts {
            table,
            took_place: table.all().map(|one| one.is_ok()).collect(),
            starts: Vec::with_capacity(table.len() + 1),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        // By key: who wrote it last so far, and what.
        let mut own = vec![(NONE, 0); table.key_count()];
        for number in 0..table.len() as u32 {
            facts.note_start();
            facts.add(number, &written, &mut own)?;
        }
        facts.note_start();
        Ok(facts)
    }

    fn note_start(&mut self) {
        let start = (self.reads.len() as u32, self.writes.len() as u32);
        self.starts.push(start);
    }

    /// The facts about one transaction. Who is read from took place.
    fn add(
        &mut self,
        number: u32,
        written: &Written,
        own: &mut [(u32, i64)],
    ) -> Result<(), String> {
        let table = self.table;
        let (one, events) = table.get(number);
        let first_write = self.writes.len();
        for event in events.iter() {
            let key = event.key;
            let (last, known) = own[key as usize];
            if let Some(value) = event.written() {
                own[key as usize] = (number, value);
                if last != number {
                    self.writes.push(key);
                }
            }
            let Some(State(value)) = event.read() else {
                continue;
            };
            if last == number {
                if value != Some(known) {
                    return Err(format!("op {} contradicts itself", one.index));
                }
                continue;
            }
            let source = match value.map(|value| written.of(key, value).next()) {
                None => NONE,
                Some(Some(writer)) if writer.is_last => {
                    self.took_place[writer.transaction as usize] = true;
                    writer.transaction
                }
                Some(_) => return Err(format!("op {} reads what was not committed", one.index)),
            };
            self.reads.push(Read { key, source });
        }
        self.writes[first_write..].sort_unstable();
        Ok(())
    }

    fn reads(&self, number: u32) -> &[Read] {
        &self.reads[self.reads_range(number)]
    }

    /// Where its reads are among those of all.
    fn reads_range(&self, number: u32) -> Range<usize> {
        let [start, end] = [number, number + 1].map(|at| self.starts[at as usize].0 as usize);
        start..end
    }

    fn writes(&self, number: u32) -> &[u32] {
        let [start, end] = [number, number + 1].map(|at| self.starts[at as usize].1 as usize);
        &self.writes[start..end]
    }

    /// Does it leave a version of this key behind?
    fn has_written(&self, number: u32, key: u32) -> bool {
        self.writes(number).binary_search(&key).is_ok()
    }

    /// Those that took place.
    fn all(&self) -> impl Iterator<Item = u32> {
        let all = 0..self.took_place.len() as u32;
        all.filter(|&number| self.took_place[number as usize])
    }

    fn index(&self, number: u32) -> u64 {
        self.table.one(number).index
    }

    /// The transactions at these places.
    fn at_all(&self, places: &[u64]) -> Result<Vec<u32>, String> {
        let order = self.table.at_all(places)?;
        let mut all = order.iter();
        match all.find(|&&number| !self.took_place[number as usize]) {
            Some(&other) => Err(format!("op {} took no place", self.index(other))),
            None => Ok(order),
        }
    }

    /// By transaction its place in the order, in which all must be, once.
    fn places(&self, order: &[u32]) -> Result<Vec<u32>, String> {
        let mut places = vec![NONE; self.took_place.len()];
        for (place, &number) in order.iter().enumerate() {
            let place = std::mem::replace(&mut places[number as usize], place as u32);
            if place != NONE {
                return Err(format!("op {} takes place again", self.index(number)));
            }
        }
        self.ensure_all(order.len())?;
        Ok(places)
    }

    fn ensure_all(&self, count: usize) -> Result<(), String> {
        if count == self.all().count() {
            Ok(())
        } else {
            Err("not all transactions are in the order".into())
        }
    }
}
