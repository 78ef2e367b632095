//! The checker of models that are weaker than linearizability, for histories of reads and writes of registers.

use crate::by_isolation::SingleOperations;
use crate::causal_reads::overwritten_reads;
use crate::consistency_explanation as explain;
use crate::consistency_model::ConsistencyModel;
use crate::happens_before::{CausalClocks, SessionOrder};
use crate::register_gathering::GatherRegisterHistory;
use crate::register_history::{RegisterHistory, RegisterVersion};
use crate::sequential_search::{SequentialSearchResult, search};
use crate::session_guarantees::{monotonic_reads, read_your_writes};
use crate::session_views::SessionViews;
use seatrial_checker::{
    Aims, Anomaly, Checked, Checker, DataTypeFigures, Details, FINDINGS_MAX, Figures, Findings,
    FoldChecker, OnlineChecker, Validity, Verdict, check_source,
};
use seatrial_history::{ChunkSource, History};
use seatrial_isolation::AxiomaticModel;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Checks reads and writes of registers against one [`ConsistencyModel`]. Registers are the keys of one memory: unlike
/// linearizability, most of these models are not local, so they are not checked key by key.
///
/// It gathers the history in one pass (40 bytes for each operation, 60 for each value), and decides at the end. Values must be
/// written once to a key if they are read; otherwise sequential consistency is searched for, within a bound, and the verdict on
/// every other model is unknown. Operations of unknown outcome take effect if their value was read, at any time after those
/// that their process ran before; otherwise they are left out.
#[derive(Clone, Debug, Default)]
pub struct Consistency {
    model: ConsistencyModel,
}

/// The verdict so far.
#[derive(Default)]
pub(crate) struct ConsistencyTally {
    pub(crate) findings: Findings,
    /// Why the model is not decided.
    pub(crate) unknown: Option<String>,
    pub(crate) proof: Option<&'static str>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) figures: BTreeMap<&'static str, Json>,
}

impl Consistency {
    /// The name by which `--checker` and the results know it.
    pub const NAME: &'static str = "consistency";

    /// The checker of this model.
    pub fn new(model: ConsistencyModel) -> Consistency {
        Consistency { model }
    }

    /// The verdict on what was gathered, or the reason why there is nothing.
    fn decide(&self, gathered: Result<RegisterHistory, String>) -> Verdict {
        let mut verdict = Verdict::valid(Consistency::NAME);
        verdict.model = Some(self.model.to_string());
        let mut history = match gathered {
            Ok(history) => history,
            Err(reason) => return verdict.unknown(reason),
        };
        let mut tally = ConsistencyTally::default();
        tally.count_operations(&history);
        tally.check(self.model, &mut history);
        tally.conclude(self.model, verdict)
    }
}

impl ConsistencyTally {
    fn count_operations(&mut self, history: &RegisterHistory) {
        let [ok, fail, info] = history.outcomes;
        self.counts.extend([
            ("ok", ok),
            ("fail", fail),
            ("info", info),
            ("left_out", history.left_out),
            ("keys", history.keys.iter().flatten().count() as u64),
            ("processes", history.processes.len() as u64),
        ]);
    }

    fn check(&mut self, model: ConsistencyModel, history: &mut RegisterHistory) {
        if model != ConsistencyModel::Safe {
            self.remove_unfounded(history);
        }
        if model != ConsistencyModel::Sequential
            && let Some(action) = history.compare_and_set()
        {
            self.unknown = Some(format!(
                "op {} is a compare-and-set, which is decided for `sequential` only: {model} has reads and writes",
                action.index
            ));
            return;
        }
        if let ConsistencyModel::Regular | ConsistencyModel::Safe = model {
            return self.check_real_time(model, history);
        }
        if let Some(version) = history.ambiguous() {
            return self.check_ambiguous(model, history, &version.clone());
        }
        match model {
            ConsistencyModel::Sequential => {
                self.by_isolation(AxiomaticModel::StrongSessionSerializable, history);
            }
            ConsistencyModel::CausalConvergence => {
                self.by_isolation(AxiomaticModel::Causal, history);
            }
            ConsistencyModel::ReadYourWrites => {
                let program = SessionOrder::new(history);
                read_your_writes(&program, |it| {
                    self.findings
                        .add(explain::MISSED_OWN_WRITE, || explain::session(&program, it));
                });
            }
            ConsistencyModel::MonotonicReads => {
                let program = SessionOrder::new(history);
                monotonic_reads(&program, |it| {
                    self.findings
                        .add(explain::BACKWARD_READ, || explain::session(&program, it));
                });
            }
            ConsistencyModel::Pram
            | ConsistencyModel::CausalMemory
            | ConsistencyModel::Causal
            | ConsistencyModel::MonotonicWrites
            | ConsistencyModel::WritesFollowReads => self.check_views(model, history),
            _ => self.check_staleness(model, history),
        }
    }

