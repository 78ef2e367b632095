//! Command-line arguments: one table of verbs and options, from which clap makes parser and help.

mod bench_arguments;
mod check_arguments;
mod own_system;
mod plan_arguments;
mod show_arguments;
mod workload_arguments;

use crate::opened::Opening;
use crate::source::Reading;
use crate::suites::HELP_WIDTH;
use crate::version;
use anyhow::{Result, anyhow};
pub(crate) use bench_arguments::{
    BenchArguments, BenchEnduranceArguments, BenchLoadArguments, BenchOpenArguments, BenchTopic,
};
pub(crate) use check_arguments::CheckArguments;
use clap::{Args, Parser, Subcommand};
pub(crate) use own_system::{ClientArguments, ClientCheckArguments, ClientVerb, InitArguments};
pub(crate) use plan_arguments::{PlanArguments, PlanCheckArguments, PlanShowArguments, PlanVerb};
use seatrial_archive_commands::ArchiveArguments;
use seatrial_check::MinimumLoad;
use seatrial_interchange::import::ImportOptions;
use seatrial_proofs::ProveArguments;
use seatrial_schedule::ScheduleArguments;
use seatrial_suite::{NetworkChoice, parse_network_choice};
pub(crate) use show_arguments::ShowArguments;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
pub(crate) use workload_arguments::WorkloadArguments;

/// Puts distributed systems through their sea trials: generates operations, drives a system while injecting faults,
/// records the history, and proves from the history alone whether it satisfies a consistency model.
#[derive(Debug, Parser)]
#[command(
    name = "seatrial",
    version = version::line(),
    max_term_width = HELP_WIDTH
)]
#[command(
    after_help = "Exit status: 0 valid, 1 invalid (an anomaly was found), 2 unknown (a limit was \
reached, or a question stayed open), 254 error (usage, input, set-up), 255 a bug of seatrial."
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Test a real system: start its processes, run clients, inject faults, check the history.
    Test(TestArguments),
    /// Run the same system, test and faults in one thread from a seed; find a bug and replay it.
    Sim(SimArguments),
    /// Check histories: test files, Jepsen's test.jepsen, Jepsen/Elle EDN and JSON, Knossos EDN, Porcupine logs.
    Check(CheckArguments),
    /// Print a history, its attributes or its results.
    Show(ShowArguments),
    /// Convert a history of another tool into a test file.
    Import(ImportArguments),
    /// Write a history for other programs: EDN, JSON, Arrow, Parquet.
    Export(ExportArguments),
    /// Write a history of a simulated database, of any length and with known anomalies.
    Generate(GenerateArguments),
    /// Tests written in TOML: check them, preview them, start from an example.
    Plan(PlanArguments),
    /// Print a file to begin with: a system of your own, a client helper.
    Init(InitArguments),
    /// Clients in any language: find out what is wrong with one.
    Client(ClientArguments),
    /// Run one node of a suite's system.
    Node(NodeArguments),
    /// Record messages, replay them, and manage recordings.
    Archive(ArchiveArguments),
    /// Show published findings about databases again, each with a control.
    Prove(ProveArguments),
    /// Execute scripted interleavings of SQL sessions: which anomalies occur at which isolation level.
    Schedule(ScheduleArguments),
    /// Measure seatrial itself.
    Bench(BenchArguments),
    /// Show what this machine can do: networks, disks, tools, servers; and how to get what is missing.
    Doctor(DoctorArguments),
    /// Print a shell's completion script.
    Completions(CompletionsArguments),
    /// Write the manual pages, one for each verb.
    Man(ManArguments),
}

