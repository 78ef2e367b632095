//! Output of a finished check: screen, report, findings, certificates, record.

use crate::args::CheckArguments;
use crate::checked_run::{color, save, write, write_findings, write_picture};
use crate::node_logs;
use crate::opened::{Opened, of_source};
use crate::resources::Resources;
use crate::verdict_exit::verdict_exit;
use anyhow::{Result, anyhow, bail};
use seatrial_check::{CheckAnswer, CheckQuestion, Ground, MinimumLoad, is_refuted, proves, replay};
use seatrial_checker::{CertificateStatus, MissingPart, Validity, Verdict};
use seatrial_history::{TestFile, WriteError};
use seatrial_report::{
    Drawing, Excerpt, OP_COLOR_FILE, Report, html, junit_xml, results_json, text,
};
use seatrial_terminal::{Exit, complain, say};
use seatrial_verify::Certificate;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::Instant;

/// A check whose checkers have answered: one place decides what the answers are worth, what is shown, what is written, and the
/// exit status, for every source and every checker.
pub(super) struct Ending<'a> {
    pub(super) path: &'a Path,
    pub(super) opened: &'a Opened,
    pub(super) question: CheckQuestion,
    pub(super) answer: CheckAnswer,
    pub(super) began: Instant,
    pub(super) arguments: &'a CheckArguments,
}

