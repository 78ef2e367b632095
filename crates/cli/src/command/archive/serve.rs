//! `seatrial archive serve`: the archive in a folder, over TCP.

use super::folder;
use super::moment;
use super::remote;
use crate::args::ServeArguments;
use crate::command::node::{mebibytes, told_to_end};
use crate::exit::Exit;
use crate::output::{complain, complaint};
use anyhow::{Context as _, Result};
use seatrial_archive::file::ReadFiles;
use seatrial_archive::service::message::MESSAGE_LENGTH_MAX;
use seatrial_archive::service::{ArchiveService, ServiceLimits, ServiceOptions, ServiceRequest};
use seatrial_host::{HostLimits, Key, ListenOptions, serve_machine};
use std::sync::Arc;

/// Carries the verb out: serves until SIGTERM or Ctrl-C.
pub(super) fn run(arguments: &ServeArguments, key: Option<Key>) -> Result<Exit> {
    let shown = || arguments.archive.display().to_string();
    let memory = mebibytes(arguments.memory);
    let options = ServiceOptions {
        limits: ServiceLimits::within(memory),
        ..ServiceOptions::new(moment::now())
    };
    let (service, recovered) =
        ArchiveService::open(Arc::new(ReadFiles), &arguments.archive, options)
            .with_context(shown)?;
    folder::tell(&recovered);
    let options = ListenOptions {
        listen: arguments.listen,
        message_length_max: MESSAGE_LENGTH_MAX,
        limits: HostLimits::within(memory),
        report: complaint,
        protocol: remote::PROTOCOL,
        key,
    };
    let ready = |address| complain!("listening on {address}");
    serve_machine(
        options,
        service,
        ServiceRequest::Close,
        ready,
        told_to_end(),
    )
    .with_context(shown)?;
    Ok(Exit::Valid)
}