/// Arguments of both `test` and `sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArguments {
    /// The system to test: one of the suites listed below, or a file such as my-system.toml (`seatrial init`).
    pub(crate) suite: String,
    /// What the clients do; the workloads of each suite are listed below.
    #[arg(long, value_name = "NAME")]
    pub(crate) workload: Option<String>,
    #[command(flatten)]
    pub(crate) workload_options: WorkloadArguments,
    /// A test plan (see `seatrial plan`); command-line options override the plan.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub(crate) plan: Option<PathBuf>,
    /// Faults to inject, separated by commas: kinds (listed below), or none; with targets where they matter, as in
    /// `kill:majority,partition:bridge+halves` (see docs/guide/faults.md).
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) faults: Option<Vec<String>>,
    /// Schedule of the kinds: mix (drawn one by one), interval (each in a stream of its own), one-at-a-time (mended
    /// before the next begins) [default: mix, or the plan's].
    #[arg(long, value_name = "ORDER")]
    pub(crate) fault_schedule: Option<String>,
    /// Number of client threads.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
    /// Operations per second over all clients; max: as many as possible [default: the suite's].
    #[arg(long, value_name = "OPS_PER_SECOND", value_parser = Rate::parse)]
    pub(crate) rate: Option<Rate>,
    /// Consistency model to check: strict-serializable, serializable, …; linearizable for registers.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) undecided: UndecidedArguments,
    /// Plant a bug in the system; those of each suite are listed below.
    #[arg(long, value_name = "NAME")]
    pub(crate) bug: Option<String>,
    /// The run folder [default: runs/SUITE/TIME-SEED].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// The load below which a verdict is unknown.
#[derive(Args, Clone, Debug)]
pub(crate) struct MinimumArguments {
    /// A valid verdict is unknown (exit status 2) if fewer operations were ok: a number, a rate such as 50/s, or both,
    /// separated by a comma [default: that of the plan or the file].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    min_ok: Vec<String>,
    /// The same for the operations of each function.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    min_ok_each: Option<u64>,
}

impl MinimumArguments {
    /// The minimum that was asked for.
    pub(crate) fn minimum(&self) -> Result<MinimumLoad> {
        let mut minimum = MinimumLoad {
            each: self.min_ok_each,
            ..MinimumLoad::default()
        };
        for text in &self.min_ok {
            let with = minimum.with_text(text);
            minimum = with.map_err(|reason| anyhow!("--min-ok: {reason}"))?;
        }
        Ok(minimum)
    }
}

/// How a verdict with open questions is treated.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct UndecidedArguments {
    /// Accept a history without anomalies although questions stayed open, as Jepsen does; by default it is unknown (exit
    /// status 2).
    #[arg(long)]
    pub(crate) accept_undecided: bool,
}

/// The form of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArguments {
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors and the verdict only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print more detail.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// `seatrial test`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TestArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// Seconds of load [default: 20, or the plan's].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time: Option<f64>,
    /// Seconds between two faults, on average [default: 1, or the plan's].
    #[arg(long, alias = "fault-interval", value_name = "SECONDS")]
    pub(crate) interval: Option<f64>,
    /// Stop after N operations (or at --time, whichever is first).
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Number of nodes [default: the suite's, or the plan's].
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Seed of the schedule of operations and faults [default: random].
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
    /// Network of the nodes: local (loopback and proxies), userns (namespaces, without root), netns (namespaces, as
    /// root), auto (the best that works for suites whose nodes need whole addresses, else local).
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = parse_network_choice)]
    pub(crate) network: NetworkChoice,
    /// Longest length in MiB of network.pcap in the run folder, the packets of a network of namespaces; 0: none.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub(crate) capture: u64,
    /// Node i listens on this port of its own address [default: a free one; 7000 in namespaces].
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Seconds until an operation times out [default: 2, or the plan's].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Check while the test runs, and end it at the first definite violation. Works with every checker.
    #[arg(long)]
    pub(crate) stop_on_violation: bool,
    #[command(flatten)]
    pub(crate) minimum: MinimumArguments,
    /// A line of a node's log that matches this regular expression is a failure; may be given several times.
    #[arg(long, value_name = "RE")]
    pub(crate) log_pattern: Vec<String>,
    /// Write the verdicts as JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
}

/// `seatrial doctor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArguments {
    /// One JSON document on standard output instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `seatrial sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// Number of nodes [default: the suite's, or the plan's].
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Number of seeds to try [default: 200, or the budget of the planted bug; 20 of a plan, 1 of one with a seed].
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub(crate) seeds: Option<u64>,
    /// The first of those seeds.
    #[arg(long, value_name = "HEX", value_parser = parse_seed, conflicts_with = "seed")]
    pub(crate) first_seed: Option<u64>,
    /// Replay exactly this seed.
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
    /// Operations per seed [default: 400, or the plan's, at most 100,000].
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
}

