//! Checker `rw-register`: transactions that write registers and read them.
//!
//! Reading order: `inference` (assumptions and sources of version orders), `key_accesses` (reads and writes by key), `chains` and
//! `zones` (updates in a row, intervals of real time), `version_orders`, `edges`, `exact` (what inference leaves undecided),
//! `reasons` (explanations) and `proof` (certificates).

mod chains;
mod exact;
mod inference;
mod key_accesses;
mod reasons;
mod register_edges;
mod register_proof;
mod version_orders;
mod zones;

pub use inference::{Inference, UnknownInference};

use crate::graph_verdict::{TransactionTally, VerdictInputs, verdict};
use exact::ExactDecision;
use inference::{SourceSet, VersionOrderSource};
use key_accesses::KeyAccesses;
use register_edges::RegisterDependencies;
use seatrial_checker::{
    Aims, Anomaly, Checked, Checker, Findings, InferenceFigures, OnlineChecker, Robustness,
    Validity, Verdict,
};
use seatrial_cycles::anomaly::CycleVariant;
use seatrial_cycles::cycles::find_cycles;
use seatrial_cycles::edge_filter::EdgeFilter;
use seatrial_cycles::graph::{PROCESS, REALTIME, WR};
use seatrial_cycles::search::CycleReport;
use seatrial_cycles::shape::{ShapeGraph, TooManyEdges};
use seatrial_cycles::{Level, Version, boundary_with};
use seatrial_cycles::{SearchBound, forbidden_cycles};
use seatrial_history::{History, OpType};
use seatrial_isolation::WithoutTimes;
use seatrial_isolation::axiomatic::certificate_positions;
use seatrial_isolation::decision::{OrderRank, OrderWitness};
use seatrial_isolation::explain;
use seatrial_isolation::registers::{self, Columns, ColumnsError};
use seatrial_verify::{Certificate, Evidence, Proof};
use std::collections::BTreeMap;
use std::sync::Arc;
use version_orders::VersionOrders;

/// The message about a history that is too large.
const TOO_MANY: &str = "more than 2^32 dependencies";

/// Checks transactions of writes (`[:w k v]`) and reads (`[:r k v]`); no value may be written twice to a key.
///
/// A read shows which write it returned, but not the versions before it. So the order of a key's versions is known only in part:
/// the initial state comes first; a version that a transaction writes after it read the key comes after the version that it
/// read (from read committed up, where no other order is possible); and whatever follows from an [`Inference`]. Edges and
/// cycles are those of [`ListAppend`](crate::ListAppend).
///
/// A verdict is valid only with a proof. An order of transactions that explains all reads is guessed first, in linear time; if
/// the guess is right, nothing else is needed. Else the known version orders are searched for anomalies. If there is none, the
/// level is decided exactly: see [`Isolation`](seatrial_isolation::Isolation); the verdict is invalid with the transactions that
/// no order explains, or unknown with the questions that were not decided.
///
/// One pass over the chunks makes [`Columns`]. Guess and inference are linear in them except for sorting, whatever the
/// concurrency, and explanations come from the columns, too. About 50 bytes per transaction, 35 per read or write.
///
/// Its downside: if neither the guess nor inference decides a history, the decision is a search, which is NP-hard in general and
/// has a bound in steps.
#[derive(Clone, Debug, Default)]
pub struct RwRegister {
    level: Level,
    /// Did the caller choose the level? The default level is weaker for a history without times.
    is_asked: bool,
    bound: SearchBound,
    inference: Inference,
    /// By index of a completion: its number in a given order.
    order: Option<Arc<BTreeMap<u64, i64>>>,
}

impl RwRegister {
    /// A checker of this level.
    pub fn new(level: Level) -> RwRegister {
        RwRegister {
            level,
            is_asked: true,
            ..RwRegister::default()
        }
    }

    /// With another bound.
    #[must_use]
    pub fn with_bound(self, bound: SearchBound) -> RwRegister {
        RwRegister { bound, ..self }
    }

