//! Threads that run what they are given.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// A folder puts in as many as it has threads at most.
    work: VecDeque<Work>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut queue = self.lock();
            let work = loop {
                if let Some(work) = queue.work.pop_front() {
                    break work;
                }
                if queue.closed {
                    return;
                }
                let waited = self.filled.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            work();
        }
    }
}

/// A fixed number of threads. They end when this is dropped and what was put in is done.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts so many threads.
    pub(super) fn new(threads: usize) -> Workers {
        let shared = Arc::new(Shared::default());
        for _ in 0..threads {
            let shared = shared.clone();
            std::thread::spawn(move || shared.run());
        }
        Workers { shared }
    }

    /// Has `work` run once a thread is free.
    pub(super) fn spawn(&self, work: Work) {
        self.shared.lock().work.push_back(work);
        self.shared.filled.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_all();
    }
}
