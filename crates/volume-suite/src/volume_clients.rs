//! Guests of a test of real processes.

use crate::disk_workload::{completion, request_of};
use crate::volume_processes::connect;
use crate::volume_world::GEOMETRY;
use seatrial_history::{Op, OpType, Value};
use seatrial_host::PeerLink;
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::{self as runner, BoxFuture, ClientError, ClientSlot, Clients};
use seatrial_volume::{GuestClient, GuestOutcome};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Opens guests, each with a connection of its own to the upstairs.
#[derive(Debug)]
pub(crate) struct VolumeClients {
    /// Source of the guests' seeds.
    pub(crate) tokens: Mutex<Rng>,
    pub(crate) upstairs: NodeId,
    pub(crate) request_timeout: Duration,
}

impl VolumeClients {
    fn seed(&self) -> u64 {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.word()
    }
}

impl Clients for VolumeClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn runner::Client>, ClientError>> {
        Box::pin(async move {
            let mut client = VolumeClient {
                link: None,
                address: slot.address_of(self.upstairs)?,
                upstairs: self.upstairs,
                rng: Rng::from_seed(self.seed()),
                timeout: self.request_timeout,
                is_answered: true,
            };
            client.link = Some(client.connect().await?);
            Ok(Box::new(client) as Box<dyn runner::Client>)
        })
    }
}

/// The guest of one worker.
struct VolumeClient {
    /// `None` if it was lost before a request was sent.
    link: Option<PeerLink<GuestClient>>,
    address: SocketAddr,
    upstairs: NodeId,
    rng: Rng,
    timeout: Duration,
    /// Has every request so far been replied to?
    is_answered: bool,
}

/// Pause of a guest that could not reconnect.
const PAUSE: Duration = Duration::from_millis(50);

impl VolumeClient {
    async fn connect(&mut self) -> std::io::Result<PeerLink<GuestClient>> {
        connect(self.address, self.upstairs, self.rng.word(), self.timeout).await
    }
}

impl runner::Client for VolumeClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let failed = |error: String| {
                let failed = op.complete(OpType::Fail, op.value.clone());
                Ok(failed.with("error", Value::text(error)))
            };
            let request = match request_of(op, GEOMETRY) {
                Ok(request) => request,
                Err(reason) => return failed(reason),
            };
            if self.link.is_none() {
                match self.connect().await {
                    Ok(link) => self.link = Some(link),
                    Err(reason) => {
                        tokio::time::sleep(PAUSE).await;
                        return failed(format!("no client: {reason}"));
                    }
                }
            }
            let Some(link) = &mut self.link else {
                return failed("no client".to_owned());
            };
            link.submit(request);
            let Some((_, outcome)) = link.next().await else {
                // It was never sent.
                self.link = None;
                return failed("connection-lost".to_owned());
            };
            self.is_answered &= !matches!(outcome, GuestOutcome::Unknown(_));
            Ok(completion(op, &outcome, GEOMETRY))
        })
    }

    fn is_usable(&self) -> bool {
        self.is_answered
    }
}
