//! Diagnostics on standard error: level (`SEATRIAL_LOG`), format of lines, and a hook that logs panics.
//!
//! Answers of a command (`listening on ...`, verdicts, its error) do not come from here: they have a form that programs read.
//! Whatever else a long-running process reports (a connection that was closed, a disk that fails, a panic) is an event of
//! `tracing` in the crate that detects it, and one line here. A node of a test writes to its log file (`n1.log`), because
//! that file is its standard error.

use anyhow::{Context as _, Result, bail};
use seatrial_machine::unknown_name;
use seatrial_terminal::for_screen;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _};

/// The environment variable with the level.
const VARIABLE: &str = "SEATRIAL_LOG";

/// Levels; each includes those before it.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Installs the subscriber and the panic hook, once per process. An error when the variable names no level.
///
/// A program that embeds this one and has a subscriber of its own keeps it, and its panic hook.
pub(crate) fn install() -> Result<()> {
    let level = match std::env::var_os(VARIABLE) {
        Some(name) => level(&name.to_string_lossy()).context(VARIABLE)?,
        None => LevelFilter::WARN,
    };
    let levels = Targets::from_iter([("zookeeper_client", LevelFilter::ERROR)]); // it warns of cuts
    let subscriber = tracing_subscriber::fmt()
        .compact()
        .with_max_level(level)
        .with_writer(|| EscapedStderr)
        .finish()
        .with(levels.with_default(level));
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        log_panics();
    }
    Ok(())
}

/// The level of this name.
fn level(name: &str) -> Result<LevelFilter> {
    match name.parse() {
        Ok(level) if LEVELS.contains(&name) => Ok(level),
        _ => bail!(unknown_name("level", name, LEVELS)),
    }
}

/// Logs panics as errors, with a backtrace where `RUST_BACKTRACE` asks for one. With the level `off` they are printed as
/// usual: a panic is never silent.
fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return usual(panic);
        }
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let text = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(|place| format!(" at {place}"));
        let place = place.unwrap_or_default();
        tracing::error!("thread {thread} panicked{place}: {text}");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            tracing::error!("backtrace:\n{backtrace}");
        }
    }));
}

/// Standard error without characters that act on a terminal: events may quote what a client sent. A subscriber writes one
/// event per call, so lines of several threads are not mixed.
struct EscapedStderr;

impl Write for EscapedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // Nowhere is left to report that standard error is closed.
        let _ = io::stderr().write_all(for_screen(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_others_are_errors() {
        assert_eq!(level("debug").unwrap(), LevelFilter::DEBUG);
        let error = level("wanr").unwrap_err().to_string();
        let expected = "unknown level `wanr`; did you mean `warn`? (available: off, error, warn, info, debug, trace)";
        assert_eq!(error, expected);
        assert!(level("").is_err());
    }
}
