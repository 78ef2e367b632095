//! Forged certificates: the verifier must refuse false proofs and accept orders that explain a history.

use crate::case::{Case, CaseOutcome, Kind};
use crate::compare::{CheckerUnderTest, ask, note, verify};
use crate::oracle::{Oracle, OracleAnswer};
use crate::orders::{Follows, Rule, explains};
use crate::phenomena::permutations;
use crate::tally::{Name, Tally};
use seatrial_cycles::Level;
use seatrial_history::History;
use seatrial_isolation::AxiomaticModel;
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, CycleEdge, Evidence, Fingerprint, Proof, Verifier};

/// Names of anomalies that a finding may claim.
const ANOMALIES: [&str; 38] = [
    "internal",
    "future-read",
    "garbage-read",
    "G1a",
    "G1b",
    "dirty-update",
    "duplicate-elements",
    "incompatible-order",
    "lost-update",
    "cyclic-versions",
    "cyclic-versions-rmw",
    "cyclic-versions-process",
    "cyclic-versions-realtime",
    "cyclic-versions-order",
    "G0",
    "G1c",
    "G-single",
    "G-nonadjacent",
    "G2-item",
    "G0-process",
    "G1c-process",
    "G-single-process",
    "G-nonadjacent-process",
    "G2-item-process",
    "G0-realtime",
    "G1c-realtime",
    "G-single-realtime",
    "G-nonadjacent-realtime",
    "G2-item-realtime",
    "no-order",
    "non-monotonic-read",
    "fractured-read",
    "causal-violation",
    "missed-own-write",
    "backward-read",
    "causality-cycle",
    "session-order-violation",
    "effect-without-cause",
];

const RELATIONS: [&str; 5] = ["ww", "wr", "rw", "process", "realtime"];

/// All models of all checkers, and a name that none has.
fn models() -> Vec<&'static str> {
    let mut models: Vec<_> = Level::all().map(Level::name).collect();
    models.extend(AxiomaticModel::all().map(AxiomaticModel::name));
    models.sort_unstable();
    models.dedup();
    models.push("no-such-model");
    models
}

/// The forger of one thread: it keeps certificates to put them under other histories.
pub(crate) struct Forger {
    kind: Kind,
    models: Vec<&'static str>,
    stolen: Vec<(Certificate, Option<Fingerprint>)>,
}

/// The case that claims are about.
struct Asked<'a> {
    case: &'a Case,
    number: u64,
    history: History,
    oracle: Oracle<'a>,
}

impl Asked<'_> {
    fn fingerprint(&self) -> Option<Fingerprint> {
        let verifier = Verifier::read(&self.history);
        verifier.ok().map(|verifier| verifier.fingerprint())
    }
}

/// Certificates kept.
const STOLEN_MAX: usize = 64;

/// A claim that the verifier accepts or refuses.
struct Claim {
    how: &'static str,
    certificate: Certificate,
}

impl Forger {
    pub(crate) fn new(kind: Kind) -> Forger {
        Forger {
            kind,
            models: models(),
            stolen: Vec::new(),
        }
    }

    /// Forges certificates of a case and gives them to the verifier.
    pub(crate) fn forge(
        &mut self,
        subjects: &[CheckerUnderTest],
        case: &Case,
        number: u64,
        rng: &mut Rng,
        tally: &mut Tally,
    ) {
        tally.cases += 1;
        let asked = Asked {
            case,
            number,
            history: case.history(),
            oracle: Oracle::new(case),
        };
        let (history, name) = (&asked.history, asked.fingerprint());
        let mut claims = Vec::new();
        for subject in subjects {
            let Some(certificate) = ask(subject, history).certificate else {
                continue;
            };
            self.tamper(&certificate, history, rng, &mut claims);
            if self.stolen.len() < STOLEN_MAX {
                self.stolen.push((certificate, name));
            } else if rng.chance(0.05) {
                let at = rng.index(self.stolen.len());
                self.stolen[at] = (certificate, name);
            }
        }
        for _ in 0..4 {
            if self.stolen.is_empty() {
                break;
            }
            let (mut certificate, history_of) = rng.pick(&self.stolen).clone();
            let mut signed = certificate.clone();
            signed.history = history_of;
            claims.push(Claim {
                how: "another history's, signed",
                certificate: signed,
            });
            rename(&mut certificate, history);
            claims.push(Claim {
                how: "another history's",
                certificate,
            });
        }
        for _ in 0..40 {
            claims.push(self.invented(case, history, rng));
        }
        self.orders(case, rng, &mut claims);
        for mut claim in claims {
            let history = &mut claim.certificate.history;
            if history.is_none() && rng.chance(0.5) {
                *history = name;
            }
            self.try_claim(&asked, &claim, tally);
        }
    }

