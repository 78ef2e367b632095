//! Carries the bytes of one direction of one connection.

use super::wire::{Condition, RETRANSMISSION, RETRANSMISSION_MAX, Wire};
use seatrial_machine::{LinkCondition, Rng};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

/// Bytes read at once.
const BUFFER_LENGTH: usize = 32 * 1024;
/// Bytes that may wait in one direction of one connection before its sender feels it.
const QUEUE_BYTES_MAX: usize = 64 * 1024;
/// Further bytes that a slow link holds per millisecond of its delay, so that delay does not throttle.
const QUEUE_BYTES_PER_MILLISECOND: usize = 64 * 1024;
/// However slow a link is, it holds no more than this per connection.
const QUEUE_BYTES_SLOW_MAX: usize = 8 * 1024 * 1024;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// One side has said that it is done (FIN), or its partner is gone.
    Closed,
    /// It was broken (RST).
    Reset,
}

/// Something under way on a link.
enum Cargo {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// What waits: because the link is cut, or until it is due.
#[derive(Default)]
struct Queue {
    parcels: VecDeque<(Instant, Cargo)>,
    bytes: usize,
    /// Nothing comes after what is in here.
    ended: bool,
}

impl Queue {
    /// Appends. What is due before those ahead of it waits for them.
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

    /// When the first parcel may be delivered; `None` while nothing may.
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

/// A number for each stream of jitter.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// Draws how much longer one parcel takes. What TCP has to send again or put in order arrives late.
fn delay(condition: &LinkCondition, rng: &mut Rng) -> Duration {
    let mut total = Duration::ZERO;
    if let Some((delay, jitter)) = condition.slow {
        total += (delay + rng.duration_below(jitter * 2)).saturating_sub(jitter);
    }
    let mut strikes = |percent: u8| rng.below(100) < u64::from(percent);
    let mut wait = RETRANSMISSION;
    while condition.lose > 0 && wait <= RETRANSMISSION_MAX && strikes(condition.lose) {
        total += wait;
        wait *= 2;
    }
    if let Some((percent, delay)) = condition.reorder
        && strikes(percent)
    {
        total += delay;
    }
    total
}

/// Waits for both directions. A reset of either ends the connection at once.
pub(super) async fn both(
    forward: impl Future<Output = Ending>,
    backward: impl Future<Output = Ending>,
) -> Ending {
    let (mut forward, mut backward) = (pin!(forward), pin!(backward));
    let first = tokio::select! {
        ending = &mut forward => (ending, true),
        ending = &mut backward => (ending, false),
    };
    match first {
        (Ending::Reset, _) => Ending::Reset,
        (Ending::Closed, true) => backward.await,
        (Ending::Closed, false) => forward.await,
    }
}

/// Carries bytes from `reader` to `writer` as `wire` lets them, until an end or a reset has been delivered.
pub(super) async fn pump(
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    wire: &Wire,
) -> Ending {
    let mut rng = Rng::from_seed(STREAMS.fetch_add(1, Ordering::Relaxed));
    let mut watch = wire.watch();
    let mut queue = Queue::default();
    let mut buffer = vec![0; BUFFER_LENGTH];
    loop {
        let condition = *watch.borrow_and_update();
        let due = queue.due(&condition);
        tokio::select! {
            biased;
            changed = watch.changed() => if changed.is_err() {
                return Ending::Reset;
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some(cargo) = queue.pop() else { continue };
                if let Some(ending) = deliver(&mut writer, cargo, wire).await {
                    return ending;
                }
            }
            read = reader.read(&mut buffer), if queue.has_room(&condition) => {
                // The link may have changed while this waited.
                let condition = *watch.borrow();
                let at_once = queue.parcels.is_empty() && condition.is_whole();
                match read {
                    Ok(length) if length > 0 && at_once => {
                        if write(&mut writer, &buffer[..length], wire).await.is_err() {
                            return Ending::Closed;
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

/// Makes a parcel of what a read brought.
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

/// Hands one parcel to the receiver; says how the direction ends if it does.
async fn deliver(writer: &mut WriteHalf<'_>, cargo: Cargo, wire: &Wire) -> Option<Ending> {
    match cargo {
        Cargo::Bytes(bytes) => match write(writer, &bytes, wire).await {
            Ok(()) => None,
            Err(_) => Some(Ending::Closed),
        },
        Cargo::End => {
            let _ = writer.shutdown().await;
            Some(Ending::Closed)
        }
        Cargo::Reset => Some(Ending::Reset),
    }
}

/// A write that fails means that the receiver is gone; the sender learns it from the other direction.
async fn write(writer: &mut WriteHalf<'_>, bytes: &[u8], wire: &Wire) -> io::Result<()> {
    writer.write_all(bytes).await?;
    wire.count_passed(bytes.len());
    Ok(())
}
