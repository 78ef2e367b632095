//! One order of commits, looked at.

use super::Commits;
use crate::verify::registers::Read;
use crate::verify::table::NONE;
use std::collections::BTreeMap;

/// What lines have done, or met, of each key: at which transaction, and how far that is in the order of commits.
struct Steps {
    /// Sorted; the places of a line and key never fall.
    all: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    key: u32,
    line: u32,
    at: u32,
    place: u32,
}

impl Steps {
    fn new(mut all: Vec<Step>) -> Steps {
        all.sort_unstable();
        for at in 1..all.len() {
            let (before, one) = (all[at - 1], &mut all[at]);
            if (before.key, before.line) == (one.key, one.line) {
                one.place = one.place.max(before.place);
            }
        }
        Steps { all }
    }

    /// How far a line was with a key before this transaction.
    fn latest(&self, key: u32, line: u32, before: u32) -> Option<u32> {
        let behind = self
            .all
            .partition_point(|step| (step.key, step.line, step.at) < (key, line, before));
        let last = self.all[..behind].last()?;
        ((last.key, last.line) == (key, line)).then_some(last.place)
    }

    /// How far any line was with a key, of each line before the transaction that `until` says.
    fn latest_of_all(&self, key: u32, until: impl Fn(u32) -> u32) -> Option<u32> {
        let mut latest = None;
        let mut rest = &self.all[self.all.partition_point(|step| step.key < key)..];
        while let Some(step) = rest.first().filter(|step| step.key == key) {
            let line = step.line;
            let end = rest.partition_point(|step| (step.key, step.line) <= (key, line));
            let (group, others) = rest.split_at(end);
            let behind = group.partition_point(|step| step.at < until(line));
            latest = latest.max(group[..behind].last().map(|step| step.place));
            rest = others;
        }
        latest
    }
}

/// One order of commits being looked at.
pub(super) struct Replay<'a> {
    pub(super) commits: &'a Commits<'a>,
    pub(super) order: &'a [u32],
    /// By transaction: its place in the order.
    pub(super) places: &'a [u32],
}

