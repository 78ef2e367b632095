//! The status of a server over HTTP: a page, metrics for Prometheus, and JSON.
//!
//! ```text
//!  MachineServer ── once a second: StatusSheet ──► StatusBoard ◄── thread "status": GET /, /metrics, /status.json
//! ```
//!
//! The machine's thread describes itself between turns, however many ask; requests are answered from the last description on a
//! thread of their own, so a client that is slow, or sends anything, costs the machine nothing.

mod chart_history;
mod metrics_text;
mod process_figures;
mod requests;
mod status_json;
mod status_page;

use crate::HostError;
use chart_history::ChartHistory;
pub(crate) use process_figures::describe as describe_process;
use seatrial_machine::StatusSheet;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::{Interval, MissedTickBehavior};

/// Interval between two descriptions of a machine.
const INTERVAL: Duration = Duration::from_secs(1);

/// When a machine describes itself. A late description delays the next ones: there is never more than one in an interval.
pub(crate) fn ticks() -> Interval {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A listening socket for the status of one server. What it shows is for everyone who can connect: it has no key, no
/// encryption, and no data of the machine's clients.
#[derive(Clone, Debug)]
pub struct StatusListener {
    listener: Arc<TcpListener>,
    address: SocketAddr,
    title: String,
}

impl StatusListener {
    /// Listens on an address; port 0 chooses a free one. `title` is the heading of the page, such as `kv n1`.
    pub fn bind(address: SocketAddr, title: &str) -> Result<StatusListener, HostError> {
        let failed = |error| HostError::Listen { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().is_loopback() {
            tracing::warn!("the status page is readable by everyone who can reach {address}");
        }
        Ok(StatusListener {
            listener: Arc::new(listener),
            address,
            title: title.to_owned(),
        })
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The last description of a machine, and the values of its charts.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    title: String,
    began: Instant,
    contents: Mutex<BoardContents>,
}

#[derive(Debug, Default)]
struct BoardContents {
    sheet: Arc<StatusSheet>,
    history: ChartHistory,
    /// When the machine described itself last; `None`: not yet.
    described: Option<Instant>,
}

impl StatusBoard {
    fn new(title: String) -> StatusBoard {
        StatusBoard {
            title,
            began: Instant::now(),
            contents: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BoardContents> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the description, and adds a value to each line of its charts.
    pub(crate) fn update(&self, sheet: StatusSheet) {
        let mut contents = self.lock();
        let now = Instant::now();
        let elapsed = contents.described.map(|last| now - last);
        let before = Arc::clone(&contents.sheet);
        let elapsed = elapsed.unwrap_or_default();
        contents.history.add(&before, &sheet, elapsed);
        contents.sheet = Arc::new(sheet);
        contents.described = Some(now);
    }

    /// What to show now.
    fn view(&self) -> StatusView {
        let contents = self.lock();
        StatusView {
            title: self.title.clone(),
            uptime: self.began.elapsed(),
            age: contents.described.map(|it| it.elapsed()),
            sheet: Arc::clone(&contents.sheet),
            history: contents.history.clone(),
        }
    }
}

/// What one reply shows.
struct StatusView {
    title: String,
    /// Time since the start.
    uptime: Duration,
    /// Time since the machine described itself; `None`: it has not yet.
    age: Option<Duration>,
    sheet: Arc<StatusSheet>,
    history: ChartHistory,
}

/// The thread that replies to requests. Dropping it ends all connections and the thread.
pub(crate) struct StatusThread {
    pub(crate) board: Arc<StatusBoard>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusThread {
    /// Begins to reply.
    pub(crate) fn start(options: &StatusListener) -> Result<StatusThread, HostError> {
        let failed = |error| HostError::Listen {
            address: options.address,
            error,
        };
        let listener = options.listener.try_clone().map_err(failed)?;
        let board = Arc::new(StatusBoard::new(options.title.clone()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(HostError::Runtime)?;
        let (stop, stopped) = oneshot::channel();
        let shown = Arc::clone(&board);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    result = requests::serve(listener, shown) => if let Err(error) = result {
                        tracing::error!("the status page has ended: {error}");
                    },
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("status".to_owned());
        let thread = Some(thread.spawn(run).map_err(HostError::Thread)?);
        tracing::info!("status page at http://{}/", options.address);
        Ok(StatusThread {
            board,
            stop: Some(stop),
            thread,
        })
    }
}

impl Drop for StatusThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was printed by the thread
        }
    }
}

/// A duration in seconds.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of a sheet without a history.
    pub(super) fn view_of(sheet: StatusSheet) -> StatusView {
        let board = StatusBoard::new("a machine".to_owned());
        board.update(sheet);
        board.view()
    }

    #[test]
    fn a_board_without_a_description_has_every_reply() {
        let board = StatusBoard::new("early".to_owned());
        assert_eq!(board.view().age, None);
        assert!(status_page::render(&board.view()).contains("<h1>early</h1>"));
        assert_eq!(metrics_text::render(&board.view()), "");
        let document: serde_json::Value =
            serde_json::from_str(&status_json::render(&board.view())).unwrap();
        assert_eq!(document["age-seconds"], serde_json::Value::Null);
    }
}
