//! Arguments of `seatrial prove`.

use clap::Args;
use std::path::PathBuf;

/// `seatrial prove`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 if all that was published was seen and no control was accused, 1 if not, 2 if a test had no \
verdict or was interrupted, 254 if a server is missing.\n\
Example: seatrial prove postgres-write-skew --times 10"
)]
pub struct ProveArguments {
    /// What to show; without a name all proofs are listed.
    pub names: Vec<String>,
    /// All proofs whose servers are installed.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Run each test this often.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub times: u32,
    /// Folder of the run folders, which must not exist [default: runs/prove/TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub json: bool,
}