    /// With these assumptions.
    #[must_use]
    pub fn with_inference(self, inference: Inference) -> RwRegister {
        RwRegister { inference, ..self }
    }

    /// With an order of transactions from elsewhere, such as a commit log: by index of completion a number. Transactions without
    /// a number of their own are not in it. The order is not trusted: where reads contradict it, that is a finding
    /// (`cyclic-versions-order`).
    #[must_use]
    pub fn with_order(self, order: impl IntoIterator<Item = (u64, i64)>) -> RwRegister {
        let order = order.into_iter().collect();
        RwRegister {
            order: Some(Arc::new(order)),
            ..self
        }
    }

    /// Checks the transactions in these columns, or returns an unknown verdict with the reason why there are none.
    fn check_gathered(&self, columns: Result<Columns, ColumnsError>, certify: bool) -> Checked {
        match columns {
            Ok(columns) if certify => self.certify_columns(&columns).into(),
            Ok(columns) => self.decide(&columns, false).0.into(),
            Err(refusal) => self.unknown(refusal.to_string()).into(),
        }
    }

    /// The verdict and its certificate: findings with the operations that justify each step, transactions that no order explains,
    /// or an order in which each transaction reads what it read. Where there is no certificate, the verdict's details say why
    /// (`unproven`).
    fn certify_columns(&self, columns: &Columns) -> (Verdict, Option<Certificate>) {
        let (mut verdict, proof) = self.decide(columns, true);
        let reason = match &proof {
            None => "nothing simple proves it".to_owned(),
            Some(Proof::Findings(found)) if found.is_empty() => {
                "no reason of a finding is known".to_owned()
            }
            Some(Proof::Core(core)) if core.len() > Certificate::CORE_MAX => format!(
                "{} transactions have no order, and no more than {} are replayed",
                core.len(),
                Certificate::CORE_MAX
            ),
            Some(_) => String::new(),
        };
        let Some(proof) = proof.filter(|_| reason.is_empty()) else {
            if !matches!(verdict.valid, Validity::Unknown(_)) {
                verdict.details.unproven = Some(reason);
            }
            return (verdict, None);
        };
        let mut certificate = Certificate::new(self.level.name(), proof);
        if let Proof::Findings(found) = &certificate.proof {
            certificate.assumptions = register_proof::assumptions(found);
            if let Some(order) = &self.order {
                certificate.transaction_order = register_proof::order_of(found, order);
            }
        }
        (verdict, Some(certificate))
    }

    /// An order of commits in which each read comes after the version that it returned, if such an order proves the level.
    fn commits(&self, columns: &Columns) -> Option<Proof> {
        use Level as L;
        let kept = match self.level {
            L::ReadUncommitted | L::StrongSessionReadUncommitted | L::StrongReadUncommitted => {
                PROCESS | REALTIME
            }
            L::ReadCommitted | L::StrongSessionReadCommitted | L::StrongReadCommitted => {
                WR | PROCESS | REALTIME
            }
            _ => return None,
        };
        let accesses = KeyAccesses::new(columns, true, &mut Findings::default());
        let orders = VersionOrders::new(&accesses, SourceSet::default(), &[]).ok()?;
        let ended = ended(columns);
        let only = EdgeFilter {
            source: RegisterDependencies {
                orders: &orders,
                ended: &ended,
                process: self.level.implies(L::StrongSessionReadUncommitted),
                realtime: self.level.implies(L::StrongReadUncommitted),
            },
            transactions: columns.len(),
            excluded: !kept,
        };
        let rows = ShapeGraph::new(columns.len(), &only).ok()?;
        let peeled = rows.peel();
        let order = peeled
            .order
            .iter()
            .filter(|&&node| (node as usize) < columns.len() && columns.happened(node));
        let places = order.map(|&node| columns.recorded(node)).collect();
        peeled.is_all(&rows).then_some(Proof::Commits(places))
    }

