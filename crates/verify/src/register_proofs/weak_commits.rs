//! The replay of certificates of weak levels: one order of commits, and visibility from the definitions.

mod commit_check;

use super::{Evidence, RegisterConstraints};
use crate::dense_number::{LineNumber, OrderPlace, TransactionNumber};
use commit_check::CommitCheck;

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

/// Does an order of commits prove this model here?
pub(super) fn is_weak(model: &str) -> bool {
    MODELS.contains(&model)
}

/// The transactions of weak levels, by number; entries of transactions that did not take place have no meaning.
pub(super) struct WeakCommits<'a> {
    constraints: &'a RegisterConstraints<'a>,
    /// By transaction: its line, that is its session, or a line of its own if its outcome is unknown and the session
    /// continued.
    lines: Vec<Option<LineNumber>>,
    line_count: usize,
    /// By transaction: the one before it in its line; `None` for the first.
    before: Vec<Option<TransactionNumber>>,
}

impl<'a> WeakCommits<'a> {
    pub(super) fn new(constraints: &'a RegisterConstraints<'a>) -> WeakCommits<'a> {
        let table = constraints.table;
        // By session: the last successful transaction.
        let mut last = vec![None; table.session_count()];
        for number in constraints.all() {
            let one = &table.one(number);
            if one.is_ok() {
                last[one.session as usize] = Some(TransactionNumber::new(number));
            }
        }
        let count = table.len();
        let mut commits = WeakCommits {
            constraints,
            lines: vec![None; count],
            line_count: table.session_count(),
            before: vec![None; count],
        };
        let mut ends = vec![None; table.session_count()];
        for number in constraints.all() {
            let one = &table.one(number);
            let session = one.session as usize;
            let own = Some(TransactionNumber::new(number));
            // Its session continued, so it is not known to come before what that did later.
            if !one.is_ok() && last[session] > own {
                let line = LineNumber::new(commits.line_count as u32);
                commits.lines[number as usize] = Some(line);
                commits.line_count += 1;
                continue;
            }
            commits.lines[number as usize] = Some(LineNumber::new(one.session));
            let before = std::mem::replace(&mut ends[session], own);
            commits.before[number as usize] = before;
            assert!(before < own, "a line follows its session");
        }
        assert!(
            constraints
                .all()
                .all(|number| commits.lines[number as usize].is_some()),
            "a transaction that took place is in no line"
        );
        commits
    }

    fn before(&self, number: u32) -> Option<u32> {
        self.before[number as usize].map(TransactionNumber::get)
    }

    /// The transactions that it reads from.
    fn sources(&self, number: u32) -> impl Iterator<Item = u32> + Clone {
        let reads = self.constraints.reads(number).iter();
        reads.filter_map(|read| Some(read.source?.get()))
    }

    /// The transactions before it in its line, the last first.
    fn session(&self, number: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.before(number), |&one| self.before(one))
    }

    /// The transactions that it follows directly: those that it reads from, and the one before it in its line.
    fn earlier(&self, number: u32) -> impl Iterator<Item = u32> + Clone {
        self.sources(number).chain(self.before(number))
    }

    /// Checks that the model holds if transactions commit in this order.
    pub(super) fn replay(&self, model: &str, order: &[u32]) -> Result<(), String> {
        let places = self.constraints.places(order)?;
        let stale = self.stale(order, &places)?;
        if !stale.contains(&true) {
            return Ok(());
        }
        let replay = CommitCheck {
            commits: self,
            order,
            places: &places,
            stale: &stale,
        };
        replay.replay(model)
    }

    /// By read: is it of another version than the last one that was committed before its transaction? All that a
    /// transaction has seen was committed before it if each comes after those that it follows; so the other reads miss
    /// nothing at any model, and only stale ones must be looked at.
    fn stale(&self, order: &[u32], places: &[Option<OrderPlace>]) -> Result<Vec<bool>, String> {
        let constraints = self.constraints;
        let mut stale = vec![false; constraints.reads.row_count()];
        // By key: the transaction that committed it last.
        let mut last = vec![None; constraints.table.key_count()];
        for &number in order {
            let mut earlier = self.earlier(number);
            if let Some(other) = earlier.find(|&other| {
                let other = places[other as usize];
                other.is_none() || other >= places[number as usize]
            }) {
                let (one, other) = (constraints.index(number), constraints.index(other));
                return Err(format!(
                    "op {one} comes before op {other}, which it follows"
                ));
            }
            let stale = &mut stale[constraints.reads_range(number)];
            for (read, stale) in constraints.reads(number).iter().zip(stale) {
                *stale = last[read.key as usize] != read.source;
            }
            for &key in constraints.writes(number) {
                last[key as usize] = Some(TransactionNumber::new(number));
            }
        }
        assert_eq!(stale.len(), constraints.reads.row_count());
        Ok(stale)
    }

    /// Is the first before the second in a line?
    fn is_before(&self, one: u32, other: u32) -> bool {
        let [first, second] = [one, other].map(|number| self.lines[number as usize]);
        first.is_some() && first == second && one < other
    }

    /// Had `reader` seen `other` at its read number `at`, by the definition of this model?
    fn has_seen(&self, model: &str, reader: u32, at: usize, other: u32) -> bool {
        let reads = |one: u32| self.sources(one).any(|source| source == other);
        let is_before = |one: u32| self.is_before(other, one);
        match model {
            "axiomatic-read-committed" => {
                let mut earlier = self.constraints.reads(reader)[..at].iter();
                earlier.any(|read| read.source == Some(TransactionNumber::new(other)))
            }
            "axiomatic-read-atomic" => is_before(reader) || reads(reader),
            "read-your-writes" => is_before(reader),
            "monotonic-reads" => self.session(reader).any(reads),
            "monotonic-writes" => self.sources(reader).any(is_before),
            "writes-follow-reads" => {
                let mut sources = self.sources(reader);
                sources.any(|source| self.session(source).chain([source]).any(reads))
            }
            "pram" => {
                let mut session = self.session(reader).chain([reader]);
                let met = |source| source == other || is_before(source);
                is_before(reader) || session.any(|one| self.sources(one).any(met))
            }
            _ => self.is_cause(other, reader),
        }
    }

    /// Do sessions and reads lead from the first to the second in any number of steps?
    fn is_cause(&self, one: u32, other: u32) -> bool {
        let mut reached = vec![false; self.lines.len()];
        let mut waiting = vec![other];
        while let Some(at) = waiting.pop() {
            for earlier in self.earlier(at) {
                if earlier == one {
                    return true;
                }
                if !std::mem::replace(&mut reached[earlier as usize], true) {
                    waiting.push(earlier);
                }
            }
        }
        false
    }

    /// Checks that this evidence is a cycle of the model's order, or a read of an initial state that was overwritten
    /// before.
    pub(super) fn finding(&self, model: &str, finding: &Evidence) -> Result<(), String> {
        let steps = &finding.steps;
        let operations = finding.operations.iter().copied();
        let named = operations.chain(steps.iter().flat_map(|step| [step.from, step.to]));
        let named = self.constraints.table.by_index(named);
        let find = |index: &u64| {
            let found = named.get(index).copied();
            let found = found.filter(|&number| self.constraints.took_place[number as usize]);
            found.ok_or_else(|| format!("op {index} took no place"))
        };
        let readers: Vec<u32> = finding
            .operations
            .iter()
            .map(find)
            .collect::<Result<_, _>>()?;
        let mut is_unborn = false;
        for step in steps {
            let (one, other) = (find(&step.from)?, find(&step.to)?);
            let holds = match step.relation.as_str() {
                "process" => self.is_before(one, other),
                "wr" => self.sources(other).any(|source| source == one),
                "ww" if finding.anomaly != "causality-cycle" => readers.iter().any(|&reader| {
                    self.is_missed(model, reader, one, Some(TransactionNumber::new(other)))
                }),
                "rw" => {
                    is_unborn = self.is_missed(model, one, other, None);
                    is_unborn
                }
                _ => false,
            };
            if !holds {
                let (from, to) = (step.from, step.to);
                return Err(format!("op {from} comes before op {to} for no reason"));
            }
        }
        let mut pairs = steps.iter().zip(steps.iter().cycle().skip(1));
        if is_unborn || (!steps.is_empty() && pairs.all(|(a, b)| a.to == b.from)) {
            return Ok(());
        }
        Err(format!("{}: it is no cycle", finding.anomaly))
    }

    /// Does `reader` read a key from `source` that `writer` writes as well, and had it seen `writer`?
    fn is_missed(
        &self,
        model: &str,
        reader: u32,
        writer: u32,
        source: Option<TransactionNumber>,
    ) -> bool {
        let mut reads = self.constraints.reads(reader).iter().enumerate();
        reads.any(|(at, read)| {
            read.source == source
                && self.constraints.has_written(writer, read.key)
                && self.has_seen(model, reader, at, writer)
        })
    }
}