impl SimArguments {
    /// Operations per seed, unless asked otherwise.
    pub(crate) const OPERATIONS: u64 = 400;
    /// Operations per seed of a plan, which may be endless.
    pub(crate) const PLANNED_OPERATIONS: u64 = 100_000;
}

/// The history to read, and its format.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArguments {
    /// A test file, or any history that `check` reads; `-` is standard input.
    pub(crate) file: PathBuf,
    /// Format of the history: auto, sea, edn, json, jsonl, jepsen, porcupine, porcupine-json, csv, plume, awdit,
    /// dbcop, dbcop-json, cobra, veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Values `[key value]` of clients in a foreign history belong to independent keys (jepsen.independent).
    #[arg(long)]
    pub(crate) keyed: bool,
    /// Initial value of each key, in a file of transactions without times [default: that of its format].
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) initial_value: Option<i64>,
    /// Skip damaged chunks of a test file or test.jepsen, and the rest of a text after an error; report them.
    #[arg(long)]
    pub(crate) salvage: bool,
}

impl SourceArguments {
    /// Facts that foreign files do not contain.
    pub(crate) fn options(&self) -> ImportOptions {
        ImportOptions {
            keyed: self.keyed,
            initial: self.initial_value,
        }
    }

    /// How the history is opened in chunks.
    pub(crate) fn opening(&self) -> Result<Opening> {
        Ok(Opening {
            reading: Reading::by_name(&self.format)?,
            options: ImportOptions {
                keyed: false,
                initial: self.initial_value,
            },
            keyed: self.keyed,
            salvage: self.salvage,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        })
    }
}

/// `seatrial import`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial import store/latest/test.jepsen -o history.sea")]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// The test file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Overwrite the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print errors and warnings only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `seatrial export`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial export history.sea --to jsonl | jq .f\n\
JSON has fewer shapes than a history: keywords become strings, sets become arrays."
)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// Output format: edn, jsonl, json, plume, dbcop, timekiller, sea, arrow, parquet [default: from the file extension,
    /// else edn].
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Output file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print errors and warnings only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `seatrial generate`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Isolation, from weak to strong: read-uncommitted, read-committed, read-atomic, prefix, \
snapshot-isolation, strong-session-snapshot-isolation, strong-snapshot-isolation, serializable, \
strong-session-serializable, strict-serializable; of register and set: eventual, sequential, linearizable; of all others: linearizable.\n\
Anomalies: G0, G1a, G1b, G1c, G-single, G-nonadjacent, G2-item, G-single-process, lost-update, internal, \
future-read, garbage-read, incompatible-order, duplicate-elements, dirty-update, stale-read, lost-write.\n\
Example: seatrial generate list-append --events 1000000 --isolation snapshot-isolation -o si.sea, then \
seatrial check si.sea --model serializable"
)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub(crate) struct GenerateArguments {
    /// What the clients do: list-append, rw-register, register, set, queue,
    /// linearizable-set, append-log, block-device, multi-register, semaphore,
    /// linearizable-lock.
    pub(crate) workload: String,
    /// Number of events: invocations and completions together. (An older name of this option: --ops.)
    #[arg(long, value_name = "N", alias = "ops")]
    pub(crate) events: u64,
    /// Isolation level of the database [default: the strongest].
    #[arg(long, value_name = "NAME")]
    pub(crate) isolation: Option<String>,
    /// Anomalies to inject, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) anomaly: Vec<String>,
    /// Fraction of operations that begin an anomaly.
    #[arg(long, value_name = "RATE", default_value_t = 0.001)]
    pub(crate) anomaly_rate: f64,
    /// Inject each anomaly once, after this fraction of the history.
    #[arg(long, value_name = "SHARE", conflicts_with = "anomaly_rate")]
    pub(crate) anomaly_at: Option<f64>,
    /// Seed: the same seed and options give the same file.
    #[arg(long, value_name = "HEX", value_parser = parse_seed, default_value = "1")]
    pub(crate) seed: u64,
    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// Keys in use at a time.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) keys: u32,
    /// Distribution of keys: uniform, zipf, zipf:SKEW, exponential [default: exponential].
    #[arg(long, value_name = "NAME")]
    pub(crate) distribution: Option<String>,
    /// Micro-operations of a transaction [default: 1..8].
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_range)]
    pub(crate) txn_length: Option<RangeInclusive<u32>>,
    /// All these lengths are equally likely; else those in the middle are likelier.
    #[arg(long)]
    pub(crate) even_lengths: bool,
    /// Share of a transaction's micro-operations that read.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub(crate) reads: f64,
    /// Transactions also read each key before they write it.
    #[arg(long)]
    pub(crate) read_before_write: bool,
    /// No transaction accesses a key twice.
    #[arg(long)]
    pub(crate) no_key_twice: bool,
    /// Completions carry the database's timestamps, as `start-stamp` and `commit-stamp`.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Writes after which a key is replaced by a fresh one [default: 128..256].
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_range)]
    pub(crate) writes_per_key: Option<RangeInclusive<u32>>,
    /// Fraction of operations that fail and did not take place.
    #[arg(long, value_name = "RATE", default_value_t = 0.015)]
    pub(crate) fail: f64,
    /// Fraction of operations whose outcome is unknown.
    #[arg(long, value_name = "RATE", default_value_t = 0.005)]
    pub(crate) info: f64,
    /// Compression of a test file's chunks: lz4, zstd, none.
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    pub(crate) codec: String,
    /// Output format: sea, edn, jsonl; for registers in transactions also plume, dbcop, timekiller [default: from the
    /// file extension].
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Output file, which must not exist; `-` is standard output, EDN unless `--to` names another format.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `seatrial node`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArguments {
    /// The system, one of the suites listed below.
    pub(crate) suite: String,
    /// Address and port to listen on; port 0 picks a free one and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) listen: std::net::SocketAddr,
    /// Folder of the node's data; created when missing [default: SUITE-data].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// File through which a test skews the node's clock.
    #[arg(long, value_name = "FILE")]
    pub(crate) clock: Option<PathBuf>,
    /// Plant a bug; those of each suite are listed below.
    #[arg(long, value_name = "NAME")]
    pub(crate) bug: Option<String>,
}

