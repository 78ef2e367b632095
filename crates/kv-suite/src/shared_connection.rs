//! Connections to a node, shared by several clients.

use crate::credentials::Credentials;
use seatrial_host::{LinkOptions, PeerLink};
use seatrial_kv_protocol::{Outcome, Transaction, TransactionClient, TransactionClientOptions};
use seatrial_machine::Ticket;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, mpsc, oneshot};

/// Capacity of a connection's queue: more requests than its clients can have under way.
const QUEUE_LENGTH: usize = 1_024;

/// A request, and the receiver of its outcome.
type Call = (Transaction, oneshot::Sender<Outcome>);

/// A client's handle of a connection, which is closed when its last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    calls: mpsc::Sender<Call>,
}

impl SharedConnection {
    /// Sends a request and waits for its outcome. `None`: the connection is lost and the request was never sent.
    pub(crate) async fn request(&self, transaction: Transaction) -> Option<Outcome> {
        let (outcome, answered) = oneshot::channel();
        self.calls.send((transaction, outcome)).await.ok()?;
        answered.await.ok()
    }
}

/// The connections of a test by number; clients with the same number and node share one.
///
/// A connection has a task of its own, on the thread of its clients. Its loop: hand over all requests in its queue, write them
/// at once, read all received replies, give each to its client. While the driver handles one batch of completions, the next
/// requests gather: with 16 clients per connection one write and one read serve about ten operations, in the runner as in the
/// node.
///
/// Its downside: requests of clients that share a connection reach the node in one order.
#[derive(Debug, Default)]
pub(crate) struct SharedConnections {
    slots: std::sync::Mutex<BTreeMap<(SocketAddr, u32), Slot>>,
}

/// The place of one connection: open, lost, or not opened yet. It is locked while one is being opened, so the clients that share
/// it wait, and the others do not.
type Slot = Arc<Mutex<Option<mpsc::WeakSender<Call>>>>;

impl SharedConnections {
    /// The connection with this number to the node at `address`; opened if there is none.
    pub(crate) async fn get(
        &self,
        address: SocketAddr,
        number: u32,
        options: TransactionClientOptions,
        credentials: &Credentials,
    ) -> io::Result<SharedConnection> {
        let slot = self.slot(address, number);
        let mut slot = slot.lock().await;
        let known = slot.as_ref().and_then(mpsc::WeakSender::upgrade);
        if let Some(calls) = known.filter(|calls| !calls.is_closed()) {
            return Ok(SharedConnection { calls });
        }
        let connection = connect(address, options, credentials).await?;
        *slot = Some(connection.calls.downgrade());
        Ok(connection)
    }

    fn slot(&self, address: SocketAddr, number: u32) -> Slot {
        let slots = self.slots.lock();
        let mut slots = slots.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry((address, number)).or_default())
    }
}

/// Opens a connection to a node.
pub(crate) async fn connect(
    address: SocketAddr,
    options: TransactionClientOptions,
    credentials: &Credentials,
) -> io::Result<SharedConnection> {
    let link = LinkOptions {
        server: options.servers[0],
        connect: credentials.connect_options(options.request_timeout),
        // Its clients notice that it is lost, and open a new one.
        reconnect_interval: None,
    };
    let link = PeerLink::connect(address, TransactionClient::new(options), link).await?;
    let (calls, queue) = mpsc::channel(QUEUE_LENGTH);
    tokio::spawn(carry(link, queue));
    Ok(SharedConnection { calls })
}

/// Forwards requests and replies until the connection is lost or the last client has gone.
async fn carry(mut link: PeerLink<TransactionClient>, mut queue: mpsc::Receiver<Call>) {
    let mut batch = Vec::new();
    let mut under_way: BTreeMap<Ticket, oneshot::Sender<Outcome>> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            count = queue.recv_many(&mut batch, QUEUE_LENGTH) => {
                if count == 0 {
                    return;
                }
                for (transaction, outcome) in batch.drain(..) {
                    under_way.insert(link.submit(transaction), outcome);
                }
            }
            reply = link.next() => {
                let Some((ticket, outcome)) = reply else {
                    return; // requests without an outcome were never sent
                };
                if let Some(client) = under_way.remove(&ticket) {
                    let _ = client.send(outcome); // an abandoned client does not wait any more
                }
            }
        }
    }
}
