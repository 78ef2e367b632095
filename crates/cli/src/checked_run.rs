//! Checks a history in memory, and writes verdicts, findings, proofs and run folders.

use crate::node_logs;
use crate::opened::of_source;
use anyhow::{Context as _, Result, ensure};
use seatrial_check::{
    CheckOptions, Ground, SharedSource, Unwatched, is_refuted, prove, references,
};
use seatrial_checker::{Aims, CertificateStatus, Checker, Overview, Validity, Verdict};
use seatrial_history::{History, HistoryWriter, TestFile};
use seatrial_host::{create_folder, write_whole};
use seatrial_report::{
    Drawing, Excerpt, FindingFile, OP_COLOR_FILE, Report, finding_files, html, op_color_svg,
    results_json, text,
};
use seatrial_runner::RunFolder;
use seatrial_terminal::complain;
use seatrial_verify::Certificate;
use serde_json::Value as Json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The verdicts on a history in memory.
pub(crate) struct CheckedRun {
    /// One of each checker.
    pub(crate) verdicts: Vec<Verdict>,
    /// How long the checkers took.
    pub(crate) checked_in: Duration,
    /// Counts and times of the history.
    pub(crate) overview: Overview,
    /// The certificates of the verdicts, by file name.
    pub(crate) proofs: Vec<(String, Certificate)>,
}

impl CheckedRun {
    /// Is there a verdict whose proof does not hold?
    pub(crate) fn is_refuted(&self) -> bool {
        self.verdicts.iter().any(is_refuted)
    }

    /// The joint validity of all verdicts.
    pub(crate) fn validity(&self) -> Validity {
        Validity::of(&self.verdicts)
    }
}

/// Checks a history in memory, and proves the verdicts that can be proven.
pub(crate) fn check_run(
    checkers: &[Box<dyn Checker>],
    history: Arc<History>,
    accept_undecided: bool,
) -> Result<CheckedRun> {
    let began = Instant::now();
    let source: SharedSource = history;
    let options = CheckOptions {
        aims: Aims {
            certify: true,
            ..Aims::default()
        },
        threads: 1,
    };
    let checkers = references(checkers);
    let answer = seatrial_check::check(&checkers, &source, &options, &Unwatched, None);
    let mut answer = answer.map_err(of_source)?;
    let proofs = prove(&mut answer, &source).map_err(of_source)?;
    let ground = Ground {
        accept_undecided,
        ..Ground::default()
    };
    ground.settle(&mut answer.verdicts, &answer.overview);
    Ok(CheckedRun {
        verdicts: answer.verdicts,
        checked_in: began.elapsed(),
        overview: answer.overview,
        proofs,
    })
}

/// May the terminal show colours?
pub(crate) fn color() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The run folder to write for a history that is complete.
pub(crate) struct RunFolderPlan<'a> {
    pub(crate) suite: &'a str,
    pub(crate) seed: u64,
    pub(crate) out: Option<&'a Path>,
}

/// A run folder that is written.
pub(crate) struct Kept {
    pub(crate) folder: PathBuf,
    pub(crate) results: Json,
    /// The last screen.
    pub(crate) text: String,
}

impl RunFolderPlan<'_> {
    /// Writes history, results and page into a new run folder.
    pub(crate) fn write(
        &self,
        attributes: &Json,
        history: &History,
        checked: &CheckedRun,
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
        save_proofs(&checked.proofs, folder.path(), &checked.verdicts)?;
        let report = Report::new(attributes, &checked.overview, &checked.verdicts);
        let causes = node_logs::causes(&report, history, None)?;
        let report = report.with_causes(causes);
        let drawing = Drawing::read(&report, history).map_err(of_source)?;
        let findings = folder.path().join("findings");
        let found = write_findings(&findings, &report, drawing.excerpt())?;
        let picture = write_picture(&folder.path().join(OP_COLOR_FILE), &report)?;
        let files = ["report.html", "history.sea", "results.json"];
        let proofs = checked.proofs.iter().map(|proof| proof.0.as_str());
        let files = files.into_iter().chain(found.then_some("findings"));
        let files = files.chain(picture.then_some(OP_COLOR_FILE));
        let files = files.chain(proofs);
        let report = report
            .in_folder(folder.path().display().to_string(), files)
            .checked_in(checked.checked_in);
        let results = results_json(&report);
        TestFile::append_results(&folder.history(), &results)?;
        write(
            &folder.path().join("results.json"),
            &format!("{results:#}\n"),
        )?;
        write(&folder.path().join("report.html"), &html(&report, &drawing))?;
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

/// Writes the certificates of verdicts into the folder of their run, and complains of one that the verifier refused.
pub(crate) fn save_proofs(
    proofs: &[(String, Certificate)],
    folder: &Path,
    verdicts: &[Verdict],
) -> Result<()> {
    for (name, certificate) in proofs {
        save(certificate, &folder.join(name))?;
    }
    for verdict in verdicts.iter().filter(|verdict| is_refuted(verdict)) {
        complain!(
            "seatrial: A BUG OF OURS: {}: {}; please keep the folder {}",
            verdict.checker,
            verdict
                .details
                .certificate
                .as_ref()
                .and_then(CertificateStatus::left_out)
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

/// Writes the picture of the checker `op-color-plot`; nothing without it. Whether there is one.
pub(crate) fn write_picture(path: &Path, report: &Report<'_>) -> Result<bool> {
    let Some(picture) = op_color_svg(report) else {
        return Ok(false);
    };
    write(path, &picture)?;
    Ok(true)
}

/// Writes all findings into a folder, which must be new or empty; nothing when there are none. Whether there were any.
pub(crate) fn write_findings(
    folder: &Path,
    report: &Report<'_>,
    excerpt: &Excerpt,
) -> Result<bool> {
    let files = finding_files(report, excerpt);
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
