//! Orders of a valid history, replayed.

use super::{Transaction, appended, seen};
use crate::certificate::Proof;
use seatrial_history::{Key, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Who appended something, if anybody: the place in the order, and whether it is the last append to its key.
type Writer<'a> = Option<&'a (usize, bool)>;
type State<'a> = BTreeMap<&'a Key, Vec<i64>>;

/// The models that each kind of order proves, and which order besides it must respect.
const MODELS: [(&str, &str, &str); 10] = [
    ("serial", "serializable", ""),
    ("serial", "strong-session-serializable", "process"),
    ("serial", "strict-serializable", "realtime"),
    ("snapshots", "snapshot-isolation", ""),
    ("snapshots", "strong-session-snapshot-isolation", "process"),
    ("snapshots", "strong-snapshot-isolation", "realtime"),
    ("commits", "read-uncommitted", ""),
    ("commits", "read-committed", ""),
    ("commits", "strong-session-read-committed", "process"),
    ("commits", "strong-read-committed", "realtime"),
];

/// Does the history hold in this order?
pub(super) fn replay(all: &[Transaction<'_>], model: &str, proof: &Proof) -> Result<(), String> {
    let (kind, order) = match proof {
        Proof::Serial(order) => ("serial", order),
        Proof::Snapshots(order) => ("snapshots", order),
        Proof::Commits(order) => ("commits", order),
        Proof::Findings(_) => return Err("findings are no order".into()),
        Proof::Visible(_) | Proof::Core(_) => return Err("that proves nothing of lists".into()),
    };
    let known = MODELS.iter().find(|row| row.0 == kind && row.1 == model);
    let Some(&(_, _, time)) = known else {
        return Err(format!("an order of {kind} proves nothing about {model}"));
    };
    let by_place: BTreeMap<u64, &Transaction<'_>> =
        all.iter().map(|one| (one.place, one)).collect();
    let transactions = order.iter().map(|place| {
        let found = by_place.get(place).copied();
        found.ok_or_else(|| format!("no transaction begins at {place}"))
    });
    let order: Vec<_> = transactions.collect::<Result<_, _>>()?;
    let times = if kind == "snapshots" { 2 } else { 1 };
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for one in &order {
        *counts.entry(one.place).or_default() += 1;
    }
    for one in all {
        let count = counts.get(&one.place).copied().unwrap_or(0);
        if one.is_fail && count > 0 {
            return Err(format!("op {} failed, and stands in the order", one.index));
        }
        if count != times && (one.is_ok || count > 0) {
            return Err(format!(
                "op {} stands in the order {count} times",
                one.index
            ));
        }
    }
    match kind {
        "serial" => serial(&order, time),
        "snapshots" => snapshots(&order, time),
        _ => commits(&order, time, model),
    }
}

/// When what comes later may have ended at the earliest.
#[derive(Default)]
struct Clock {
    all: Option<u64>,
    processes: BTreeMap<Process, u64>,
}

impl Clock {
    fn begin(&mut self, one: &Transaction<'_>) {
        let last = self.processes.entry(one.process).or_default();
        if let Some(begun) = one.begun {
            *last = begun.max(*last);
        }
        self.all = self.all.max(one.begun);
    }

    /// May this end now? It may not if something that began after its end was put before it.
    fn end(&self, one: &Transaction<'_>, time: &str) -> Result<(), String> {
        let latest = match time {
            "realtime" => self.all,
            "process" => self.processes.get(&one.process).copied(),
            _ => None,
        };
        // Nothing comes after what is unknown.
        if one.is_ok && latest > one.ended {
            return Err(format!(
                "op {} stands behind what began after its end",
                one.index
            ));
        }
        Ok(())
    }
}

/// Do its reads see this state, and then what it appended itself?
fn reads(one: &Transaction<'_>, state: &State<'_>) -> Result<(), String> {
    let mut own: BTreeMap<&Key, Vec<i64>> = BTreeMap::new();
    for mop in one.mops {
        if let Some((key, element)) = appended(mop) {
            own.entry(key).or_default().push(element);
        }
        if let Some((key, elements)) = seen(mop).filter(|_| one.is_ok) {
            let state = state.get(key).map_or(&[][..], Vec::as_slice);
            let own = own.get(key).map_or(&[][..], Vec::as_slice);
            if elements.len() != state.len() + own.len()
                || !elements.starts_with(state)
                || !elements.ends_with(own)
            {
                return Err(format!(
                    "op {} does not see key {key} as it was then",
                    one.index
                ));
            }
        }
    }
    Ok(())
}

fn write<'a>(one: &'a Transaction<'a>, state: &mut State<'a>) {
    for (key, element) in one.mops.iter().filter_map(appended) {
        state.entry(key).or_default().push(element);
    }
}

fn serial<'a>(order: &[&'a Transaction<'a>], time: &str) -> Result<(), String> {
    let (mut state, mut clock) = (State::new(), Clock::default());
    for one in order {
        clock.end(one, time)?;
        clock.begin(one);
        reads(one, &state)?;
        write(one, &mut state);
    }
    Ok(())
}

