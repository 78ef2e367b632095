//! What can be typed: one table of verbs and options, from which clap makes parser and help.

mod archive;
mod bench;
mod plan;
mod workload;

pub(crate) use archive::{
    ArchiveArguments, ArchiveVerb, BeforeArguments, ChecksumArguments, CopyArguments,
    LabelArguments, ListArguments, PlaceArguments, RecordArguments, RecordingArguments,
    RepairCatalogArguments, ReplayArguments, ServeArguments, TruncateArguments, VerifyArguments,
};
pub(crate) use bench::{
    BenchArchiveArguments, BenchArguments, BenchEnduranceArguments, BenchLoadArguments,
    BenchOpenArguments, BenchTopic,
};
use clap::{Args, Parser, Subcommand};
pub(crate) use plan::{PlanArguments, PlanCheckArguments, PlanShowArguments, PlanVerb};
use seatrial_history::import::Options;
use std::ops::RangeInclusive;
use std::path::PathBuf;
pub(crate) use workload::WorkloadArguments;

/// Puts distributed systems through their sea trials: generates operations, drives a system while breaking it, records
/// the history, and proves from the history alone whether the system kept its promises.
#[derive(Debug, Parser)]
#[command(
    name = "seatrial",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
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
    /// Test a real system: start its processes, drive and break them, judge the history.
    Test(TestArguments),
    /// Run the same system, test and faults in one thread from a seed; find a bug and replay it.
    Sim(SimArguments),
    /// Judge histories: test files, Jepsen's test.jepsen, Jepsen/Elle EDN and JSON, Knossos EDN, Porcupine logs.
    Check(CheckArguments),
    /// Print a history, its attributes or its results.
    Show(ShowArguments),
    /// Turn a history of another tool into a test file.
    Import(ImportArguments),
    /// Write a history for other programs: EDN, JSON, Arrow, Parquet.
    Export(ExportArguments),
    /// Let a simulated database write a history of any length whose truth is known.
    Generate(GenerateArguments),
    /// Tests described in TOML or JSON: check them, see what they do, take one to begin with.
    Plan(PlanArguments),
    /// Run one node of a bundled system.
    Node(NodeArguments),
    /// Record messages and replay them; look after recordings.
    Archive(ArchiveArguments),
    /// Measure seatrial itself.
    Bench(BenchArguments),
}

/// What `test` and `sim` share.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArguments {
    /// The system to test; `kv` is the bundled key-value store.
    pub(crate) suite: String,
    /// What the clients do: list-append, rw-register, register, cas-register, set, queue, total-queue, counter, bank, unique-ids.
    #[arg(long, value_name = "NAME")]
    pub(crate) workload: Option<String>,
    #[command(flatten)]
    pub(crate) workload_options: WorkloadArguments,
    /// What is done, in a file (see `seatrial plan`); options given here go before those of the plan.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub(crate) plan: Option<PathBuf>,
    /// What to break, separated by commas: kill, pause, partition, packet, clock, disk, corruption, membership, or none;
    /// with targets where they matter, as in `kill:majority,partition:bridge+halves` (see docs/guide/faults.md).
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) faults: Option<Vec<String>>,
    /// How the kinds take turns: mix (drawn one by one), interval (each in a stream of its own), one-at-a-time (mended
    /// before the next breaks) [default: mix, or what the plan says].
    #[arg(long, value_name = "ORDER")]
    pub(crate) fault_schedule: Option<String>,
    /// Number of client threads.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
    /// Operations per second over all clients.
    #[arg(long, value_name = "OPS_PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// The promise to hold the system to: strict-serializable, serializable, …; linearizable for registers.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) undecided: UndecidedArguments,
    /// Plant a bug in the bundled system (see `seatrial sim kv --help` for their names).
    #[arg(long, value_name = "NAME")]
    pub(crate) bug: Option<String>,
    /// Where the run folder goes [default: runs/SUITE/TIME-SEED].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// What a verdict with open questions is.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct UndecidedArguments {
    /// Accept a history without anomalies although questions stayed open, as Jepsen does; without it that is unknown (exit
    /// status 2).
    #[arg(long)]
    pub(crate) accept_undecided: bool,
}

