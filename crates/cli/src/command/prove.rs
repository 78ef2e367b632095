//! `seatrial prove`: published findings, each shown again by a test that finds it and one that finds nothing.

use crate::suites::Suites;
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_machine::unknown_name;
use seatrial_proofs::{PROOFS, ProveArguments, PublishedFinding, Reproduction, Series};
use seatrial_runner::time_name;
use seatrial_terminal::{Exit, Interrupt, complain, say};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::SystemTime;

/// Carries the verb out.
pub(crate) fn run(arguments: &ProveArguments, suites: &Suites) -> Result<Exit> {
    if arguments.names.is_empty() && !arguments.all {
        list(suites, arguments.json);
        return Ok(Exit::Valid);
    }
    let proofs = chosen(arguments, suites)?;
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => Path::new("runs/prove").join(time_name(SystemTime::now())),
    };
    let shown = folder.display();
    ensure!(
        !folder.exists(),
        "{shown} already exists; choose another folder with --out"
    );
    let interrupt =
        Interrupt::listen(|| complain!("seatrial: interrupted; the test that runs is ended"))?;
    let is_interrupted = || interrupt.is_requested();
    let report = |text: &str| {
        if !arguments.json {
            say!("{text}");
        }
    };
    let series = Series {
        program: std::env::current_exe().context("the path of this program")?,
        folder,
        times: arguments.times,
        report: &report,
        is_interrupted: &is_interrupted,
    };
    let mut rows = Vec::new();
    let mut worst = Reproduction::AsPublished;
    for proof in proofs {
        let (row, agreement) = series.show(proof)?;
        rows.push(row);
        worst = worst.max(agreement);
        if is_interrupted() {
            break;
        }
    }
    if arguments.json {
        say!("{:#}", json!({ "proofs": rows }));
    }
    Ok(match worst {
        Reproduction::AsPublished => Exit::Valid,
        Reproduction::Different => Exit::Invalid,
        Reproduction::Unknown => Exit::Unknown,
    })
}

/// Why a proof cannot run here, if it cannot.
fn obstacle(proof: &PublishedFinding, suites: &Suites) -> Option<String> {
    let suite = proof.suite();
    if let Err(error) = suites.named(suite) {
        return Some(error.to_string());
    }
    let missing = proof.missing();
    let texts: Vec<String> = missing.iter().map(|one| one.obstacle()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn list(suites: &Suites, as_json: bool) {
    if as_json {
        let rows = PROOFS.iter().map(|proof| {
            let obstacle = obstacle(proof, suites);
            json!({"name": proof.name, "claim": proof.claim, "source": proof.source, "obstacle": obstacle})
        });
        say!("{:#}", json!({ "proofs": rows.collect::<Vec<Json>>() }));
        return;
    }
    for proof in PROOFS {
        say!("{}", proof.name);
        say!("  {}", proof.claim);
        say!("  source: {}", proof.source);
        if let Some(obstacle) = obstacle(proof, suites) {
            say!("  cannot run here: {obstacle}");
        }
    }
}

/// The proofs that were asked for. All obstacles are named before the first one runs.
fn chosen(arguments: &ProveArguments, suites: &Suites) -> Result<Vec<&'static PublishedFinding>> {
    let mut proofs = Vec::new();
    let mut obstacles = Vec::new();
    for name in &arguments.names {
        let found = PROOFS.iter().find(|proof| proof.name == name);
        let Some(proof) = found else {
            bail!(unknown_name(
                "proof",
                name,
                PROOFS.iter().map(|proof| proof.name)
            ));
        };
        proofs.push(proof);
        obstacles.extend(obstacle(proof, suites).map(|text| format!("{name}: {text}")));
    }
    ensure!(obstacles.is_empty(), "{}", obstacles.join("\n"));
    if arguments.all {
        for proof in PROOFS {
            match obstacle(proof, suites) {
                None => proofs.push(proof),
                Some(text) => complain!("skipped: {}: {text}", proof.name),
            }
        }
        ensure!(!proofs.is_empty(), "no proof can run here");
    }
    Ok(proofs)
}
