//! The end of a server process.

use tokio::signal::unix::{SignalKind, signal};

/// Done when SIGTERM or SIGINT (Ctrl-C) has come. Must be polled within a runtime that has signals.
///
/// From its first poll on, SIGXFSZ is ignored: a write beyond the largest allowed file is then an error, as on a full disk,
/// instead of a signal that kills.
pub async fn terminated() {
    let _full = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        // Then only SIGKILL ends it, which it survives as well.
        _ => std::future::pending().await,
    }
}