/// How to talk.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArguments {
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing but errors and the verdict.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Say more.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// `seatrial test`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Planted bugs of kv: ack-before-append, stale-read, lost-append, dirty-abort.\n\
Example: seatrial test kv --workload list-append --faults kill,partition --time 30"
)]
pub(crate) struct TestArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// Seconds of load [default: 20, or as the plan says].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time: Option<f64>,
    /// Seconds between two faults, on average [default: 1, or as the plan says].
    #[arg(long, alias = "fault-interval", value_name = "SECONDS")]
    pub(crate) interval: Option<f64>,
    /// End after this many operations, if that comes first.
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Number of nodes [default: 1, or as the plan says].
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Fixes the schedule of operations and faults [default: drawn].
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
    /// Key that nodes and clients of kv share, in a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Node i listens on this port of its own loopback address [default: a free one].
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Seconds after which a client gives an operation up [default: 2, or as the plan says].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Judge while the test runs, and end it at the first violation that nothing can take back. For list-append, register,
    /// cas-register and mutex.
    #[arg(long)]
    pub(crate) stop_on_violation: bool,
}

/// `seatrial sim`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Planted bugs of kv: ack-before-append, stale-read, lost-append, dirty-abort.\n\
Example: seatrial sim kv --bug stale-read, then seatrial sim kv --bug stale-read --seed SEED"
)]
pub(crate) struct SimArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// How many seeds to try [default: 200, or as many as the planted bug may take; 20 of a plan, 1 of one with a seed].
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub(crate) seeds: Option<u64>,
    /// The first of those seeds.
    #[arg(long, value_name = "HEX", value_parser = parse_seed, conflicts_with = "seed")]
    pub(crate) first_seed: Option<u64>,
    /// Replay exactly this seed.
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
    /// Operations per seed [default: 400, or as the plan says, but at most 100,000].
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
}

impl SimArguments {
    /// Operations per seed, unless asked otherwise.
    pub(crate) const OPERATIONS: u64 = 400;
    /// Operations per seed of a plan, which may be endless.
    pub(crate) const PLANNED_OPERATIONS: u64 = 100_000;
}

/// `seatrial check`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Checkers: stats, register, cas-register, mutex, kv-map, list-append, rw-register, isolation,\n\
timestamps, g1, set, set-full, queue, total-queue, unique-ids, counter, bank, long-fork, monotonic, lock, log.\n\
Without --checker the history says which one it needs: a test file by its workload, any other by its operations."
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option that is given or not"
)]
pub(crate) struct CheckArguments {
    /// Histories; `-` is standard input; of a folder the run in it (`history.sea`, `test.jepsen`, `history.edn`), or
    /// Cobra's logs.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// How the file is written: auto, sea, edn, json, jsonl, jepsen, porcupine, plume, awdit, dbcop, dbcop-json, cobra,
    /// veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Which checkers judge, separated by commas. `stats`, `g1`, `list-append`, `rw-register` and those from `set` on read
    /// a test file chunk by chunk, of any size.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) checker: Option<Vec<String>>,
    /// Values `[key value]` of foreign files belong to independent keys, even if not all look like that.
    #[arg(long)]
    pub(crate) keyed: bool,
    /// The value that reads see of a key that nobody wrote, in a file of transactions without times [default: what its
    /// format says].
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) initial_value: Option<i64>,
    /// Threads that read chunk by chunk [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The promise to hold the history to [default: strict-serializable, without times strong-session-serializable;
    /// linearizable for data types].
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// What rw-register takes for granted about each key, separated by commas: wfr-keys, rmw-keys, sequential-keys,
    /// linearizable-keys.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) infer: Vec<String>,
    #[command(flatten)]
    pub(crate) undecided: UndecidedArguments,
    /// An order of transactions: a JSON object that has a number for each index of a completion. rw-register infers versions
    /// from it, isolation verifies it as its first guess.
    #[arg(long, value_name = "FILE")]
    pub(crate) transaction_order: Option<PathBuf>,
    /// Judge a test file while it is written, by this or another program, up to its end; Ctrl-C ends it with what is known.
    /// For list-append, register, cas-register and mutex.
    #[arg(long, conflicts_with_all = ["salvage", "report", "findings", "certificate", "verify", "infer", "transaction_order"])]
    pub(crate) follow: bool,
    /// Search every key of a history of independent keys, also after one that is not linearizable. Implied by --report,
    /// --findings and --record.
    #[arg(long)]
    pub(crate) all_keys: bool,
    /// Check what is left of a damaged file.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Append the verdict to the test file, as one more analysis.
    #[arg(long, conflicts_with = "salvage")]
    pub(crate) record: bool,
    /// First cut off an end of the test file that is no whole block; the bytes are kept beside it in FILE.cut-OFFSET.
    #[arg(long, conflicts_with_all = ["salvage", "follow"])]
    pub(crate) repair: bool,
    /// Write the report page here.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write what was found into this folder: each anomaly in words, each cycle and each component as a picture (SVG).
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["certificate", "verify"])]
    pub(crate) findings: Option<PathBuf>,
    /// Write what proves the verdict here, for `--verify`. For transactions on lists.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["report", "record", "salvage", "verify", "accept_undecided"])]
    pub(crate) certificate: Option<PathBuf>,
    /// Do not judge, but replay such a proof: does it hold for this history?
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["report", "record", "salvage", "checker", "model", "accept_undecided"]
    )]
    pub(crate) verify: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