    /// The verdict and its proof. An order that is guessed saves the inference, unless the caller has assumptions that the order
    /// does not prove.
    fn decide(&self, columns: &Columns, is_proven: bool) -> (Verdict, Option<Proof>) {
        if self.is_covered()
            && let Some(witness) = self.guess(columns)
        {
            return self.proven(columns, &witness, is_proven);
        }
        match self.infer(columns, is_proven) {
            Err(TooManyEdges) => (self.unknown(TOO_MANY.to_owned()), None),
            Ok(Inferred::Found(verdict, evidence)) => (*verdict, Some(Proof::Findings(evidence))),
            Ok(Inferred::NoViolation(nothing)) => self.conclude(columns, *nothing),
        }
    }

    /// Does an order that proves the level prove the assumptions, too? Each assumption holds for all systems from some level up.
    fn is_covered(&self) -> bool {
        let Inference {
            wfr_keys,
            rmw_keys,
            sequential_keys,
            linearizable_keys,
        } = self.inference;
        let needed = [
            (wfr_keys, Level::ReadCommitted),
            (rmw_keys, Level::ConsistentView),
            (sequential_keys, Level::StrongSessionSnapshotIsolation),
            (linearizable_keys, Level::StrongSnapshotIsolation),
        ];
        let mut needed = needed.into_iter().filter(|&(is_assumed, _)| is_assumed);
        self.order.is_none() && needed.all(|(_, level)| self.level.implies(level))
    }

    /// The verdict of an order that was guessed.
    fn proven(
        &self,
        columns: &Columns,
        witness: &OrderWitness,
        is_proven: bool,
    ) -> (Verdict, Option<Proof>) {
        let nothing = NoViolation {
            findings: Findings::default(),
            found: CycleReport::nothing(),
            // No graph was made, and nothing inferred.
            edges: None,
            undecided: Vec::new(),
            inference: InferenceFigures {
                inferred_from: Vec::new(),
                discarded: BTreeMap::new(),
            },
        };
        let verdict = self.verdict(columns, nothing, Some(witness.name()));
        (verdict, is_proven.then(|| witness.proof(columns)))
    }

    /// The verdict if inference found no forbidden anomaly.
    fn conclude(&self, columns: &Columns, mut nothing: NoViolation) -> (Verdict, Option<Proof>) {
        match self.settle(columns) {
            ExactDecision::Proven(name, proof) => {
                (self.verdict(columns, nothing, Some(name)), Some(proof))
            }
            ExactDecision::Open(questions) => {
                nothing.undecided.extend(questions);
                (self.verdict(columns, nothing, None), None)
            }
            ExactDecision::Refuted(impossible) => {
                let names: Vec<Anomaly> = nothing.findings.names().collect();
                let mut verdict = self.verdict(columns, nothing, None);
                let finding = impossible.finding;
                let names = names.into_iter().chain([finding.anomaly]);
                self.rule_out(&mut verdict, names, Some(self.level), columns);
                verdict.details.core_is_least = Some(impossible.is_least);
                verdict.valid = Validity::Invalid;
                verdict.reason = None;
                verdict.undecided = Vec::new();
                verdict.anomalies.insert(finding.anomaly, 1);
                verdict.findings.insert(0, finding);
                // No order explains faulty reads, even where the level allows them.
                let proof = (!exact::is_faulty(columns))
                    .then(|| Proof::Core(certificate_positions(columns, &impossible.transactions)));
                (verdict, proof)
            }
        }
    }

