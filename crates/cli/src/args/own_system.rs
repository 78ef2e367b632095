//! `seatrial init` and `seatrial client`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;

/// `seatrial init`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial init redis > my-system.toml, then seatrial test my-system.toml"
)]
pub(crate) struct InitArguments {
    /// Name of the file (`--list` lists them).
    #[arg(default_value = "blank")]
    pub(crate) name: String,
    /// List the files.
    #[arg(long)]
    pub(crate) list: bool,
}

/// `seatrial client`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArguments {
    #[command(subcommand)]
    pub(crate) verb: ClientVerb,
}

/// The verbs of `client`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// Run the client protocol against a client and report what is wrong, one finding a line; exit status 1 if something is.
    Check(ClientCheckArguments),
}

/// `seatrial client check`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: seatrial client check --workload set --address 127.0.0.1:6379 -- python3 client.py"
)]
pub(crate) struct ClientCheckArguments {
    /// Workload whose operations the client is given.
    #[arg(long, value_name = "NAME", default_value = "register")]
    pub(crate) workload: String,
    /// A server for the client to talk to [default: an address where nothing listens].
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// The client and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
