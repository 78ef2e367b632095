//! Transactions that append to lists and read them.
//!
//! A read of a list tells the order of all appends before it, so version orders need no guessing (Kingsbury and
//! Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020).

mod definite;
mod edges;
mod gather;
mod late;
mod lists;
mod online;
mod proof;
mod reads;
mod record;
mod renaming;
mod reordered;
mod replay;
mod scene;
mod stage;
mod table;
mod unread;

use super::Bound;
use super::explain::{self, Told as _};
use super::findings::{Findings, Summary, verdict};
use super::graph::{Edges, Sink};
use super::level::Level;
use super::passes::{InRounds, InTurn, Passes, Rounds};
use super::rows::Linked;
use crate::{Anomaly, Certificate, Checker, Component, Finding, Verdict};
use edges::Orders;
use gather::Gather;
use late::{Late, LateKeys};
use lists::Lists;
pub(crate) use online::OnlineLists;
use record::Record;
use scene::Scene;
use seatrial_history::{Chunks, FoldError, Folder, History, Key};
use stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use table::{Refusal, Table};

/// Judges transactions of appends (`[:append k e]`) and reads (`[:r k [..]]`); no element may be appended twice to a
/// key.
///
/// The order of a key's versions is that of its longest read; what nobody read comes after it. From that follow, for
/// every transaction that took place (successful, or unknown with an effect that was seen), the edges *ww* (wrote the
/// next version), *wr* (read what was written) and *rw* (overwrote what was read), and, as the level demands, the
/// order of each process and real time. A cycle contradicts the level.
///
/// One pass over the chunks verifies that reads are prefixes of one another and keeps their lengths. Then transactions are
/// put in an order that keeps all this and real time; where there is one, there is no cycle, and no graph is made. Else
/// the graph is looked at once as a whole, without the kinds of its edges, and everything else happens inside components.
/// About 130 bytes a transaction, of those that are known at a time: see [`Windows`]. Only what is found is read a second
/// time, to be told.
///
/// Its downside: appends that no read orders among themselves are not ordered, so an anomaly that only they would
/// show stays unseen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListAppend {
    level: Level,
    bound: Bound,
    windows: Windows,
}

/// How a history is judged piece by piece, so that memory does not grow with it.
///
/// When so many transactions are known, those are judged and let go that can be on no cycle with anything later: for
/// which all keys are closed that they touched, and those of all that comes before them. Nothing is lost by that; the
/// verdict is that of the whole history. A key that is used after it was closed costs one more pass and about 1.3 bytes an
/// element of its list (`LateKeys`), as long as each late read shows all that was appended before the key was closed; any other
/// use joins the windows from the first to the last use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Transactions that are known before some are let go; more when less than half of them could be let go before.
    pub transactions_min: usize,
    /// A key that so many chunks (of up to 16,384 operations) do not name is closed.
    pub idle_chunks: u32,
    /// Chunks in a row that have fewer operations, as those of a slow test have, are counted as one.
    pub chunk_length_min: usize,
    /// Is this a bound? Then the verdict is unknown when a key that was closed comes back and a read misses what it had.
    /// Otherwise the history is judged once more, with such keys kept open until they are named for the last time.
    pub is_bound: bool,
}

/// If more keys are appended to after they were closed, they are not opened again but kept open.
const REOPENED_MAX: usize = 1_024;

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            transactions_min: 1 << 20,
            idle_chunks: 8,
            chunk_length_min: 8_192,
            is_bound: false,
        }
    }
}

impl Windows {
    /// All at once.
    pub const WHOLE: Windows = Windows {
        transactions_min: usize::MAX,
        idle_chunks: u32::MAX,
        chunk_length_min: 8_192,
        is_bound: false,
    };
}

