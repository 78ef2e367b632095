//! `seatrial node`: one node of a bundled system, as a process of its own.

use crate::args::NodeArguments;
use crate::exit::Exit;
use crate::output::{complain, complaint};
use crate::suite::SUITES;
use crate::suite::kv;
use anyhow::{Context as _, Result, bail};
use seatrial_host::{Booted, HostLimits, Key, ServeOptions, serve};
use seatrial_kv::message::MESSAGE_LENGTH_MAX;
use seatrial_kv::{Store, StoreOptions};
use seatrial_machine::Disk;
use seatrial_machine::unknown_name;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Carries the verb out: serves until SIGTERM or Ctrl-C.
pub(crate) fn run(arguments: &NodeArguments) -> Result<Exit> {
    if arguments.system != "kv" {
        bail!(unknown_name("system", &arguments.system, SUITES));
    }
    let bug = arguments.bug.as_deref().map(kv::bug).transpose()?;
    if let Some(bug) = bug {
        complain!("planted bug: {bug}");
    }
    let memory = mebibytes(arguments.memory);
    let options = ServeOptions {
        listen: arguments.listen,
        data: arguments.data.clone(),
        message_length_max: MESSAGE_LENGTH_MAX,
        limits: HostLimits {
            // A client asks and waits: what it does not read, it need not ask for.
            connection_send_bytes_pause: 1 << 20,
            ..HostLimits::within(memory)
        },
        report: complaint,
        protocol: kv::real::PROTOCOL,
        key: read_key(arguments.key_file.as_deref())?,
        clock: arguments.clock.clone(),
    };
    let boot = |disk: &dyn Disk| {
        let options = StoreOptions {
            bug,
            waiting_bytes_max: memory / 8,
            ..StoreOptions::default()
        };
        let (machine, report) = Store::boot(disk, options).map_err(|error| error.to_string())?;
        complain!(
            "start {} with {} commands from {} bytes of log",
            report.incarnation,
            report.commands,
            report.recovery.end
        );
        if let Some(torn) = &report.recovery.torn {
            complain!("cut off: {torn}");
        }
        Ok(Booted {
            machine,
            log_end: report.recovery.end,
        })
    };
    let ready = |address| complain!("listening on {address}");
    serve(&options, boot, ready, told_to_end()).context("kv node")?;
    Ok(Exit::Valid)
}

/// The key in a file, if there is one. Says so when others may read it.
pub(crate) fn read_key(path: Option<&Path>) -> Result<Option<Key>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let key = Key::read(path).with_context(|| path.display().to_string())?;
    let mode = path.metadata().map_or(0, |it| it.permissions().mode());
    if mode & 0o077 != 0 {
        complain!("{}: other users may read this key", path.display());
    }
    Ok(Some(key))
}

/// In bytes.
pub(crate) fn mebibytes(count: u32) -> usize {
    usize::try_from(count).map_or(usize::MAX, |count| count << 20)
}

/// Done when SIGTERM or Ctrl-C has come.
pub(crate) async fn told_to_end() {
    // A write beyond the largest file that is allowed shall be an error, as on a full disk, and no signal that kills.
    let _full = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            complain!("told to end");
        }
        // Then only SIGKILL ends it, which it survives as well.
        _ => std::future::pending().await,
    }
}
