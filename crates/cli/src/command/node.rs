//! `seatrial node`: one node of a suite's system, as a process of its own.

use crate::args::NodeArguments;
use crate::suites::{Suites, failure};
use anyhow::{Context as _, Result};
use seatrial_suite::{NodeSetup, known_bug};
use seatrial_terminal::{Exit, complaint};
use std::path::PathBuf;

/// Carries the verb out: serves until SIGTERM or Ctrl-C.
pub(crate) fn run(arguments: &NodeArguments, suites: &Suites) -> Result<Exit> {
    let suite = suites.named(&arguments.suite)?;
    let options = suites.options_of(suite)?;
    let bug = arguments.bug.as_deref().map(|name| known_bug(suite, name));
    let usual = || PathBuf::from(format!("{}-data", suite.name()));
    let data = arguments.data.clone().unwrap_or_else(usual);
    let setup = NodeSetup {
        listen: arguments.listen,
        data: &data,
        clock: arguments.clock.as_deref(),
        bug: bug.transpose().map_err(failure)?,
        options: &options,
        report: complaint,
    };
    let served = suite.run_node(&setup).map_err(failure);
    served.with_context(|| format!("{} node", suite.name()))?;
    Ok(Exit::Valid)
}
