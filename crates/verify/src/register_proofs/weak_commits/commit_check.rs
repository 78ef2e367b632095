//! The check of one order of commits at a weak level.

use super::WeakCommits;
use crate::dense_number::OrderPlace;
use crate::keyed_rows::KeyedRows;
use crate::register_proofs::SourcedRead;
use std::collections::BTreeMap;

/// Where lines wrote or read each key: at which transaction, and the latest place in the order of commits up to there.
struct LineSteps {
    /// By key: sorted by line and transaction; the places of a line never decrease.
    all: KeyedRows<LineStep>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LineStep {
    line: u32,
    at: u32,
    place: u32,
}

impl LineSteps {
    /// `emit` passes on (line, transaction at which the line accessed, transaction that wrote).
    fn new(
        replay: &CommitCheck<'_>,
        mut emit: impl FnMut(&mut dyn FnMut(u32, u32, u32)),
    ) -> LineSteps {
        let constraints = replay.commits.constraints;
        let mut all = KeyedRows::new(constraints.table.key_count(), |step| {
            emit(&mut |line, at, writer| {
                let place = replay.place(writer);
                for &key in constraints.writes(writer) {
                    step(key, LineStep { line, at, place });
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
        assert_eq!(all.key_count(), constraints.table.key_count());
        LineSteps { all }
    }

    /// The latest place that a line had accessed of a key before this transaction.
    fn latest(&self, key: u32, line: u32, before: u32) -> Option<u32> {
        let steps = self.all.of(key);
        let seen = steps.partition_point(|step| (step.line, step.at) < (line, before));
        let last = steps[..seen].last()?;
        (last.line == line).then_some(last.place)
    }

    /// The latest place that any line had accessed of a key; of each line before the transaction that `until` returns.
    fn latest_of_all(&self, key: u32, until: impl Fn(u32) -> u32) -> Option<u32> {
        let lines = self.all.of(key).chunk_by(|a, b| a.line == b.line);
        let latest = lines.map(|steps| {
            let seen = steps.partition_point(|step| step.at < until(step.line));
            steps[..seen].last().map(|step| step.place)
        });
        latest.max().flatten()
    }
}

/// Vector clocks: for each line, how much of it a transaction has seen, as the first transaction not included. A clock is
/// freed once no later transaction follows its own; 4 bytes a line for each clock that is kept.
struct SeenClocks {
    line_count: usize,
    all: Vec<u32>,
    /// Free places in `all`.
    free: Vec<usize>,
    /// By transaction: where its clock is, and how many transactions still follow it.
    kept: Vec<(usize, u32)>,
}

impl SeenClocks {
    fn new(commits: &WeakCommits<'_>) -> SeenClocks {
        let mut kept = vec![(0, 0); commits.lines.len()];
        for number in commits.constraints.all() {
            for earlier in commits.earlier(number) {
                kept[earlier as usize].1 += 1;
            }
        }
        SeenClocks {
            line_count: commits.line_count,
            all: Vec::new(),
            free: Vec::new(),
            kept,
        }
    }

    /// Computes the clock of `reader`: the transactions that it follows, and all that these had seen.
    fn follow(&mut self, commits: &WeakCommits<'_>, reader: u32, clock: &mut [u32]) {
        clock.fill(0);
        for earlier in commits.earlier(reader) {
            let (start, uses) = &mut self.kept[earlier as usize];
            let known = &self.all[*start..*start + self.line_count];
            for (until, &other) in clock.iter_mut().zip(known) {
                *until = other.max(*until);
            }
            let line = commits.lines[earlier as usize];
            let line = line.expect("a transaction that is followed is in a line");
            let until = &mut clock[line.get() as usize];
            *until = (*until).max(earlier + 1);
            assert!(
                *uses > 0,
                "op {earlier} is followed more often than was counted"
            );
            *uses -= 1;
            if *uses == 0 {
                self.free.push(*start);
            }
        }
    }

    /// Keeps the clock of a transaction for those that follow it.
    fn keep(&mut self, number: u32, clock: &[u32]) {
        let (start, uses) = &mut self.kept[number as usize];
        if *uses == 0 {
            return;
        }
        *start = self.free.pop().unwrap_or_else(|| {
            self.all.resize(self.all.len() + self.line_count, 0);
            self.all.len() - self.line_count
        });
        assert!(
            *start + self.line_count <= self.all.len(),
            "a clock has a place for each line"
        );
        self.all[*start..*start + self.line_count].copy_from_slice(clock);
    }
}

/// The check of one order of commits.
pub(super) struct CommitCheck<'a> {
    pub(super) commits: &'a WeakCommits<'a>,
    pub(super) order: &'a [u32],
    /// By transaction: its place in the order.
    pub(super) places: &'a [Option<OrderPlace>],
    /// By read: is it of another version than the last one committed?
    pub(super) stale: &'a [bool],
}

impl CommitCheck<'_> {
    /// Checks that no transaction misses a later version that it had seen.
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
        let line = self.commits.lines[number as usize];
        line.expect("a transaction that took place is in a line")
            .get()
    }

    fn place(&self, number: u32) -> u32 {
        let place = self.places[number as usize];
        place
            .expect("a transaction that took place is in the order")
            .get()
    }

    /// The transactions that it reads from, each once.
    fn distinct(&self, number: u32) -> Vec<u32> {
        let mut sources: Vec<u32> = self.commits.sources(number).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// The writes of each line.
    fn own(&self) -> LineSteps {
        let constraints = self.commits.constraints;
        LineSteps::new(self, |emit| {
            constraints.all().for_each(|at| emit(self.line(at), at, at));
        })
    }

    /// The writes of the transactions that each line reads from; the first read of each is enough.
    fn met(&self) -> LineSteps {
        let constraints = self.commits.constraints;
        let pairs = constraints.all().flat_map(|at| {
            let sources = self.commits.sources(at);
            sources.map(move |source| (self.line(at), source, at))
        });
        let mut pairs: Vec<(u32, u32, u32)> = pairs.collect();
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| (pair.0, pair.1));
        LineSteps::new(self, |emit| {
            for &(line, source, at) in &pairs {
                emit(line, at, source);
            }
        })
    }

    /// The stale reads of a transaction, with their indices.
    fn stale(&self, reader: u32) -> impl Iterator<Item = (usize, SourcedRead)> {
        let constraints = self.commits.constraints;
        let stale = &self.stale[constraints.reads_range(reader)];
        let reads = constraints.reads(reader).iter().copied().enumerate();
        reads.zip(stale).filter(|one| *one.1).map(|one| one.0)
    }

    /// The transactions with stale reads.
    fn readers(&self) -> impl Iterator<Item = u32> {
        let all = self.commits.constraints.all();
        all.filter(|&reader| self.stale(reader).next().is_some())
    }

    /// Checks that a read does not miss a version at this place of the order, which its reader has seen.
    fn look(&self, reader: u32, read: SourcedRead, seen: Option<u32>) -> Result<(), String> {
        let source = read.source.map(|source| self.place(source.get()));
        let Some(place) = seen.filter(|_| seen > source) else {
            return Ok(());
        };
        let constraints = self.commits.constraints;
        let (one, other) = (
            constraints.index(reader),
            constraints.index(self.order[place as usize]),
        );
        let key = constraints.table.name(read.key);
        Err(format!(
            "op {one} misses what op {other} wrote to key {key}"
        ))
    }

    /// Checks readers that have seen prefixes of lines: (line, the first transaction not included).
    fn look_along(
        &self,
        steps: &LineSteps,
        beginnings: impl Fn(u32) -> Vec<(u32, u32)>,
    ) -> Result<(), String> {
        for reader in self.readers() {
            // The longest prefix of a line contains the shorter ones.
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

    /// Checks readers that have seen the transactions that they read from; if `in_turn`, only those of earlier reads.
    fn look_at_sources(&self, in_turn: bool) -> Result<(), String> {
        let constraints = self.commits.constraints;
        for reader in self.readers() {
            let reads = constraints.reads(reader);
            let stale = self.stale(reader);
            let mut by_key: Vec<(u32, usize)> = stale.map(|(at, read)| (read.key, at)).collect();
            by_key.sort_unstable();
            let sources = reads.iter().zip(0..);
            let sources = sources.filter_map(|(read, at)| Some((read.source?.get(), at)));
            let mut sources: Vec<(u32, usize)> = sources.collect();
            sources.sort_unstable();
            sources.dedup_by_key(|source| source.0);
            for (source, from) in sources {
                let look = |at: usize| {
                    if in_turn && at <= from {
                        return Ok(());
                    }
                    self.look(reader, reads[at], Some(self.place(source)))
                };
                let keys = constraints.writes(source);
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

    /// Checks readers that have seen their session so far, the transactions that it and they read from, and what comes
    /// before these in their lines.
    fn look_at_pipelines(&self) -> Result<(), String> {
        let (commits, constraints) = (self.commits, self.commits.constraints);
        let own = self.own();
        // By line: how much of each line it has seen.
        let mut clocks: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); commits.line_count];
        for reader in constraints.all() {
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

    /// Checks readers that have seen everything that happened before, in any number of steps.
    fn look_at_causes(&self) -> Result<(), String> {
        let own = self.own();
        let mut clocks = SeenClocks::new(self.commits);
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
