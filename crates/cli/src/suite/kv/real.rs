//! The store as real processes, and clients that talk to it through the mesh.

use super::consumer::Consumer;
use super::errand::{Errand, Next};
use seatrial_history::{Op, OpType, Value};
use seatrial_host::{ConnectOptions, Key, Peer, Protocol, Session, SessionOptions};
use seatrial_kv::message::{self, MESSAGE_LENGTH_MAX};
use seatrial_kv::{Bug, Client, ClientOptions, Failure, Outcome, Transaction};
use seatrial_machine::{Input, Machine, Output, Rng, Time};
use seatrial_runner::{self as runner, BoxFuture, ClientError, Clients, Place, Seat, System};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How a node of the store is started: this same program, with the verb `node`.
#[derive(Debug)]
pub(crate) struct KvSystem {
    /// A bug to plant.
    pub(crate) bug: Option<Bug>,
    /// What nodes and clients have to know.
    pub(crate) key: Option<KeyFile>,
}

/// A key, and the file that it is in.
#[derive(Clone, Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) key: Key,
}

/// What is spoken.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

impl System for KvSystem {
    fn command(&self, place: &Place) -> Result<Command, ClientError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "node",
            "kv",
            "--listen",
            &place.address.to_string(),
            "--data",
        ]);
        command.arg(&place.folder);
        if let Some(file) = self.clock_file(place) {
            command.arg("--clock").arg(file);
        }
        if let Some(key) = &self.key {
            command.arg("--key-file").arg(&key.path);
        }
        if let Some(bug) = self.bug {
            command.args(["--bug", bug.name()]);
        }
        Ok(command)
    }

    fn clock_file(&self, place: &Place) -> Option<PathBuf> {
        Some(place.folder.with_added_extension("clock"))
    }

    /// Ready is who answers a transaction, not who merely listens.
    fn ready<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let options = ClientOptions::new(place.node, rand_seed(place.address));
            let key = self.key.as_ref().map(|it| it.key.clone());
            let mut session = connect(place.address, options, key).await?;
            match session.request(Transaction::new()).await {
                Some(Outcome::Ok(_)) => Ok(()),
                other => Err(format!("an empty transaction ended as {other:?}").into()),
            }
        })
    }
}

/// Tokens of sessions have to differ from client to client and from life to life.
fn rand_seed(address: SocketAddr) -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rng::from_seed(since.as_nanos() as u64)
        .fork(&address.to_string())
        .word()
}

/// Opens clients of the store.
#[derive(Debug)]
pub(crate) struct KvClients {
    /// Where the tokens of sessions come from.
    tokens: Mutex<Rng>,
    request_timeout: Duration,
    workload: Arc<str>,
    key: Option<Key>,
}

impl KvClients {
    /// Clients of this workload (empty when a plan says what they do) that give a request up after this long.
    pub(crate) fn new(
        rng: Rng,
        request_timeout: Duration,
        workload: &str,
        key: Option<Key>,
    ) -> KvClients {
        KvClients {
            tokens: Mutex::new(rng),
            request_timeout,
            workload: workload.into(),
            key,
        }
    }
}

impl Clients for KvClients {
    fn open<'a>(
        &'a self,
        seat: &'a Seat,
    ) -> BoxFuture<'a, Result<Box<dyn runner::Client>, ClientError>> {
        Box::pin(async move {
            let seed = self
                .tokens
                .lock()
                .map_err(|_| "the tokens are lost")?
                .word();
            let mut options = ClientOptions::new(seat.node, seed);
            options.request_timeout = self.request_timeout;
            let mut session = connect(seat.address, options, self.key.clone()).await?;
            // A first round trip: the proxy accepts connections to nodes that are dead or cut off.
            match session.request(Transaction::new()).await {
                Some(Outcome::Ok(_)) => {
                    let client = KvClient {
                        session,
                        workload: Arc::clone(&self.workload),
                        patience: self.request_timeout,
                        consumer: Consumer::default(),
                        is_answered: true,
                    };
                    Ok(Box::new(client) as Box<dyn runner::Client>)
                }
                Some(Outcome::Failed(failure)) => Err(failure.name().into()),
                Some(Outcome::Unknown(doubt)) => Err(doubt.name().into()),
                None => Err("connection-lost".into()),
            }
        })
    }
}

async fn connect(
    address: SocketAddr,
    options: ClientOptions,
    key: Option<Key>,
) -> std::io::Result<Session<Connected>> {
    let server = options.server;
    let session = SessionOptions {
        server,
        connect: ConnectOptions {
            key,
            timeout: options.request_timeout,
            ..ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX)
        },
    };
    Session::connect(address, Connected(Client::new(options)), session).await
}

/// The client's machine, told about its connection.
struct Connected(Client);

impl Machine for Connected {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        self.0.turn(now, input, out);
    }

    fn wake_at(&self) -> Option<Time> {
        self.0.wake_at()
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

impl Peer for Connected {
    fn connection_closed(&mut self, out: &mut Vec<Output<Outcome>>) {
        self.0.connection_closed(out);
    }
}

/// One worker's connection.
struct KvClient {
    session: Session<Connected>,
    workload: Arc<str>,
    /// After so long an operation asks for nothing more.
    patience: Duration,
    /// How far it is in logs.
    consumer: Consumer,
    /// Was every question answered so far? An answer that is missing may mean that the connection is gone.
    is_answered: bool,
}

impl runner::Client for KvClient {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let begun = Errand::begin(&self.workload, op, &self.consumer);
            let (mut errand, mut transaction) = match begun {
                Ok(begun) => begun,
                Err(reason) => {
                    let failed = op.complete(OpType::Fail, op.value.clone());
                    return Ok(failed.with("error", Value::text(reason)));
                }
            };
            let began = Instant::now();
            loop {
                if began.elapsed() > self.patience {
                    return Ok(errand.give_up());
                }
                let outcome = self.session.request(transaction).await;
                // Without an answer it was never sent.
                let outcome = outcome.unwrap_or(Outcome::Failed(Failure::NoSession));
                self.is_answered &= !matches!(
                    outcome,
                    Outcome::Unknown(_) | Outcome::Failed(Failure::NoSession)
                );
                match errand.told(&outcome) {
                    Next::Ask(next) => transaction = next,
                    Next::Done(op) => {
                        self.consumer = errand.into_consumer();
                        return Ok(op);
                    }
                }
            }
        })
    }
    fn is_usable(&self) -> bool {
        self.is_answered
    }
}