    /// Sets the levels that these anomalies rule out, together with `refuted`, and the levels that hold nevertheless.
    ///
    /// Writes that follow reads are inferred from read committed up. So a cycle of such writes rules out that level, and not read
    /// uncommitted, which registers cannot violate: any version order is free of cycles. With assumptions it does, as in Elle.
    fn rule_out(
        &self,
        verdict: &mut Verdict,
        names: impl Iterator<Item = Anomaly>,
        refuted: Option<Level>,
        columns: &Columns,
    ) {
        let Inference {
            wfr_keys: _,
            rmw_keys,
            sequential_keys,
            linearizable_keys,
        } = self.inference;
        let assumes = rmw_keys || sequential_keys || linearizable_keys || self.order.is_some();
        let is_committed = self.level.implies(Level::ReadCommitted) && !assumes;
        let names = names.map(|name| match name {
            "G0" if is_committed => "G1c",
            "G0-process" if is_committed => "G1c-process",
            "G0-realtime" if is_committed => "G1c-realtime",
            other => other,
        });
        let boundary = boundary_with(names, refuted);
        verdict.not = boundary.not;
        verdict.also_not = boundary.also_not;
        if let Some(holds) = &mut verdict.details.holds {
            let levels = boundary.holds.into_iter();
            let levels = levels.filter(|&level| self.is_established(level, columns));
            *holds = levels.map(Level::name).collect();
        }
    }

    /// The verdict on a history in which inference found no violation.
    fn verdict(
        &self,
        columns: &Columns,
        nothing: NoViolation,
        proof: Option<&'static str>,
    ) -> Verdict {
        let summary = VerdictInputs {
            checker: self.name(),
            level: self.level,
            tally: tally(columns),
            keys: columns.key_count(),
            edges: nothing.edges,
            found: &nothing.found,
            proof,
            is_established: &|_| proof.is_some(),
            undecided: nothing.undecided,
            windows: None,
            inference: Some(nothing.inference),
        };
        verdict(nothing.findings, &summary)
    }

    /// The sources of version orders in use, and for how many keys each was discarded.
    fn inference_figures(&self, discarded: BTreeMap<&'static str, u64>) -> InferenceFigures {
        let sources = self.sources();
        let used =
            std::iter::once("initial-state").chain(sources.iter().map(VersionOrderSource::name));
        InferenceFigures {
            inferred_from: used.collect(),
            discarded,
        }
    }

    /// Searches the known version orders for anomalies.
    fn infer(&self, columns: &Columns, is_proven: bool) -> Result<Inferred, TooManyEdges> {
        let mut findings = Findings::default();
        let seen_is_committed = self.level.implies(Level::ReadCommitted);
        let accesses = KeyAccesses::new(columns, seen_is_committed, &mut findings);
        accesses.find_lost_updates(&mut findings);
        let ranks = self.ranks(columns);
        let orders = VersionOrders::new(&accesses, self.sources(), &ranks)?;
        let mut discarded: BTreeMap<&'static str, u64> = BTreeMap::new();
        for contradiction in &orders.contradictions {
            findings.add(contradiction.source.anomaly(), || {
                orders.contradiction(contradiction)
            });
            let name = contradiction.source.name();
            *discarded.entry(name).or_default() += 1;
        }
        let (found, edges) = self.cycles(columns, &orders)?;
        for (kind, cycle) in &found.cycles {
            findings.add(kind.name(), || orders.cycle(kind.name(), cycle));
        }
        let undecided = undecided(&orders);
        let forbidden = self.level.forbidden();
        if !findings.names().any(|name| forbidden.contains(name)) {
            return Ok(Inferred::NoViolation(Box::new(NoViolation {
                findings,
                found,
                edges: Some(edges),
                undecided,
                inference: self.inference_figures(discarded),
            })));
        }
        let summary = VerdictInputs {
            checker: self.name(),
            level: self.level,
            tally: tally(columns),
            keys: columns.key_count(),
            edges: Some(edges),
            found: &found,
            proof: None,
            // `rule_out` sets the levels that hold.
            is_established: &|_| false,
            undecided,
            windows: None,
            inference: Some(self.inference_figures(discarded)),
        };
        let names: Vec<Anomaly> = findings.names().collect();
        let mut verdict = verdict(findings, &summary);
        self.rule_out(&mut verdict, names.into_iter(), None, columns);
        let sketches = found.sketches.iter();
        let components =
            sketches.map(|sketch| explain::component(|number| columns.index(number), sketch));
        verdict.components = components.collect();
        if !self.is_covered() {
            verdict.reason = Some(self.caveat());
        }
        let evidence = is_proven.then(|| evidence(&verdict, &orders, &found));
        Ok(Inferred::Found(
            Box::new(verdict),
            evidence.unwrap_or_default(),
        ))
    }

