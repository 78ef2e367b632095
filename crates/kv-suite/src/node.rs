//! The process of one node.

use crate::processes::PROTOCOL;
use crate::{MEMORY, read_key, store_bug};
use seatrial_host::{Booted, HostLimits, PeerOptions, ServeOptions, serve, terminated};
use seatrial_kv::message::MESSAGE_LENGTH_MAX;
use seatrial_kv::{Store, StoreOptions};
use seatrial_machine::{DataFolder, LogName};
use seatrial_suite::{NodeSetup, SuiteError};

/// Serves until SIGTERM or Ctrl-C.
pub(crate) fn run(setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
    let report = setup.report;
    let bug = store_bug(setup.bug);
    if let Some(bug) = bug {
        report(format_args!("planted bug: {bug}"));
    }
    let mebibytes = setup
        .options
        .number(MEMORY, 64..=u64::from(u32::MAX), 256)?;
    let memory = usize::try_from(mebibytes << 20).unwrap_or(usize::MAX);
    let options = ServeOptions {
        listen: setup.listen,
        data: setup.data.to_owned(),
        message_length_max: MESSAGE_LENGTH_MAX,
        limits: HostLimits {
            // Large, because clients send one request and wait: a client that does not read its replies sends no further
            // request.
            connection_send_bytes_pause: 1 << 20,
            ..HostLimits::within(memory)
        },
        protocol: PROTOCOL,
        key: read_key(setup.options)?,
        peers: PeerOptions::default(),
        clock: setup.clock.map(ToOwned::to_owned),
    };
    let boot = |data: &DataFolder| {
        let options = StoreOptions {
            bug,
            waiting_bytes_max: memory / 8,
            ..StoreOptions::default()
        };
        let log = data.log(LogName::MAIN).map_err(|error| error.to_string())?;
        let (machine, found) = Store::boot(&log, options).map_err(|error| error.to_string())?;
        report(format_args!(
            "start {} with {} commands from {} bytes of log",
            found.incarnation, found.commands, found.recovery.end
        ));
        if let Some(torn) = &found.recovery.torn {
            report(format_args!("cut off: {torn}"));
        }
        Ok(Booted::with_log(machine, found.recovery.end))
    };
    let ready = |address| report(format_args!("listening on {address}"));
    let stop = async {
        terminated().await;
        report(format_args!("ending"));
    };
    serve(&options, boot, ready, stop)?;
    Ok(())
}
