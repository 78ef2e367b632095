//! Replays certificates of transactions on registers, whose values are written once.

use super::Transaction;
use crate::certificate::{Evidence, Proof};
use commits::{Commits, is_weak};
use seatrial_history::{Key, Mop, Observed, Process};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

mod commits;

/// A version of a key: who left it behind; `None`: nobody, it is the initial state.
type Version = Option<usize>;

/// What a transaction read of others and left behind.
struct Facts<'a> {
    one: &'a Transaction<'a>,
    reads: BTreeSet<(&'a Key, Version)>,
    writes: BTreeSet<&'a Key>,
}

/// Does the proof hold of these transactions on registers, for the model of this name?
pub(super) fn verify(all: &[Transaction<'_>], model: &str, proof: &Proof) -> Result<(), String> {
    if let Proof::Findings(findings) = proof {
        let faults = Faults::new(all);
        let mut told = findings.iter();
        let is_told = |finding: &&Evidence| finding.steps.is_empty();
        if !is_weak(model) || told.clone().all(|finding| is_told(&finding)) {
            return told.try_for_each(|finding| faults.finding(finding));
        }
        let facts = facts(all)?;
        let commits = Commits::new(&facts);
        return told.try_for_each(|finding| commits.finding(model, finding));
    }
    if let Proof::Commits(places) = proof
        && is_weak(model)
    {
        let facts = facts(all)?;
        return Commits::new(&facts).replay(model, &at(&facts, places)?);
    }
    let (axiom, follows) = promise(model)?;
    let facts = facts(all)?;
    match proof {
        Proof::Core(places) => core(&facts, axiom, follows, places),
        Proof::Serial(order) => replay(&facts, "serializable", follows, order),
        Proof::Snapshots(order) if axiom != "serializable" => replay(&facts, axiom, follows, order),
        Proof::Visible(order) if axiom == "parallel-snapshot-isolation" => {
            visible(&facts, follows, order)
        }
        _ => Err(format!("this says nothing about {model}")),
    }
}

/// What the name of a model asks for: how transactions see each other, and what their order follows.
fn promise(model: &str) -> Result<(&str, &'static str), String> {
    let (axiom, follows) = match model {
        "strict-serializable" => ("serializable", "time"),
        "strong-snapshot-isolation" => ("snapshot-isolation", "time"),
        other => match other.strip_prefix("strong-session-") {
            Some(axiom) => (axiom, "sessions"),
            None => (other, "nothing"),
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

/// By key and value: the transaction, and whether it left the value behind.
type Writers<'a> = BTreeMap<(&'a Key, i64), (usize, bool)>;

/// Who wrote what: the transaction, and whether it left the value behind.
fn writers<'a>(all: &'a [Transaction<'a>]) -> Result<Writers<'a>, String> {
    let mut writers = BTreeMap::new();
    for (number, one) in all.iter().enumerate() {
        let mut later = BTreeSet::new();
        for mop in one.mops.iter().rev() {
            if let Mop::Write { key, value } = mop {
                let is_last = later.insert(key);
                let known = writers.insert((key, *value), (number, is_last));
                if known.is_some_and(|(other, _)| !one.is_fail && !all[other].is_fail) {
                    return Err(format!("{value} is written to key {key} more than once"));
                }
                if let Some(other) = known.filter(|_| one.is_fail) {
                    writers.insert((key, *value), other);
                }
            }
        }
    }
    Ok(writers)
}

/// What was read, if it is a read of a register.
fn read(mop: &Mop) -> Option<(&Key, Option<i64>)> {
    match mop {
        Mop::Read {
            key,
            observed: Observed::Register(value),
        } => Some((key, Some(*value))),
        Mop::Read {
            key,
            observed: Observed::Nil,
        } => Some((key, None)),
        _ => None,
    }
}

/// The facts about those that took place. Reads with something wrong are errors.
fn facts<'a>(all: &'a [Transaction<'a>]) -> Result<Vec<Facts<'a>>, String> {
    let writers = writers(all)?;
    let mut seen = BTreeSet::new();
    for one in all.iter().filter(|one| one.is_ok) {
        for (key, value) in one.mops.iter().filter_map(read) {
            let writer = value.and_then(|value| writers.get(&(key, value)));
            seen.extend(writer.map(|writer| writer.0));
        }
    }
    let mut facts = Vec::new();
    let mut names = BTreeMap::new();
    for (number, one) in all.iter().enumerate() {
        if one.is_ok || !one.is_fail && seen.contains(&number) {
            names.insert(number, facts.len());
            facts.push(Facts {
                one,
                reads: BTreeSet::new(),
                writes: BTreeSet::new(),
            });
        }
    }
    for fact in &mut facts {
        let one = fact.one;
        let mut own: BTreeMap<&Key, i64> = BTreeMap::new();
        for mop in one.mops {
            if let Mop::Write { key, value } = mop {
                own.insert(key, *value);
                fact.writes.insert(key);
            }
            let Some((key, value)) = read(mop).filter(|_| one.is_ok) else {
                continue;
            };
            if let Some(&known) = own.get(key) {
                if value != Some(known) {
                    return Err(format!("op {} contradicts itself", one.index));
                }
                continue;
            }
            let version = match value {
                None => None,
                Some(value) => match writers.get(&(key, value)) {
                    Some(&(writer, true)) if names.contains_key(&writer) => Some(names[&writer]),
                    _ => return Err(format!("op {} reads what was not committed", one.index)),
                },
            };
            fact.reads.insert((key, version));
        }
    }
    Ok(facts)
}

/// Must `one` have committed before `other` begins?
fn follows(facts: &[Facts<'_>], relation: &str, one: usize, other: usize) -> bool {
    let (one, other) = (facts[one].one, facts[other].one);
    let begun = |transaction: &Transaction<'_>| transaction.begun.or(transaction.ended);
    let session = one.process == other.process && begun(one) < begun(other);
    let time = one.ended.is_some() && other.begun.is_some() && one.ended < other.begun;
    one.is_ok && (relation != "nothing" && session || relation == "time" && time)
}

/// The transactions at these places.
fn at(facts: &[Facts<'_>], places: &[u64]) -> Result<Vec<usize>, String> {
    let known: BTreeMap<u64, usize> = facts
        .iter()
        .enumerate()
        .map(|(number, fact)| (fact.one.place, number))
        .collect();
    let found = places.iter().map(|place| {
        let found = known.get(place).copied();
        found.ok_or_else(|| format!("at {place} is no transaction that took place"))
    });
    found.collect()
}

/// Carries transactions out in this order: all at once when each is there once, else snapshot and commit.
fn replay(facts: &[Facts<'_>], axiom: &str, relation: &str, places: &[u64]) -> Result<(), String> {
    let order = at(facts, places)?;
    let is_serial = axiom == "serializable";
    let mut state: BTreeMap<&Key, usize> = BTreeMap::new();
    let mut snapshots: BTreeMap<usize, BTreeMap<&Key, Version>> = BTreeMap::new();
    let mut done = BTreeSet::new();
    let mut clock = Clock::default();
    for &number in &order {
        let fact = &facts[number];
        let name = fact.one.index;
        if let Entry::Vacant(snapshot) = snapshots.entry(number) {
            for (key, version) in &fact.reads {
                if state.get(*key).copied() != *version {
                    return Err(format!("op {name} reads another version of key {key}"));
                }
            }
            let written = fact
                .writes
                .iter()
                .map(|&key| (key, state.get(key).copied()));
            snapshot.insert(written.collect());
            clock.begin(fact.one);
            if !is_serial {
                continue;
            }
        }
        if !done.insert(number) {
            return Err(format!("op {name} takes place again"));
        }
        clock.commit(fact.one, relation)?;
        for &key in &fact.writes {
            if axiom == "snapshot-isolation" || axiom == "parallel-snapshot-isolation" {
                let changed = snapshots[&number].get(key) != Some(&state.get(key).copied());
                if changed {
                    return Err(format!(
                        "op {name} overwrites what it cannot see of key {key}"
                    ));
                }
            }
            state.insert(key, number);
        }
    }
    if done.len() != facts.len() {
        return Err("not all transactions are in the order".into());
    }
    Ok(())
}

/// What has begun so far.
#[derive(Default)]
struct Clock {
    /// The last invocation, of all and of each process.
    begun: Option<u64>,
    sessions: BTreeMap<Process, u64>,
}

impl Clock {
    fn begin(&mut self, one: &Transaction<'_>) {
        self.begun = self.begun.max(one.begun);
        let begun = one.begun.or(one.ended).unwrap_or_default();
        let last = self.sessions.entry(one.process).or_default();
        *last = (*last).max(begun);
    }

    /// Has nothing begun that must follow this?
    fn commit(&self, one: &Transaction<'_>, relation: &str) -> Result<(), String> {
        let begun = one.begun.or(one.ended);
        if relation != "nothing" && one.is_ok && self.sessions.get(&one.process) > begun.as_ref() {
            return Err(format!(
                "op {} comes after a later one of its process",
                one.index
            ));
        }
        if relation == "time" && one.is_ok && one.ended.is_some() && self.begun > one.ended {
            return Err(format!(
                "op {} comes after one that began when it had ended",
                one.index
            ));
        }
        Ok(())
    }
}

/// Looks whether a transaction sees an overwrite of what it read, when versions are in this order.
fn visible(facts: &[Facts<'_>], relation: &str, places: &[u64]) -> Result<(), String> {
    let order = at(facts, places)?;
    let place: BTreeMap<usize, usize> = order
        .iter()
        .enumerate()
        .map(|(place, &number)| (number, place))
        .collect();
    if place.len() != facts.len() || order.len() != facts.len() {
        return Err("not all transactions are in the order, each once".into());
    }
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); facts.len()];
    let mut last: BTreeMap<&Key, usize> = BTreeMap::new();
    let mut next: BTreeMap<(&Key, Version), usize> = BTreeMap::new();
    for &number in &order {
        for other in 0..facts.len() {
            if follows(facts, relation, other, number) {
                sources[number].push(other);
            }
        }
        sources[number].extend(facts[number].reads.iter().filter_map(|read| read.1));
        for &key in &facts[number].writes {
            let before = last.insert(key, number);
            next.insert((key, before), number);
            sources[number].extend(before);
        }
        if sources[number]
            .iter()
            .any(|other| place[other] >= place[&number])
        {
            return Err(format!(
                "op {} comes before what it must see",
                facts[number].one.index
            ));
        }
    }
    for (number, fact) in facts.iter().enumerate() {
        let mut seen = BTreeSet::from([number]);
        let mut waiting = vec![number];
        while let Some(one) = waiting.pop() {
            let further = sources[one].iter().filter(|&&other| seen.insert(other));
            waiting.extend(further);
        }
        for (key, version) in &fact.reads {
            let overwrite = next.get(&(*key, *version));
            if overwrite.is_some_and(|&other| other != number && seen.contains(&other)) {
                return Err(format!(
                    "op {} sees a later version of key {key}",
                    fact.one.index
                ));
            }
        }
    }
    Ok(())
}

/// Transactions of a core that are tried, and cases that are told apart.
const CORE_MAX: usize = 60;
const CASES_MAX: u32 = 200_000;

/// Is there no way to put the versions of these transactions in order? Tries both orders of any two versions, and what follows
/// from each by cycles.
fn core(all: &[Facts<'_>], axiom: &str, relation: &str, places: &[u64]) -> Result<(), String> {
    let members: BTreeSet<usize> = at(all, places)?.into_iter().collect();
    if members.len() > CORE_MAX {
        return Err(format!(
            "more than {CORE_MAX} transactions are not replayed"
        ));
    }
    let members: Vec<usize> = members.into_iter().collect();
    let mut trial = Trial::new(all, axiom, relation, &members);
    let reach = trial.reach.clone();
    match trial.is_impossible(&reach, &[]) {
        Some(true) => Ok(()),
        Some(false) => Err("there is an order that explains these transactions".into()),
        None => Err(format!("not settled after {CASES_MAX} cases")),
    }
}

/// Two versions of a key in order, by places among the members: the writers, and who read the first.
struct Pair {
    first: Version,
    second: usize,
    readers: Vec<usize>,
}

/// What is tried. Events of member m: m takes its snapshot (2 m) and commits (2 m + 1).
struct Trial<'a> {
    axiom: &'a str,
    /// By event: events that come later.
    reach: Vec<u128>,
    /// Pairs of versions of which one order holds: the two orders of each.
    open: Vec<[Pair; 2]>,
    /// Initial states, which come first.
    first: Vec<Pair>,
    cases: u32,
}

impl<'a> Trial<'a> {
    fn new(all: &[Facts<'_>], axiom: &'a str, relation: &str, members: &[usize]) -> Trial<'a> {
        let mut trial = Trial {
            axiom,
            reach: vec![0; 2 * members.len()],
            open: Vec::new(),
            first: Vec::new(),
            cases: 0,
        };
        let mut writers: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (m, &number) in members.iter().enumerate() {
            trial.link(2 * m, 2 * m + 1);
            for (other, &earlier) in members.iter().enumerate() {
                let read = all[number].reads.iter().any(|read| read.1 == Some(earlier));
                if read || other != m && follows(all, relation, earlier, number) {
                    trial.link(2 * other + 1, 2 * m);
                }
            }
            for &key in &all[number].writes {
                writers.entry(key).or_default().push(m);
            }
        }
        let readers = |key: &Key, version: Option<usize>| -> Vec<usize> {
            let version = version.map(|m| members[m]);
            let reads = |&m: &usize| all[members[m]].reads.contains(&(key, version));
            (0..members.len()).filter(reads).collect()
        };
        for (key, writers) in writers {
            let pair = |first: Version, second: usize| Pair {
                first,
                second,
                readers: readers(key, first),
            };
            for (at, &one) in writers.iter().enumerate() {
                trial.first.push(pair(None, one));
                for &other in &writers[at + 1..] {
                    trial
                        .open
                        .push([pair(Some(one), other), pair(Some(other), one)]);
                }
            }
        }
        trial
    }

    fn link(&mut self, from: usize, to: usize) {
        link(&mut self.reach, from, to);
    }

    /// Is nothing possible with these orders of pairs (numbers, and which)?
    fn is_impossible(&mut self, reach: &[u128], chosen: &[(usize, usize)]) -> Option<bool> {
        self.cases += 1;
        if self.cases > CASES_MAX {
            return None;
        }
        let mut reach = reach.to_vec();
        let mut chosen = chosen.to_vec();
        loop {
            if self.contradicts(&mut reach, &chosen, None) {
                return Some(true);
            }
            let decided: BTreeSet<usize> = chosen.iter().map(|choice| choice.0).collect();
            let open: Vec<usize> = (0..self.open.len())
                .filter(|pair| !decided.contains(pair))
                .collect();
            let forced = open.iter().find_map(|&pair| {
                let fails =
                    |which| self.contradicts(&mut reach.clone(), &chosen, Some((pair, which)));
                match (fails(0), fails(1)) {
                    (true, _) => Some((pair, 1)),
                    (_, true) => Some((pair, 0)),
                    _ => None,
                }
            });
            if let Some(choice) = forced {
                chosen.push(choice);
                continue;
            }
            let Some(&pair) = open.first() else {
                return Some(false);
            };
            for which in [0, 1] {
                let mut chosen = chosen.clone();
                chosen.push((pair, which));
                match self.is_impossible(&reach, &chosen) {
                    Some(true) => {}
                    other => return other,
                }
            }
            return Some(true);
        }
    }

    /// Puts the chosen orders in, and one more. Is there a cycle, or an overwrite that a reader sees?
    fn contradicts(
        &self,
        reach: &mut [u128],
        chosen: &[(usize, usize)],
        more: Option<(usize, usize)>,
    ) -> bool {
        let chosen = chosen.iter().copied().chain(more);
        let chosen: Vec<&Pair> = chosen
            .map(|(pair, which)| &self.open[pair][which])
            .chain(&self.first)
            .collect();
        let is_parallel = self.axiom == "parallel-snapshot-isolation";
        for pair in &chosen {
            if let Some(first) = pair.first {
                let to = if self.axiom == "prefix" {
                    2 * pair.second + 1
                } else {
                    2 * pair.second
                };
                link(reach, 2 * first + 1, to);
            }
            let others = pair.readers.iter().filter(|&&reader| reader != pair.second);
            for &reader in others.filter(|_| !is_parallel) {
                let (from, to) = match self.axiom {
                    "serializable" => (2 * reader + 1, 2 * pair.second),
                    _ => (2 * reader, 2 * pair.second + 1),
                };
                link(reach, from, to);
            }
        }
        let reaches = |from: usize, to: usize| reach[from] >> to & 1 == 1;
        let sees = |pair: &Pair| {
            let mut others = pair.readers.iter().filter(|&&reader| reader != pair.second);
            others.any(|&reader| reaches(2 * pair.second + 1, 2 * reader))
        };
        (0..reach.len()).any(|event| reaches(event, event))
            || is_parallel && chosen.into_iter().any(sees)
    }
}

/// One more edge; what reaches what follows.
fn link(reach: &mut [u128], from: usize, to: usize) {
    let later = reach[to] | 1 << to;
    for (event, after) in reach.iter_mut().enumerate() {
        if event == from || *after >> from & 1 == 1 {
            *after |= later;
        }
    }
}

/// Looks up reads with something wrong.
struct Faults<'a> {
    by_index: BTreeMap<u64, &'a Transaction<'a>>,
    written: BTreeSet<(&'a Key, i64)>,
}

impl<'a> Faults<'a> {
    fn new(all: &'a [Transaction<'a>]) -> Faults<'a> {
        let written = all
            .iter()
            .flat_map(|one| one.mops)
            .filter_map(|mop| match mop {
                Mop::Write { key, value } => Some((key, *value)),
                _ => None,
            });
        Faults {
            by_index: all.iter().map(|one| (one.index, one)).collect(),
            written: written.collect(),
        }
    }

    fn finding(&self, finding: &Evidence) -> Result<(), String> {
        let all = finding.operations.iter().map(|index| {
            let found = self.by_index.get(index).copied();
            found.ok_or_else(|| format!("op {index} completes no transaction"))
        });
        let all: Vec<_> = all.collect::<Result<_, _>>()?;
        let reads = |one: &'a Transaction<'a>| one.mops.iter().filter_map(read);
        let holds = match (finding.anomaly.as_str(), &all[..]) {
            ("garbage-read", &[one]) => reads(one).any(|(key, value)| {
                value.is_some_and(|value| !self.written.contains(&(key, value)))
            }),
            ("internal", &[one]) => contradicts_itself(one),
            ("future-read", &[one]) => reads_its_future(one),
            ("G1a", &[reader, writer]) => {
                writer.is_fail
                    && reads(reader).any(|(key, value)| writes(writer, key, value).is_some())
            }
            ("G1b", &[reader, writer]) => {
                reads(reader).any(|(key, value)| writes(writer, key, value) == Some(false))
            }
            _ => false,
        };
        if holds && all.first().is_some_and(|one| one.is_ok) {
            Ok(())
        } else {
            Err(format!(
                "{}: the operations do not show it",
                finding.anomaly
            ))
        }
    }
}

/// Does it write this value, and leave it behind?
fn writes(one: &Transaction<'_>, key: &Key, value: Option<i64>) -> Option<bool> {
    let writes = one.mops.iter().filter_map(|mop| match mop {
        Mop::Write { key: other, value } if other == key => Some(Some(*value)),
        _ => None,
    });
    let writes: Vec<_> = writes.collect();
    let place = writes.iter().position(|&other| other == value)?;
    Some(place + 1 == writes.len())
}

fn contradicts_itself(one: &Transaction<'_>) -> bool {
    let mut own: BTreeMap<&Key, i64> = BTreeMap::new();
    one.mops.iter().any(|mop| {
        if let Mop::Write { key, value } = mop {
            own.insert(key, *value);
        }
        let known = |(key, value): (&Key, Option<i64>)| {
            own.get(key).is_some_and(|&known| Some(known) != value)
        };
        read(mop).is_some_and(known)
    })
}

fn reads_its_future(one: &Transaction<'_>) -> bool {
    let is_later = |at: usize, key: &Key, value: Option<i64>| {
        one.mops[at..].iter().any(|mop| match mop {
            Mop::Write {
                key: other,
                value: written,
            } => other == key && Some(*written) == value,
            _ => false,
        })
    };
    let mut mops = one.mops.iter().enumerate();
    mops.any(|(at, mop)| read(mop).is_some_and(|(key, value)| is_later(at, key, value)))
}
