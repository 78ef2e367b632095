//! `seatrial archive serve`: the archive in a folder, over TCP.

use crate::archive_arguments::ServeArguments;
use crate::local;
use crate::moment;
use crate::remote;
use anyhow::{Context as _, Result};
use seatrial_archive_service::message::MESSAGE_LENGTH_MAX;
use seatrial_archive_service::{ArchiveService, ServiceLimits, ServiceOptions, ServiceRequest};
use seatrial_blocks::file::ReadFiles;
use seatrial_host::{HostLimits, ListenOptions, PeerOptions, SecretKey, serve_machine, terminated};
use seatrial_terminal::{Exit, complain};
use std::sync::Arc;

/// Carries the verb out: serves until SIGTERM or Ctrl-C.
pub(crate) fn run(arguments: &ServeArguments, key: Option<SecretKey>) -> Result<Exit> {
    let shown = || arguments.archive.display().to_string();
    let memory = usize::try_from(u64::from(arguments.memory) << 20).unwrap_or(usize::MAX);
    let options = ServiceOptions {
        limits: ServiceLimits::within(memory),
        ..ServiceOptions::new(moment::now())
    };
    let (service, recovered) =
        ArchiveService::open(Arc::new(ReadFiles), &arguments.archive, options)
            .with_context(shown)?;
    local::print_recovery(&recovered);
    let options = ListenOptions {
        listen: arguments.listen,
        message_length_max: MESSAGE_LENGTH_MAX,
        limits: HostLimits::within(memory),
        protocol: remote::PROTOCOL,
        http: None,
        tls: None,
        key,
        peers: PeerOptions::default(),
    };
    let ready = |address| complain!("listening on {address}");
    let stop = async {
        terminated().await;
        complain!("ending");
    };
    serve_machine(options, service, ServiceRequest::Close, ready, stop).with_context(shown)?;
    Ok(Exit::Valid)
}