    /// Adds the reads of values that were never written, or only by failed operations, and leaves them out.
    fn remove_unfounded(&mut self, history: &mut RegisterHistory) {
        history.remove_impossible();
        let is_unfounded = |version: &RegisterVersion| version.writers == 0;
        let numbered = history.actions.iter().zip(0..);
        let unfounded = numbered.filter_map(|(action, number)| {
            let version = &history.versions[action.read()? as usize];
            is_unfounded(version).then_some(number)
        });
        let unfounded: Vec<u32> = unfounded.collect();
        for &number in &unfounded {
            let action = &history.actions[number as usize];
            let version = action.read().expect("it reads");
            let is_aborted = history.versions[version as usize].has_failed_writer;
            let anomaly = explain::unfounded_name(is_aborted);
            self.findings
                .add(anomaly, || explain::unfounded(history, number, anomaly));
        }
        // What a compare-and-set wrote may have been read: it stays, although it returned a value that was never written.
        let removed = unfounded.into_iter();
        let removed =
            removed.filter(|&number| history.actions[number as usize].written().is_none());
        let removed: Vec<u32> = removed.collect();
        history.remove(&removed);
    }

    fn check_ambiguous(
        &mut self,
        model: ConsistencyModel,
        history: &RegisterHistory,
        version: &RegisterVersion,
    ) {
        let of_key = history.of_key(version.key);
        let reason = format!(
            "{} operations write {}{of_key}, which was read",
            version.writers, version.value
        );
        if model != ConsistencyModel::Sequential {
            let rest = "so reads do not show which write they saw; values must be unique";
            self.unknown = Some(format!("{reason}, {rest}"));
            return;
        }
        self.figures.insert("search_reason", reason.into());
        match search(history) {
            SequentialSearchResult::Found => self.proof = Some(Verdict::SERIAL_ORDER),
            SequentialSearchResult::Impossible { length, stuck } => {
                self.findings.add(explain::NONSEQUENTIAL, || {
                    explain::no_order(history, length, &stuck)
                });
            }
            SequentialSearchResult::Exhausted(visited) => {
                self.unknown = Some(format!(
                    "values are written more than once, and the search for an order reached its bound after {visited} \
                     configurations"
                ));
            }
        }
    }

    /// Takes over the verdict of the crate `isolation`.
    fn by_isolation(&mut self, model: AxiomaticModel, history: &RegisterHistory) {
        let verdict = SingleOperations::new(history).check(model);
        let mut by_anomaly: BTreeMap<Anomaly, Vec<_>> = BTreeMap::new();
        for finding in verdict.findings {
            by_anomaly.entry(finding.anomaly).or_default().push(finding);
        }
        for (anomaly, count) in verdict.anomalies {
            let findings = by_anomaly.remove(anomaly).unwrap_or_default();
            let explained = findings.len() as u64;
            for finding in findings {
                self.findings.add(anomaly, || finding);
            }
            if count > explained {
                self.findings.count(anomaly, count - explained);
            }
        }
        self.proof = verdict.proof;
        if let Validity::Unknown(reason) = verdict.valid {
            self.unknown = Some(reason);
        }
    }

    /// The models that are decided from causality or from the view of each session.
    fn check_views(&mut self, model: ConsistencyModel, history: &RegisterHistory) {
        let program = SessionOrder::new(history);
        let order = match program.topological_order() {
            Ok(order) => order,
            Err(_) if model == ConsistencyModel::Pram => Vec::new(),
            Err(_) if model == ConsistencyModel::MonotonicWrites => {
                let is_pram = self.check_sessions(&program, &[], None, false);
                return self.conclude_trace(model, is_pram);
            }
            Err(cycle) => {
                self.findings.add(explain::CYCLIC_CAUSALITY, || {
                    explain::cyclic_causality(&program, &cycle)
                });
                return;
            }
        };
        match model {
            ConsistencyModel::Pram => {
                self.check_sessions(&program, &order, None, true);
            }
            ConsistencyModel::CausalMemory => {
                // Causal consistency is weaker, and a simpler explanation.
                let clocks = self.check_causal(&program, &order);
                if self.findings.names().next().is_none()
                    && let Some(clocks) = clocks
                {
                    self.check_sessions(&program, &order, Some(clocks), true);
                }
            }
            ConsistencyModel::Causal => {
                let clocks = self.check_causal(&program, &order);
                if clocks.is_none() {
                    self.check_convergence(history);
                }
            }
            _ => {
                let is_causal = is_causal(&program, &order);
                let may_be_pram = model == ConsistencyModel::MonotonicWrites && !is_causal;
                let holds =
                    is_causal || may_be_pram && self.check_sessions(&program, &order, None, false);
                self.conclude_trace(model, holds);
            }
        }
    }