impl CheckArguments {
    /// What foreign files do not say about themselves.
    pub(crate) fn options(&self) -> Options {
        Options {
            keyed: self.keyed,
            initial: self.initial_value,
        }
    }

    /// Is more asked for than a verdict, so that each key counts?
    pub(crate) fn wants_all_keys(&self) -> bool {
        self.all_keys || self.record || self.report.is_some() || self.findings.is_some()
    }

    /// Threads that read chunk by chunk.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.unwrap_or_else(cores)
    }
}

/// `seatrial show`.
#[derive(Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch on the command line"
)]
pub(crate) struct ShowArguments {
    /// A test file, or any history that `check` reads.
    pub(crate) file: PathBuf,
    /// How the file is written: auto, sea, edn, json, jsonl, jepsen, porcupine, plume, awdit, dbcop, dbcop-json, cobra,
    /// veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Show what is left of a damaged test file.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// The test's attributes instead of its operations.
    #[arg(long, conflicts_with_all = ["results", "from", "count"])]
    pub(crate) attributes: bool,
    /// The newest results instead of the operations.
    #[arg(long, conflicts_with_all = ["from", "count"])]
    pub(crate) results: bool,
    /// Begin with the operation of this index.
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    pub(crate) from: u64,
    /// Print at most this many operations.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Operations as EDN, one map a line, as Jepsen writes them.
    #[arg(long, conflicts_with_all = ["attributes", "results"])]
    pub(crate) edn: bool,
}

/// Which history to read, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArguments {
    /// A test file, or any history that `check` reads; `-` is standard input.
    pub(crate) file: PathBuf,
    /// How the history is written: auto, sea, edn, json, jsonl, jepsen, porcupine, plume, awdit, dbcop, dbcop-json, cobra,
    /// veristrong, timekiller.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) format: String,
    /// Values `[key value]` of clients in a foreign history belong to independent keys (jepsen.independent).
    #[arg(long)]
    pub(crate) keyed: bool,
    /// The value that reads see of a key that nobody wrote, in a file of transactions without times [default: what its
    /// format says].
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) initial_value: Option<i64>,
    /// Leave damaged chunks of a test file or test.jepsen, and what follows an error in a text, out; say which.
    #[arg(long)]
    pub(crate) salvage: bool,
}