impl Ending<'_> {
    /// Settles the verdicts, shows them unless they go into a document, and writes what was asked for.
    pub(super) fn conclude(mut self) -> Result<(Exit, Json)> {
        let (opened, arguments) = (self.opened, self.arguments);
        let named = arguments.checker.is_some() && arguments.model.is_some();
        let ground = Ground {
            missing: &opened.missing,
            accept_undecided: arguments.undecided.accept_undecided,
            is_guessed: opened.has_lost_attributes && !named,
            minimum: arguments
                .minimum
                .minimum()?
                .or(MinimumLoad::of_attributes(&opened.attributes)),
        };
        let mut verdicts = std::mem::take(&mut self.answer.verdicts);
        ground.settle(&mut verdicts, &self.answer.overview);
        // The history has no part in this one.
        let patterns = self.log_patterns();
        if !patterns.is_empty() {
            let nodes = node_logs::nodes_of(&self.opened.attributes);
            verdicts.push(node_logs::search(self.path, &patterns, &nodes)?);
        }
        let certificate = self.prove(&mut verdicts)?;
        let overview = std::mem::take(&mut self.answer.overview);
        let mut report = Report::new(&opened.attributes, &overview, &verdicts)
            .checked_in(self.began.elapsed())
            .chosen(self.question.why.take());
        for warning in opened.warnings.iter().chain(&self.question.warnings) {
            report = report.warn(warning.clone());
        }
        let report = self.add_causes(report)?;
        let mut document = results_json(&report);
        if !opened.missing.is_empty() {
            let missing = opened.missing.iter().map(MissingPart::description);
            document["missing"] = missing.collect::<Vec<_>>().join("; ").into();
        }
        if let Some(stopped) = &self.answer.stopped {
            document["stopped"] = json!(stopped.0);
        }
        self.explain(&verdicts);
        self.show(&report, &document);
        let written = self.write(&report, &mut document, certificate);
        let mut exit = verdict_exit(&report.validity());
        if let Err(error) = written {
            complain!("seatrial: {error:#}");
            document["error"] = format!("{error:#}").into();
            exit = Exit::Error;
        }
        if verdicts.iter().any(is_refuted) && exit != Exit::Invalid {
            exit = Exit::Bug;
        }
        document["file"] = json!(self.path.display().to_string());
        Ok((exit, document))
    }

    /// Replays the certificate of the checker that proves its verdict, if one is wanted; the certificate, when it is to be kept.
    fn prove(&mut self, verdicts: &mut [Verdict]) -> Result<Option<Certificate>> {
        let Some(out) = &self.arguments.certificate else {
            return Ok(None);
        };
        let Some(proving) = verdicts.iter().position(|one| proves(one.checker)) else {
            return Ok(None);
        };
        let certificate = self.answer.take_certificate(proving);
        // A verdict that was taken back, as parts of the history are missing, is not to be proven.
        let is_known = !matches!(verdicts[proving].valid, Validity::Unknown(_));
        let certificate = certificate.filter(|_| is_known);
        let (verdict, source) = (&mut verdicts[proving], &*self.opened.source);
        let file = out.display().to_string();
        replay(verdict, certificate, source, &file).map_err(of_source)
    }

    /// The patterns of log lines that are failures: those asked for, else those of the file's test, if no checkers were
    /// asked for.
    fn log_patterns(&self) -> Vec<String> {
        let arguments = self.arguments;
        if !arguments.log_pattern.is_empty() || arguments.checker.is_some() {
            return arguments.log_pattern.clone();
        }
        let own = self.opened.attributes["log_patterns"].as_array();
        let own = own.into_iter().flatten().filter_map(Json::as_str);
        own.map(str::to_owned).collect()
    }

    /// Adds what happened around each finding, unless no output shows it.
    fn add_causes<'r>(&self, report: Report<'r>) -> Result<Report<'r>> {
        let arguments = self.arguments;
        let is_shown = !arguments.output.quiet
            || arguments.output.json
            || arguments.record
            || arguments.report.is_some()
            || arguments.findings.is_some()
            || arguments.junit.is_some();
        if !is_shown {
            return Ok(report);
        }
        let causes = node_logs::causes(&report, &*self.opened.source, Some(self.path))?;
        Ok(report.with_causes(causes))
    }

    /// Details of each checker, and what the check took, with `--verbose`.
    fn explain(&self, verdicts: &[Verdict]) {
        if !self.arguments.output.verbose {
            return;
        }
        for verdict in verdicts {
            let Verdict {
                checker,
                valid,
                details,
                ..
            } = verdict;
            complain!(" {checker}: {valid:?} {details}");
        }
        complain!(" {}", Resources::since(self.began));
    }

    /// Shows the verdict, unless it goes into a document.
    fn show(&self, report: &Report<'_>, document: &Json) {
        let arguments = self.arguments;
        if arguments.output.json {
            return;
        }
        if arguments.output.quiet {
            say!("{}: {}", self.path.display(), word(&document["valid"]));
            return;
        }
        if arguments.files.len() > 1 {
            say!(" {}", self.path.display());
        }
        say!("{}", text(report, color()).trim_end());
    }

    /// Writes the requested files. The verdict is on the screen by then: an error does not hide it.
    fn write(
        &self,
        report: &Report<'_>,
        document: &mut Json,
        certificate: Option<Certificate>,
    ) -> Result<()> {
        let (arguments, source) = (self.arguments, &*self.opened.source);
        if arguments.record {
            record(self.path, document)?;
        }
        if let Some(page) = &arguments.report {
            let drawing = Drawing::read(report, source).map_err(of_source)?;
            write(page, &html(report, &drawing))?;
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            write_picture(
                &page.with_file_name(format!("{stem}.{OP_COLOR_FILE}")),
                report,
            )?;
        }
        if let Some(junit) = &arguments.junit {
            write(junit, &junit_xml(report))?;
        }
        if let Some(folder) = &arguments.findings {
            let excerpt = Excerpt::read(report, source).map_err(of_source)?;
            write_findings(folder, report, &excerpt)?;
        }
        let Some(out) = &arguments.certificate else {
            return Ok(());
        };
        document["certificate"] = Json::Null;
        let (path, status) = (self.path.display(), certificate_status(report.verdicts));
        let Some(certificate) = certificate else {
            let reason = status.and_then(CertificateStatus::left_out);
            let reason = reason.unwrap_or("no checker proves its verdict");
            if report.verdicts.iter().any(is_refuted) {
                complain!("seatrial: A BUG OF OURS: {path}: {reason}; please keep this history");
                return Ok(());
            }
            bail!("{path}: nothing is proven: {reason}");
        };
        save(&certificate, out)?;
        document["certificate"] = json!(out.display().to_string());
        if !arguments.output.json && !arguments.output.quiet {
            let replayed = match status {
                Some(CertificateStatus::Unsettled { reason, .. }) => format!("but {reason}"),
                _ => "it holds".to_owned(),
            };
            say!("{}: certificate written, {replayed}", out.display());
        }
        Ok(())
    }
}

/// The status of the first certificate of these verdicts.
fn certificate_status(verdicts: &[Verdict]) -> Option<&CertificateStatus> {
    let mut all = verdicts.iter();
    all.find_map(|verdict| verdict.details.certificate.as_ref())
}

/// Appends the results to the test file they are of.
fn record(path: &Path, results: &Json) -> Result<()> {
    TestFile::append_results(path, results).map_err(|error| match error {
        WriteError::Torn { .. } => anyhow!(
            "{error}; --repair cuts these bytes off and keeps them in a file beside it, --salvage reads whole blocks among them"
        ),
        error => error.into(),
    })
}

/// The verdict as a word.
fn word(valid: &Json) -> &str {
    match valid {
        Json::Bool(true) => "valid",
        Json::Bool(false) => "invalid",
        _ => "unknown",
    }
}
