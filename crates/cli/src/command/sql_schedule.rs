//! `seatrial schedule`: scripted interleavings of SQL sessions.

use crate::suites::Suites;
use anyhow::{Context as _, Result, bail};
use seatrial_schedule::{ScheduleArguments, ScheduleSeries};
use seatrial_terminal::{Exit, Signals, complaint, line, say};
use tokio::runtime::Builder;

/// Carries the verb out. An interruption ends the servers with the series.
pub(crate) fn run(arguments: &ScheduleArguments, suites: &Suites) -> Result<Exit> {
    let series = ScheduleSeries::new(arguments, suites.iter(), line, complaint)?;
    if arguments.list {
        say!("{}", series.list().trim_end());
        return Ok(Exit::Valid);
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen().context("signals cannot be listened to")?;
        tokio::select! {
            found = series.run() => Ok(if found? { Exit::Invalid } else { Exit::Valid }),
            () = signals.next() => bail!("interrupted"),
        }
    })
}
