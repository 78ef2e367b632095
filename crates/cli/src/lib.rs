//! The program `seatrial` as a library: [`main()`] with a list of suites is the whole `main` of a binary with systems of one's
//! own. Arguments in, exit status out; everything else is in the library crates.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     seatrial::main(&[&seatrial_kv_suite::SUITE])
//! }
//! ```
//!
//! [`Suite`] is the trait to implement; `docs/guide/suites.md` shows how. `examples/redis` is a complete suite outside of this
//! workspace, in one file that needs no other crate of seatrial: all that a suite usually names is re-exported here.

mod args;
mod checked_run;
mod command;
mod guard;
mod independent;
mod load;
mod logging;
mod meter;
mod node_logs;
mod opened;
mod place;
mod plan_file;
mod resources;
mod source;
mod suite_tools;
mod suites;
mod test_screen;
mod verdict_exit;
mod version;

use args::{Arguments, Command};
use clap::{CommandFactory as _, FromArgMatches as _};
use seatrial_terminal::{Exit, complain};
use std::process::ExitCode;
use suite_tools::ToolCall;
use suites::Suites;

pub use seatrial_checker::Checker;
pub use seatrial_generator::workload::{Workload, WorkloadOptions};
pub use seatrial_generator::{Generator, Membership};
pub use seatrial_history::{Key, Mop, Observed, Op, OpType, Process, Value};
pub use seatrial_machine::{Fault, FaultKind, NodeId, Rng};
pub use seatrial_runner::{
    BoxFuture, Client, ClientError, ClientSlot, Clients, NoNodes, NodeLimits, NodePlace, Nodes,
    OrdinaryUser, ProcessNodes, ProgramMissing, ServerProgram, System, SystemMembers,
};
pub use seatrial_suite::{
    DataRequest, DataStore, Deployment, Load, NodeSetup, OptionValues, PlantedBug, Report, Setup,
    StoreAnswer, StoreClient, StoreRefusal, Suite, SuiteError, SuiteOption, Transfer, Verb,
};

/// Runs the program with these suites: reads the command line, carries the verb out, and returns the exit status. Installs a
/// subscriber of `tracing` and a panic hook, unless the process has a subscriber (`SEATRIAL_LOG` is its level).
///
/// Panics when two suites have the same name, or one has an option that is already an option of the verb.
pub fn main(suites: &[&'static dyn Suite]) -> ExitCode {
    let mut suites = Suites::new(suites);
    let words = match suites.translate(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(error) => {
            complain!("seatrial: {error:#}");
            return Exit::Error.into();
        }
    };
    let command = suite_tools::extend(suites.extend(Arguments::command()), &suites);
    let parsed = command.try_get_matches_from(words).and_then(|matches| {
        if let Some(call) = ToolCall::find(&matches, &suites) {
            return Ok(CommandLine::Tool(call));
        }
        suites.note_options(&matches);
        Arguments::from_arg_matches(&matches).map(|it| CommandLine::Verb(Box::new(it.command)))
    });
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are answers, anything else a usage error; clap knows which stream each belongs on.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Error
            } else {
                Exit::Valid
            }
            .into();
        }
    };
    if let Err(error) = logging::install() {
        complain!("seatrial: {error:#}");
        return Exit::Error.into();
    }
    let suites = std::panic::AssertUnwindSafe(&suites);
    let carry_out = || match parsed {
        CommandLine::Verb(command) => run(*command, &suites),
        CommandLine::Tool(call) => call.run(),
    };
    match std::panic::catch_unwind(carry_out) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) => {
            complain!("seatrial: {error:#}");
            Exit::Error.into()
        }
        Err(_) => {
            complain!("seatrial: this is a bug of seatrial; please report the lines above");
            Exit::Bug.into()
        }
    }
}

/// What the command line asks for.
enum CommandLine {
    /// A verb of the program.
    Verb(Box<Command>),
    /// A command of a suite.
    Tool(ToolCall),
}

/// Carries one verb out.
fn run(command: Command, suites: &Suites) -> anyhow::Result<Exit> {
    match command {
        Command::Test(arguments) => command::test::run(&arguments, suites),
        Command::Sim(arguments) => command::sim::run(&arguments, suites),
        Command::Check(arguments) => command::check::run(&arguments, suites),
        Command::Show(arguments) => command::show::run(&arguments),
        Command::Import(arguments) => command::import::run(&arguments).map_err(load::hint),
        Command::Export(arguments) => command::export::run(&arguments).map_err(load::hint),
        Command::Generate(arguments) => command::generate::run(&arguments),
        Command::Plan(arguments) => command::plan::run(&arguments, suites),
        Command::Init(arguments) => command::init_file::run(&arguments),
        Command::Client(arguments) => command::client_findings::run(&arguments),
        Command::Node(arguments) => command::node::run(&arguments, suites),
        Command::Archive(arguments) => seatrial_archive_commands::run(&arguments),
        Command::Prove(arguments) => command::prove::run(&arguments, suites),
        Command::Schedule(arguments) => command::sql_schedule::run(&arguments, suites),
        Command::Bench(arguments) => command::bench::run(&arguments, suites),
        Command::Doctor(arguments) => Ok(command::doctor::run(&arguments)),
        Command::Completions(arguments) => command::completions::run(&arguments, suites),
        Command::Man(arguments) => command::man::run(&arguments, suites),
    }
}
