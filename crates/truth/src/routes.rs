//! Checks one history by several routes: in memory, as EDN, as a test file, through the program. All must say the same.

use crate::case::Case;
use crate::compare::{CheckerUnderTest, ask};
use crate::tally::{Class, Name, Tally, size};
use anyhow::{Context as _, Result};
use seatrial_checker::{Validity, Verdict, certify};
use seatrial_history::{HistoryWriter, TestFile, WriterOptions};
use seatrial_interchange::import::{self, ImportOptions};
use seatrial_machine::Rng;
use seatrial_verify::Verifier;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// A thread's place for files, and the program.
pub(crate) struct Routes {
    folder: TempDir,
    program: Option<PathBuf>,
}

/// What is compared of a verdict: its validity, its anomalies, and whether its certificate was accepted.
type RouteAnswer = (&'static str, Vec<&'static str>, Option<bool>);

fn answer(verdict: &Verdict, is_accepted: Option<bool>) -> RouteAnswer {
    let anomalies = verdict.anomalies.keys().copied().collect();
    (name(&verdict.valid), anomalies, is_accepted)
}

fn name(valid: &Validity) -> &'static str {
    match valid {
        Validity::Valid => "valid",
        Validity::Invalid => "invalid",
        Validity::Unknown(_) => "unknown",
    }
}

/// The program beside this one, as the build leaves it.
pub(crate) fn program() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let program = here.with_file_name("seatrial");
    program.is_file().then_some(program)
}

impl Routes {
    pub(crate) fn new() -> Result<Routes> {
        Ok(Routes {
            folder: tempfile::tempdir().context("a temporary folder")?,
            program: program(),
        })
    }

    /// Takes one case by all routes, with one of the checkers.
    pub(crate) fn compare(
        &self,
        subjects: &[CheckerUnderTest],
        case: &Case,
        number: u64,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<()> {
        tally.cases += 1;
        let subject = rng.pick(subjects);
        let answered = ask(subject, &case.history());
        let expected = answer(&answered.verdict, answered.holds.map(|holds| holds.is_ok()));
        let mut routes = vec![
            ("EDN", Self::by_text(subject, case)?),
            ("test file", self.by_file(subject, case)?),
        ];
        // A program that starts takes a thousand times as long as its check of so small a history.
        if rng.chance(0.05) {
            let found = self.by_program(subject, case)?;
            routes.extend(found.map(|valid| ("program", (valid, expected.1.clone(), expected.2))));
        }
        for (route, found) in routes {
            let row = tally.row(subject.name, route);
            row.histories += 1;
            match found.0 {
                "valid" => row.valid += 1,
                "invalid" => row.invalid += 1,
                _ => row.unknown += 1,
            }
            row.accepted += u64::from(found.2 == Some(true));
            row.refused += u64::from(found.2 == Some(false));
            if found == expected {
                continue;
            }
            let class = Name {
                kind: format!("another verdict by {route}"),
                subject: format!("{} {}", subject.name, subject.model),
            };
            let found = Class {
                count: 1,
                size: size(case),
                edn: case.edn(),
                number,
                note: format!("{found:?}, in memory {expected:?}"),
            };
            tally.disagree(class, found);
        }
        Ok(())
    }

    /// Written as EDN and read back.
    fn by_text(subject: &CheckerUnderTest, case: &Case) -> Result<RouteAnswer> {
        let text = case.edn();
        let format = import::detect("case.edn", text.as_bytes()).context("no format")?;
        let history = import::read(
            "case.edn",
            text.as_bytes(),
            format,
            ImportOptions::default(),
        )?;
        let answered = ask(subject, &history);
        Ok(answer(
            &answered.verdict,
            answered.holds.map(|holds| holds.is_ok()),
        ))
    }

    /// Written as a test file of small chunks, and checked chunk by chunk.
    fn by_file(&self, subject: &CheckerUnderTest, case: &Case) -> Result<RouteAnswer> {
        let path = self.folder.path().join("case.sea");
        let _ = std::fs::remove_file(&path);
        write(&path, case)?;
        let file = Arc::new(TestFile::open(&path)?);
        let (verdict, certificate) =
            certify(&*subject.checker, &*file).map_err(anyhow::Error::from_boxed)?;
        let accepted = match &certificate {
            Some(certificate) => {
                let verifier =
                    Verifier::read_for(&*file, certificate).map_err(anyhow::Error::from_boxed)?;
                Some(verifier.verify(certificate).is_ok())
            }
            None => None,
        };
        Ok(answer(&verdict, accepted))
    }

    /// By the program, from EDN; nothing when it is not built.
    fn by_program(&self, subject: &CheckerUnderTest, case: &Case) -> Result<Option<&'static str>> {
        let Some(program) = &self.program else {
            return Ok(None);
        };
        let path = self.folder.path().join("case.edn");
        std::fs::write(&path, case.edn())?;
        let mut check = Command::new(program);
        check.args(["check", "--checker", subject.name, "--model", subject.model]);
        let output = check.arg(&path).output().context("seatrial check")?;
        Ok(Some(match output.status.code() {
            Some(0) => "valid",
            Some(1) => "invalid",
            Some(2) => "unknown",
            _ => "an error",
        }))
    }
}

fn write(path: &Path, case: &Case) -> Result<()> {
    let options = WriterOptions {
        chunk_length: 3,
        ..WriterOptions::default()
    };
    let mut writer = HistoryWriter::create_with(path, &Json::default(), options)?;
    for op in &case.history() {
        writer.push(op)?;
    }
    writer.seal()?;
    Ok(())
}
