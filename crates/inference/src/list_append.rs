//! Checker `list-append`: transactions that append to lists and read them.
//!
//! A read of a list shows the order of all appends before it, so version orders need no assumptions (Kingsbury and Alvaro,
//! "Elle: Inferring Isolation Anomalies from Experimental Observations", 2020).
//!
//! The way of a history, and the reading order of the files:
//!
//! ```text
//! chunks ─► gather ─► table ─► lists ─► reads, reordered    anomalies that need no cycle
//!             │                  ├────► strict_order        an order without making a graph, if there is one
//!             │ window full      └────► edges, proof, unread    else the graph, its cycles, and what proves the level
//!             └──────────────► window_record ─► witness_context ─► witness_explanation    findings in words
//! late: keys that are used after they were closed · renaming: frees a window · definite, online: while the history is recorded
//! ```

mod definite;
mod gather;
mod late;
mod list_edges;
mod list_proof;
mod list_table;
mod lists;
mod online_lists;
mod read_anomalies;
mod renaming;
mod reordered;
mod strict_order;
mod unread;
mod window_record;
mod witness_context;
mod witness_explanation;

use crate::graph_verdict::{VerdictInputs, verdict};
use gather::ListFold;
use late::LateKeyFold;
use list_edges::OrderKinds;
use list_proof::{is_absence_of_cycles, is_of_commits};
use list_table::{ListTable, ListsError};
use lists::OrderedLists;
use online_lists::OnlineLists;
use seatrial_checker::{
    Aims, Anomaly, Checker, Component, Finding, Findings, OnlineChecker, Robustness, Verdict,
    WindowFigures, check_source,
};
use seatrial_cycles::Level;
use seatrial_cycles::SearchBound;
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink};
use seatrial_cycles::shape::EdgeSource;
use seatrial_history::{ChunkSource, History, Key, SourceError};
use seatrial_isolation::WithoutTimes;
use seatrial_isolation::explain::{self, RecordedTransactions as _};
use seatrial_verify::Certificate;
use std::collections::{BTreeMap, BTreeSet};
use window_record::WindowRecord;
use witness_context::WitnessContext;
use witness_explanation::WitnessExplanation;

/// Checks transactions of appends (`[:append k e]`) and reads (`[:r k [..]]`); no element may be appended twice to a
/// key.
///
/// The order of a key's versions is that of its longest read; elements that were never read come after it. From this follow,
/// for every transaction that took effect (successful, or of unknown outcome with an effect that was read), the edges *ww*
/// (wrote the next version), *wr* (read a version that was written) and *rw* (overwrote a version that was read), and, as the
/// level requires, the order of each process and real time. A cycle contradicts the level.
///
/// One pass over the chunks verifies that reads are prefixes of one another and keeps their lengths. Then transactions are
/// sorted into an order that respects all this and real time; if there is one, there is no cycle, and no graph is made. Else
/// the graph is searched once as a whole, without the kinds of its edges, and everything else happens inside components.
/// About 130 bytes for each transaction in memory: see [`Windows`]. Only the operations of findings are read a second time, to
/// explain them.
///
/// Its downside: appends that no read orders among themselves are not ordered, so an anomaly that only they would show is not
/// found.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListAppend {
    level: Level,
    /// Did the caller choose the level? The default level is weaker for a history without times.
    is_asked: bool,
    bound: SearchBound,
    windows: Windows,
}

/// How a history is checked window by window, so that memory does not grow with it.
///
/// When [`Windows::transactions_min`] transactions are in memory, those are decided and freed that can be on no cycle with a
/// later transaction: all keys that they accessed are closed, and so are the keys of all their predecessors. Nothing is lost:
/// the verdict is that of the whole history. A key that is used after it was closed costs one more pass and about 1.3 bytes per
/// element of its list (`LateKeys`), as long as each late read has all elements that were appended before the key was closed;
/// any other late use joins the windows from its first to its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Transactions in memory before some are freed; more if less than half of them could be freed the last time.
    pub transactions_min: usize,
    /// A key without operations in this many chunks (of up to 16,384 operations) is closed.
    pub idle_chunks: u32,
    /// Consecutive chunks with fewer operations, which a slow test has, are counted as one.
    pub chunk_length_min: usize,
    /// Is this a limit? Then the verdict is unknown if a closed key is used again and a read misses its elements. Otherwise the
    /// history is checked once more, with such keys kept open until their last use.
    pub is_bound: bool,
}

