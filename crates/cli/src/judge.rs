//! From a history to verdicts, a run folder and what is shown.

use crate::output::complain;
use anyhow::{Context as _, Result, ensure};
use seatrial_checker::{Certificate, Checker, Proven, Validity, Verdict, compose};
use seatrial_history::{History, HistoryWriter, TestFile};
use seatrial_host::{create_folder, write_whole};
use seatrial_report::{FindingFile, Report, finding_files, html, results_json, text};
use seatrial_runner::RunFolder;
use serde_json::Value as Json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What all checkers say.
#[derive(Debug)]
pub(crate) struct Judged {
    /// All together.
    pub(crate) valid: Validity,
    /// One by one.
    pub(crate) verdicts: Vec<Verdict>,
    /// How long they took.
    pub(crate) checked_in: Duration,
}

impl Judged {
    /// Is there a verdict whose proof does not hold?
    pub(crate) fn is_refuted(&self) -> bool {
        self.verdicts.iter().any(Proven::is_refuted)
    }

    /// One more verdict.
    pub(crate) fn add(&mut self, verdict: Verdict) {
        self.valid = self.valid.clone().and(verdict.valid.clone());
        self.verdicts.push(verdict);
    }
}

/// Lets the checkers judge.
pub(crate) fn judge(checkers: &[Box<dyn Checker>], history: &History) -> Judged {
    let began = Instant::now();
    let judgement = compose(checkers, history);
    Judged {
        valid: judgement.valid,
        verdicts: judgement.verdicts,
        checked_in: began.elapsed(),
    }
}

/// May the terminal show colours?
pub(crate) fn color() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Where the run folder of a history that is already complete goes.
pub(crate) struct Keep<'a> {
    pub(crate) suite: &'a str,
    pub(crate) seed: u64,
    pub(crate) out: Option<&'a Path>,
    /// What proves the verdicts, by file.
    pub(crate) proofs: &'a [(String, Certificate)],
}

/// A run folder that is written.
pub(crate) struct Kept {
    pub(crate) folder: PathBuf,
    pub(crate) results: Json,
    /// The last screen.
    pub(crate) text: String,
}

impl Keep<'_> {
    /// Writes history, results and page into a new run folder.
    pub(crate) fn write(
        &self,
        attributes: &Json,
        history: &History,
        judged: &Judged,
    ) -> Result<Kept> {
        let folder = match self.out {
            Some(path) => RunFolder::open(path)?,
            None => RunFolder::fresh(Path::new("runs"), self.suite, self.seed)?,
        };
        let mut writer = HistoryWriter::create(&folder.history(), attributes)?;
        for op in history {
            writer.push(op)?;
        }
        writer.seal()?;
        save_proofs(self.proofs, folder.path(), &judged.verdicts)?;
        let report = Report::new(attributes, history, &judged.verdicts);
        let found = write_findings(&folder.path().join("findings"), &report)?;
        let files = ["report.html", "history.sea", "results.json"];
        let proofs = self.proofs.iter().map(|proof| proof.0.as_str());
        let files = files.into_iter().chain(found.then_some("findings"));
        let files = files.chain(proofs);
        let report = report
            .in_folder(folder.path().display().to_string(), files)
            .checked_in(judged.checked_in);
        let results = results_json(&report);
        TestFile::append_results(&folder.history(), &results)?;
        write(
            &folder.path().join("results.json"),
            &format!("{results:#}\n"),
        )?;
        write(&folder.path().join("report.html"), &html(&report))?;
        Ok(Kept {
            folder: folder.path().to_owned(),
            results,
            text: text(&report, color()),
        })
    }
}

/// Writes a certificate, which may be long, piece by piece.
pub(crate) fn save(certificate: &Certificate, out: &Path) -> Result<()> {
    let written = write_whole(out, |mut file| certificate.write(&mut file));
    written.with_context(|| format!("{} cannot be written", out.display()))
}

/// Writes what proves verdicts into the folder of their run, and says loudly when it does not.
pub(crate) fn save_proofs(
    proofs: &[(String, Certificate)],
    folder: &Path,
    verdicts: &[Verdict],
) -> Result<()> {
    for (name, certificate) in proofs {
        save(certificate, &folder.join(name))?;
    }
    for verdict in verdicts
        .iter()
        .filter(|verdict| Proven::is_refuted(verdict))
    {
        complain!(
            "seatrial: A BUG OF OURS: {}: {}; please keep the folder {}",
            verdict.checker,
            verdict.details["certificate"]["left_out"]
                .as_str()
                .unwrap_or_default(),
            folder.display()
        );
    }
    Ok(())
}

/// Writes a whole file durably, with its name in the error.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let written = write_whole(path, |out| out.write_all(text.as_bytes()));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// Writes all findings into a folder, which must be new or empty; nothing when there are none. Whether there were any.
pub(crate) fn write_findings(folder: &Path, report: &Report<'_>) -> Result<bool> {
    let files = finding_files(report);
    if files.is_empty() {
        return Ok(false);
    }
    let place = || folder.display().to_string();
    if let Ok(mut entries) = std::fs::read_dir(folder) {
        ensure!(
            entries.next().is_none(),
            "{}: there is something in it; findings go into a new or an empty folder",
            place()
        );
    }
    for FindingFile { name, contents } in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            create_folder(parent).with_context(place)?;
        }
        write(&path, &contents)?;
    }
    Ok(true)
}
