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

/// What to do with a plan.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanVerb {
    /// Read a plan, say what is wrong with it, or show it as a tree.
    Check(PlanCheckArguments),
    /// Show what a plan does, without a system: who begins which operation when.
    Show(PlanShowArguments),
    /// Print a plan to begin with; without a name, list them.
    Example(PlanExampleArguments),
}

/// `seatrial plan check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanCheckArguments {
    /// A plan in TOML, or in JSON if its name ends with .json; `-` is standard input.
    pub(crate) file: PathBuf,
    /// The system that is to be tested, which may know fewer workloads and operations.
    #[arg(long, value_name = "NAME")]
    pub(crate) suite: Option<String>,
}

/// `seatrial plan show`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial plan example phases > phases.toml, then seatrial plan show phases.toml"
)]
pub(crate) struct PlanShowArguments {
    /// A plan in TOML, or in JSON if its name ends with .json; `-` is standard input.
    pub(crate) file: PathBuf,
    /// Client threads [default: as the plan says, else 5].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Nodes of the imagined system [default: as the plan says, else 3].
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// Show this many operations at most, faults included.
    #[arg(long, value_name = "M", default_value_t = 100)]
    pub(crate) ops: u64,
    /// Milliseconds that each operation takes.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1.0)]
    pub(crate) latency: f64,
    /// Fixes the schedule [default: as the plan says, else 1].
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
}

/// `seatrial plan example`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanExampleArguments {
    /// Which one.
    pub(crate) name: Option<String>,
}
