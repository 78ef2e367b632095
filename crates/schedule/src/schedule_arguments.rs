//! Arguments of `seatrial schedule`.

use clap::Args;
use std::path::PathBuf;

/// `seatrial schedule`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 if no anomaly occurred, 1 if one did, 254 on errors.\n\
Example: seatrial schedule p4 g2-item --system postgres --isolation repeatable-read --verbose"
)]
pub struct ScheduleArguments {
    /// Schedules to execute, by name [default: all of the file].
    pub names: Vec<String>,
    /// The file of schedules, in TOML [default: those of Hermitage].
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The systems, separated by commas [default: all that speak SQL and are installed].
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub system: Vec<String>,
    /// Only isolation levels whose name begins so.
    #[arg(long, value_name = "LEVEL")]
    pub isolation: Option<String>,
    /// Write the table of anomalies and levels to this page (Markdown).
    #[arg(long, value_name = "FILE")]
    pub matrix: Option<PathBuf>,
    /// Folder of the servers, which must not exist [default: runs/schedule/TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// List the schedules with their steps, and the levels of each system.
    #[arg(long)]
    pub list: bool,
    /// Print each step and what the server returned.
    #[arg(short, long)]
    pub verbose: bool,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub json: bool,
}