/// `seatrial completions`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial completions bash > /usr/share/bash-completion/completions/seatrial"
)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// `seatrial man`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial man ~/.local/share/man/man1, then: man seatrial-test")]
pub(crate) struct ManArguments {
    /// The folder to write to; made when it is missing. Pages that are there are replaced.
    pub(crate) folder: PathBuf,
}

/// A number of operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// As many as possible.
    Max,
    /// So many, above 0.
    PerSecond(f64),
}

impl Rate {
    fn parse(text: &str) -> Result<Rate, String> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        let rate: Option<f64> = text.parse().ok();
        let rate = rate.filter(|rate| *rate > 0.0 && rate.is_finite());
        rate.map(Rate::PerSecond)
            .ok_or_else(|| format!("a rate is a number above 0, or max, not {text:?}"))
    }

    /// The number; `None`: as many as possible.
    pub(crate) fn per_second(self) -> Option<f64> {
        match self {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Max => f.write_str("max"),
            Rate::PerSecond(rate) => rate.fmt(f),
        }
    }
}

/// A seed as it is printed: hexadecimal without prefix.
fn parse_seed(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| format!("a seed is up to 16 hexadecimal digits, not {text:?}"))
}

/// A range as `MIN..MAX`, both ends included, or one number.
fn parse_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim_start_matches('=').parse::<u32>();
    match (number(low), number(high)) {
        (Ok(low), Ok(high)) => Ok(low..=high),
        _ => Err(format!("a range is MIN..MAX or one number, not {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!(Rate::parse("max"), Ok(Rate::Max));
        assert_eq!(Rate::parse("0.5"), Ok(Rate::PerSecond(0.5)));
        for wrong in ["0", "-1", "inf", "NaN", "", "fast"] {
            let error = format!("a rate is a number above 0, or max, not {wrong:?}");
            assert_eq!(Rate::parse(wrong), Err(error));
        }
    }
}
