//! `seatrial prove`: published findings, each shown again by a test that finds it and one that finds nothing.

use crate::args::ProveArguments;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{complain, say};
use crate::suites::Suites;
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_machine::unknown_name;
use seatrial_proofs::{Agreement, PROOFS, Proof, Seen, Trial, TrialError, TrialRun};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Carries the verb out.
pub(crate) fn run(arguments: &ProveArguments, suites: &Suites) -> Result<Exit> {
    if arguments.names.is_empty() && !arguments.all {
        list(suites, arguments.json);
        return Ok(Exit::Valid);
    }
    let proofs = chosen(arguments, suites)?;
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => {
            Path::new("runs/prove").join(chrono::Utc::now().format("%Y-%m-%dT%H-%M-%S").to_string())
        }
    };
    let shown = folder.display();
    ensure!(
        !folder.exists(),
        "{shown} already exists; choose another folder with --out"
    );
    let series = Series {
        program: std::env::current_exe().context("the path of this program")?,
        folder,
        times: arguments.times,
        is_silent: arguments.json,
        interrupt: Interrupt::listen(|| {
            complain!("seatrial: interrupted; the test that runs is ended")
        })?,
    };
    let mut rows = Vec::new();
    let mut worst = Agreement::AsPublished;
    for proof in proofs {
        let (row, agreement) = series.show(proof)?;
        rows.push(row);
        worst = worst.max(agreement);
        if series.interrupt.is_requested() {
            break;
        }
    }
    if arguments.json {
        say!("{:#}", json!({ "proofs": rows }));
    }
    Ok(match worst {
        Agreement::AsPublished => Exit::Valid,
        Agreement::Different => Exit::Invalid,
        Agreement::Unknown => Exit::Unknown,
    })
}

/// Why a proof cannot run here, if it cannot.
fn obstacle(proof: &Proof, suites: &Suites) -> Option<String> {
    let mut needed = proof.suites().into_iter();
    if let Some(suite) = needed.find(|suite| suites.named(suite).is_err()) {
        let feature = suite.split('-').next().unwrap_or(suite);
        return Some(format!(
            "this program was built without --features {feature}"
        ));
    }
    let missing = proof.missing();
    let texts: Vec<String> = missing
        .iter()
        .map(|server| format!("{} is not installed: {}", server.name, server.remedy))
        .collect();
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
fn chosen(arguments: &ProveArguments, suites: &Suites) -> Result<Vec<&'static Proof>> {
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
        let (able, other): (Vec<_>, Vec<_>) = PROOFS
            .iter()
            .partition(|proof| obstacle(proof, suites).is_none());
        for proof in other {
            let text = obstacle(proof, suites).unwrap_or_default();
            complain!("skipped: {}: {text}", proof.name);
        }
        ensure!(!able.is_empty(), "no proof can run here");
        proofs = able;
    }
    Ok(proofs)
}

/// Proofs that run one after another.
struct Series {
    program: PathBuf,
    folder: PathBuf,
    times: u32,
    is_silent: bool,
    interrupt: Interrupt,
}

impl Series {
    fn tell(&self, text: &str) {
        if !self.is_silent {
            say!("{text}");
        }
    }

    /// Shows one finding; answers with its row of the JSON document and the worst agreement of its tests.
    fn show(&self, proof: &'static Proof) -> Result<(Json, Agreement)> {
        self.tell(&format!("{}: {}", proof.name, proof.claim));
        self.tell(&format!("  source: {}", proof.source));
        let mut row = json!({"name": proof.name, "claim": proof.claim, "source": proof.source});
        let mut worst = Agreement::AsPublished;
        for (kind, trial) in [("hit", &proof.hit), ("control", &proof.control)] {
            let (tests, agreement) = self.repeat(proof.name, kind, trial)?;
            row[kind] = json!({"setting": trial.setting, "words": trial.words, "expected": trial.expected.to_string(), "tests": tests});
            worst = worst.max(agreement);
        }
        let agreed = worst == Agreement::AsPublished;
        row["as_published"] = json!(agreed);
        self.tell(match worst {
            Agreement::AsPublished => "  ✓ as published",
            Agreement::Unknown => "  ? not decided",
            Agreement::Different => "  ✗ not as published",
        });
        Ok((row, worst))
    }

    /// Runs one test as often as was asked for.
    fn repeat(
        &self,
        name: &str,
        kind: &str,
        trial: &'static Trial,
    ) -> Result<(Vec<Json>, Agreement)> {
        let mut tests = Vec::new();
        let (mut agreed, mut worst) = (0, Agreement::AsPublished);
        for number in 1..=self.times {
            let folder = self.folder.join(format!("{name}-{kind}-{number}"));
            let test = TrialRun {
                trial,
                program: &self.program,
                folder: &folder,
            };
            if number == 1 {
                self.tell(&format!("  {kind}: {}: {}", trial.setting, test.command()));
                self.tell(&format!("    expected: {}", trial.expected));
            }
            let seen = match test.run(|| self.interrupt.is_requested()) {
                Err(TrialError::Interrupted) => return Ok((tests, worst.max(Agreement::Unknown))),
                other => other?,
            };
            let agreement = trial.expected.compare(&seen);
            worst = worst.max(agreement);
            agreed += u32::from(agreement == Agreement::AsPublished);
            self.tell(&format!(
                "    seen:     {seen}   {}/",
                seen.folder.display()
            ));
            tests.push(as_json(&seen, agreement));
        }
        if self.times > 1 {
            self.tell(&format!("    {agreed} of {} as expected", self.times));
        }
        Ok((tests, worst))
    }
}

fn as_json(seen: &Seen, agreement: Agreement) -> Json {
    json!({
        "valid": seen.valid,
        "anomalies": seen.anomalies,
        "operations": seen.operations,
        "seconds": seen.time.as_secs_f64(),
        "folder": seen.folder,
        "as_expected": agreement == Agreement::AsPublished,
    })
}
