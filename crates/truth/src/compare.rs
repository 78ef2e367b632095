//! Verdicts and certificates of the checkers on one case, held against the brute force.

use crate::case::{Case, Kind};
use crate::oracle::{Oracle, OracleAnswer};
use crate::shrink::shrink;
use crate::tally::{Class, Name, Tally, size};
use seatrial_check::by_name;
use seatrial_checker::{Checker, Validity, Verdict, certify};
use seatrial_cycles::Level;
use seatrial_history::History;
use seatrial_isolation::AxiomaticModel;
use seatrial_verify::{Certificate, Unproven, Verifier};

/// A checker by its name and model, as the command line makes it.
pub(crate) struct CheckerUnderTest {
    pub(crate) name: &'static str,
    pub(crate) model: &'static str,
    pub(crate) checker: Box<dyn Checker>,
}

/// All checkers and models for this kind of keys.
pub(crate) fn subjects(kind: Kind) -> Vec<CheckerUnderTest> {
    let levels = || Level::all().map(Level::name);
    let names: Vec<(&str, &str)> = match kind {
        Kind::Lists => levels().map(|model| ("list-append", model)).collect(),
        Kind::Registers => {
            let models = AxiomaticModel::all().map(|model| ("isolation", model.name()));
            let levels = levels().map(|model| ("rw-register", model));
            levels.chain(models).collect()
        }
    };
    let subject = |(name, model)| CheckerUnderTest {
        name,
        model,
        checker: by_name(name, Some(model)).unwrap_or_else(|error| panic!("{error}")),
    };
    names.into_iter().map(subject).collect()
}

/// Something that a checker or the verifier got wrong.
#[derive(Clone, Debug)]
pub(crate) struct Disagreement {
    /// What kind of error, of which checker and model.
    pub(crate) class: Name,
    pub(crate) note: String,
}

/// What one checker answered.
pub(crate) struct CheckerAnswer {
    pub(crate) verdict: Verdict,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) holds: Option<Result<(), Unproven>>,
}

/// Runs a checker and replays its certificate.
pub(crate) fn ask(subject: &CheckerUnderTest, history: &History) -> CheckerAnswer {
    let checked = certify(&*subject.checker, history);
    let (verdict, certificate) = checked.unwrap_or_else(|error| panic!("{error}"));
    let holds = certificate
        .as_ref()
        .map(|certificate| verify(history, certificate));
    CheckerAnswer {
        verdict,
        certificate,
        holds,
    }
}

/// Replays a certificate; a small history is settled at once or never.
pub(crate) fn verify(history: &History, certificate: &Certificate) -> Result<(), Unproven> {
    let verifier = Verifier::read_for(history, certificate);
    let verifier = verifier.unwrap_or_else(|error| panic!("{error}"));
    verifier.with_bound(10_000_000).verify(certificate)
}

/// The disagreements of a checker's answer with the oracle.
pub(crate) fn disagreements(
    subject: &CheckerUnderTest,
    answered: &CheckerAnswer,
    oracle: &Oracle<'_>,
) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let CheckerUnderTest { name, model, .. } = subject;
    let verdict = &answered.verdict;
    let anomalies: Vec<&str> = verdict.anomalies.keys().copied().collect();
    let anomalies = anomalies.join(" ");
    let mut add = |what: &str, more: &str, note: String| {
        let class = Name {
            kind: format!("{what}{more}"),
            subject: format!("{name} {model}"),
        };
        found.push(Disagreement { class, note });
    };
    let answer = oracle.of(model);
    match (&verdict.valid, answer) {
        (Validity::Valid, OracleAnswer::Broken) => {
            add("false pass", "", format!("proof: {:?}", verdict.proof));
        }
        (Validity::Invalid, OracleAnswer::Kept) => {
            let summary = verdict.findings.first();
            let summary =
                summary.map_or(String::new(), |finding| finding.summary.replace('\n', " "));
            add("false alarm", &format!(": {anomalies}"), summary);
        }
        _ => {}
    }
    if verdict.valid == Validity::Valid && verdict.proof.is_none() {
        add("valid without a proof", "", String::new());
    }
    for other in verdict.not.iter().chain(&verdict.also_not) {
        if oracle.of(other) == OracleAnswer::Kept {
            add(
                "`not` is kept:",
                &format!(" {other}"),
                format!("anomalies: {anomalies}"),
            );
        }
    }
    for other in verdict.details.holds.iter().flatten() {
        if oracle.of(other) == OracleAnswer::Broken {
            add("`holds` is broken:", &format!(" {other}"), String::new());
        }
    }
    if let (Some(Err(error)), Some(certificate)) = (&answered.holds, &answered.certificate) {
        let reason = without_digits(&error.to_string());
        let what = if certificate.is_valid() {
            "valid"
        } else {
            "invalid"
        };
        add(
            "certificate refused:",
            &format!(" {what}: {reason}"),
            certificate.to_json().to_string(),
        );
    }
    found
}