impl ListAppend {
    /// The checker of this level.
    pub fn new(level: Level) -> ListAppend {
        ListAppend {
            level,
            bound: Bound::default(),
            windows: Windows::default(),
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> ListAppend {
        ListAppend { bound, ..self }
    }

    /// The same with other windows.
    #[must_use]
    pub fn with_windows(self, windows: Windows) -> ListAppend {
        ListAppend { windows, ..self }
    }

    /// Judges the folder's history. The error is that of a chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        let (verdict, _) = self.verdict(folder, false)?;
        Ok(verdict)
    }

    /// The same with what proves it; without for an unknown verdict, and for a valid one at a level that no simple order
    /// proves.
    pub fn certify<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<(Verdict, Option<Certificate>), FoldError<C::Error>> {
        self.verdict(folder, true)
    }

    /// The same for a history that is gone through from its beginning each time: once, and once more to tell what was
    /// found.
    pub fn certify_rounds<R: Rounds>(
        &self,
        rounds: &R,
        certify: bool,
    ) -> Result<(Verdict, Option<Certificate>), R::Error> {
        self.verdict(&InRounds(rounds), certify)
    }

    fn verdict<P: Passes>(
        &self,
        passes: &P,
        certify: bool,
    ) -> Result<(Verdict, Option<Certificate>), P::Error> {
        let judge = *self;
        let gathered = passes.pass(Gather {
            judge,
            certify,
            late: LateKeys::default(),
        })?;
        self.conclude(passes, gathered, certify)
    }

    /// The verdict on what one pass has gathered.
    fn conclude<P: Passes>(
        &self,
        passes: &P,
        (mut table, mut record): (Table, Record),
        certify: bool,
    ) -> Result<(Verdict, Option<Certificate>), P::Error> {
        let mut late_keys = 0;
        if let Some(Refusal::Reopened(_)) = &table.refusal {
            drop((table, record));
            (table, record, late_keys) = self.gather_late(passes, certify)?;
        }
        if let Some(Refusal::Reopened(key)) = &table.refusal {
            return Ok((self.unknown(reopened(key)), None));
        }
        if let Some(refusal) = table.refusal.take() {
            let reason = refused(passes, table, refusal)?;
            return Ok((self.unknown(reason), None));
        }
        let closing: Vec<_> = table.lists.iter().map(|list| !list.is_closed).collect();
        let mut lists = Lists::new(table, self.level);
        if record.judge(&mut lists, &closing, true).is_err() {
            let reason = "more than 2^32 dependencies".to_owned();
            return Ok((self.unknown(reason), None));
        }
        drop(lists);
        record.drop_without_order();
        let (findings, components) = told(passes, &mut record)?;
        let mut undecided = record.open_questions();
        let forbidden = self.level.forbidden();
        let is_tolerated = |anomaly: Anomaly| !forbidden.contains(anomaly);
        let has_tolerated = findings.anomalies().any(is_tolerated);
        let proof = record.proof(has_tolerated);
        if proof.is_none() && undecided.is_empty() && record.found.complete {
            undecided.push(format!(
                "whether {} holds, which is more than the absence of the anomalies that are looked for",
                self.level.name()
            ));
        }
        let is_known = !record.is_torn && record.doubtful == 0;
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: record.tally,
            keys: record.keys,
            edges: record.edges,
            found: &record.found,
            proof,
            is_established: &|level| {
                is_known && (proof::is_absence_of_cycles(level) || proof::is_of_commits(level))
                    || proof.is_some() && self.level.implies(level)
            },
            undecided,
        };
        let mut verdict = Verdict {
            components,
            ..verdict(findings, &summary)
        };
        verdict.details["windows"] = record.windows.into();
        verdict.details["largest_window"] = record.largest_window.into();
        if late_keys > 0 {
            verdict.details["late_keys"] = late_keys.into();
        }
        let certificate = if certify {
            proof::certificate(self.level, record, &mut verdict)
        } else {
            None
        };
        Ok((verdict, certificate))
    }

    /// Gathers a history in which keys are named again after they were closed; how many.
    fn gather_late<P: Passes>(
        &self,
        passes: &P,
        certify: bool,
    ) -> Result<(Table, Record, usize), P::Error> {
        let judge = *self;
        let late = passes.pass(Late(self.windows))?;
        let gather = |late| {
            passes.pass(Gather {
                judge,
                certify,
                late,
            })
        };
        let is_pinned = late.appended() > REOPENED_MAX && !self.windows.is_bound;
        let (mut table, mut record) = gather(if is_pinned {
            late.pinned()
        } else {
            late.clone()
        })?;
        if matches!(table.refusal, Some(Refusal::Reopened(_))) && !self.windows.is_bound {
            drop((table, record));
            (table, record) = gather(late.pinned())?;
        }
        Ok((table, record, late.len()))
    }

    fn unknown(&self, reason: String) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some(self.level.name().to_owned());
        verdict.unknown(reason)
    }
}

/// The dependencies that lists tell, with these orders besides.
struct Dependencies<'a> {
    lists: &'a Lists,
    orders: Orders,
}

impl Linked for Dependencies<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        self.lists.link(self.orders, edges);
    }
}

/// Why a history whose keys come back cannot be judged in windows.
fn reopened(key: &Key) -> String {
    format!(
        "key {key} was named again after nobody had for so long that it was taken for closed: it needs windows with more \
         patience, or none"
    )
}

/// Why the history cannot be judged, in words.
fn refused<P: Passes>(passes: &P, table: Table, refusal: Refusal) -> Result<String, P::Error> {
    Ok(match refusal {
        Refusal::Operation(index, reason) => format!("op {index}: {reason}"),
        Refusal::Size(reason) => reason.into(),
        Refusal::Reopened(key) => reopened(&key),
        Refusal::Twice(key, element, transactions) => {
            let lists = Lists::new(table, Level::ReadUncommitted);
            let stages = [Stage::new(&lists, BTreeSet::from(transactions), Vec::new())];
            let ops = scene::operations(passes, &stages)?;
            let [stage] = &stages;
            let scene = Scene { stage, ops: &ops };
            scene.twice(&key.to_string(), element, transactions)
        }
    })
}

/// What was found, in words, and the largest components.
fn told<P: Passes>(
    passes: &P,
    record: &mut Record,
) -> Result<(Findings, Vec<Component>), P::Error> {
    let ops = scene::operations(passes, &record.stages)?;
    let mut findings: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for (anomaly, kept) in &record.kept {
        let told = kept.iter().map(|kept| {
            let stage = &record.stages[kept.stage];
            Scene { stage, ops: &ops }.finding(anomaly, &kept.suspect)
        });
        findings.insert(*anomaly, told.collect());
    }
    let components = record.sketches.iter().map(|(stage, sketch)| {
        let stage = &record.stages[*stage];
        let scene = Scene { stage, ops: &ops };
        explain::component(|node| scene.told_index(node), sketch)
    });
    let components = components.collect();
    let counts = std::mem::take(&mut record.counts);
    Ok((Findings::of(counts, findings), components))
}

impl Checker for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn check(&self, history: &History) -> Verdict {
        match self.verdict(&InTurn(history), false) {
            Ok((verdict, _)) => verdict,
            Err(error) => self.unknown(error.to_string()),
        }
    }

    fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
        let certified = self.verdict(&InTurn(history), true);
        Some(certified.unwrap_or_else(|error| (self.unknown(error.to_string()), None)))
    }
}

#[cfg(test)]
mod tests;
