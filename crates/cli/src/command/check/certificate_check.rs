//! Certificates that are replayed on their own.

use crate::args::CheckArguments;
use crate::opened::{Opened, of_source};
use anyhow::{Context as _, Result, ensure};
use seatrial_history::Provenance;
use seatrial_machine::counted;
use seatrial_terminal::{Exit, say};
use seatrial_verify::{Certificate, Proof, Unproven, Verifier};
use serde_json::{Value as Json, json};
use std::path::Path;

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
    let opened = Opened::open(path, arguments.opening()?)?;
    let verifier = Verifier::read_for(&*opened.source, &proof).map_err(of_source)?;
    let is_timeless = Provenance::of_attributes(&opened.attributes).is_timeless();
    ensure!(
        !(proof.rests_on_real_time() && is_timeless),
        "{}: it rests on real time, and {} does not say when its operations ran",
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
    let count = |length: usize, noun| counted(length as u64, noun);
    match &certificate.proof {
        Proof::Serial(order) => format!("{model}: {} in order", count(order.len(), "transaction")),
        Proof::Snapshots(order) => {
            format!(
                "{model}: {}, snapshots and commits in order",
                count(order.len() / 2, "transaction")
            )
        }
        Proof::Commits(order) => format!("{model}: {} in order", count(order.len(), "commit")),
        Proof::Visible(order) => {
            format!(
                "{model}: {} in the order in which they are seen",
                count(order.len(), "transaction")
            )
        }
        Proof::Core(places) => format!(
            "not {model}: {} without an order",
            count(places.len(), "transaction")
        ),
        Proof::Findings(findings) => format!("not {model}: {}", count(findings.len(), "finding")),
        Proof::Linearization(one) => {
            let points = count(one.order.len(), "linearization point");
            format!("{model}: {} with {points} in order", one.data_type)
        }
        Proof::Nonlinearizable(core) => {
            let key = core.key.as_ref().map(|key| format!(" of key {key}"));
            let operations = count(core.places.len(), "operation");
            format!(
                "not {model}: {operations}{} without an order ({})",
                key.unwrap_or_default(),
                core.data_type
            )
        }
    }
}