impl Replay<'_> {
    /// Does no transaction miss a later version that it had seen?
    pub(super) fn replay(&self, model: &str) -> Result<(), String> {
        match model {
            "axiomatic-read-committed" => self.look_at_sources(true),
            "axiomatic-read-atomic" => {
                self.look_at_sources(false)?;
                self.look_along(&self.own(), |reader| vec![(self.line(reader), reader)])
            }
            "read-your-writes" => {
                self.look_along(&self.own(), |reader| vec![(self.line(reader), reader)])
            }
            "monotonic-reads" => {
                self.look_along(&self.met(), |reader| vec![(self.line(reader), reader)])
            }
            "monotonic-writes" => self.look_along(&self.own(), |reader| {
                let sources = self.distinct(reader).into_iter();
                sources.map(|source| (self.line(source), source)).collect()
            }),
            "writes-follow-reads" => self.look_along(&self.met(), |reader| {
                let sources = self.distinct(reader).into_iter();
                sources
                    .map(|source| (self.line(source), source + 1))
                    .collect()
            }),
            "pram" => self.look_at_pipelines(),
            _ => self.look_at_causes(),
        }
    }

    fn line(&self, number: u32) -> u32 {
        self.commits.lines[number as usize]
    }

    fn place(&self, number: u32) -> u32 {
        self.places[number as usize]
    }

    /// Whom it reads from, each once.
    fn distinct(&self, number: u32) -> Vec<u32> {
        let mut sources: Vec<u32> = self.commits.sources(number).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// What lines wrote.
    fn own(&self) -> Steps {
        let facts = self.commits.facts;
        let steps = facts.all().flat_map(|at| {
            let (line, place) = (self.line(at), self.place(at));
            let keys = facts.writes(at).iter();
            keys.map(move |&key| Step {
                key,
                line,
                at,
                place,
            })
        });
        Steps::new(steps.collect())
    }

    /// What those wrote that lines read from; of each the first time is enough.
    fn met(&self) -> Steps {
        let facts = self.commits.facts;
        let pairs = facts.all().flat_map(|at| {
            let sources = self.distinct(at).into_iter();
            sources.map(move |source| (self.line(at), source, at))
        });
        let mut pairs: Vec<(u32, u32, u32)> = pairs.collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| (pair.0, pair.1));
        let steps = pairs.into_iter().flat_map(|(line, source, at)| {
            let place = self.place(source);
            let keys = facts.writes(source).iter();
            keys.map(move |&key| Step {
                key,
                line,
                at,
                place,
            })
        });
        Steps::new(steps.collect())
    }

    /// Does this read miss what its reader has seen at this place of the order?
    fn look(&self, reader: u32, read: Read, seen: Option<u32>) -> Result<(), String> {
        let source = (read.source != NONE).then(|| self.place(read.source));
        let Some(place) = seen.filter(|_| seen > source) else {
            return Ok(());
        };
        let facts = self.commits.facts;
        let (one, other) = (facts.index(reader), facts.index(self.order[place as usize]));
        let key = facts.table.name(read.key);
        Err(format!(
            "op {one} misses what op {other} wrote to key {key}"
        ))
    }

    /// A reader has seen what is in these beginnings of lines: line, and the transaction before which it ends.
    fn look_along(
        &self,
        steps: &Steps,
        beginnings: impl Fn(u32) -> Vec<(u32, u32)>,
    ) -> Result<(), String> {
        let facts = self.commits.facts;
        for reader in facts.all() {
            if facts.reads(reader).is_empty() {
                continue;
            }
            // The longest beginning of a line has all that the shorter ones have.
            let longest: BTreeMap<u32, u32> = {
                let mut beginnings = beginnings(reader);
                beginnings.sort_unstable();
                beginnings.into_iter().collect()
            };
            for &read in facts.reads(reader) {
                let lines = longest.iter();
                let seen = lines.map(|(&line, &until)| steps.latest(read.key, line, until));
                self.look(reader, read, seen.max().flatten())?;
            }
        }
        Ok(())
    }

    /// A reader has seen whom it reads from: in each read (if they come `in_turn`) whom it read from before.
    fn look_at_sources(&self, in_turn: bool) -> Result<(), String> {
        let facts = self.commits.facts;
        for reader in facts.all() {
            let reads = facts.reads(reader);
            let mut by_key: Vec<(u32, usize)> =
                reads.iter().map(|read| read.key).zip(0..).collect();
            by_key.sort_unstable();
            let mut sources: Vec<(u32, usize)> =
                reads.iter().map(|it| it.source).zip(0..).collect();
            sources.retain(|&(source, _)| source != NONE);
            sources.sort_unstable();
            sources.dedup_by_key(|source| source.0);
            for (source, from) in sources {
                let look = |at: usize| {
                    if in_turn && at <= from {
                        return Ok(());
                    }
                    self.look(reader, reads[at], Some(self.place(source)))
                };
                let keys = facts.writes(source);
                if reads.len() <= keys.len() {
                    let mut written =
                        (0..reads.len()).filter(|&at| keys.binary_search(&reads[at].key).is_ok());
                    written.try_for_each(look)?;
                    continue;
                }
                for &key in keys {
                    let start = by_key.partition_point(|read| read.0 < key);
                    let same = by_key[start..].iter().take_while(|read| read.0 == key);
                    same.map(|read| read.1).try_for_each(look)?;
                }
            }
        }
        Ok(())
    }

    /// A reader has seen its session so far, whom that or itself read from, and what stands before those in their lines.
    fn look_at_pipelines(&self) -> Result<(), String> {
        let (commits, facts) = (self.commits, self.commits.facts);
        let own = self.own();
        // By line: of each line so much.
        let mut clocks: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); commits.line_count];
        for reader in facts.all() {
            let line = self.line(reader);
            let clock = &mut clocks[line as usize];
            for source in commits.sources(reader) {
                let until = clock.entry(self.line(source)).or_default();
                *until = (*until).max(source + 1);
            }
            for &read in facts.reads(reader) {
                let until = |line| clock.get(&line).copied().unwrap_or(0);
                let seen = own.latest_of_all(read.key, until);
                self.look(reader, read, seen)?;
            }
            let until = clock.entry(line).or_default();
            *until = (*until).max(reader + 1);
        }
        Ok(())
    }

    /// A reader has seen all that happened before, in any number of steps.
    fn look_at_causes(&self) -> Result<(), String> {
        let (commits, facts) = (self.commits, self.commits.facts);
        let own = self.own();
        let mut uses = commits.uses.clone();
        // By transaction: of each line so much; let go when nobody needs it any more.
        let mut clocks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &reader in self.order {
            let mut clock = vec![0; commits.line_count];
            for earlier in commits.sources(reader).chain(commits.before(reader)) {
                if let Some(known) = clocks.get(&earlier) {
                    for (until, &other) in clock.iter_mut().zip(known) {
                        *until = other.max(*until);
                    }
                }
                let until = &mut clock[self.line(earlier) as usize];
                *until = (*until).max(earlier + 1);
            }
            for earlier in commits.sources(reader).chain(commits.before(reader)) {
                let left = &mut uses[earlier as usize];
                *left -= 1;
                if *left == 0 {
                    clocks.remove(&earlier);
                }
            }
            for &read in facts.reads(reader) {
                let seen = own.latest_of_all(read.key, |line| clock[line as usize]);
                self.look(reader, read, seen)?;
            }
            if uses[reader as usize] > 0 {
                clocks.insert(reader, clock);
            }
        }
        Ok(())
    }
}
