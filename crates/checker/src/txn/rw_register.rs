//! Transactions that write registers and read them.

mod chains;
mod edges;
mod exact;
mod inference;
mod orders;
mod proof;
mod reasons;
mod touches;
mod zones;

pub use inference::{Inference, UnknownInference};

use super::anomaly::Variant;
use super::decision::Witness;
use super::findings::{Findings, Summary, Tally, verdict};
use super::graph::{PROCESS, REALTIME, WR};
use super::isolation::places;
use super::kept::Only;
use super::level::{Level, boundary_with};
use super::linked::cycles;
use super::registers::{Columns, NONE, Refusal};
use super::rows::{Rows, TooManyEdges};
use super::search::Found;
use super::{Bound, cyclic, explain};
use crate::{Anomaly, Certificate, Checker, Evidence, Proof, Validity, Verdict};
use edges::Dependencies;
use exact::Exact;
use inference::{Source, Sources};
use orders::Orders;
use seatrial_history::{Chunks, FoldError, Folder, History, OpType};
use std::collections::BTreeMap;
use std::sync::Arc;
use touches::Touches;

/// Why a history is too large.
const TOO_MANY: &str = "more than 2^32 dependencies";

/// Judges transactions of writes (`[:w k v]`) and reads (`[:r k v]`); no value may be written twice to a key.
///
/// A read tells whose write it saw, but not what was before: the order of a key's versions is known only as far as the
/// initial state comes first, what a transaction writes after it read the key comes after what it read (for levels
/// from read committed up, where nothing else is possible), and what an [`Inference`] takes for granted. Edges and
/// cycles are those of [`ListAppend`](super::ListAppend).
///
/// A verdict is valid only with a proof. An order of transactions that explains all reads is guessed first, in linear
/// time, and nothing else is needed when the guess is right. Else anomalies are looked for in what is known of the order
/// of versions. When there is none, the level is decided exactly: see [`Isolation`](super::isolation::Isolation); the
/// verdict is invalid with the transactions that no order explains, or unknown with the questions that were not decided.
///
/// One pass over the chunks makes [`Columns`]. Guess and inference are linear in them but for sorting, whatever the concurrency,
/// and explanations come from the columns too. About 50 bytes a transaction, 35 a read or write.
///
/// Its downside: where neither the guess nor inference settles a history, the decision is a search, which is hard in general and
/// has a bound in steps.
#[derive(Clone, Debug, Default)]
pub struct RwRegister {
    level: Level,
    bound: Bound,
    inference: Inference,
    /// Indices of completions and numbers.
    order: Option<Arc<BTreeMap<u64, i64>>>,
}