    /// Changes a true certificate in some ways.
    fn tamper(
        &self,
        certificate: &Certificate,
        history: &History,
        rng: &mut Rng,
        claims: &mut Vec<Claim>,
    ) {
        for _ in 0..2 {
            let mut other = certificate.clone();
            (*rng.pick(&self.models)).clone_into(&mut other.model);
            claims.push(Claim {
                how: "another model",
                certificate: other,
            });
        }
        let mut other = certificate.clone();
        let how = match &mut other.proof {
            Proof::Serial(order)
            | Proof::Snapshots(order)
            | Proof::Commits(order)
            | Proof::Visible(order) => tamper_order(order, rng),
            Proof::Core(places) => {
                if !places.is_empty() {
                    places.remove(rng.index(places.len()));
                }
                "core minus one"
            }
            Proof::Findings(findings) => tamper_findings(findings, history, rng),
            Proof::Linearization(_) | Proof::Nonlinearizable(_) => {
                unreachable!("a proof about transactions")
            }
        };
        claims.push(Claim {
            how,
            certificate: other,
        });
        if let Some(proof) = another_kind(&certificate.proof, rng) {
            let other = Certificate {
                proof,
                ..certificate.clone()
            };
            claims.push(Claim {
                how: "another kind of proof",
                certificate: other,
            });
        }
    }

    /// Findings or a core out of thin air.
    fn invented(&self, case: &Case, history: &History, rng: &mut Rng) -> Claim {
        let model = *rng.pick(&self.models);
        let count = 1 + rng.index(3);
        if rng.chance(0.15) {
            let mut places = case.places();
            rng.shuffle(&mut places);
            places.truncate(1 + rng.index(places.len()));
            places.sort_unstable();
            let certificate = Certificate::new(model, Proof::Core(places));
            return Claim {
                how: "invented core",
                certificate,
            };
        }
        let indices = completions(case, history);
        let mut operations: Vec<u64> = (0..count).map(|_| *rng.pick(&indices)).collect();
        let is_cycle = count > 1 && rng.chance(0.6);
        let (anomaly, steps) = if is_cycle {
            operations.dedup();
            let relations: Vec<&str> = operations.iter().map(|_| *rng.pick(&RELATIONS)).collect();
            let edges = relations
                .iter()
                .enumerate()
                .map(|(at, relation)| CycleEdge {
                    from: operations[at],
                    to: operations[(at + 1) % operations.len()],
                    relation: (*relation).to_owned(),
                    versions: None,
                });
            (cycle_name(&relations), edges.collect())
        } else {
            ((*rng.pick(&ANOMALIES)).to_owned(), Vec::new())
        };
        let evidence = Evidence {
            anomaly,
            operations,
            steps,
            versions: None,
        };
        let certificate = Certificate::new(model, Proof::Findings(vec![evidence]));
        let how = if is_cycle {
            "invented cycle"
        } else {
            "invented finding"
        };
        Claim { how, certificate }
    }

    /// Orders of a small history: all of them, or some.
    fn orders(&self, case: &Case, rng: &mut Rng, claims: &mut Vec<Claim>) {
        let places = case.places();
        let mut numbers: Vec<usize> = (0..case.txns.len())
            .filter(|&number| case.txns[number].outcome != CaseOutcome::Fail)
            .collect();
        // Unread transactions of unknown outcome are included at random.
        let members = case.members();
        numbers.retain(|&number| members >> number & 1 == 1 || rng.chance(0.1));
        let mut orders = Vec::new();
        if numbers.len() <= 4 {
            permutations(&mut numbers, 0, &mut |order| orders.push(order.to_vec()));
        } else {
            for _ in 0..24 {
                rng.shuffle(&mut numbers);
                orders.push(numbers.clone());
            }
        }
        let placed = |order: &[usize]| -> Vec<u64> { order.iter().map(|&it| places[it]).collect() };
        for order in &orders {
            let model = rng.pick(&SERIAL).0;
            claims.push(Claim::new(
                "serial order",
                model,
                Proof::Serial(placed(order)),
            ));
            let model = *rng.pick(&self.models);
            claims.push(Claim::new(
                "commit order",
                model,
                Proof::Commits(placed(order)),
            ));
            let model = *rng.pick(&self.models);
            claims.push(Claim::new(
                "visibility order",
                model,
                Proof::Visible(placed(order)),
            ));
        }
        let mut twice: Vec<usize> = numbers.iter().chain(&numbers).copied().collect();
        for _ in 0..24 {
            if rng.chance(0.5) {
                rng.shuffle(&mut twice);
            } else {
                let order = &orders[rng.index(orders.len())];
                twice = nearly_serial(order, rng);
            }
            let model = rng.pick(&SNAPSHOTS).0;
            claims.push(Claim::new(
                "snapshot order",
                model,
                Proof::Snapshots(placed(&twice)),
            ));
        }
    }

