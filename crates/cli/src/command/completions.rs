//! `seatrial completions`: what shells need to complete command lines.

use crate::args::{Arguments, CompletionsArguments};
use crate::suite_tools;
use crate::suites::Suites;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use seatrial_terminal::{Exit, say};

/// Carries the verb out. The names of suites, workloads, faults, planted bugs and checkers are those of this program.
pub(crate) fn run(arguments: &CompletionsArguments, suites: &Suites) -> Result<Exit> {
    let program = std::env::current_exe().context("the name of this program")?;
    let name = program.file_name().unwrap_or("seatrial".as_ref());
    let name = name.to_string_lossy().into_owned();
    let mut command = suite_tools::extend(suites.extend(Arguments::command()), suites);
    command = suites.with_values(command);
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    say!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Valid)
}
