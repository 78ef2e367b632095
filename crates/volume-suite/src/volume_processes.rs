//! A volume as processes of a test: replicas, and the upstairs as the last node.

use crate::replica_process::PROTOCOL;
use seatrial_host::{ConnectOptions, LinkOptions, PeerLink};
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::{BoxFuture, ClientError, NodePlace, System};
use seatrial_volume::{
    GUEST_MESSAGE_MAX, GuestClient, GuestClientOptions, GuestOutcome, GuestRequest,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How to start a node: this same program, with the command `node`.
#[derive(Debug)]
pub(crate) struct VolumeSystem {
    /// Name of a planted bug.
    pub(crate) bug: Option<&'static str>,
}

impl System for VolumeSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(std::env::current_exe()?);
        let address = place.address.to_string();
        command.args(["node", "volume", "--listen", &address, "--data"]);
        command.arg(&place.folder);
        if let Some(file) = self.clock_file(place) {
            command.arg("--clock").arg(file);
        }
        command.arg("--node").arg(place.node.number().to_string());
        let others = place.nodes.iter().filter(|node| **node != place.node);
        let peers: Vec<String> = others
            .map(|node| Ok(format!("{node}={}", place.address_of(*node)?)))
            .collect::<std::io::Result<_>>()?;
        command.arg("--peers").arg(peers.join(","));
        if let Some(bug) = self.bug {
            command.args(["--bug", bug]);
        }
        Ok(command)
    }

    fn clock_file(&self, place: &NodePlace) -> Option<PathBuf> {
        Some(place.folder.with_added_extension("clock"))
    }

    /// A volume is ready when a guest can flush it.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let owner = places.last().ok_or("a volume has nodes")?;
            let seed = Rng::from_seed(u64::from(std::process::id())).fork("formed");
            let mut link = connect(owner.address, owner.node, seed.clone().word(), FORMED).await?;
            link.submit(GuestRequest::Flush);
            match link.next().await {
                Some((_, GuestOutcome::Done(..))) => Ok(()),
                other => Err(format!("{}: a flush ended as {other:?}", owner.node).into()),
            }
        })
    }
}

/// Time limit of the flush that shows that a volume can be used; it is repeated.
const FORMED: Duration = Duration::from_millis(700);

/// Connects a guest to the upstairs.
pub(crate) async fn connect(
    address: SocketAddr,
    upstairs: NodeId,
    seed: u64,
    timeout: Duration,
) -> std::io::Result<PeerLink<GuestClient>> {
    let options = GuestClientOptions {
        upstairs,
        seed,
        request_timeout: timeout,
        repeat_interval: timeout / 4,
    };
    let link = LinkOptions {
        server: upstairs,
        connect: ConnectOptions {
            timeout,
            ..ConnectOptions::new(PROTOCOL, GUEST_MESSAGE_MAX)
        },
        reconnect_interval: None,
    };
    PeerLink::connect(address, GuestClient::new(options), link).await
}