/// A message in which numbers do not count.
pub(crate) fn without_digits(text: &str) -> String {
    let mut other = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            other.push(letter);
        } else if !other.ends_with('#') {
            other.push('#');
        }
    }
    other
}

/// Cases of a class that are shrunk; the others are counted.
const SHRUNK_MAX: u64 = 3;

/// Compares these checkers on one case.
pub(crate) fn compare<'a>(
    subjects: impl IntoIterator<Item = &'a CheckerUnderTest>,
    case: &Case,
    number: u64,
    tally: &mut Tally,
) {
    tally.cases += 1;
    let history = case.history();
    let oracle = Oracle::new(case);
    if let Some(model) = oracle.contradiction() {
        let name = Name {
            kind: "the brute force contradicts itself".to_owned(),
            subject: model.to_owned(),
        };
        let still = |case: &Case| Oracle::new(case).contradiction() == Some(model);
        note(tally, name, case, number, String::new(), &still);
    }
    for subject in subjects {
        let answered = ask(subject, &history);
        count(subject, &answered, &oracle, tally);
        for found in disagreements(subject, &answered, &oracle) {
            let still = |case: &Case| {
                let answered = ask(subject, &case.history());
                let all = disagreements(subject, &answered, &Oracle::new(case));
                all.iter().any(|other| other.class == found.class)
            };
            let note_text = found.note.clone();
            note(tally, found.class.clone(), case, number, note_text, &still);
        }
    }
}

/// Keeps a disagreement, shrunk when it is among the first of its class.
pub(crate) fn note(
    tally: &mut Tally,
    class: Name,
    case: &Case,
    number: u64,
    note: String,
    still: &dyn Fn(&Case) -> bool,
) {
    let case = if tally.known(&class) < SHRUNK_MAX {
        shrink(case, still)
    } else {
        case.clone()
    };
    let found = Class {
        count: 1,
        size: size(&case),
        edn: case.edn(),
        number,
        note,
    };
    tally.disagree(class, found);
}

fn count(
    subject: &CheckerUnderTest,
    answered: &CheckerAnswer,
    oracle: &Oracle<'_>,
    tally: &mut Tally,
) {
    let answer = oracle.of(subject.model);
    let row = tally.row(subject.name, subject.model);
    row.histories += 1;
    row.open += u64::from(answer == OracleAnswer::Open);
    match &answered.verdict.valid {
        Validity::Valid => {
            row.valid += 1;
            row.false_passes += u64::from(answer == OracleAnswer::Broken);
        }
        Validity::Invalid => {
            row.invalid += 1;
            row.false_alarms += u64::from(answer == OracleAnswer::Kept);
        }
        Validity::Unknown(_) => row.unknown += 1,
    }
    match &answered.holds {
        Some(Ok(())) => row.accepted += 1,
        Some(Err(_)) => row.refused += 1,
        None if matches!(answered.verdict.valid, Validity::Unknown(_)) => {}
        None => row.bare += 1,
    }
    if let Validity::Unknown(reason) = &answered.verdict.valid {
        let reason = format!("{}: {}", subject.name, without_digits(reason));
        *tally.reasons.entry(reason).or_default() += 1;
    }
}
