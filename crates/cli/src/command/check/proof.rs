//! Proofs of verdicts: written by the checker, replayed by somebody else.

use super::prover::Prover;
use super::rounds::Text;
use super::{after_verdict, word};
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::judge::save;
use crate::load::{is_test_file, load};
use crate::output::{complain, say};
use crate::times::{Promise, is_timeless};
use anyhow::{Context as _, Result, anyhow, ensure};
use seatrial_checker::txn::Rounds as _;
use seatrial_checker::{Certificate, Proof, Unproven, Verdict, Verifier};
use seatrial_history::{Folder, History, TestFile};
use serde_json::{Value as Json, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Checks the history at `path`, replays the certificate of the verdict, shows the verdict, and then writes the certificate to
/// `out`. An error of writing comes after the verdict: on standard error and in the document.
pub(super) fn certify(path: &Path, out: &Path, arguments: &CheckArguments) -> Result<(Exit, Json)> {
    let (verdict, certificate) = judge(path, arguments)?;
    let Some(mut certificate) = certificate else {
        return Ok(unproven(path, &verdict, arguments));
    };
    let (verifier, _) = read(path, arguments)?;
    certificate.history = Some(verifier.fingerprint());
    let mut document = json!({
        "file": path.display().to_string(),
        "valid": certificate.is_valid(),
        "model": certificate.model,
        "certificate": out.display().to_string(),
    });
    let replayed = match verifier.verify(&certificate) {
        Ok(()) => {
            document["holds"] = true.into();
            "certificate written, it holds".to_owned()
        }
        Err(Unproven::Refuted(reason)) => {
            return Ok(refused(path, &certificate, &reason, document, arguments));
        }
        // It may hold or not.
        Err(unsettled @ Unproven::Unsettled { .. }) => {
            document["holds"] = Json::Null;
            format!("certificate written, but {unsettled}")
        }
    };
    if !arguments.output.json {
        say!(
            "{}: {}, {}",
            path.display(),
            word(&document["valid"]),
            described(&certificate)
        );
    }
    let written = save(&certificate, out);
    if written.is_err() {
        document["certificate"] = Json::Null;
    } else if !arguments.output.json && !arguments.output.quiet {
        say!("{}: {replayed}", out.display());
    }
    let exit = after_verdict(&verdict.valid, written, &mut document);
    Ok((exit, document))
}

/// What is shown of a verdict that has no certificate: an error after the verdict.
fn unproven(path: &Path, verdict: &Verdict, arguments: &CheckArguments) -> (Exit, Json) {
    let model = verdict.model.clone().unwrap_or_default();
    let known = verdict.reason.as_deref();
    let reason = known.or(verdict.details["unproven"].as_str());
    let reason = reason.map_or_else(
        || format!("no order of transactions proves {model}"),
        |reason| format!("nothing is proven: {reason}"),
    );
    let mut document = json!({
        "file": path.display().to_string(),
        "valid": verdict.valid,
        "model": model,
        "certificate": null,
    });
    if !arguments.output.json {
        say!("{}: {}, {model}", path.display(), word(&document["valid"]));
    }
    let error = anyhow!("{}: {reason}", path.display());
    let exit = after_verdict(&verdict.valid, Err(error), &mut document);
    (exit, document)
}

/// What is said when the verifier refuses the certificate of this very verdict: a bug. Findings stand without it; nothing
/// supports a verdict without findings.
fn refused(
    path: &Path,
    certificate: &Certificate,
    reason: &str,
    mut document: Json,
    arguments: &CheckArguments,
) -> (Exit, Json) {
    let path = path.display();
    complain!(
        "seatrial: A BUG OF OURS: {path}: the certificate was refused by our own verifier and is not written: {reason}; \
         please keep this history"
    );
    document["certificate"] = Json::Null;
    document["left_out"] = reason.into();
    if certificate.is_valid() {
        document["valid"] = "unknown".into();
        return (Exit::Bug, document);
    }
    if !arguments.output.json {
        say!(
            "{path}: {}, {}",
            word(&document["valid"]),
            described(certificate)
        );
    }
    (Exit::Invalid, document)
}

/// The checker that is to prove its verdict: only of what was asked for.
fn prover(
    arguments: &CheckArguments,
    attributes: &Json,
    look: impl FnOnce() -> Result<History>,
) -> Result<Prover> {
    Promise::of(arguments.model.as_deref(), attributes).ensure_as_asked()?;
    Prover::new(arguments, attributes, look)
}

fn judge(path: &Path, arguments: &CheckArguments) -> Result<(Verdict, Option<Certificate>)> {
    let threads = arguments.threads();
    if matches!(arguments.format.as_str(), "auto" | "sea") && is_test_file(path) {
        let file = Arc::new(TestFile::open(path)?);
        let attributes = file.attributes()?;
        let prover = prover(arguments, &attributes, || Ok(file.history()?))?;
        return prover.certify(&Folder::new(file, threads));
    }
    if let Some(text) = Text::of(path, arguments)? {
        let prover = prover(arguments, &text.attributes()?, || text.sample())?;
        return prover.certify_text(&text);
    }
    let loaded = load(path, &arguments.format, arguments.options())?;
    let history = Arc::new(loaded.history);
    let prover = prover(arguments, &loaded.attributes, || {
        Ok(History::from_ops(history.ops().to_vec()))
    })?;
    prover.certify(&Folder::new(history, threads))
}

/// The history at `path` as the verifier sees it, read chunk by chunk wherever that is possible, and its attributes.
fn read(path: &Path, arguments: &CheckArguments) -> Result<(Verifier, Json)> {
    if matches!(arguments.format.as_str(), "auto" | "sea") && is_test_file(path) {
        let file = TestFile::open(path)?;
        return Ok((Verifier::read(&file)?, file.attributes()?));
    }
    if let Some(text) = Text::of(path, arguments)? {
        let mut verifier = Verifier::default();
        text.round(&mut |chunk| {
            verifier.take(chunk);
            ControlFlow::Continue(())
        })?;
        return Ok((verifier, text.attributes()?));
    }
    let loaded = load(path, &arguments.format, arguments.options())?;
    Ok((Verifier::read(&loaded.history)?, loaded.attributes))
}

/// Replays the certificate for the history at `path`.
pub(super) fn verify(
    path: &Path,
    certificate: &Path,
    arguments: &CheckArguments,
) -> Result<(Exit, Json)> {
    let name = || certificate.display().to_string();
    let text = std::fs::read(certificate).with_context(name)?;
    let proof = Certificate::from_text(&text).with_context(name)?;
    drop(text);
    let (verifier, attributes) = read(path, arguments)?;
    ensure!(
        !(proof.rests_on_real_time() && is_timeless(&attributes)),
        "{}: it rests on real time, and {} does not say when its transactions ran",
        name(),
        path.display()
    );
    let verified = verifier.verify(&proof);
    let document = json!({
        "file": path.display().to_string(),
        "valid": proof.is_valid(),
        "model": proof.model,
        "certificate": name(),
        "holds": match verified {
            Err(Unproven::Unsettled { .. }) => None,
            _ => Some(verified.is_ok()),
        },
        "reason": verified.as_ref().err().map(ToString::to_string),
    });
    if !arguments.output.json {
        match &verified {
            Ok(()) => say!("{}: holds: {}", name(), described(&proof)),
            Err(unsettled @ Unproven::Unsettled { .. }) => say!("{}: {unsettled}", name()),
            Err(Unproven::Refuted(reason)) => say!("{}: does not hold: {reason}", name()),
        }
    }
    let exit = match verified {
        Ok(()) => Exit::Valid,
        Err(Unproven::Unsettled { .. }) => Exit::Unknown,
        Err(Unproven::Refuted(_)) => Exit::Invalid,
    };
    Ok((exit, document))
}

fn described(certificate: &Certificate) -> String {
    let model = &certificate.model;
    match &certificate.proof {
        Proof::Serial(order) => format!("{model}: {} transactions in order", order.len()),
        Proof::Snapshots(order) => {
            format!(
                "{model}: {} transactions, snapshots and commits in order",
                order.len() / 2
            )
        }
        Proof::Commits(order) => format!("{model}: {} commits in order", order.len()),
        Proof::Visible(order) => {
            format!(
                "{model}: {} transactions in the order in which they are seen",
                order.len()
            )
        }
        Proof::Core(places) => format!("not {model}: {} transactions that cannot be", places.len()),
        Proof::Findings(findings) => format!("not {model}: {} findings", findings.len()),
    }
}
