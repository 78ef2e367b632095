//! Ctrl-C and SIGTERM: the first asks to end in good order, the second ends at once.

use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// What shells report for a program that Ctrl-C ended.
const STATUS_INTERRUPTED: i32 = 130;

/// Was the program asked to end?
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on signals are noticed; the first also calls `act`, on a thread of its own.
    pub(crate) fn listen(act: impl FnOnce() + Send + 'static) -> Result<Interrupt> {
        let told = Arc::new(AtomicBool::new(false));
        let mine = told.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("signals cannot be listened to")?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            )
        };
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let mut next = async || {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                };
                next().await;
                mine.store(true, Ordering::Release);
                act();
                next().await;
                std::process::exit(STATUS_INTERRUPTED);
            });
        });
        Ok(Interrupt(told))
    }

    /// Has a signal come?
    pub(crate) fn told(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