impl RwRegister {
    /// The checker of this level.
    pub fn new(level: Level) -> RwRegister {
        RwRegister {
            level,
            ..RwRegister::default()
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> RwRegister {
        RwRegister { bound, ..self }
    }

    /// The same with these assumptions.
    #[must_use]
    pub fn with_inference(self, inference: Inference) -> RwRegister {
        RwRegister { inference, ..self }
    }

    /// The same with an order of transactions that somebody else knows, a log of commits perhaps: by index of completion
    /// a number. Transactions without one of their own are left out of it. The order is not trusted: where it
    /// contradicts what was read that is told (`cyclic-versions-order`).
    #[must_use]
    pub fn with_order(self, order: impl IntoIterator<Item = (u64, i64)>) -> RwRegister {
        let order = order.into_iter().collect();
        RwRegister {
            order: Some(Arc::new(order)),
            ..self
        }
    }

    /// Judges the folder's history. The error is that of a chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        Ok(self.judge_gathered(Columns::gather(folder)?))
    }

    /// Judges columns, or says why there are none.
    pub fn judge_gathered(&self, columns: Result<Columns, Refusal>) -> Verdict {
        match columns {
            Ok(columns) => self.judge_columns(&columns),
            Err(refusal) => self.unknown(refusal.to_string()),
        }
    }

    /// The same with what proves it: findings with the operations that justify each step, transactions that no order explains,
    /// or an order in which transactions see what they saw. Where no certificate can be had, the verdict's details say why
    /// (`unproven`).
    pub fn certify<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<(Verdict, Option<Certificate>), FoldError<C::Error>> {
        Ok(self.certify_gathered(Columns::gather(folder)?))
    }

    /// The same for columns; without a proof when there are none.
    pub fn certify_gathered(
        &self,
        columns: Result<Columns, Refusal>,
    ) -> (Verdict, Option<Certificate>) {
        match columns {
            Ok(columns) => self.certify_columns(&columns),
            Err(refusal) => (self.unknown(refusal.to_string()), None),
        }
    }

    /// The same for transactions in columns.
    pub fn certify_columns(&self, columns: &Columns) -> (Verdict, Option<Certificate>) {
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
                verdict.details["unproven"] = reason.into();
            }
            return (verdict, None);
        };
        let mut certificate = Certificate::new(self.level.name(), proof);
        if let Proof::Findings(found) = &certificate.proof {
            certificate.assumptions = proof::assumptions(found);
            if let Some(order) = &self.order {
                certificate.transaction_order = proof::order_of(found, order);
            }
        }
        (verdict, Some(certificate))
    }

    /// An order of commits in which reads come behind what they read, if that proves the level.
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
        let touches = Touches::new(columns, true, &mut Findings::default());
        let orders = Orders::new(&touches, Sources::default(), &[]).ok()?;
        let ended = ended(columns);
        let only = Only {
            dependencies: Dependencies {
                orders: &orders,
                ended: &ended,
                process: self.level.implies(L::StrongSessionReadUncommitted),
                realtime: self.level.implies(L::StrongReadUncommitted),
            },
            transactions: columns.len(),
            without: !kept,
        };
        let rows = Rows::new(columns.len(), &only).ok()?;
        let peeled = rows.peel();
        let order = peeled
            .order
            .iter()
            .filter(|&&node| (node as usize) < columns.len() && columns.happened(node));
        let places = order.map(|&node| columns.recorded(node)).collect();
        peeled.is_all(&rows).then_some(Proof::Commits(places))
    }

    /// Judges transactions in columns.
    pub fn judge_columns(&self, columns: &Columns) -> Verdict {
        self.decide(columns, false).0
    }

    /// The verdict, and what proves it. An order that is found quickly spares the inference, unless that rests on more than the
    /// order proves.
    fn decide(&self, columns: &Columns, is_proven: bool) -> (Verdict, Option<Proof>) {
        if self.is_covered()
            && let Some(witness) = self.guess(columns)
        {
            return self.proven(columns, &witness, is_proven);
        }
        match self.infer(columns, is_proven) {
            Err(TooManyEdges) => (self.unknown(TOO_MANY.to_owned()), None),
            Ok(Inferred::Found(verdict, evidence)) => (*verdict, Some(Proof::Findings(evidence))),
            Ok(Inferred::Nothing(nothing)) => self.conclude(columns, *nothing),
        }
    }

    /// Does an order that proves the level prove the assumptions, too? Each is true of all systems from some level up.
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

    /// The verdict that an order makes.
    fn proven(
        &self,
        columns: &Columns,
        witness: &Witness,
        is_proven: bool,
    ) -> (Verdict, Option<Proof>) {
        let nothing = Nothing {
            findings: Findings::default(),
            found: Found::nothing(),
            edges: 0,
            undecided: Vec::new(),
            discarded: BTreeMap::new(),
        };
        let mut verdict = self.verdict(columns, nothing, Some(witness.name()));
        // No graph was made, and nothing inferred.
        verdict.details["edges"] = serde_json::Value::Null;
        verdict.details["inferred_from"] = serde_json::json!([]);
        (verdict, is_proven.then(|| witness.proof(columns)))
    }

    /// The verdict when inference found nothing that the level forbids.
    fn conclude(&self, columns: &Columns, mut nothing: Nothing) -> (Verdict, Option<Proof>) {
        match self.settle(columns) {
            Exact::Proven(name, proof) => (self.verdict(columns, nothing, Some(name)), Some(proof)),
            Exact::Open(questions) => {
                nothing.undecided.extend(questions);
                (self.verdict(columns, nothing, None), None)
            }
            Exact::Refuted(impossible) => {
                let names: Vec<Anomaly> = nothing.findings.names().collect();
                let mut verdict = self.verdict(columns, nothing, None);
                let finding = impossible.finding;
                let names = names.into_iter().chain([finding.anomaly]);
                self.rule_out(&mut verdict, names, Some(self.level), columns);
                verdict.details["core_is_least"] = impossible.is_least.into();
                verdict.valid = Validity::Invalid;
                verdict.reason = None;
                verdict.undecided = Vec::new();
                verdict.anomalies.insert(finding.anomaly, 1);
                verdict.findings.insert(0, finding);
                // No order replays reads that are wrong by themselves, even where the level allows them.
                let proof = (!exact::is_faulty(columns))
                    .then(|| Proof::Core(places(columns, &impossible.transactions)));
                (verdict, proof)
            }
        }
    }

    /// Says which levels these anomalies rule out, and one that is refuted by itself, and what holds although.
    ///
    /// That a transaction writes behind what it reads is inferred from read committed up. So a cycle of such writes rules that
    /// level out, and not read uncommitted, which registers never break: any order of versions is without cycles. With
    /// assumptions it does, as in Elle.
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
        if !verdict.details["holds"].is_null() {
            let holds = boundary.holds.into_iter();
            let holds = holds.filter(|&level| self.is_established(level, columns));
            verdict.details["holds"] = holds.map(Level::name).collect();
        }
    }

    /// The verdict on a history in which inference found nothing.
    fn verdict(&self, columns: &Columns, nothing: Nothing, proof: Option<&'static str>) -> Verdict {
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: tally(columns),
            keys: columns.key_count(),
            edges: nothing.edges,
            found: &nothing.found,
            proof,
            is_established: &|_| proof.is_some(),
            undecided: nothing.undecided,
        };
        let mut verdict = verdict(nothing.findings, &summary);
        self.tell_sources(&mut verdict, &nothing.discarded);
        verdict
    }

    /// Says what was inferred from, and what of that was not used for how many keys.
    fn tell_sources(&self, verdict: &mut Verdict, discarded: &BTreeMap<&str, u64>) {
        let sources = self.sources();
        let used = std::iter::once("initial-state").chain(sources.iter().map(Source::name));
        verdict.details["inferred_from"] = used.collect();
        verdict.details["discarded"] = serde_json::json!(discarded);
    }

    /// Looks for anomalies in what is known of the order of versions.
    fn infer(&self, columns: &Columns, is_proven: bool) -> Result<Inferred, TooManyEdges> {
        let mut findings = Findings::default();
        let seen_is_committed = self.level.implies(Level::ReadCommitted);
        let touches = Touches::new(columns, seen_is_committed, &mut findings);
        touches.tell_lost_updates(&mut findings);
        let numbers = self.numbers(columns);
        let orders = Orders::new(&touches, self.sources(), &numbers)?;
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
            return Ok(Inferred::Nothing(Box::new(Nothing {
                findings,
                found,
                edges,
                undecided,
                discarded,
            })));
        }
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: tally(columns),
            keys: columns.key_count(),
            edges,
            found: &found,
            proof: None,
            // What holds is found out below.
            is_established: &|_| false,
            undecided,
        };
        let names: Vec<Anomaly> = findings.names().collect();
        let mut verdict = verdict(findings, &summary);
        self.rule_out(&mut verdict, names.into_iter(), None, columns);
        let sketches = found.sketches.iter();
        let components =
            sketches.map(|sketch| explain::component(|number| columns.index(number), sketch));
        verdict.components = components.collect();
        self.tell_sources(&mut verdict, &discarded);
        if !self.is_covered() {
            verdict.reason = Some(self.caveat());
        }
        let evidence = is_proven.then(|| evidence(&verdict, &orders, &found));
        Ok(Inferred::Found(
            Box::new(verdict),
            evidence.unwrap_or_default(),
        ))
    }

    /// What findings may rest on besides the history and the level.
    fn caveat(&self) -> String {
        let level = self.level.name();
        let sources = self.sources();
        let wfr_is_promised = self.level.implies(Level::ReadCommitted);
        let assumed = sources
            .iter()
            .filter(|&source| source != Source::Wfr || !wfr_is_promised);
        let assumed: Vec<_> = assumed.map(Source::name).collect();
        format!(
            "findings may rest on what was assumed of keys ({}); {level} alone does not say so",
            assumed.join(", ")
        )
    }

    /// The cycles that the level forbids, and the number of edges.
    fn cycles(
        &self,
        columns: &Columns,
        orders: &Orders<'_>,
    ) -> Result<(Found, usize), TooManyEdges> {
        let wanted = cyclic(self.level);
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        let ended = ended(columns);
        let all = Dependencies {
            orders,
            ended: &ended,
            process: wants(Variant::Process),
            realtime: wants(Variant::Realtime),
        };
        let mut numbers = 0..columns.len() as u32;
        // What a process did before ended before, if it is known when it began.
        let is_told = numbers.all(|number| columns.begun(number) != NONE);
        let shape = Dependencies {
            process: all.process && !(all.realtime && is_told),
            ..all
        };
        cycles(columns.len(), &shape, &all, &wanted, self.bound)
    }

    /// What version orders are inferred from.
    fn sources(&self) -> Sources {
        let Inference {
            wfr_keys,
            rmw_keys,
            sequential_keys,
            linearizable_keys,
        } = self.inference;
        let is_committed = self.level.implies(Level::ReadCommitted);
        let sources = [
            (Source::Wfr, wfr_keys || rmw_keys || is_committed),
            (Source::Rmw, rmw_keys),
            (Source::Sequential, sequential_keys),
            (Source::Linearizable, linearizable_keys),
            (Source::Order, self.order.is_some()),
        ];
        let used = sources.into_iter().filter(|&(_, is_used)| is_used);
        used.fold(Sources::default(), |all, (source, _)| all.with(source))
    }

    /// By transaction its place in the given order, if there is one.
    fn numbers(&self, columns: &Columns) -> Vec<u32> {
        let Some(order) = &self.order else {
            return Vec::new();
        };
        let numbered = (0..columns.len() as u32).filter_map(|transaction| {
            let number = order.get(&columns.index(transaction))?;
            Some((number, transaction))
        });
        let mut known: Vec<_> = numbered.collect();
        known.sort_unstable();
        let mut numbers = vec![NONE; columns.len()];
        let groups = known.chunk_by(|one, other| one.0 == other.0);
        for (place, group) in groups.enumerate() {
            if let [(_, transaction)] = group {
                numbers[*transaction as usize] = place as u32;
            }
        }
        numbers
    }

    fn unknown(&self, reason: String) -> Verdict {
        let mut verdict = Verdict::valid(self.name());
        verdict.model = Some(self.level.name().to_owned());
        verdict.unknown(reason)
    }
}

