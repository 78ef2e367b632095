//! One order of commits, looked at.

use super::Commits;
use crate::verify::groups::Groups;
use crate::verify::registers::Read;
use crate::verify::table::NONE;
use std::collections::BTreeMap;

/// What lines have done, or met, of each key: at which transaction, and how far that is in the order of commits.
struct Steps {
    /// By key: sorted; the places of a line never fall.
    all: Groups<Step>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    line: u32,
    at: u32,
    place: u32,
}

impl Steps {
    /// `tell` says who did something in which line at which transaction.
    fn new(replay: &Replay<'_>, mut tell: impl FnMut(&mut dyn FnMut(u32, u32, u32))) -> Steps {
        let facts = replay.commits.facts;
        let mut all = Groups::new(facts.table.key_count(), |step| {
            tell(&mut |line, at, whose| {
                let place = replay.place(whose);
                for &key in facts.writes(whose) {
                    step(key, Step { line, at, place });
                }
            });
        });
        for steps in all.each_mut() {
            steps.sort_unstable();
            for at in 1..steps.len() {
                let (before, one) = (steps[at - 1], &mut steps[at]);
                if before.line == one.line {
                    one.place = one.place.max(before.place);
                }
            }
        }
        Steps { all }
    }

    /// How far a line was with a key before this transaction.
    fn latest(&self, key: u32, line: u32, before: u32) -> Option<u32> {
        let steps = self.all.of(key);
        let behind = steps.partition_point(|step| (step.line, step.at) < (line, before));
        let last = steps[..behind].last()?;
        (last.line == line).then_some(last.place)
    }

    /// How far any line was with a key, of each line before the transaction that `until` says.
    fn latest_of_all(&self, key: u32, until: impl Fn(u32) -> u32) -> Option<u32> {
        let lines = self.all.of(key).chunk_by(|a, b| a.line == b.line);
        let latest = lines.map(|steps| {
            let behind = steps.partition_point(|step| step.at < until(step.line));
            steps[..behind].last().map(|step| step.place)
        });
        latest.max().flatten()
    }
}

/// How much of each line transactions have seen: up to which transaction, that not included. Let go when nobody follows a
/// transaction any more.
struct Clocks {
    line_count: usize,
    all: Vec<u32>,
    /// Places in `all` that are free.
    free: Vec<usize>,
    /// By transaction: where its clock is, and how many times it is followed still.
    kept: Vec<(usize, u32)>,
}

impl Clocks {
    fn new(commits: &Commits<'_>) -> Clocks {
        let mut kept = vec![(0, 0); commits.lines.len()];
        for number in commits.facts.all() {
            for earlier in commits.earlier(number) {
                kept[earlier as usize].1 += 1;
            }
        }
        Clocks {
            line_count: commits.line_count,
            all: Vec::new(),
            free: Vec::new(),
            kept,
        }
    }

    /// Puts what `reader` has seen into `clock`: whom it follows, and what those had seen.
    fn follow(&mut self, commits: &Commits<'_>, reader: u32, clock: &mut [u32]) {
        clock.fill(0);
        for earlier in commits.earlier(reader) {
            let (start, uses) = &mut self.kept[earlier as usize];
            let known = &self.all[*start..*start + self.line_count];
            for (until, &other) in clock.iter_mut().zip(known) {
                *until = other.max(*until);
            }
            let until = &mut clock[commits.lines[earlier as usize] as usize];
            *until = (*until).max(earlier + 1);
            *uses -= 1;
            if *uses == 0 {
                self.free.push(*start);
            }
        }
    }

    /// Keeps what a transaction has seen for those that follow it.
    fn keep(&mut self, number: u32, clock: &[u32]) {
        let (start, uses) = &mut self.kept[number as usize];
        if *uses == 0 {
            return;
        }
        *start = self.free.pop().unwrap_or_else(|| {
            self.all.resize(self.all.len() + self.line_count, 0);
            self.all.len() - self.line_count
        });
        self.all[*start..*start + self.line_count].copy_from_slice(clock);
    }
}

/// One order of commits being looked at.
pub(super) struct Replay<'a> {
    pub(super) commits: &'a Commits<'a>,
    pub(super) order: &'a [u32],
    /// By transaction: its place in the order.
    pub(super) places: &'a [u32],
    /// By read: might it miss something?
    pub(super) stale: &'a [bool],
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
        Steps::new(self, |tell| {
            facts.all().for_each(|at| tell(self.line(at), at, at));
        })
    }

    /// What those wrote that lines read from; of each the first time is enough.
    fn met(&self) -> Steps {
        let facts = self.commits.facts;
        let pairs = facts.all().flat_map(|at| {
            let sources = self.commits.sources(at);
            sources.map(move |source| (self.line(at), source, at))
        });
        let mut pairs: Vec<(u32, u32, u32)> = pairs.collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| (pair.0, pair.1));
        Steps::new(self, |tell| {
            for &(line, source, at) in &pairs {
                tell(line, at, source);
            }
        })
    }

    /// The reads that might miss something: which of the reader's they are.
    fn stale(&self, reader: u32) -> impl Iterator<Item = (usize, Read)> {
        let facts = self.commits.facts;
        let stale = &self.stale[facts.reads_range(reader)];
        let reads = facts.reads(reader).iter().copied().enumerate();
        reads.zip(stale).filter(|one| *one.1).map(|one| one.0)
    }

    /// Those that make such reads.
    fn readers(&self) -> impl Iterator<Item = u32> {
        let all = self.commits.facts.all();
        all.filter(|&reader| self.stale(reader).next().is_some())
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
        for reader in self.readers() {
            // The longest beginning of a line has all that the shorter ones have.
            let longest: BTreeMap<u32, u32> = {
                let mut beginnings = beginnings(reader);
                beginnings.sort_unstable();
                beginnings.into_iter().collect()
            };
            for (_, read) in self.stale(reader) {
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
        for reader in self.readers() {
            let reads = facts.reads(reader);
            let stale = self.stale(reader);
            let mut by_key: Vec<(u32, usize)> = stale.map(|(at, read)| (read.key, at)).collect();
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
                if by_key.len() <= keys.len() {
                    let written = by_key.iter();
                    let mut written = written.filter(|read| keys.binary_search(&read.0).is_ok());
                    written.try_for_each(|read| look(read.1))?;
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
            for (_, read) in self.stale(reader) {
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
        let own = self.own();
        let mut clocks = Clocks::new(self.commits);
        let mut clock = vec![0; self.commits.line_count];
        for &reader in self.order {
            clocks.follow(self.commits, reader, &mut clock);
            for (_, read) in self.stale(reader) {
                let seen = own.latest_of_all(read.key, |line| clock[line as usize]);
                self.look(reader, read, seen)?;
            }
            clocks.keep(reader, &clock);
        }
        Ok(())
    }
}