    /// Is the verifier right about it?
    fn try_claim(&self, asked: &Asked<'_>, claim: &Claim, tally: &mut Tally) {
        let Asked {
            case,
            number,
            history,
            ..
        } = asked;
        let certificate = &claim.certificate;
        let is_accepted = verify(history, certificate).is_ok();
        let is_of_another =
            certificate.history.is_some() && certificate.history != asked.fingerprint();
        let wrong = is_of_another || is_wrong(case, &asked.oracle, certificate);
        let kind = match self.kind {
            Kind::Lists => "lists",
            Kind::Registers => "registers",
        };
        let row = tally.row(kind, claim.how);
        row.histories += 1;
        row.accepted += u64::from(is_accepted);
        row.refused += u64::from(!is_accepted);
        row.forged += u64::from(wrong);
        row.forged_accepted += u64::from(wrong && is_accepted);
        let model = &certificate.model;
        let text = certificate.to_json().to_string();
        if wrong && is_accepted {
            let class = Name {
                kind: format!("forged proof accepted: {}", claim.how),
                subject: format!("{kind} {model}"),
            };
            // The certificate names places of this history, so nothing can be left out.
            note(tally, class, case, *number, text, &|_| false);
        } else if !(is_accepted || is_of_another)
            && explains_this(case, certificate) == Some(true)
            && names_members(case, certificate)
        {
            let class = Name {
                kind: format!("true order refused: {}", claim.how),
                subject: format!("{kind} {model}"),
            };
            let error = verify(history, certificate).err().map(|it| it.to_string());
            let text = format!("{}: {text}", error.unwrap_or_default());
            note(tally, class, case, *number, text, &|_| false);
        }
    }
}

impl Claim {
    fn new(how: &'static str, model: &str, proof: Proof) -> Claim {
        let certificate = Certificate::new(model, proof);
        Claim { how, certificate }
    }
}

/// The models that a serial order proves, and one of snapshots, with what the order follows.
const SERIAL: [(&str, Follows); 3] = [
    ("serializable", Follows::Nothing),
    ("strong-session-serializable", Follows::Sessions),
    ("strict-serializable", Follows::Time),
];
const SNAPSHOTS: [(&str, Follows); 3] = [
    ("snapshot-isolation", Follows::Nothing),
    ("strong-session-snapshot-isolation", Follows::Sessions),
    ("strong-snapshot-isolation", Follows::Time),
];

/// Does the certificate prove a false claim?
fn is_wrong(case: &Case, oracle: &Oracle<'_>, certificate: &Certificate) -> bool {
    let model = certificate.model.as_str();
    if model == "no-such-model" {
        return true;
    }
    if certificate.is_valid() {
        return oracle.of(model) == OracleAnswer::Broken
            || explains_this(case, certificate) == Some(false);
    }
    let rests_on_more =
        !certificate.assumptions.is_empty() || !certificate.transaction_order.is_empty();
    // Whatever is taken for granted holds of a history that is strict-serializable.
    let model = if rests_on_more {
        "strict-serializable"
    } else {
        model
    };
    oracle.of(model) == OracleAnswer::Kept
}

/// Does its order name those transactions only of which it is known that they took place? Others may be refused.
fn names_members(case: &Case, certificate: &Certificate) -> bool {
    let places = case.places();
    let (Proof::Serial(order) | Proof::Snapshots(order)) = &certificate.proof else {
        return false;
    };
    let members = case.members();
    let mut others = (0..places.len()).filter(|number| members >> number & 1 == 0);
    !others.any(|number| order.contains(&places[number]))
}

/// Does the order of this certificate explain the case, if it is an order that says all?
fn explains_this(case: &Case, certificate: &Certificate) -> Option<bool> {
    let (rule, order, rows) = match &certificate.proof {
        Proof::Serial(order) => (Rule::Serializable, order, SERIAL),
        Proof::Snapshots(order) => (Rule::Snapshot, order, SNAPSHOTS),
        _ => return None,
    };
    let (_, follows) = rows.iter().find(|row| row.0 == certificate.model)?;
    let places = case.places();
    let number = |place| places.iter().position(|other| other == place);
    let order: Option<Vec<usize>> = order.iter().map(number).collect();
    Some(order.is_some_and(|order| explains(case, rule, *follows, &order)))
}

/// An order in which each transaction stands twice, begins and ends moved a little.
fn nearly_serial(order: &[usize], rng: &mut Rng) -> Vec<usize> {
    let mut twice: Vec<usize> = order.iter().flat_map(|&it| [it, it]).collect();
    for _ in 0..rng.below(4) {
        if twice.len() > 1 {
            let at = rng.index(twice.len() - 1);
            twice.swap(at, at + 1);
        }
    }
    twice
}

