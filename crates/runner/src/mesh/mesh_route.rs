//! Routes: the listener of one pair of endpoints, and the connections that it forwards.

use super::mesh_wire::Wire;
use super::pump::{self, ConnectionEnd};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// Maximum number of connections of one route; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1024;
/// Pause after a failed accept (usually: out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Interval at which a connection that waits for a cut link checks whether its opener has closed it.
const GIVEN_UP_INTERVAL: Duration = Duration::from_millis(20);

/// The route from one endpoint to one node.
#[derive(Debug)]
pub(super) struct Route {
    /// Address that the endpoint connects to.
    pub(super) address: SocketAddr,
    /// Address of the node.
    target: SocketAddr,
    /// The link from the endpoint to the node.
    forward: Arc<Wire>,
    /// The link from the node to the endpoint.
    backward: Arc<Wire>,
    /// Number of resets; each connection subscribes to it.
    resets: watch::Sender<u64>,
    /// Number of connections that have reached the node.
    open: AtomicU64,
}

impl Route {
    pub(super) fn new(
        address: SocketAddr,
        target: SocketAddr,
        forward: Arc<Wire>,
        backward: Arc<Wire>,
    ) -> Route {
        Route {
            address,
            target,
            forward,
            backward,
            resets: watch::Sender::new(0),
            open: AtomicU64::new(0),
        }
    }

    /// Resets the open connections; returns their number.
    pub(super) fn reset(&self) -> u64 {
        self.resets.send_modify(|count| *count += 1);
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until a new connection may pass in both directions; false if its opener closed it before.
    async fn wait_for_links(&self, inbound: &TcpStream) -> bool {
        let mut waited = false;
        loop {
            let cut = [&self.forward, &self.backward].map(|wire| wire.is_cut());
            if cut == [false, false] {
                return !(waited && has_ended(inbound).await);
            }
            if !waited {
                // The first packet is held by the first cut link that it meets, so that link's meter counts it.
                let wire = if cut[0] {
                    &self.forward
                } else {
                    &self.backward
                };
                wire.count_held_connection();
                waited = true;
            }
            if has_ended(inbound).await {
                return false;
            }
            let changed = |wire: &Wire| {
                let mut watch = wire.watch();
                async move {
                    let _ = watch.wait_for(|condition| !condition.cut).await;
                }
            };
            tokio::select! {
                () = async { tokio::join!(changed(&self.forward), changed(&self.backward)); } => {}
                () = sleep(GIVEN_UP_INTERVAL) => {}
            }
        }
    }

    /// Forwards one connection from its first packet to its end.
    async fn carry(&self, mut inbound: TcpStream) {
        let mut resets = self.resets.subscribe();
        if !self.wait_for_links(&inbound).await {
            let _ = inbound.set_zero_linger();
            return;
        }
        sleep(self.forward.delay_now() + self.backward.delay_now()).await;
        let Ok(mut outbound) = TcpStream::connect(self.target).await else {
            let _ = inbound.set_zero_linger(); // the node does not listen: the opener gets a reset
            return;
        };
        let _ = inbound.set_nodelay(true);
        let _ = outbound.set_nodelay(true);
        self.open.fetch_add(1, Ordering::Relaxed);
        let ending = {
            let (inbound_read, inbound_write) = inbound.split();
            let (outbound_read, outbound_write) = outbound.split();
            let forward = pump::pump(inbound_read, outbound_write, &self.forward);
            let backward = pump::pump(outbound_read, inbound_write, &self.backward);
            tokio::select! {
                ending = pump::both(forward, backward) => ending,
                _ = resets.changed() => {
                    self.forward.count_reset();
                    self.backward.count_reset();
                    ConnectionEnd::Reset
                }
            }
        };
        self.open.fetch_sub(1, Ordering::Relaxed);
        if ending == ConnectionEnd::Reset {
            let _ = inbound.set_zero_linger();
            let _ = outbound.set_zero_linger();
        }
    }
}

/// Has the peer closed or reset this connection?
async fn has_ended(stream: &TcpStream) -> bool {
    let interest = Interest::READABLE | Interest::WRITABLE;
    match stream.ready(interest).await {
        Ok(ready) => ready.is_read_closed() || ready.is_error(),
        Err(_) => true,
    }
}

/// Accepts connections for ever.
pub(super) async fn accept(listener: TcpListener, route: Arc<Route>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let route = Arc::clone(&route);
                tokio::spawn(async move {
                    route.carry(stream).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}
