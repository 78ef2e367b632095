//! The termination signals of a server process.

use tokio::signal::unix::{SignalKind, signal};

/// Completes when SIGTERM or SIGINT (Ctrl-C) arrives. Must be polled within a runtime that has signals.
///
/// From its first poll on, SIGXFSZ is ignored: a write past the maximum file length then fails like one on a full disk, instead
/// of killing the process.
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
        // Without handlers only SIGKILL ends the process, from which it recovers as well.
        _ => std::future::pending().await,
    }
}