/// If more keys are appended to after they were closed, they are kept open instead of being reopened.
const REOPENED_MAX: usize = 1_024;

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            // Some 80 MB of transactions; twice as many cost 70 MB more and gain 3 % of the time.
            transactions_min: 5 << 17,
            idle_chunks: 8,
            chunk_length_min: 8_192,
            is_bound: false,
        }
    }
}

impl Windows {
    /// For a history that is checked while it is recorded: smaller than the default, so that findings come sooner and less memory
    /// is used.
    pub const EARLY: Windows = Windows {
        transactions_min: 1 << 18,
        idle_chunks: 8,
        chunk_length_min: 8_192,
        is_bound: false,
    };

    /// The whole history in one window.
    pub const WHOLE: Windows = Windows {
        transactions_min: usize::MAX,
        idle_chunks: u32::MAX,
        chunk_length_min: 8_192,
        is_bound: false,
    };
}

impl ListAppend {
    /// A checker of this level.
    pub fn new(level: Level) -> ListAppend {
        ListAppend {
            level,
            is_asked: true,
            bound: SearchBound::default(),
            windows: Windows::default(),
        }
    }

    /// With another bound.
    #[must_use]
    pub fn with_bound(self, bound: SearchBound) -> ListAppend {
        ListAppend { bound, ..self }
    }

    /// With other windows.
    #[must_use]
    pub fn with_windows(self, windows: Windows) -> ListAppend {
        ListAppend { windows, ..self }
    }

    /// The verdict on the result of one pass.
    fn conclude(
        &self,
        source: &dyn ChunkSource,
        (mut table, mut record): (ListTable, WindowRecord),
        certify: bool,
    ) -> Result<(Verdict, Option<Certificate>), SourceError> {
        let mut late_keys = 0;
        if let Some(ListsError::Reopened(_)) = &table.refusal {
            drop((table, record));
            (table, record, late_keys) = self.gather_late(source, certify)?;
        }
        if let Some(ListsError::Reopened(key)) = &table.refusal {
            return Ok((self.unknown(reopened(key)), None));
        }
        if let Some(refusal) = table.refusal.take() {
            let reason = refused(source, table, refusal)?;
            return Ok((self.unknown(reason), None));
        }
        let closing: Vec<_> = table.lists.iter().map(|list| !list.is_closed).collect();
        let mut lists = OrderedLists::new(table, self.level);
        if record.check_window(&mut lists, &closing, true).is_err() {
            let reason = "more than 2^32 dependencies".to_owned();
            return Ok((self.unknown(reason), None));
        }
        drop(lists);
        record.drop_without_order();
        let (findings, components) = explained_findings(source, &mut record)?;
        let mut undecided = record.open_questions();
        let forbidden = self.level.forbidden();
        let is_tolerated = |anomaly: Anomaly| !forbidden.contains(anomaly);
        let has_tolerated = findings.names().any(is_tolerated);
        let proof = record.proof(has_tolerated);
        if proof.is_none() && undecided.is_empty() && record.found.complete {
            undecided.push(format!(
                "whether {} holds, which is more than the absence of the anomalies that are searched for",
                self.level.name()
            ));
        }
        let is_known = !record.is_torn && record.doubtful == 0;
        let summary = VerdictInputs {
            checker: self.name(),
            level: self.level,
            tally: record.tally,
            keys: record.keys,
            edges: Some(record.edges),
            found: &record.found,
            proof,
            is_established: &|level| {
                is_known && (is_absence_of_cycles(level) || is_of_commits(level))
                    || proof.is_some() && self.level.implies(level)
            },
            undecided,
            windows: Some(WindowFigures {
                windows: record.windows,
                largest_window: record.largest_window,
                late_keys: (late_keys > 0).then_some(late_keys),
            }),
            inference: None,
        };
        let mut verdict = Verdict {
            components,
            ..verdict(findings, &summary)
        };
        let certificate = if certify {
            list_proof::certificate(self.level, record, &mut verdict)
        } else {
            None
        };
        Ok((verdict, certificate))
    }

