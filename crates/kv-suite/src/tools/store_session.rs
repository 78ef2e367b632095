//! A session with the first of several servers that serves it.

use super::{SERVER, TIMEOUT};
use crate::credentials::Credentials;
use seatrial_host::{ConnectOptions, Session, SessionOptions};
use seatrial_kv_protocol::{
    Failure, Outcome, Transaction, TransactionClient, TransactionClientOptions,
};
use seatrial_machine::{NodeId, Rng};
use seatrial_suite::{SuiteError, ToolSetup};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

/// The address of a node that listens where it does by default.
const USUAL: &str = "127.0.0.1:7400";

/// The servers that the command line names.
pub(crate) fn addresses(setup: &ToolSetup<'_>) -> Result<Vec<SocketAddr>, SuiteError> {
    let text = setup.text(SERVER.name)?.unwrap_or(USUAL);
    let address = |one: &str| {
        let found = one.trim().to_socket_addrs();
        let found = found.map_err(|error| error.to_string());
        found.and_then(|mut all| all.next().ok_or_else(|| "no address".to_owned()))
    };
    let mut addresses = Vec::new();
    for one in text.split(',') {
        addresses.push(address(one).map_err(|error| {
            format!(
                "--{}: {one:?} is no address and port such as {USUAL}: {error}",
                SERVER.name
            )
        })?);
    }
    Ok(addresses)
}

/// A seed for the tokens of a session, which must differ between clients and between starts.
pub(crate) fn session_seed(name: &str) -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let process = format!("{} {name}", std::process::id());
    Rng::from_seed(since.as_nanos() as u64)
        .fork(&process)
        .word()
}

/// How a command reaches the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreSession {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) credentials: Credentials,
    pub(crate) timeout: Duration,
}

impl StoreSession {
    /// Reads the options.
    pub(crate) fn of(setup: &ToolSetup<'_>) -> Result<StoreSession, SuiteError> {
        let seconds = setup.values.number(TIMEOUT.name, 1..=3_600, 5)?;
        Ok(StoreSession {
            servers: addresses(setup)?,
            credentials: Credentials::read(setup.values)?,
            timeout: Duration::from_secs(seconds),
        })
    }

    /// How to connect to any of the servers.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        self.credentials.connect_options(self.timeout)
    }

    /// Sends one transaction, to the next server as long as it was certainly not sent to the ones before.
    pub(crate) async fn request_once(
        setup: &ToolSetup<'_>,
        transaction: Transaction,
    ) -> Result<Outcome, SuiteError> {
        let session = StoreSession::of(setup)?;
        let mut reasons = Vec::new();
        for (index, &address) in session.servers.iter().enumerate() {
            match session
                .request_at(address, index, transaction.clone())
                .await
            {
                Ok(Outcome::Failed(Failure::NoSession)) => {
                    reasons.push(format!("{address}: no session in {:?}", session.timeout));
                }
                Ok(outcome) => return Ok(outcome),
                Err(error) => reasons.push(format!("{address}: {error}")),
            }
        }
        Err(format!("no server: {}", reasons.join("; ")).into())
    }

    async fn request_at(
        &self,
        address: SocketAddr,
        index: usize,
        transaction: Transaction,
    ) -> std::io::Result<Outcome> {
        // Any number will do: the client knows its server only by this connection.
        let server = NodeId::server(index as u32 + 1);
        let mut options = TransactionClientOptions::new(server, session_seed(&address.to_string()));
        options.request_timeout = self.timeout;
        let link = SessionOptions {
            server,
            connect: self.connect_options(),
        };
        let mut session = Session::connect(address, TransactionClient::new(options), link).await?;
        let outcome = session.request(transaction).await;
        Ok(outcome.unwrap_or(Outcome::Failed(Failure::NoSession)))
    }
}
