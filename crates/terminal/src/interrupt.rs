//! Ctrl-C, SIGTERM, SIGHUP and SIGQUIT: the first asks to end in good order, the second ends at once.

use anyhow::{Context as _, Result};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What shells report for a program that Ctrl-C ended.
const STATUS_INTERRUPTED: i32 = 130;

/// Descriptors that a runtime with signals needs and, without them, panics: a pair of sockets, copies of them.
const DESCRIPTORS: usize = 8;

/// Fails when this process may not open the descriptors for signals.
fn check_descriptors() -> io::Result<()> {
    // Copies of one that is open: an empty root has no file to open.
    let copies = (0..DESCRIPTORS).map(|_| io::stderr().as_fd().try_clone_to_owned());
    let opened: io::Result<Vec<OwnedFd>> = copies.collect();
    opened.map(drop).map_err(|error| {
        let text = format!("{DESCRIPTORS} more files cannot be opened: {error}; see `ulimit -n`");
        io::Error::new(error.kind(), text)
    })
}

/// The runtime of a thread that waits for signals.
pub fn signal_runtime() -> Result<Runtime> {
    check_descriptors()
        .and_then(|()| Builder::new_current_thread().enable_io().build())
        .context("signals cannot be listened to")
}

/// The signals that ask a program to end: Ctrl-C, SIGTERM, a terminal that is gone (SIGHUP), Ctrl-\\ (SIGQUIT).
pub struct Signals([Signal; 4]);

impl Signals {
    /// From now on these signals are noticed instead of killing the process. Called inside a runtime.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ]))
    }

    /// Returns when one of them has come.
    pub async fn next(&mut self) {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// Was the program asked to end?
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals are noticed; the first also calls `act`, on a thread of its own.
    pub fn listen(act: impl FnOnce() + Send + 'static) -> Result<Interrupt> {
        let requested = Arc::new(AtomicBool::new(false));
        let mine = requested.clone();
        let runtime = signal_runtime()?;
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen()?
        };
        let thread = std::thread::Builder::new().name("signals".into());
        let wait = move || {
            runtime.block_on(async move {
                signals.next().await;
                mine.store(true, Ordering::Release);
                act();
                signals.next().await;
                std::process::exit(STATUS_INTERRUPTED);
            });
        };
        thread.spawn(wait).context("no thread for signals")?;
        Ok(Interrupt(requested))
    }

    /// Has a signal come?
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