/// What inference came to.
enum Inferred {
    /// An invalid verdict, and the findings that prove it if they are wanted.
    Found(Box<Verdict>, Vec<Evidence>),
    /// Nothing that the level forbids.
    Nothing(Box<Nothing>),
}

/// What inference has when it found nothing that the level forbids.
struct Nothing {
    /// What the level allows.
    findings: Findings,
    found: Found,
    edges: usize,
    undecided: Vec<String>,
    /// By source of version orders: for how many keys it is not used, as it contradicts others.
    discarded: BTreeMap<&'static str, u64>,
}

/// The findings of a verdict with what justifies them; those that nothing simple justifies are left out.
fn evidence(verdict: &Verdict, orders: &Orders<'_>, found: &Found) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    // Findings of an anomaly come in the order in which they were found.
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &verdict.findings {
        let anomaly = finding.anomaly;
        let number = told.entry(anomaly).or_default();
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

/// How many transactions there are, by outcome.
fn tally(columns: &Columns) -> Tally {
    Tally {
        transactions: columns.len(),
        ok: columns.count(OpType::Ok),
        fail: columns.count(OpType::Fail),
    }
}

/// Transactions that ended for certain, in the order in which they did.
fn ended(columns: &Columns) -> Vec<(u32, u32)> {
    let all = 0..columns.len() as u32;
    let all = all.map(|number| (columns.ended(number), number));
    let mut ended: Vec<_> = all.filter(|&(position, _)| position != NONE).collect();
    ended.sort_unstable();
    ended
}

/// What the history leaves open, for people: versions of which nothing is known but that they come after nothing.
fn undecided(orders: &Orders<'_>) -> Vec<String> {
    let touches = orders.touches;
    let columns = touches.columns;
    let mut follows = vec![false; columns.version_count()];
    for version in 0..columns.version_count() as u32 {
        for &next in orders.next(version) {
            follows[next as usize] = true;
        }
    }
    for &next in orders.barriers.iter().flat_map(|barrier| &barrier.ins) {
        follows[next as usize] = true;
    }
    let (mut keys, mut writes) = (0, 0);
    for key in 0..columns.key_count() as u32 {
        let blind = touches.of_key(key).iter().map(|touch| touch.write);
        let mut blind: Vec<_> = blind
            .filter(|&version| version != NONE && !follows[version as usize])
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

    fn check(&self, history: &History) -> Verdict {
        self.judge_gathered(Columns::of(history))
    }

    fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
        Some(self.certify_gathered(Columns::of(history)))
    }
}

#[cfg(test)]
mod tests;
