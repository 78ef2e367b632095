//! Replays certificates of weak levels: who has seen whom, from the definitions, and one order of commits.

use super::{Evidence, Facts, read};
use seatrial_history::{Key, Mop, Process};
use std::collections::{BTreeMap, BTreeSet};

/// The models that such an order proves.
const MODELS: [&str; 8] = [
    "axiomatic-read-committed",
    "axiomatic-read-atomic",
    "causal",
    "read-your-writes",
    "monotonic-reads",
    "monotonic-writes",
    "writes-follow-reads",
    "pram",
];

/// Is this one of the models that are proven by an order of commits?
pub(super) fn is_weak(model: &str) -> bool {
    MODELS.contains(&model)
}

/// A session, or a transaction of unknown outcome that stands alone.
type Line = (Process, Option<usize>);

/// What a reader has seen: the beginnings of lines up to a place, and others.
#[derive(Clone, Default)]
struct Seen {
    lines: BTreeMap<Line, u64>,
    others: BTreeSet<usize>,
}

/// Transactions as their levels see them.
pub(super) struct Commits<'a> {
    facts: &'a [Facts<'a>],
    /// By transaction: key and source of each read that no own write answers, in order.
    reads: Vec<Vec<(&'a Key, Option<usize>)>>,
    /// By transaction: its line, and its place in that.
    stands: Vec<(Line, u64)>,
    /// By transaction: the one before it in its session.
    before: Vec<Option<usize>>,
    writers: BTreeMap<&'a Key, Vec<usize>>,
}