    /// Causal convergence implies causal consistency, and takes less memory with very many sessions.
    fn check_convergence(&mut self, history: &RegisterHistory) {
        let verdict = SingleOperations::new(history).check(AxiomaticModel::Causal);
        if verdict.valid == Validity::Valid {
            self.unknown = None;
            self.proof = verdict.proof;
        }
    }

    /// Adds the reads that are not causally consistent; returns the clocks if they fit.
    fn check_causal(&mut self, program: &SessionOrder<'_>, order: &[u32]) -> Option<CausalClocks> {
        let mut overwritten = Vec::new();
        let mut count = 0;
        let clocks = overwritten_reads(program, order, |it| {
            count += 1;
            if overwritten.len() < FINDINGS_MAX {
                overwritten.push(it);
            }
        });
        let explained = overwritten.len() as u64;
        for it in overwritten {
            self.findings.add(explain::CAUSAL_VIOLATION, || {
                explain::overwritten(program, it)
            });
        }
        if count > explained {
            self.findings
                .count(explain::CAUSAL_VIOLATION, count - explained);
        }
        if clocks.is_none() {
            let sessions = program.sessions.row_count();
            self.unknown = Some(format!(
                "the causal past of {} operations of {sessions} processes does not fit into memory",
                order.len()
            ));
        }
        clocks
    }

    /// Checks the view of each session; true if each has an order.
    fn check_sessions(
        &mut self,
        program: &SessionOrder<'_>,
        order: &[u32],
        clocks: Option<CausalClocks>,
        is_explained: bool,
    ) -> bool {
        let anomaly = if clocks.is_some() {
            explain::CAUSAL_VIOLATION
        } else {
            explain::SESSION_ORDER_VIOLATION
        };
        let mut is_valid = true;
        let result = SessionViews::new(program, order, clocks).decide(|violation| {
            is_valid = false;
            if is_explained {
                self.findings
                    .add(anomaly, || explain::view(program, anomaly, &violation));
            }
        });
        if let Err(bound) = result {
            self.unknown = Some(format!(
                "the views of the processes were not decided: {}",
                bound.0
            ));
            return false;
        }
        is_valid
    }

    /// The verdict on a guarantee that single reads cannot contradict by themselves, if no stronger model holds.
    fn conclude_trace(&mut self, model: ConsistencyModel, holds: bool) {
        if holds {
            return;
        }
        self.unknown.get_or_insert_with(|| {
            let stronger = if model == ConsistencyModel::MonotonicWrites {
                "pram"
            } else {
                "causal"
            };
            format!(
                "a single read shows one write, so it cannot contradict {model} alone; the history does not satisfy \
                 `{stronger}`, which would imply it: check that model"
            )
        });
    }

    fn conclude(self, model: ConsistencyModel, mut verdict: Verdict) -> Verdict {
        (verdict.anomalies, verdict.findings) = self.findings.into_parts();
        verdict.details = Details::of(Figures::DataType(DataTypeFigures {
            counts: self.counts,
            findings_max: FINDINGS_MAX,
            silent_keys: 0,
            by_key: None,
            lists: BTreeMap::new(),
            others: self.figures,
        }));
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            verdict.not = vec![model.family()];
            let stronger = model.stronger().map(ConsistencyModel::family);
            let stronger = stronger.filter(|other| *other != model.family());
            verdict.also_not = stronger.chain(["linearizable"]).collect();
            return verdict;
        }
        if let Some(reason) = self.unknown {
            return verdict.unknown(reason);
        }
        verdict.proof = self.proof;
        verdict
    }
}

/// Is the history causally consistent, as far as its clocks fit into memory?
fn is_causal(program: &SessionOrder<'_>, order: &[u32]) -> bool {
    let mut is_causal = true;
    let clocks = overwritten_reads(program, order, |_| is_causal = false);
    is_causal && clocks.is_some()
}

impl Checker for Consistency {
    fn name(&self) -> &'static str {
        Consistency::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(Consistency::NAME).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        let checker = self.clone();
        let gather = GatherRegisterHistory {
            has_times: self.model.is_stale(),
            keeps_unseen: self.model == ConsistencyModel::Safe,
        };
        let end = move |gathered, _: &dyn ChunkSource| Ok(Checked::from(checker.decide(gathered)));
        Box::new(FoldChecker::with_end(Consistency::NAME, gather, end))
    }
}