    /// The assumptions on which findings may rest, in words.
    fn caveat(&self) -> String {
        let level = self.level.name();
        let sources = self.sources();
        let wfr_is_implied = self.level.implies(Level::ReadCommitted);
        let assumed = sources
            .iter()
            .filter(|&source| source != VersionOrderSource::Wfr || !wfr_is_implied);
        let assumed: Vec<_> = assumed.map(VersionOrderSource::name).collect();
        format!(
            "findings may rest on assumptions about keys ({}) that {level} alone does not imply",
            assumed.join(", ")
        )
    }

    /// The cycles that the level forbids, and the number of edges.
    fn cycles(
        &self,
        columns: &Columns,
        orders: &VersionOrders<'_>,
    ) -> Result<(CycleReport, usize), TooManyEdges> {
        let wanted = forbidden_cycles(self.level);
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        let ended = ended(columns);
        let all = RegisterDependencies {
            orders,
            ended: &ended,
            process: wants(CycleVariant::Process),
            realtime: wants(CycleVariant::Realtime),
        };
        let mut numbers = 0..columns.len() as u32;
        // Real time includes the order of each process if the invocation of each transaction is known.
        let are_invocations_known = numbers.all(|number| columns.begun(number).is_some());
        let shape = RegisterDependencies {
            process: all.process && !(all.realtime && are_invocations_known),
            ..all
        };
        find_cycles(columns.len(), &shape, &all, &wanted, self.bound)
    }

    /// The sources of version orders in use.
    fn sources(&self) -> SourceSet {
        let Inference {
            wfr_keys,
            rmw_keys,
            sequential_keys,
            linearizable_keys,
        } = self.inference;
        let is_committed = self.level.implies(Level::ReadCommitted);
        let sources = [
            (
                VersionOrderSource::Wfr,
                wfr_keys || rmw_keys || is_committed,
            ),
            (VersionOrderSource::Rmw, rmw_keys),
            (VersionOrderSource::Sequential, sequential_keys),
            (VersionOrderSource::Linearizable, linearizable_keys),
            (VersionOrderSource::Order, self.order.is_some()),
        ];
        let used = sources.into_iter().filter(|&(_, is_used)| is_used);
        used.fold(SourceSet::default(), |all, (source, _)| all.with(source))
    }

    /// By transaction: its rank in the given order, if there is one.
    fn ranks(&self, columns: &Columns) -> Vec<Option<OrderRank>> {
        let Some(order) = &self.order else {
            return Vec::new();
        };
        let numbered = (0..columns.len() as u32).filter_map(|transaction| {
            let number = order.get(&columns.index(transaction))?;
            Some((number, transaction))
        });
        let mut known: Vec<_> = numbered.collect();
        known.sort_unstable();
        let mut ranks = vec![None; columns.len()];
        let groups = known.chunk_by(|one, other| one.0 == other.0);
        for (place, group) in groups.enumerate() {
            // Several transactions with one number are in no order: none of them has a rank.
            if let [(_, transaction)] = group {
                ranks[*transaction as usize] = Some(OrderRank::new(place as u32));
            }
        }
        ranks
    }

    fn unknown(&self, reason: String) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some(self.level.name().to_owned());
        verdict.unknown(reason)
    }
}

/// The result of inference.
enum Inferred {
    /// An invalid verdict, and its evidence if that is wanted.
    Found(Box<Verdict>, Vec<Evidence>),
    /// No violation of the level.
    NoViolation(Box<NoViolation>),
}

