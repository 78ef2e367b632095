//! Clients of the store's node processes.

use crate::credentials::Credentials;
use crate::data::Consumer;
use crate::operation_in_progress::{OperationAction, OperationInProgress};
use crate::shared_connection::{SharedConnection, SharedConnections};
use seatrial_history::{Op, OpType, Value};
use seatrial_kv_protocol::{Failure, Outcome, Transaction, TransactionClientOptions};
use seatrial_machine::Rng;
use seatrial_runner::{self as runner, BoxFuture, ClientError, ClientSlot, Clients};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Opens clients of the store.
#[derive(Debug)]
pub(crate) struct KvClients {
    /// Source of the sessions' tokens.
    tokens: Mutex<Rng>,
    request_timeout: Duration,
    workload: Arc<str>,
    credentials: Credentials,
    connections: Arc<SharedConnections>,
    /// Number of clients that share a connection.
    clients_per_connection: u32,
}

/// How a client opens its connection, and another one after it is lost.
struct Dial {
    address: SocketAddr,
    number: u32,
    options: TransactionClientOptions,
    credentials: Credentials,
    connections: Arc<SharedConnections>,
}

impl Dial {
    /// A connection, after a first round trip. Without it a proxy accepts connections to nodes that are dead or cut off, the
    /// kernel those to nodes that are paused, and a shared connection may be lost already.
    async fn connection(&self) -> Result<SharedConnection, ClientError> {
        let connection = self.connections.get(
            self.address,
            self.number,
            self.options.clone(),
            &self.credentials,
        );
        let connection = connection.await?;
        match connection.request(Transaction::new()).await {
            Some(Outcome::Ok(_)) => Ok(connection),
            Some(Outcome::Failed(failure)) => Err(failure.name().into()),
            Some(Outcome::Unknown(doubt)) => Err(doubt.name().into()),
            None => Err("connection-lost".into()),
        }
    }
}

/// Pause of a client that could not reconnect.
const PAUSE: Duration = Duration::from_millis(50);

impl KvClients {
    /// Clients of this workload (empty: of a plan), with this time limit of a request.
    pub(crate) fn new(
        rng: Rng,
        request_timeout: Duration,
        workload: &str,
        credentials: Credentials,
        clients_per_connection: u32,
    ) -> KvClients {
        KvClients {
            tokens: Mutex::new(rng),
            request_timeout,
            workload: workload.into(),
            credentials,
            connections: Arc::default(),
            clients_per_connection,
        }
    }
}

impl Clients for KvClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn runner::Client>, ClientError>> {
        Box::pin(async move {
            let seed = self
                .tokens
                .lock()
                .map_err(|_| "the tokens are lost")?
                .word();
            let mut options = TransactionClientOptions::new(slot.node, seed);
            options.request_timeout = self.request_timeout;
            let dial = Dial {
                address: slot.address,
                number: slot.endpoint.number() / self.clients_per_connection,
                options,
                credentials: self.credentials.clone(),
                connections: Arc::clone(&self.connections),
            };
            let client = KvClient {
                connection: Some(dial.connection().await?),
                dial,
                workload: Arc::clone(&self.workload),
                patience: self.request_timeout,
                consumer: Consumer::default(),
                is_answered: true,
            };
            Ok(Box::new(client) as Box<dyn runner::Client>)
        })
    }
}

/// The client of one worker.
struct KvClient {
    /// `None` if it was lost before a request was sent. The next operation opens another one: the client stays, because its
    /// process continues, and with it its positions in logs.
    connection: Option<SharedConnection>,
    dial: Dial,
    workload: Arc<str>,
    /// Time limit after which an operation sends no further request.
    patience: Duration,
    /// Its positions in logs.
    consumer: Consumer,
    /// Has every request so far been replied to?
    is_answered: bool,
}

impl runner::Client for KvClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let began = Instant::now();
            if self.connection.is_none() {
                match self.dial.connection().await {
                    Ok(connection) => self.connection = Some(connection),
                    Err(reason) => {
                        tokio::time::sleep(PAUSE).await;
                        let error = Value::text(format!("no client: {reason}"));
                        let failed = op.complete(OpType::Fail, op.value.clone());
                        return Ok(failed.with("error", error));
                    }
                }
            }
            let (mut operation, mut action) =
                OperationInProgress::begin(&self.workload, op, &mut self.consumer);
            loop {
                let transaction = match action {
                    OperationAction::Complete(op) => return Ok(op),
                    OperationAction::Ask(transaction) => transaction,
                };
                if began.elapsed() > self.patience {
                    return Ok(operation.time_out());
                }
                let outcome = match &self.connection {
                    Some(connection) => connection.request(transaction).await,
                    None => None,
                };
                // Without an outcome the request was never sent.
                let outcome = outcome.unwrap_or(Outcome::Failed(Failure::NoSession));
                if matches!(outcome, Outcome::Failed(Failure::NoSession)) {
                    self.connection = None;
                }
                self.is_answered &= !matches!(outcome, Outcome::Unknown(_));
                action = operation.resume(&outcome, &mut self.consumer);
            }
        })
    }

    fn is_usable(&self) -> bool {
        self.is_answered
    }
}
