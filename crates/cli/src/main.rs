//! The binary `seatrial`: arguments in, exit status out. Everything else is in the library crates.

mod args;
mod command;
mod exit;
mod independent;
mod interrupt;
mod judge;
mod load;
mod losses;
mod meter;
mod output;
mod place;
mod plan;
mod progress;
mod resources;
mod source;
mod suite;
mod times;

use args::{Arguments, Command};
use clap::Parser;
use exit::Exit;
use output::complain;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
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
    match std::panic::catch_unwind(|| run(arguments.command)) {
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

/// Carries one verb out.
fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Test(arguments) => command::test::run(&arguments),
        Command::Sim(arguments) => command::sim::run(&arguments),
        Command::Check(arguments) => command::check::run(&arguments),
        Command::Show(arguments) => command::show::run(&arguments),
        Command::Import(arguments) => command::import::run(&arguments).map_err(load::hint),
        Command::Export(arguments) => command::export::run(&arguments).map_err(load::hint),
        Command::Generate(arguments) => command::generate::run(&arguments),
        Command::Plan(arguments) => command::plan::run(&arguments),
        Command::Node(arguments) => command::node::run(&arguments),
        Command::Archive(arguments) => command::archive::run(&arguments),
        Command::Bench(arguments) => command::bench::run(&arguments),
    }
}
