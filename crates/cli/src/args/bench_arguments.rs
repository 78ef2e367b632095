//! The arguments of `bench`.

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
    /// Operations per second through generator, interpreter and history writer, with a client that answers at once.
    Interpreter(BenchLoadArguments),
    /// Memory of a very long test in virtual time. Exit status 1 if it grows, or exceeds 100 MB.
    Endurance(BenchEnduranceArguments),
    /// Turns per second of simulated clusters on one core, without checking.
    Sim(BenchLoadArguments),
    /// Microseconds to open a test file.
    Open(BenchOpenArguments),
}

/// Arguments of `interpreter`, `sim` and `open`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchLoadArguments {
    /// Operations (interpreter, open) or seeds (sim) per run.
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
    after_help = "One line for every --every operations: number, rate and resident memory. The last line \
compares the first sample with the last.\nExample: seatrial bench endurance --ops 10000000"
)]
pub(crate) struct BenchEnduranceArguments {
    /// Operations to generate; the default takes minutes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    pub(crate) ops: u64,
    /// Operations between two samples of the memory.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) every: u64,
    /// Number of client threads, from 1 to 10000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) concurrency: u32,
    /// Any workload, also one that kv does not serve.
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
    /// Drop the file from the page cache before each run.
    #[arg(long)]
    pub(crate) cold: bool,
}
