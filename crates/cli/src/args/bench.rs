//! What can be typed after `bench`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `seatrial bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) topic: BenchTopic,
}

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BenchTopic {
    /// Operations a second through generator, interpreter and history writer, against a client that answers at once.
    Interpreter(BenchLoadArguments),
    /// Memory of a very long test in virtual time: it must not grow. Exit status 1 if it does, or if it passes 100 MB.
    Endurance(BenchEnduranceArguments),
    /// Turns a second of simulated clusters on one core, without judging.
    Sim(BenchLoadArguments),
    /// Microseconds to open a test file.
    Open(BenchOpenArguments),
    /// The archive's rates beside plain files and, if wanted, beside Aeron Archive, in the same minutes.
    Archive(BenchArchiveArguments),
}

/// What `interpreter`, `sim` and `open` share.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchLoadArguments {
    /// Operations (interpreter, open) or seeds (sim) a run.
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// Number of client threads.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// Counted runs after one warm-up.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) runs: u32,
    /// Folder for the files that a run writes [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `seatrial bench endurance`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "One line for every --every operations: how many so far, how fast, how much memory is resident. The last \
line compares the first look with the last.\nExample: seatrial bench endurance --ops 10000000"
)]
pub(crate) struct BenchEnduranceArguments {
    /// Operations to generate; the default takes minutes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    pub(crate) ops: u64,
    /// Operations between two looks at the memory.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) every: u64,
    /// Number of client threads, from 1 to 10000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// What clients do: any workload, also one that kv does not serve.
    #[arg(long, value_name = "NAME", default_value = "list-append")]
    pub(crate) workload: String,
}

/// `seatrial bench open`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchOpenArguments {
    #[command(flatten)]
    pub(crate) load: BenchLoadArguments,
    /// A test file to read instead of a new one.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Let the system forget the file before each run.
    #[arg(long)]
    pub(crate) cold: bool,
}

/// `seatrial bench archive`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Aeron's own samples measure Aeron: EmbeddedRecordingThroughput and EmbeddedReplayThroughput of \
aeron-all 1.51.0, which Maven fetches into the cache folder once. Needs java, and mvn for the first time.\n\
Example: seatrial bench archive --against aeron --payload 32,1024 --out measures"
)]
pub(crate) struct BenchArchiveArguments {
    /// Measure this system too, in turns with ours: aeron.
    #[arg(long, value_name = "NAME")]
    pub(crate) against: Option<String>,
    /// Bytes of a message, separated by commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [32, 128, 1024, 4096])]
    pub(crate) payload: Vec<usize>,
    /// A checksum for each message: none, crc32c, both (one after the other). Blocks of ours always have one.
    #[arg(long, value_name = "NAME", default_value = "both")]
    pub(crate) checksum: String,
    /// Messages an iteration [default: 640 MB of Aeron's frames].
    #[arg(long, value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Where the recordings go, a folder of their own in it [default: /dev/shm, else a temporary folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Rounds; in each everything is measured once, one after the other.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) runs: u32,
    /// Counted iterations a round, after one warm-up (Aeron: two).
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) iterations: u32,
    /// Aeron's jar, instead of the one that Maven fetches.
    #[arg(long, value_name = "FILE")]
    pub(crate) aeron_jar: Option<PathBuf>,
    /// Write every iteration (raw.csv) and the table (README.md) into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
