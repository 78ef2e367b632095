//! Pumps: each forwards the bytes of one direction of one connection.

use super::mesh_wire::{Condition, RETRANSMISSION, RETRANSMISSION_MAX, Wire};
use seatrial_machine::{LinkCondition, Rng};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

/// Maximum number of bytes per read.
const BUFFER_LENGTH: usize = 32 * 1024;
/// Capacity of one direction of one connection; then its sender blocks.
const QUEUE_BYTES_MAX: usize = 64 * 1024;
/// Additional capacity per millisecond of a link's delay, so that the delay does not throttle the link.
const QUEUE_BYTES_PER_MILLISECOND: usize = 64 * 1024;
/// Bound of the additional capacity.
const QUEUE_BYTES_SLOW_MAX: usize = 8 * 1024 * 1024;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// One side closed it (FIN), or its peer is gone.
    Closed,
    /// It was reset (RST).
    Reset,
}

/// An item in flight on a link.
enum Cargo {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// Items that wait, because the link is cut or until they are due.
#[derive(Default)]
struct ParcelQueue {
    parcels: VecDeque<(Instant, Cargo)>,
    bytes: usize,
    /// The last item is the end of the stream: none follows.
    ended: bool,
}

impl ParcelQueue {
    /// Appends an item. It is delivered after the items before it, even if it is due earlier.
    fn push(&mut self, due: Instant, cargo: Cargo) {
        match &cargo {
            Cargo::Bytes(bytes) => self.bytes += bytes.len(),
            Cargo::End | Cargo::Reset => self.ended = true,
        }
        self.parcels.push_back((due, cargo));
    }

    fn pop(&mut self) -> Option<Cargo> {
        let (_, cargo) = self.parcels.pop_front()?;
        if let Cargo::Bytes(bytes) = &cargo {
            self.bytes -= bytes.len();
        }
        Some(cargo)
    }

    /// When the first item may be delivered; `None` while the link is cut or the queue is empty.
    fn due(&self, condition: &Condition) -> Option<Instant> {
        let (due, _) = self.parcels.front()?;
        match condition {
            Condition { cut: true, .. } => None,
            condition if condition.is_disturbed() => Some(*due),
            _ => Some(Instant::now()),
        }
    }

    fn has_room(&self, condition: &Condition) -> bool {
        let milliseconds = condition.delay_max().as_millis() as usize;
        let extra = milliseconds.saturating_mul(QUEUE_BYTES_PER_MILLISECOND);
        !self.ended && self.bytes < (QUEUE_BYTES_MAX + extra).min(QUEUE_BYTES_SLOW_MAX)
    }
}

/// Number of the next stream of jitter: gives each pump its own random numbers.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// Draws the additional delay of one item: retransmissions and restored order, as of TCP.
fn delay(condition: &LinkCondition, rng: &mut Rng) -> Duration {
    let mut total = Duration::ZERO;
    if let Some((delay, jitter)) = condition.slow {
        total += (delay + rng.duration_below(jitter * 2)).saturating_sub(jitter);
    }
    let mut happens = |percent: u8| rng.below(100) < u64::from(percent);
    let mut wait = RETRANSMISSION;
    let missing = condition.missing_percent();
    while missing > 0 && wait <= RETRANSMISSION_MAX && happens(missing) {
        total += wait;
        wait *= 2;
    }
    if let Some((percent, delay)) = condition.reorder
        && happens(percent)
    {
        total += delay;
    }
    total
}

/// Waits for both directions. A reset of either ends the connection at once.
pub(super) async fn both(
    forward: impl Future<Output = ConnectionEnd>,
    backward: impl Future<Output = ConnectionEnd>,
) -> ConnectionEnd {
    let (mut forward, mut backward) = (pin!(forward), pin!(backward));
    let first = tokio::select! {
        ending = &mut forward => (ending, true),
        ending = &mut backward => (ending, false),
    };
    match first {
        (ConnectionEnd::Reset, _) => ConnectionEnd::Reset,
        (ConnectionEnd::Closed, true) => backward.await,
        (ConnectionEnd::Closed, false) => forward.await,
    }
}

/// Forwards bytes from `reader` to `writer` as `wire` permits, until an end or a reset has been delivered.
pub(super) async fn pump(
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    wire: &Wire,
) -> ConnectionEnd {
    let mut rng = Rng::from_seed(STREAMS.fetch_add(1, Ordering::Relaxed));
    let mut watch = wire.watch();
    let mut queue = ParcelQueue::default();
    let mut buffer = vec![0; BUFFER_LENGTH];
    loop {
        let condition = *watch.borrow_and_update();
        let due = queue.due(&condition);
        tokio::select! {
            biased;
            changed = watch.changed() => if changed.is_err() {
                return ConnectionEnd::Reset;
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some(cargo) = queue.pop() else { continue };
                if let Some(ending) = deliver(&mut writer, cargo, wire).await {
                    return ending;
                }
            }
            read = reader.read(&mut buffer), if queue.has_room(&condition) => {
                // The link's condition may have changed during the wait.
                let condition = *watch.borrow();
                let at_once = queue.parcels.is_empty() && condition.is_whole();
                match read {
                    Ok(length) if length > 0 && at_once => {
                        if write(&mut writer, &buffer[..length], wire).await.is_err() {
                            return ConnectionEnd::Closed;
                        }
                    }
                    read => {
                        let length = *read.as_ref().unwrap_or(&0);
                        let passed = wire.reserve(length, &condition);
                        let due = passed + delay(&condition.packets, &mut rng);
                        queue.push(due, take(&read, &buffer, &condition, wire));
                    }
                }
            }
        }
    }
}

/// Makes an item of the result of a read.
fn take(read: &io::Result<usize>, buffer: &[u8], condition: &Condition, wire: &Wire) -> Cargo {
    match *read {
        Ok(0) => Cargo::End,
        Err(_) => Cargo::Reset,
        Ok(length) => {
            if condition.cut {
                wire.count_held(length);
            } else if condition.is_disturbed() {
                wire.count_disturbed(length);
            }
            Cargo::Bytes(buffer[..length].to_vec())
        }
    }
}

/// Delivers one item; returns how the direction ends, if it does.
async fn deliver(writer: &mut WriteHalf<'_>, cargo: Cargo, wire: &Wire) -> Option<ConnectionEnd> {
    match cargo {
        Cargo::Bytes(bytes) => match write(writer, &bytes, wire).await {
            Ok(()) => None,
            Err(_) => Some(ConnectionEnd::Closed),
        },
        Cargo::End => {
            let _ = writer.shutdown().await;
            Some(ConnectionEnd::Closed)
        }
        Cargo::Reset => Some(ConnectionEnd::Reset),
    }
}

/// Writes all bytes. An error means that the receiver is gone; the sender notices through the other direction.
async fn write(writer: &mut WriteHalf<'_>, bytes: &[u8], wire: &Wire) -> io::Result<()> {
    writer.write_all(bytes).await?;
    wire.count_passed(bytes.len());
    Ok(())
}