fn tamper_order(order: &mut Vec<u64>, rng: &mut Rng) -> &'static str {
    if order.is_empty() {
        order.push(rng.below(4));
        return "order with one more";
    }
    let at = rng.index(order.len());
    match rng.below(4) {
        0 => {
            order.remove(at);
            "order minus one"
        }
        1 => {
            let one = order[at];
            order.insert(rng.index(order.len()), one);
            "order with one twice"
        }
        2 => {
            let other = rng.index(order.len());
            order.swap(at, other);
            "order with two swapped"
        }
        _ => {
            rng.shuffle(order);
            "order shuffled"
        }
    }
}

fn tamper_findings(findings: &mut Vec<Evidence>, history: &History, rng: &mut Rng) -> &'static str {
    let at = rng.index(findings.len());
    let finding = &mut findings[at];
    let any = |rng: &mut Rng| rng.below(history.len() as u64);
    match rng.below(6) {
        0 => {
            findings.remove(at);
            "findings minus one"
        }
        1 => {
            (*rng.pick(&ANOMALIES)).clone_into(&mut finding.anomaly);
            "another anomaly"
        }
        2 if !finding.operations.is_empty() => {
            let at = rng.index(finding.operations.len());
            finding.operations[at] = any(rng);
            "another operation"
        }
        3 if !finding.steps.is_empty() => {
            finding.steps.remove(rng.index(finding.steps.len()));
            "cycle minus a step"
        }
        4 if !finding.steps.is_empty() => {
            let at = rng.index(finding.steps.len());
            (*rng.pick(&RELATIONS)).clone_into(&mut finding.steps[at].relation);
            let relations: Vec<&str> = finding
                .steps
                .iter()
                .map(|it| it.relation.as_str())
                .collect();
            finding.anomaly = cycle_name(&relations);
            "another relation"
        }
        _ if !finding.steps.is_empty() => {
            let at = rng.index(finding.steps.len());
            let to = any(rng);
            let next = (at + 1) % finding.steps.len();
            finding.steps[at].to = to;
            finding.steps[next].from = to;
            "another edge"
        }
        _ => {
            finding.operations.reverse();
            "operations reversed"
        }
    }
}

/// The same order as another kind of proof.
fn another_kind(proof: &Proof, rng: &mut Rng) -> Option<Proof> {
    let (Proof::Serial(order)
    | Proof::Snapshots(order)
    | Proof::Commits(order)
    | Proof::Visible(order)) = proof
    else {
        return None;
    };
    let mut once: Vec<u64> = Vec::new();
    for place in order.iter().rev() {
        if !once.contains(place) {
            once.insert(0, *place);
        }
    }
    Some(match rng.below(4) {
        0 => Proof::Serial(once),
        1 => Proof::Commits(once),
        2 => Proof::Visible(once),
        _ => Proof::Snapshots(once.iter().flat_map(|&it| [it, it]).collect()),
    })
}

/// Makes another history's certificate look as if it were of this one.
fn rename(certificate: &mut Certificate, history: &History) {
    let length = history.len() as u64;
    let fold = |place: &mut u64| *place %= length.max(1);
    match &mut certificate.proof {
        Proof::Serial(order)
        | Proof::Snapshots(order)
        | Proof::Commits(order)
        | Proof::Visible(order)
        | Proof::Core(order) => {
            order.iter_mut().for_each(fold);
        }
        Proof::Findings(findings) => {
            for finding in findings {
                finding.operations.iter_mut().for_each(fold);
                for step in &mut finding.steps {
                    fold(&mut step.from);
                    fold(&mut step.to);
                }
            }
        }
        Proof::Linearization(_) | Proof::Nonlinearizable(_) => {}
    }
}

/// Indices by which findings name transactions: completions, invocations where there is none.
fn completions(case: &Case, history: &History) -> Vec<u64> {
    let places = case.places();
    let index = |&place: &u64| history.pair(place as usize).map_or(place, |it| it as u64);
    places.iter().map(index).collect()
}

/// What a cycle of these relations is called.
fn cycle_name(relations: &[&str]) -> String {
    let count = relations.iter().filter(|it| **it == "rw").count();
    let is_adjacent =
        |at: usize| relations[at] == "rw" && relations[(at + 1) % relations.len()] == "rw";
    let class = match count {
        0 if relations.contains(&"wr") => "G1c",
        0 => "G0",
        1 => "G-single",
        _ if (0..relations.len()).any(is_adjacent) => "G2-item",
        _ => "G-nonadjacent",
    };
    let variant = if relations.contains(&"realtime") {
        "-realtime"
    } else if relations.contains(&"process") {
        "-process"
    } else {
        ""
    };
    format!("{class}{variant}")
}
