//! The options of `check`.

use super::{MinimumArguments, OutputArguments, UndecidedArguments};
use crate::guard::Limits;
use crate::opened::Opening;
use crate::source::Reading;
use crate::suites::KnownSuites;
use anyhow::{Context as _, Result};
use clap::Args;
use seatrial_check::Request;
use seatrial_inference::Inference;
use seatrial_interchange::import::ImportOptions;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// `seatrial check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  seatrial check history.sea
  seatrial check --model snapshot-isolation --report report.html store/latest/test.jepsen
  seatrial check --certificate proof.json history.edn && seatrial check --verify proof.json history.edn
  seatrial check --follow runs/latest/history.sea")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option that is given or not"
)]
pub(crate) struct CheckArguments {
    /// Histories; `-` is standard input; a folder means the run in it (`history.sea`, `test.jepsen`, `history.edn`),
    /// or Cobra's logs.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Format of the file: auto, sea, edn, json, jsonl, jepsen, porcupine, porcupine-json, csv, plume, awdit,
    /// dbcop, dbcop-json, cobra, veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Checkers, separated by commas [default: those of the file's test, else inferred from its operations].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) checker: Option<Vec<String>>,
    /// Search the nodes' logs beside the history (`n1.log`, `n1/….log`) for this regular expression too; a line that matches
    /// is an anomaly. May be given several times [default: the patterns of the file's test].
    #[arg(long, value_name = "RE", conflicts_with = "verify")]
    pub(crate) log_pattern: Vec<String>,
    /// Values `[key value]` belong to independent keys, even if not all look like that.
    #[arg(long)]
    pub(crate) keyed: bool,
    /// Initial value of each key, in a file of transactions without times [default: that of its format].
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) initial_value: Option<i64>,
    /// Number of threads [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Stop after this time with a partial verdict, exit status 2: seconds, or with ms, s, m, h.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    limit: Option<String>,
    /// Stop with a partial verdict when more memory is in use: bytes, or with K, M, G, KiB, MiB, GiB [default: three
    /// quarters of the free memory].
    #[arg(long, value_name = "BYTES")]
    memory: Option<String>,
    /// Consistency model to check [default: that of the file's test, else strict-serializable, without times
    /// strong-session-serializable; linearizable for data types].
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Assumptions of rw-register about each key's version order, separated by commas: wfr-keys, rmw-keys, sequential-keys,
    /// linearizable-keys.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) infer: Vec<String>,
    #[command(flatten)]
    pub(crate) undecided: UndecidedArguments,
    #[command(flatten)]
    pub(crate) minimum: MinimumArguments,
    /// An order of transactions: a JSON object with a number for each index of a completion. rw-register infers versions
    /// from it, isolation verifies it as its first guess.
    #[arg(long, value_name = "FILE")]
    pub(crate) transaction_order: Option<PathBuf>,
    /// Check a test file while it is written, up to its end. Ctrl-C shows what is known by then: exit status 1 if a
    /// violation was found, otherwise 2. list-append, register, cas-register and mutex report violations at once.
    #[arg(long, conflicts_with_all = ["salvage", "repair", "verify"])]
    pub(crate) follow: bool,
    /// Check every key of a history of independent keys, also after one that is not linearizable. Implied by --report,
    /// --findings and --record.
    #[arg(long)]
    pub(crate) all_keys: bool,
    /// Check what can be read of a damaged file.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Append the verdict to the test file, as one more analysis.
    #[arg(long, conflicts_with = "salvage")]
    pub(crate) record: bool,
    /// First truncate an incomplete block at the end of the test file; its bytes are kept in FILE.cut-OFFSET.
    #[arg(long, conflicts_with = "salvage")]
    pub(crate) repair: bool,
    /// Write the report page to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the verdicts as JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write findings to this folder: each anomaly explained in text, each cycle and component as a picture (SVG).
    #[arg(long, value_name = "FOLDER")]
    pub(crate) findings: Option<PathBuf>,
    /// Write the certificate of the verdict to this file, for `--verify`: transactions, linearizability.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["salvage", "accept_undecided"])]
    pub(crate) certificate: Option<PathBuf>,
    /// Do not check, but verify this certificate against the history.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "report", "junit", "findings", "record", "salvage", "checker", "model", "infer", "transaction_order", "certificate",
            "all_keys", "accept_undecided"
        ]
    )]
    pub(crate) verify: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

impl CheckArguments {
    /// How each file is opened.
    pub(crate) fn opening(&self) -> Result<Opening> {
        // A register has no lists for values: a check of registers means tuples.
        let names = self.checker.as_deref().unwrap_or_default();
        let keyed = self.keyed || names.iter().any(|name| name == "register");
        Ok(Opening {
            reading: Reading::by_name(&self.format)?,
            options: ImportOptions {
                keyed: false,
                initial: self.initial_value,
            },
            keyed,
            salvage: self.salvage,
            threads: self.threads(),
        })
    }

    /// The request for each history, which a suite of this program may have written.
    pub(crate) fn request(&self, suites: KnownSuites) -> Result<Request> {
        let order = self.transaction_order.as_deref().map(order).transpose()?;
        Ok(Request {
            checkers: self.checker.clone(),
            model: self.model.clone(),
            inference: Inference::by_names(&self.infer)?,
            order: order.map(Arc::new),
            all_keys: self.all_keys,
            explains: self.record || self.report.is_some() || self.findings.is_some(),
            suites: Some(Arc::new(suites)),
        })
    }

    /// When a check stops.
    pub(crate) fn limits(&self) -> Result<Limits> {
        let time = self.limit.as_deref().map(|text| {
            duration(text).with_context(|| {
                format!("--limit takes a time above 0 in seconds, or with ms, s, m or h after it, not `{text}`")
            })
        });
        let memory = self.memory.as_deref().map(|text| {
            bytes(text).with_context(|| {
                format!("--memory takes a number of bytes, or with K, M, G, KiB, MiB or GiB after it, not `{text}`")
            })
        });
        Ok(Limits {
            time: time.transpose()?,
            memory: memory.transpose()?,
        })
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism();
        self.threads.or(cores.ok()).map_or(1, NonZeroUsize::get)
    }
}

/// A time above 0, in seconds or with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    let time = Duration::try_from_secs_f64(number * seconds).ok()?;
    Some(time).filter(|time| !time.is_zero())
}

/// A number of bytes, with a unit or without.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|&bytes| bytes > 0)
}

/// Numbers by index of completion.
fn order(path: &Path) -> Result<Vec<(u64, i64)>> {
    let context = || format!("{}: no object of numbers by index", path.display());
    let text = std::fs::read_to_string(path).with_context(context)?;
    let order: BTreeMap<String, i64> = serde_json::from_str(&text).with_context(context)?;
    let order = order.into_iter().map(|(index, number)| {
        let index = index.parse().with_context(context)?;
        Ok((index, number))
    });
    order.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("4096"), Some(4_096));
        assert_eq!(bytes("2g"), Some(2_000_000_000));
        assert_eq!(bytes("150MB"), Some(150_000_000));
        assert_eq!(bytes("2GiB"), Some(2 << 30));
        for wrong in ["", "0", "M", "1.5G", "-1", "10X", "99999999999999999999G"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30"), Some(Duration::from_secs(30)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1_500)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Some(Duration::from_mins(2)));
        assert_eq!(duration("1h"), Some(Duration::from_hours(1)));
        for wrong in [
            "",
            "0",
            "s",
            "-1",
            "-1s",
            "1d",
            "nan",
            "inf",
            "1e400",
            "0.0000000001",
        ] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
