//! The replay of certificates about registers, each of whose values is written once.

use super::keyed_rows::{KeyedRows, ValueWriter, WrittenValues};
use super::transaction_table::{MicroAccess, RecordedTransaction, RegisterState, TransactionTable};
use super::{Unproven, models};
use crate::certificate::{Certificate, Evidence, Proof};
use crate::dense_number::{OrderPlace, TransactionNumber};
use register_findings::RegisterFindings;
use std::ops::Range;
use weak_commits::{WeakCommits, is_weak};

mod committed_reads;
pub(super) mod register_core;
mod register_findings;
mod register_orders;
mod version_rules;
mod visibility_order;
mod weak_commits;

/// Checks that the proof holds for the transactions on registers and its model. A core may take a bounded number of steps.
pub(super) fn verify(
    table: &TransactionTable,
    certificate: &Certificate,
    steps_max: u64,
) -> Result<(), Unproven> {
    if let Proof::Core(places) = &certificate.proof {
        let (axiom, follows) = promise(models::cores(&certificate.model))?;
        return register_core::core(
            &RegisterConstraints::new(table)?,
            (axiom, follows),
            places,
            steps_max,
        );
    }
    Ok(replay(table, certificate)?)
}

/// Checks a proof that is not a core.
fn replay(table: &TransactionTable, certificate: &Certificate) -> Result<(), String> {
    let (model, proof) = (certificate.model.as_str(), &certificate.proof);
    match proof {
        Proof::Findings(findings) => return lookup(table, certificate, findings),
        Proof::Commits(order) if committed_reads::is_proven(model) => {
            return committed_reads::replay(table, model, order);
        }
        _ => {}
    }
    if let Proof::Commits(places) = proof
        && is_weak(models::commits(model))
    {
        let constraints = RegisterConstraints::new(table)?;
        return WeakCommits::new(&constraints)
            .replay(models::commits(model), &constraints.at_all(places)?);
    }
    // A proof of a stronger model proves this one.
    let stronger = match proof {
        Proof::Serial(_) => models::serializability(model).unwrap_or(model),
        _ => models::snapshots(model),
    };
    let (axiom, follows) = promise(stronger)?;
    match proof {
        Proof::Serial(order) => register_orders::replay(table, "serializable", follows, order),
        Proof::Snapshots(order) if axiom != "serializable" => {
            register_orders::replay(table, axiom, follows, order)
        }
        Proof::Visible(order) if axiom == "parallel-snapshot-isolation" => {
            visibility_order::visible(&RegisterConstraints::new(table)?, follows, order)
        }
        _ => Err(format!("this says nothing about {model}")),
    }
}

/// Checks that the operations show these findings.
fn lookup(
    table: &TransactionTable,
    certificate: &Certificate,
    findings: &[Evidence],
) -> Result<(), String> {
    let model = certificate.model.as_str();
    let faults = RegisterFindings::new(table, certificate, findings);
    let mut findings = findings.iter();
    let is_without_steps = |finding: &&Evidence| finding.steps.is_empty();
    if !is_weak(model) || findings.clone().all(|finding| is_without_steps(&finding)) {
        return findings.try_for_each(|finding| faults.finding(model, finding));
    }
    let constraints = RegisterConstraints::new(table)?;
    let commits = WeakCommits::new(&constraints);
    findings.try_for_each(|finding| commits.finding(model, finding))
}

/// What a model asks for: how transactions see each other, and which order theirs follows.
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

/// A transaction that a finding names.
#[derive(Clone, Copy)]
struct NamedTransaction<'a> {
    number: u32,
    row: &'a RecordedTransaction,
    events: &'a [MicroAccess],
    /// Did it take place?
    happened: bool,
}

/// An access of a transaction to a version: the index of the micro-operation.
#[derive(Clone, Copy)]
struct VersionAccess {
    at: usize,
    is_write: bool,
}

impl<'a> NamedTransaction<'a> {
    /// The keys that it read, with the state that it read of each.
    fn reads(self) -> impl Iterator<Item = (u32, RegisterState)> + use<'a> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.key, event.read()?)))
    }

    /// Does it write this value, and if so, is that its last write of the key? `None` if it does not write it.
    fn writes(self, key: u32, value: Option<i64>) -> Option<bool> {
        let events = self.events.iter().filter(|event| event.key == key);
        let values: Vec<i64> = events.filter_map(MicroAccess::written).collect();
        let place = values.iter().position(|&other| Some(other) == value)?;
        Some(place + 1 == values.len())
    }

    /// Is this value its last write of the key?
    fn leaves(self, key: u32, value: Option<i64>) -> bool {
        self.writes(key, value) == Some(true)
    }

    /// Its accesses to a version of a key: reads, and its last write of the key.
    fn meetings(
        self,
        key: u32,
        value: Option<i64>,
    ) -> impl DoubleEndedIterator<Item = VersionAccess> + use<'a> {
        let is_left = self.leaves(key, value);
        let events = self.events.iter().enumerate();
        events.filter_map(move |(at, event)| {
            let is_write = is_left && event.written().is_some() && event.written() == value;
            let is_read = event.read() == Some(RegisterState(value));
            (event.key == key && (is_write || is_read)).then_some(VersionAccess { at, is_write })
        })
    }

    /// Its first access to a version of a key.
    fn meets(self, key: u32, value: Option<i64>) -> Option<VersionAccess> {
        self.meetings(key, value).next()
    }

    /// Did it access the first version and later (perhaps again) the second?
    fn meets_in_turn(self, key: u32, (one, other): (Option<i64>, Option<i64>)) -> bool {
        let later = self.meetings(key, other).next_back();
        let earlier = self.meets(key, one);
        earlier.zip(later).is_some_and(|(a, b)| a.at < b.at)
    }

    /// Its last write of the key, if it read this other version of the key before.
    fn updates(self, key: u32, value: Option<i64>) -> Option<i64> {
        let read = self.meets(key, value).filter(|met| !met.is_write)?;
        let later = self.events[read.at..].iter().rev();
        let mut later = later.filter(|event| event.key == key);
        let written = later.find_map(MicroAccess::written);
        written.filter(|&written| Some(written) != value)
    }

    /// The state that it read before it wrote this value as the last one of the key.
    fn updated(self, key: u32, value: i64) -> Option<RegisterState> {
        let mut reads = self.reads().filter(|read| read.0 == key);
        reads.find_map(|(_, RegisterState(read))| {
            (self.updates(key, read) == Some(value)).then_some(RegisterState(read))
        })
    }
}

