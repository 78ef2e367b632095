//! The options of `show`.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use seatrial_history::{OpType, Process, Symbol};
use seatrial_machine::unknown_name;
use seatrial_query::Selection;
use std::path::PathBuf;

/// `seatrial show`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  seatrial show runs/kv/latest --from 1000 --count 20
  seatrial show history.sea --key 5 --time 1.0..4.5
  seatrial show history.sea --node n1 --type fail,info --count 50
  seatrial show history.sea --process nemesis")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch on the command line"
)]
pub(crate) struct ShowArguments {
    /// A test file, or any history that `check` reads; a folder means the run in it.
    pub(crate) file: PathBuf,
    /// Format of the file: auto, sea, edn, json, jsonl, jepsen, porcupine, porcupine-json, csv, plume, awdit,
    /// dbcop, dbcop-json, cobra, veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Show what can be salvaged from a damaged test file.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// The test's attributes instead of its operations.
    #[arg(long, conflicts_with_all = ["results", "from", "count", "selected"])]
    pub(crate) attributes: bool,
    /// The newest results instead of the operations.
    #[arg(long, conflicts_with_all = ["from", "count", "selected"])]
    pub(crate) results: bool,
    /// Start at the operation with this index.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    pub(crate) from: u64,
    /// Print at most this many operations.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) selected: SelectionArguments,
    /// Operations as EDN, one map a line, as Jepsen writes them.
    #[arg(long, conflicts_with_all = ["attributes", "results"])]
    pub(crate) edn: bool,
    /// Operations as JSON, one object a line.
    #[arg(long, conflicts_with_all = ["attributes", "results", "edn"])]
    pub(crate) json: bool,
}

/// Which operations are shown: those for which all given conditions hold.
#[derive(Args, Clone, Debug)]
#[group(id = "selected", multiple = true)]
pub(crate) struct SelectionArguments {
    /// Only operations on these keys, separated by commas; where there are no keys, with these values or elements.
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    key: Vec<String>,
    /// Only operations of these processes: numbers, or nemesis.
    #[arg(long, value_name = "PROCESSES", value_delimiter = ',')]
    process: Vec<String>,
    /// Only operations that these nodes answered, and faults that name them.
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    node: Vec<String>,
    /// Only operations with these functions: read, write, txn, kill, …
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    f: Vec<String>,
    /// Only operations of these types: invoke, ok, fail, info.
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',')]
    kind: Vec<String>,
    /// Only operations of this time, in seconds since the test began; either end may be left out: 1.5..4, ..2, 60..
    #[arg(long, value_name = "FROM..TO")]
    time: Option<String>,
}

impl SelectionArguments {
    /// The selection that these options describe.
    pub(crate) fn selection(&self) -> Result<Selection> {
        let mut selection = Selection {
            nodes: self.node.clone(),
            functions: self.f.iter().map(|name| without_colon(name)).collect(),
            ..Selection::default()
        };
        for key in &self.key {
            selection.keys.insert_text(key);
        }
        for process in &self.process {
            let process = if let Ok(number) = process.parse() {
                Process::Client(number)
            } else {
                let name = Symbol::intern(&without_colon(process));
                Process::Named(name.with_context(|| format!("--process {process}: too long"))?)
            };
            selection.processes.push(process);
        }
        for kind in &self.kind {
            selection.kinds.push(type_named(kind)?);
        }
        selection.time = self.time.as_deref().map(span).transpose()?;
        Ok(selection)
    }
}

/// A name as people type it, perhaps with the colon of a keyword.
fn without_colon(name: &str) -> String {
    name.trim_start_matches(':').to_owned()
}

fn type_named(name: &str) -> Result<OpType> {
    const TYPES: [OpType; 4] = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
    let bare = without_colon(name);
    match TYPES.iter().find(|kind| kind.name() == bare) {
        Some(kind) => Ok(*kind),
        None => bail!(unknown_name(
            "type",
            &bare,
            TYPES.iter().map(|kind| kind.name())
        )),
    }
}

/// `1.5..4` in nanoseconds.
fn span(text: &str) -> Result<(i64, i64)> {
    let context = || format!("--time takes FROM..TO in seconds, such as 1.5..4, not `{text}`");
    let (from, to) = text.split_once("..").with_context(context)?;
    let end = |text: &str, absent: i64| -> Result<i64> {
        let text = text.trim_start_matches('=').trim_end_matches('s').trim();
        if text.is_empty() {
            return Ok(absent);
        }
        let seconds: f64 = text.parse().ok().with_context(context)?;
        let is_time = seconds.is_finite() && (0.0..=9e9).contains(&seconds);
        let nanoseconds = is_time.then(|| (seconds * 1e9).round() as i64);
        nanoseconds.with_context(context)
    };
    let (from, to) = (end(from, 0)?, end(to, i64::MAX)?);
    if from > to {
        bail!("--time {text} ends before it begins");
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time() {
        let second = 1_000_000_000;
        assert_eq!(span("1.5..4").unwrap(), (3 * second / 2, 4 * second));
        assert_eq!(span("..2s").unwrap(), (0, 2 * second));
        assert_eq!(span("60..").unwrap(), (60 * second, i64::MAX));
        for wrong in [
            "", "5", "a..b", "4..1", "-1..2", "nan..", "1..inf", "1..1e300",
        ] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn types_have_names() {
        assert_eq!(type_named(":ok").unwrap(), OpType::Ok);
        let error = type_named("okay").unwrap_err().to_string();
        assert!(error.contains("unknown type `okay`"), "{error}");
    }
}
