//! When nodes wrote checkpoints during a run, from their status.

use crate::tools::StoreSession;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Asks all nodes for their status again and again, on a thread of its own.
pub(crate) struct CheckpointSampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<CheckpointTimes>,
}

/// The seconds in which a checkpoint was being written, and the number of checkpoints made meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointTimes {
    pub(crate) seconds: Vec<bool>,
    pub(crate) made: u64,
}

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(200);

impl CheckpointSampler {
    /// Samples `seconds` seconds from `began` on.
    pub(crate) fn start(session: StoreSession, began: Instant, seconds: u64) -> CheckpointSampler {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || sample(&session, began, seconds, &over));
        CheckpointSampler { is_over, thread }
    }

    /// What was found.
    pub(crate) fn finish(self) -> CheckpointTimes {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn sample(
    session: &StoreSession,
    began: Instant,
    seconds: u64,
    over: &AtomicBool,
) -> CheckpointTimes {
    let mut times = CheckpointTimes {
        seconds: vec![false; seconds as usize],
        made: 0,
    };
    let Ok(runtime) = crate::tools::runtime() else {
        return times;
    };
    // Of each node: its start, the number of checkpoints it had made, and when that was asked.
    let mut last = vec![None; session.servers.len()];
    while !over.load(Ordering::Relaxed) {
        for (last, address) in last.iter_mut().zip(&session.servers) {
            let asked = Instant::now();
            let Ok(status) = runtime.block_on(session.status_of(*address)) else {
                continue;
            };
            let now = (status.start, status.checkpoints.made);
            if let Some((before, since)) = last.replace((now, asked))
                && before.0 == now.0
            {
                // A node that blocks does not answer while it writes: the whole time since the last answer counts.
                let more = now.1.saturating_sub(before.1);
                if more > 0 && asked >= began {
                    times.made += more;
                }
                if more > 0 || status.checkpoints.writing.is_some() {
                    times.mark(began, since);
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
    times
}

impl CheckpointTimes {
    /// Marks the seconds from `since` until now.
    fn mark(&mut self, began: Instant, since: Instant) {
        let Some(end) = Instant::now().checked_duration_since(began) else {
            return;
        };
        let first = since.saturating_duration_since(began).as_secs() as usize;
        let seconds = self.seconds.iter_mut().enumerate();
        let marked =
            seconds.filter(|(second, _)| (first..=end.as_secs() as usize).contains(second));
        marked.for_each(|(_, is_in)| *is_in = true);
    }
}