    /// Reads a history once more in which keys are used after they were closed; also returns the number of those keys.
    fn gather_late(
        &self,
        source: &dyn ChunkSource,
        certify: bool,
    ) -> Result<(ListTable, WindowRecord, usize), SourceError> {
        let checker = *self;
        let late = source.fold(&LateKeyFold(self.windows))?;
        let gather = |late| {
            source.fold(&ListFold {
                checker,
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
        if matches!(table.refusal, Some(ListsError::Reopened(_))) && !self.windows.is_bound {
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

/// The dependencies of lists, together with these orders.
struct ListDependencies<'a> {
    lists: &'a OrderedLists,
    orders: OrderKinds,
}

impl EdgeSource for ListDependencies<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        self.lists.link(self.orders, edges);
    }
}

/// Why a history whose closed keys are used again cannot be checked in windows.
fn reopened(key: &Key) -> String {
    format!(
        "key {key} was used again after it had been idle and was closed: larger windows are needed, or none"
    )
}

/// Why the history cannot be checked, in words.
fn refused(
    source: &dyn ChunkSource,
    table: ListTable,
    refusal: ListsError,
) -> Result<String, SourceError> {
    Ok(match refusal {
        ListsError::Operation(refused) => refused.to_string(),
        ListsError::Size(reason) => reason.into(),
        ListsError::Reopened(key) => reopened(&key),
        ListsError::Twice(key, element, transactions) => {
            let lists = OrderedLists::new(table, Level::ReadUncommitted);
            let contexts = [WitnessContext::new(
                &lists,
                BTreeSet::from(transactions),
                Vec::new(),
            )];
            let ops = witness_explanation::operations(source, &contexts)?;
            let [context] = &contexts;
            let explanation = WitnessExplanation { context, ops: &ops };
            explanation.appended_twice(&key.to_string(), element, transactions)
        }
    })
}

/// The findings, explained, and the largest components.
fn explained_findings(
    source: &dyn ChunkSource,
    record: &mut WindowRecord,
) -> Result<(Findings, Vec<Component>), SourceError> {
    let ops = witness_explanation::operations(source, &record.contexts)?;
    let mut findings: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for (anomaly, kept) in &record.kept {
        let explained = kept.iter().map(|kept| {
            let context = &record.contexts[kept.context];
            WitnessExplanation { context, ops: &ops }.finding(anomaly, &kept.suspect)
        });
        findings.insert(*anomaly, explained.collect());
    }
    let components = record.sketches.iter().map(|(context, sketch)| {
        let context = &record.contexts[*context];
        let explanation = WitnessExplanation { context, ops: &ops };
        explain::component(|node| explanation.shown_index(node), sketch)
    });
    let components = components.collect();
    let counts = std::mem::take(&mut record.counts);
    Ok((Findings::of(counts, findings), components))
}

impl Checker for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            is_broken_by_level: true,
            ..Robustness::OF_TRANSACTIONS
        }
    }

    fn check(&self, history: &History) -> Verdict {
        let checked = check_source(self, history, &Aims::default());
        checked.map_or_else(
            |error| self.unknown(error.to_string()),
            |checked| checked.verdict,
        )
    }

    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker> {
        WithoutTimes::start(self.level, self.is_asked, &aims.provenance, |level| {
            Box::new(OnlineLists::new(ListAppend { level, ..*self }, aims))
        })
    }
}

#[cfg(test)]
mod tests;