/// A read that depends on another transaction: of the last write of `source`; without one, of the initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SourcedRead {
    key: u32,
    source: Option<TransactionNumber>,
}

/// The reads and final writes of the transactions that took place. A history with reads that are wrong at any level has
/// none.
struct RegisterConstraints<'a> {
    table: &'a TransactionTable,
    /// By transaction: did it take place?
    took_place: Vec<bool>,
    /// By transaction: its reads, in order.
    reads: KeyedRows<SourcedRead>,
    /// By transaction: the keys that it wrote, sorted.
    writes: KeyedRows<u32>,
}

/// The transaction whose write a read saw; one that did not fail, if there is one.
fn writer(
    table: &TransactionTable,
    written: &WrittenValues,
    key: u32,
    value: i64,
) -> Option<ValueWriter> {
    let writers = || written.of(key, value);
    let is_fail = |writer: &ValueWriter| table.one(writer.transaction).is_fail();
    let sound = writers().find(|writer| !is_fail(writer));
    sound.or_else(|| writers().next())
}

impl<'a> RegisterConstraints<'a> {
    fn new(table: &'a TransactionTable) -> Result<RegisterConstraints<'a>, String> {
        let written = WrittenValues::new(table, |number| !table.one(number).is_fail());
        if let Some((key, value)) = written.twice(|_| true) {
            let name = table.name(key);
            return Err(format!("{value} is written to key {name} more than once"));
        }
        let mut constraints = RegisterConstraints {
            table,
            took_place: table.all().map(|one| one.is_ok()).collect(),
            reads: KeyedRows::with_capacity(table.len()),
            writes: KeyedRows::with_capacity(table.len()),
        };
        // By key: the last transaction that wrote it so far, and the value.
        let mut own = vec![(None, 0); table.key_count()];
        for number in 0..table.len() as u32 {
            constraints.add(number, &written, &mut own)?;
        }
        assert_eq!(constraints.reads.key_count(), table.len());
        assert_eq!(constraints.writes.key_count(), table.len());
        assert_eq!(constraints.took_place.len(), table.len());
        assert!(
            constraints
                .reads
                .rows()
                .iter()
                .filter_map(|read| read.source)
                .all(|source| constraints.took_place[source.get() as usize]),
            "a transaction that is read from took place"
        );
        Ok(constraints)
    }

    /// Adds one transaction. A transaction that is read from took place.
    fn add(
        &mut self,
        number: u32,
        written: &WrittenValues,
        own: &mut [(Option<TransactionNumber>, i64)],
    ) -> Result<(), String> {
        let table = self.table;
        let (one, events) = table.get(number);
        // Entries of earlier transactions are not cleared: the number says whose they are.
        let own_number = Some(TransactionNumber::new(number));
        for event in events.iter() {
            let key = event.key;
            let (last, known) = own[key as usize];
            if let Some(value) = event.written() {
                own[key as usize] = (own_number, value);
                if last != own_number {
                    self.writes.push(key);
                }
            }
            let Some(RegisterState(value)) = event.read() else {
                continue;
            };
            if last == own_number {
                if value != Some(known) {
                    return Err(format!("op {} contradicts itself", one.index));
                }
                continue;
            }
            let source = match value.map(|value| written.of(key, value).next()) {
                None => None,
                Some(Some(writer)) if writer.is_last => {
                    self.took_place[writer.transaction as usize] = true;
                    Some(TransactionNumber::new(writer.transaction))
                }
                Some(_) => return Err(format!("op {} reads what was not committed", one.index)),
            };
            self.reads.push(SourcedRead { key, source });
        }
        self.reads.end_key();
        self.writes.end_key();
        self.writes.of_mut(number).sort_unstable();
        Ok(())
    }

    fn reads(&self, number: u32) -> &[SourcedRead] {
        self.reads.of(number)
    }

    /// The range of its reads among those of all transactions.
    fn reads_range(&self, number: u32) -> Range<usize> {
        self.reads.range(number)
    }

    fn writes(&self, number: u32) -> &[u32] {
        self.writes.of(number)
    }

    /// Did it write this key?
    fn has_written(&self, number: u32, key: u32) -> bool {
        self.writes(number).binary_search(&key).is_ok()
    }

    /// The transactions that took place.
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

    /// By transaction: its place in the order, in which each one that took place must be once.
    fn places(&self, order: &[u32]) -> Result<Vec<Option<OrderPlace>>, String> {
        let mut places = vec![None; self.took_place.len()];
        for (place, &number) in order.iter().enumerate() {
            let place = OrderPlace::new(place as u32);
            if places[number as usize].replace(place).is_some() {
                return Err(format!("op {} takes place again", self.index(number)));
            }
        }
        self.ensure_all(order.len())?;
        assert!(
            self.all().all(|number| places[number as usize].is_some()),
            "as many places as transactions, none twice, so each has one"
        );
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