/// Elements that a successful transaction read.
fn observed<'a>(order: &[&'a Transaction<'a>]) -> BTreeSet<(&'a Key, i64)> {
    let ok = order.iter().filter(|one| one.is_ok);
    let reads = ok.flat_map(|one| one.mops.iter().filter_map(seen));
    reads
        .flat_map(|(key, elements)| elements.iter().map(move |&element| (key, element)))
        .collect()
}

fn snapshots<'a>(order: &[&'a Transaction<'a>], time: &str) -> Result<(), String> {
    let observed = observed(order);
    let (mut state, mut clock) = (State::new(), Clock::default());
    // By place and key, how long lists were when those began that are open.
    let mut open: BTreeMap<u64, BTreeMap<&Key, usize>> = BTreeMap::new();
    for one in order {
        let keys = one.mops.iter().filter_map(appended);
        let keys = keys.filter(|append| observed.contains(append));
        let lengths = keys.map(|(key, _)| (key, state.get(key).map_or(0, Vec::len)));
        let lengths: BTreeMap<_, _> = lengths.collect();
        match open.remove(&one.place) {
            None => {
                clock.begin(one);
                reads(one, &state)?;
                open.insert(one.place, lengths);
            }
            Some(before) if before == lengths => {
                clock.end(one, time)?;
                write(one, &mut state);
            }
            Some(_) => {
                return Err(format!(
                    "op {} was not the first to commit an append",
                    one.index
                ));
            }
        }
    }
    Ok(())
}

fn commits<'a>(order: &[&'a Transaction<'a>], time: &str, model: &str) -> Result<(), String> {
    let mut clock = Clock::default();
    // Who appended what: place in the order, and is it the last one to the key?
    let mut writers: BTreeMap<(&Key, i64), (usize, bool)> = BTreeMap::new();
    for (place, one) in order.iter().enumerate() {
        clock.end(one, time)?;
        clock.begin(one);
        let mut last = BTreeSet::new();
        for append in one.mops.iter().rev().filter_map(appended) {
            writers.insert(append, (place, last.insert(append.0)));
        }
    }
    for (place, one) in order.iter().enumerate().filter(|(_, one)| one.is_ok) {
        for (key, elements) in one.mops.iter().filter_map(seen) {
            let found = elements.iter().map(|&element| writers.get(&(key, element)));
            let found: Vec<_> = found.collect();
            let places = found.iter().flatten().map(|(place, _)| *place);
            if !places.is_sorted() {
                return Err(format!("op {} reads key {key} in another order", one.index));
            }
            if model == "read-uncommitted" {
                continue;
            }
            let is_committed =
                |&writer: &Writer<'_>| writer.is_some_and(|writer| writer.0 <= place);
            let ends_well = found.last().is_none_or(|last| {
                last.is_some_and(|&(writer, is_last)| is_last || writer == place)
            });
            if !found.iter().all(is_committed) || !ends_well {
                let index = one.index;
                return Err(format!(
                    "op {index} reads of key {key} what was not committed"
                ));
            }
        }
    }
    Ok(())
}
