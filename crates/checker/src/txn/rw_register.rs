//! Transactions that write registers and read them.

mod chains;
mod edges;
mod inference;
mod orders;
mod proof;
mod reasons;
mod touches;
mod zones;

pub use inference::{Inference, UnknownInference};

use super::anomaly::Variant;
use super::findings::{Findings, Summary, Tally, verdict};
use super::graph::{PROCESS, REALTIME, WR};
use super::isolation::{Isolation, Model};
use super::kept::Only;
use super::level::Level;
use super::linked::cycles;
use super::registers::{Columns, NONE, Refusal};
use super::rows::{Rows, TooManyEdges};
use super::search::Found;
use super::{Bound, cyclic, explain};
use crate::{Certificate, Checker, Evidence, Proof, Validity, Verdict};
use edges::Dependencies;
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
/// One pass over the chunks makes [`Columns`]; everything else is linear in them but for sorting, whatever the
/// concurrency, and explanations come from the columns too. About 50 bytes a transaction, 35 a read or write.
///
/// Its downside: without assumptions blind writes are not ordered, so a history of blind writes may pass although no
/// order explains it; the verdict's details say how many are left open (`undecided`).
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

    /// The same with what proves it: findings with the operations that justify each step, or an order of transactions
    /// in which they see what they saw, whatever was inferred. That nothing was found proves nothing: where no order can be had
    /// there is no certificate, and the verdict's details say why (`unproven`).
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
        let judged = self.verdict(columns, true);
        let Ok((mut verdict, found)) = judged else {
            return (self.unknown(TOO_MANY.to_owned()), None);
        };
        let proof = match verdict.valid {
            Validity::Unknown(_) => return (verdict, None),
            Validity::Valid => self.order(columns),
            Validity::Invalid if found.is_empty() => Err("no reason of a finding is known".into()),
            Validity::Invalid => Ok(Proof::Findings(found)),
        };
        let mut certificate = match proof {
            Ok(proof) => Certificate::new(self.level.name(), proof),
            Err(reason) => {
                verdict.details["unproven"] = reason.into();
                return (verdict, None);
            }
        };
        if let Proof::Findings(found) = &certificate.proof {
            certificate.assumptions = proof::assumptions(found);
            if let Some(order) = &self.order {
                certificate.transaction_order = proof::order_of(found, order);
            }
        }
        (verdict, Some(certificate))
    }

    /// An order of transactions that proves the level, or why there is none.
    fn order(&self, columns: &Columns) -> Result<Proof, String> {
        let name = self.level.name();
        let model = Model::by_name(name).filter(|model| model.name() == name);
        if let Some(model) = model {
            let isolation = Isolation::new(model).with_bound(self.bound);
            let (decided, certificate) = isolation.certify_columns(columns);
            return match (decided.valid, certificate) {
                (Validity::Valid, Some(certificate)) => Ok(certificate.proof),
                (Validity::Invalid, _) => Err(format!(
                    "rw-register found nothing, and yet no order of these transactions is {name}: --checker isolation tells \
                     why"
                )),
                _ => Err(format!(
                    "rw-register found nothing, and no order of these transactions was found: {}",
                    decided.reason.unwrap_or_default()
                )),
            };
        }
        self.commits(columns).ok_or_else(|| {
            format!("rw-register found nothing; no order of transactions proves {name}")
        })
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
        match self.verdict(columns, false) {
            Ok((verdict, _)) => verdict,
            Err(_) => self.unknown(TOO_MANY.to_owned()),
        }
    }

    /// The verdict, and the findings that prove it if they are wanted.
    fn verdict(
        &self,
        columns: &Columns,
        is_proven: bool,
    ) -> Result<(Verdict, Vec<Evidence>), TooManyEdges> {
        let mut findings = Findings::default();
        let seen_is_committed = self.level.implies(Level::ReadCommitted);
        let touches = Touches::new(columns, seen_is_committed, &mut findings);
        touches.tell_lost_updates(&mut findings);
        let numbers = self.numbers(columns);
        let orders = Orders::new(&touches, self.sources(), &numbers)?;
        let mut discarded: BTreeMap<&str, u64> = BTreeMap::new();
        for contradiction in &orders.contradictions {
            findings.add(contradiction.source.anomaly(), || {
                orders.contradiction(contradiction)
            });
            let name = contradiction.source.name();
            *discarded.entry(name).or_default() += 1;
        }
        let wanted = cyclic(self.level);
        let wants = |variant| wanted.iter().any(|cyclic| cyclic.variant == variant);
        let ended = ended(columns);
        let all = Dependencies {
            orders: &orders,
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
        let (found, edges) = cycles(columns.len(), &shape, &all, &wanted, self.bound)?;
        for (kind, cycle) in &found.cycles {
            findings.add(kind.name(), || orders.cycle(kind.name(), cycle));
        }
        let undecided = undecided(&orders);
        let summary = Summary {
            checker: self.name(),
            level: self.level,
            tally: tally(columns),
            keys: columns.key_count(),
            edges,
            found: &found,
            proof: None,
            is_established: &|_| undecided.is_empty(),
            undecided: undecided.clone(),
        };
        let mut verdict = verdict(findings, &summary);
        // Until the exact decision stands here as well.
        verdict.accept_undecided();
        verdict.undecided.clone_from(&undecided);
        let sketches = found.sketches.iter();
        let components =
            sketches.map(|sketch| explain::component(|number| columns.index(number), sketch));
        verdict.components = components.collect();
        let sources = self.sources();
        let used = std::iter::once("initial-state").chain(sources.iter().map(Source::name));
        verdict.details["inferred_from"] = used.collect();
        verdict.details["discarded"] = serde_json::json!(discarded);
        let evidence = if is_proven {
            evidence(&verdict, &orders, &found)
        } else {
            Vec::new()
        };
        Ok((verdict, evidence))
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
    vec![format!(
        "the order of {writes} blind writes to {keys} keys: cycles that need it were not looked for"
    )]
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