impl SourceArguments {
    /// What foreign files do not say about themselves.
    pub(crate) fn options(&self) -> Options {
        Options {
            keyed: self.keyed,
            initial: self.initial_value,
        }
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
    /// Say nothing but errors and warnings.
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
    /// What to write: edn, jsonl, json, plume, dbcop, timekiller, sea, arrow, parquet [default: as the output is called,
    /// else edn].
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Where to [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
    /// Say nothing but errors and warnings.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `seatrial generate`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Isolation, from weak to strong: read-uncommitted, read-committed, read-atomic, prefix, \
snapshot-isolation, strong-session-snapshot-isolation, strong-snapshot-isolation, serializable, \
strong-session-serializable, strict-serializable; of register and set: eventual, sequential, linearizable.\n\
Anomalies: G0, G1a, G1b, G1c, G-single, G-nonadjacent, G2-item, G-single-process, lost-update, internal, \
future-read, garbage-read, incompatible-order, duplicate-elements, dirty-update, stale-read, lost-write.\n\
Example: seatrial generate list-append --events 1000000 --isolation snapshot-isolation -o si.sea, then \
seatrial check si.sea --model serializable"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that mean nothing to one another"
)]
pub(crate) struct GenerateArguments {
    /// What the clients do: list-append, rw-register, register, set, queue.
    pub(crate) workload: String,
    /// How many events: invocations and completions together. (An older name of this option: --ops.)
    #[arg(long, value_name = "N", alias = "ops")]
    pub(crate) events: u64,
    /// How the database isolates its clients [default: the strongest level].
    #[arg(long, value_name = "NAME")]
    pub(crate) isolation: Option<String>,
    /// What goes wrong besides, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) anomaly: Vec<String>,
    /// Share of operations with which an anomaly begins.
    #[arg(long, value_name = "RATE", default_value_t = 0.001)]
    pub(crate) anomaly_rate: f64,
    /// Each anomaly once instead, from this share of the history on.
    #[arg(long, value_name = "SHARE", conflicts_with = "anomaly_rate")]
    pub(crate) anomaly_at: Option<f64>,
    /// Same seed and options, same file.
    #[arg(long, value_name = "HEX", value_parser = parse_seed, default_value = "1")]
    pub(crate) seed: u64,
    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// Keys in use at a time.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) keys: u32,
    /// Which of them a client takes: uniform, zipf, zipf:SKEW, exponential [default: exponential].
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
    /// Transactions read each key before they write it, besides.
    #[arg(long)]
    pub(crate) read_before_write: bool,
    /// Transactions take no key twice.
    #[arg(long)]
    pub(crate) no_key_twice: bool,
    /// Completions carry the database's timestamps, as `start-stamp` and `commit-stamp`.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Writes after which a key gives its place to a fresh one [default: 128..256].
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_range)]
    pub(crate) writes_per_key: Option<RangeInclusive<u32>>,
    /// Share of operations that fail and did not take place.
    #[arg(long, value_name = "RATE", default_value_t = 0.015)]
    pub(crate) fail: f64,
    /// Share of operations whose outcome stays unknown.
    #[arg(long, value_name = "RATE", default_value_t = 0.005)]
    pub(crate) info: f64,
    /// How chunks of a test file are compressed: lz4, zstd, none.
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    pub(crate) codec: String,
    /// How to write it: sea, edn, jsonl; registers in transactions also plume, dbcop, timekiller [default: as the file's
    /// ending says].
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// The file, which must not exist; `-` is standard output, EDN unless `--to` says otherwise.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `seatrial node`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArguments {
    /// The system; `kv` is the bundled key-value store.
    pub(crate) system: String,
    /// Address and port to listen on; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub(crate) listen: std::net::SocketAddr,
    /// Folder for the log; made when missing.
    #[arg(long, value_name = "DIR", default_value = "kv-data")]
    pub(crate) data: PathBuf,
    /// Key that node and clients share, 16 to 4,096 bytes in a file; neither talks to one that does not know it.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Mebibytes that all clients together can make the node hold besides the store, at least 64.
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) memory: u32,
    /// A file in which a test orders the node's clock to be wrong.
    #[arg(long, value_name = "FILE")]
    pub(crate) clock: Option<PathBuf>,
    /// Plant a bug: ack-before-append, stale-read, lost-append, dirty-abort.
    #[arg(long, value_name = "NAME")]
    pub(crate) bug: Option<String>,
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