impl<'a> Commits<'a> {
    pub(super) fn new(facts: &'a [Facts<'a>]) -> Commits<'a> {
        let mut values = BTreeMap::new();
        let mut writers: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (number, fact) in facts.iter().enumerate() {
            for mop in fact.one.mops {
                if let Mop::Write { key, value } = mop {
                    values.insert((key, *value), number);
                }
            }
            for &key in &fact.writes {
                writers.entry(key).or_default().push(number);
            }
        }
        let reads = |fact: &Facts<'a>| {
            let mut own = BTreeSet::new();
            let mut reads = Vec::new();
            for mop in fact.one.mops.iter().filter(|_| fact.one.is_ok) {
                match read(mop) {
                    Some((key, value)) if !own.contains(key) => {
                        let source = value.and_then(|value| values.get(&(key, value)));
                        reads.push((key, source.copied()));
                    }
                    Some(_) => {}
                    None => {
                        own.insert(mop.key());
                    }
                }
            }
            reads
        };
        let reads = facts.iter().map(reads).collect();
        let begun = |number: usize| {
            let one = facts[number].one;
            one.begun.or(one.ended).unwrap_or_default()
        };
        let mut last: BTreeMap<Process, u64> = BTreeMap::new();
        for (number, fact) in facts.iter().enumerate().filter(|(_, fact)| fact.one.is_ok) {
            let last = last.entry(fact.one.process).or_default();
            *last = (*last).max(begun(number));
        }
        let stands: Vec<(Line, u64)> = facts
            .iter()
            .enumerate()
            .map(|(number, fact)| {
                let process = fact.one.process;
                let goes_on = last.get(&process).is_some_and(|&last| last > begun(number));
                let alone = (!fact.one.is_ok && goes_on).then_some(number);
                ((process, alone), begun(number))
            })
            .collect();
        let mut sessions: BTreeMap<Line, BTreeMap<u64, usize>> = BTreeMap::new();
        for (number, (line, place)) in stands.iter().enumerate() {
            sessions.entry(*line).or_default().insert(*place, number);
        }
        let before = stands.iter().map(|(line, place)| {
            let earlier = sessions[line].range(..place).next_back();
            earlier.map(|(_, &number)| number)
        });
        Commits {
            before: before.collect(),
            facts,
            reads,
            stands,
            writers,
        }
    }

    /// Whom it reads from.
    fn sources(&self, number: usize) -> impl Iterator<Item = usize> {
        self.reads[number].iter().filter_map(|read| read.1)
    }

    /// Those before it in its session, the last first.
    fn session(&self, number: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.before[number], |&one| self.before[one])
    }

    /// This transaction and all before it in its session.
    fn add_line(&self, seen: &mut Seen, number: Option<usize>) {
        if let Some(number) = number {
            let (line, place) = self.stands[number];
            let until = seen.lines.entry(line).or_default();
            *until = (*until).max(place + 1);
        }
    }

    /// What `reader` has seen when it makes the read at `at`. Of causal consistency only what it reads from itself, and its
    /// session; the rest is in `clocks`.
    fn seen(&self, model: &str, reader: usize, at: usize) -> Seen {
        let mut seen = Seen::default();
        match model {
            "axiomatic-read-committed" => {
                let reads = self.reads[reader][..at].iter();
                seen.others.extend(reads.filter_map(|read| read.1));
            }
            "axiomatic-read-atomic" => {
                seen.others.extend(self.sources(reader));
                self.add_line(&mut seen, self.before[reader]);
            }
            "read-your-writes" => self.add_line(&mut seen, self.before[reader]),
            "monotonic-reads" => {
                let earlier = self.session(reader);
                seen.others
                    .extend(earlier.flat_map(|one| self.sources(one)));
            }
            "monotonic-writes" => {
                for source in self.sources(reader) {
                    self.add_line(&mut seen, self.before[source]);
                }
            }
            "writes-follow-reads" => {
                for source in self.sources(reader) {
                    let earlier = self.session(source).chain([source]);
                    seen.others
                        .extend(earlier.flat_map(|one| self.sources(one)));
                }
            }
            "pram" => {
                self.add_line(&mut seen, self.before[reader]);
                for one in self.session(reader).chain([reader]) {
                    for source in self.sources(one) {
                        self.add_line(&mut seen, Some(source));
                    }
                }
            }
            _ => {
                let mut waiting = vec![reader];
                while let Some(one) = waiting.pop() {
                    for other in self.sources(one).chain(self.before[one]) {
                        if seen.others.insert(other) {
                            waiting.push(other);
                        }
                    }
                }
            }
        }
        seen
    }

    fn has_seen(&self, seen: &Seen, other: usize) -> bool {
        let (line, place) = self.stands[other];
        seen.others.contains(&other) || seen.lines.get(&line).is_some_and(|&until| until > place)
    }

    /// Is everything in order when transactions are committed in this one?
    pub(super) fn replay(&self, model: &str, order: &[usize]) -> Result<(), String> {
        let name = |number: usize| self.facts[number].one.index;
        let mut place = vec![None; self.facts.len()];
        for (at, &number) in order.iter().enumerate() {
            if place[number].replace(at).is_some() {
                return Err(format!("op {} takes place again", name(number)));
            }
        }
        if order.len() != self.facts.len() {
            return Err("not all transactions are in the order".into());
        }
        for number in 0..self.facts.len() {
            let mut earlier = self.sources(number).chain(self.before[number]);
            if let Some(other) = earlier.find(|&other| place[other] >= place[number]) {
                let (one, other) = (name(number), name(other));
                return Err(format!(
                    "op {one} comes before op {other}, which it follows"
                ));
            }
        }
        let clocks = if model == "causal" {
            self.clocks(order)
        } else {
            Vec::new()
        };
        for reader in 0..self.facts.len() {
            let mut seen = clocks.get(reader).cloned().unwrap_or_default();
            for (at, (key, source)) in self.reads[reader].iter().enumerate() {
                if model != "causal" && (at == 0 || model == "axiomatic-read-committed") {
                    seen = self.seen(model, reader, at);
                }
                let writers = self.writers.get(key).into_iter().flatten();
                let mut later = writers.filter(|&&other| {
                    Some(other) != *source
                        && source.is_none_or(|source| place[other] > place[source])
                });
                if let Some(&other) = later.find(|&&other| self.has_seen(&seen, other)) {
                    let (one, other) = (name(reader), name(other));
                    return Err(format!(
                        "op {one} misses what op {other} wrote to key {key}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What each transaction has seen, any number of steps back.
    fn clocks(&self, order: &[usize]) -> Vec<Seen> {
        let mut clocks = vec![Seen::default(); self.facts.len()];
        for &number in order {
            let mut seen = Seen::default();
            for other in self.sources(number).chain(self.before[number]) {
                for (line, place) in &clocks[other].lines {
                    let until = seen.lines.entry(*line).or_default();
                    *until = (*until).max(*place);
                }
                self.add_line(&mut seen, Some(other));
            }
            clocks[number] = seen;
        }
        clocks
    }

    /// Is this evidence a cycle of what must come before what, or a read of an initial state that was overwritten before?
    pub(super) fn finding(&self, model: &str, finding: &Evidence) -> Result<(), String> {
        let known = self.facts.iter().enumerate();
        let known: BTreeMap<u64, usize> = known
            .map(|(number, fact)| (fact.one.index, number))
            .collect();
        let find = |index: u64| {
            let found = known.get(&index).copied();
            found.ok_or_else(|| format!("op {index} took no place"))
        };
        let readers: Vec<usize> = finding
            .operations
            .iter()
            .map(|&index| find(index))
            .collect::<Result<_, _>>()?;
        let steps = &finding.steps;
        let mut is_unborn = false;
        for (from, to, relation) in steps {
            let (one, other) = (find(*from)?, find(*to)?);
            let holds = match relation.as_str() {
                "process" => self.session(other).any(|earlier| earlier == one),
                "wr" => self.sources(other).any(|source| source == one),
                "ww" if finding.anomaly != "causality-cycle" => readers
                    .iter()
                    .any(|&reader| self.is_missed(model, reader, one, Some(other))),
                "rw" => {
                    is_unborn = self.is_missed(model, one, other, None);
                    is_unborn
                }
                _ => false,
            };
            if !holds {
                return Err(format!("op {from} comes before op {to} for no reason"));
            }
        }
        let is_cycle = steps
            .iter()
            .zip(steps.iter().cycle().skip(1))
            .all(|(a, b)| a.1 == b.0);
        if is_unborn || (is_cycle && !steps.is_empty()) {
            return Ok(());
        }
        Err(format!("{}: it is no cycle", finding.anomaly))
    }

    /// Does `reader` read a key from `source` that `writer`, which it had seen, writes too?
    fn is_missed(&self, model: &str, reader: usize, writer: usize, source: Option<usize>) -> bool {
        let mut reads = self.reads[reader].iter().enumerate();
        reads.any(|(at, (key, from))| {
            *from == source
                && self.facts[writer].writes.contains(key)
                && self.has_seen(&self.seen(model, reader, at), writer)
        })
    }
}
