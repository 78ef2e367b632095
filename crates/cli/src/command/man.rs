//! `seatrial man`: the manual pages of all verbs.

use crate::args::{Arguments, ManArguments};
use crate::suite_tools;
use crate::suites::Suites;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use seatrial_terminal::{Exit, say};
use std::fs;

/// Carries the verb out. The pages name what this program knows: its own suites, workloads and faults.
pub(crate) fn run(arguments: &ManArguments, suites: &Suites) -> Result<Exit> {
    let folder = &arguments.folder;
    let command = suite_tools::extend(suites.extend(Arguments::command()), suites);
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    say!(
        "{}: man -l {}",
        folder.display(),
        folder.join("seatrial.1").display()
    );
    Ok(Exit::Valid)
}
