//! A verdict that was reached without a history in memory, shown.

use super::choice::because;
use super::{after_verdict, show_one};
use crate::args::CheckArguments;
use crate::exit::Exit;
use crate::losses;
use crate::output::complain;
use crate::resources::Resources;
use anyhow::Result;
use seatrial_checker::{Missing, Validity, Verdict, without_ok};
use seatrial_report::{Counts, Report, Summary, results_json};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::Instant;

/// What one checker says of a file, of which it counted the operations on its way (`ok`, `fail`, `info` of its details).
pub(super) struct Counted<'a> {
    pub(super) path: &'a Path,
    pub(super) attributes: &'a Json,
    pub(super) verdict: Verdict,
    /// Why this checker was chosen.
    pub(super) why: Option<String>,
    /// What a reader should know before trusting it.
    pub(super) warning: Option<String>,
    /// Between the first and the last operation.
    pub(super) seconds: f64,
    /// Its events; `None` when each operation is one, without an invocation of its own.
    pub(super) events: Option<u64>,
    pub(super) began: Instant,
}

impl Counted<'_> {
    /// Shows it unless it goes into a document.
    pub(super) fn conclude(self, arguments: &CheckArguments) -> (Exit, Json) {
        self.conclude_and(arguments, |_| Ok(()))
    }

    /// The same; then writes what was asked for besides.
    pub(super) fn conclude_and(
        self,
        arguments: &CheckArguments,
        write: impl FnOnce(&[Verdict]) -> Result<()>,
    ) -> (Exit, Json) {
        let mut verdicts = [self.verdict];
        let missing: Vec<Missing> = losses::of_attributes(self.attributes).into_iter().collect();
        for one in &missing {
            one.weigh(&mut verdicts);
        }
        if verdicts[0].details["ok"] == 0 {
            without_ok(&mut verdicts);
        }
        let why = self.why.map(|why| because([verdicts[0].checker], &why));
        let count = |name: &str| verdicts[0].details[name].as_u64().unwrap_or_default();
        let total = Counts {
            ok: count("ok"),
            fail: count("fail"),
            info: count("info"),
        };
        let summary = Summary {
            total,
            events: self.events.unwrap_or(total.total()),
            seconds: self.seconds,
            ..Summary::default()
        };
        let mut report = Report::counted(self.attributes, summary, &verdicts)
            .checked_in(self.began.elapsed())
            .chosen(why);
        let warnings = missing.iter().map(losses::warning);
        for warning in warnings.chain(self.warning) {
            report = report.warn(warning);
        }
        let mut document = results_json(&report);
        if !missing.is_empty() {
            document["missing"] = losses::json(&missing);
        }
        document["file"] = json!(self.path.display().to_string());
        if arguments.output.verbose {
            let [verdict] = &verdicts;
            complain!(
                " {}: {:?} {}",
                verdict.checker,
                verdict.valid,
                verdict.details
            );
            complain!(" {}", Resources::since(self.began));
        }
        show_one(self.path, &report, &document, arguments);
        let exit = after_verdict(&Validity::of(&verdicts), write(&verdicts), &mut document);
        (exit, document)
    }
}
