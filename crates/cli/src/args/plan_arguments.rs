//! `seatrial plan`.

use super::parse_seed;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `seatrial plan`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    pub(crate) verb: PlanVerb,
}

/// The verbs of `plan`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanVerb {
    /// Check a plan: report its errors, or show it as a tree.
    Check(PlanCheckArguments),
    /// Preview a plan without a system: operations by time and thread.
    Show(PlanShowArguments),
    /// Print an example plan; without a name, list the examples.
    Example(PlanExampleArguments),
}

/// `seatrial plan check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanCheckArguments {
    /// A plan in TOML; `-` is standard input.
    pub(crate) file: PathBuf,
    /// The suite to check against, which may have fewer workloads and operations.
    #[arg(long, value_name = "NAME")]
    pub(crate) suite: Option<String>,
}

/// `seatrial plan show`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial plan example phases > phases.toml, then seatrial plan show phases.toml"
)]
pub(crate) struct PlanShowArguments {
    /// A plan in TOML; `-` is standard input.
    pub(crate) file: PathBuf,
    /// Client threads [default: the plan's, else 5].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Nodes of the imaginary system [default: the plan's, else 3].
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Show this many operations at most, faults included.
    #[arg(long, value_name = "M", default_value_t = 100)]
    pub(crate) ops: u64,
    /// Latency of each operation in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1.0)]
    pub(crate) latency: f64,
    /// Seed of the schedule [default: the plan's, else 1].
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
}

/// `seatrial plan example`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanExampleArguments {
    /// Name of the example.
    pub(crate) name: Option<String>,
}