/// The result of inference without a violation of the level.
struct NoViolation {
    /// Findings that the level allows.
    findings: Findings,
    found: CycleReport,
    /// Dependencies; `None` when no graph was made.
    edges: Option<usize>,
    undecided: Vec<String>,
    inference: InferenceFigures,
}

/// The evidence of the findings of a verdict; findings without simple evidence are left out.
fn evidence(verdict: &Verdict, orders: &VersionOrders<'_>, found: &CycleReport) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    // The findings of one anomaly are in the order of contradictions and cycles.
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &verdict.findings {
        let anomaly = finding.anomaly;
        let number = numbers.entry(anomaly).or_default();
        let contradictions = orders.contradictions.iter();
        let mut contradictions = contradictions.filter(|one| one.source.anomaly() == anomaly);
        let mut cycles = found
            .cycles
            .iter()
            .filter(|(kind, _)| kind.name() == anomaly);
        evidence.extend(if let Some(contradiction) = contradictions.nth(*number) {
            orders.contradiction_evidence(anomaly, contradiction)
        } else if let Some((_, cycle)) = cycles.nth(*number) {
            orders.cycle_evidence(finding, cycle)
        } else {
            Some(Evidence::from(finding))
        });
        *number += 1;
    }
    evidence
}

/// Transactions by outcome.
fn tally(columns: &Columns) -> TransactionTally {
    TransactionTally {
        transactions: columns.len(),
        ok: columns.count(OpType::Ok),
        fail: columns.count(OpType::Fail),
    }
}

/// Transactions with a known end, in the order of their ends.
fn ended(columns: &Columns) -> Vec<(u32, u32)> {
    let all = 0..columns.len() as u32;
    let ended = all.filter_map(|number| Some((columns.ended(number)?.get(), number)));
    let mut ended: Vec<_> = ended.collect();
    ended.sort_unstable();
    ended
}

/// The open question of blind writes: versions that no known version comes before.
fn undecided(orders: &VersionOrders<'_>) -> Vec<String> {
    let accesses = orders.accesses;
    let columns = accesses.columns;
    let mut follows = vec![false; columns.version_count()];
    for version in Version::all(columns.version_count()) {
        for &next in orders.next(version) {
            follows[next.index()] = true;
        }
    }
    for &next in orders.barriers.iter().flat_map(|barrier| &barrier.ins) {
        follows[next.index()] = true;
    }
    let (mut keys, mut writes) = (0, 0);
    for key in 0..columns.key_count() as u32 {
        let written = accesses
            .of_key(key)
            .iter()
            .filter_map(|access| access.write);
        let mut blind: Vec<_> = written
            .filter(|version| !follows[version.index()])
            .collect();
        blind.dedup();
        if blind.len() > 1 {
            keys += 1;
            writes += blind.len();
        }
    }
    if keys == 0 {
        return Vec::new();
    }
    let keys = match keys {
        1 => "1 key".to_owned(),
        _ => format!("{keys} keys"),
    };
    vec![format!("the order of {writes} blind writes to {keys}")]
}

impl Checker for RwRegister {
    fn name(&self) -> &'static str {
        "rw-register"
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            is_broken_by_level: true,
            ..Robustness::OF_TRANSACTIONS
        }
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = self.check_gathered(Columns::of(history), false).verdict;
        verdict.robustness = self.robustness();
        verdict
    }

    fn open_in_stretches(&self) -> Option<&'static [Anomaly]> {
        // An order of the caller's is one of the whole history, and a key may contradict an assumption outside of the stretch.
        self.is_covered().then_some(registers::OPEN_IN_STRETCHES)
    }

    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker> {
        WithoutTimes::start(self.level, self.is_asked, &aims.provenance, |level| {
            let checker = RwRegister {
                level,
                ..self.clone()
            };
            let certify = aims.certify;
            registers::start(self.name(), aims, move |columns| {
                checker.check_gathered(columns, certify)
            })
        })
    }
}

#[cfg(test)]
mod tests;
