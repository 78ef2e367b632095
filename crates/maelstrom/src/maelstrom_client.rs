//! Clients: each operation is a request to a node, over the simulated network.

use crate::consumer::KafkaConsumer;
use crate::exchange::Exchange;
use crate::hub::Hub;
use crate::node_message::EndpointName;
use crate::protocol_checker::VIOLATION;
use crate::rpc::{RpcClient, RpcError};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};

/// Opens clients of one workload.
#[derive(Debug)]
pub(crate) struct MaelstromClients {
    /// The network.
    pub(crate) hub: Hub,
    /// How operations become requests.
    pub(crate) exchange: Exchange,
}

impl Clients for MaelstromClients {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let name = endpoint(slot.endpoint);
            let inbox = self.hub.inbox(name.clone());
            let rpc = RpcClient::new(name, endpoint(slot.node), self.hub.clone(), inbox);
            let client = MaelstromClient {
                rpc,
                exchange: self.exchange,
                consumer: KafkaConsumer::default(),
            };
            Ok(Box::new(client) as Box<dyn Client>)
        })
    }

    fn never_block(&self) -> bool {
        true
    }
}

/// The name of an endpoint in messages. Clients are numbered from 1: `c0` is the harness, which sends `init`.
pub(crate) fn endpoint(id: NodeId) -> EndpointName {
    if id.is_client() {
        return EndpointName::new(&format!("c{}", u64::from(id.number()) + 1));
    }
    EndpointName::new(&id.to_string())
}

/// One client: it has one request under way at a time.
struct MaelstromClient {
    rpc: RpcClient,
    exchange: Exchange,
    consumer: KafkaConsumer,
}

impl Client for MaelstromClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let done = self
                .exchange
                .execute(&mut self.rpc, &mut self.consumer, op)
                .await;
            let mut violations = self.rpc.take_violations();
            let done = match done {
                Ok(done) => done,
                Err(error) => {
                    if let RpcError::Malformed(text) = &error {
                        violations.push(text.clone());
                    }
                    unsuccessful(op, &error)
                }
            };
            if violations.is_empty() {
                return Ok(done);
            }
            Ok(done.with(VIOLATION, Value::text(violations.join("; "))))
        })
    }
}

/// The completion of an operation that returned no result. A read has no effect, so it failed whatever the error.
fn unsuccessful(op: &Op, error: &RpcError) -> Op {
    let has_failed = error.is_definite() || matches!(op.f.as_str(), "read" | "poll" | "echo");
    let kind = if has_failed {
        OpType::Fail
    } else {
        OpType::Info
    };
    op.complete(kind, op.value.clone())
        .with("error", Value::text(error.to_string()))
}
