//! The time limit of a client's requests.

use seatrial_runner::MovingTimer;
use std::io;
use std::time::Duration;

/// The time limit of one request after the other, for a client that makes very many.
#[derive(Debug)]
pub struct ReplyLimit {
    limit: Duration,
    timer: MovingTimer,
}

impl ReplyLimit {
    /// Each request has this long.
    pub fn new(limit: Duration) -> ReplyLimit {
        ReplyLimit {
            limit,
            timer: MovingTimer::default(),
        }
    }

    /// The result of `doing`; an error of the kind `TimedOut` if it takes longer than the limit. Needs the runtime of tokio.
    pub async fn hold<T>(&mut self, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let held = self.timer.limit(self.limit, doing).await;
        held.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test says where")]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test]
    async fn each_request_has_the_whole_limit() {
        let limit = Duration::from_millis(750);
        let mut held = ReplyLimit::new(limit);
        for _ in 0..2 {
            let done = held.hold(async {
                sleep(limit * 3 / 5).await;
                Ok(7)
            });
            assert_eq!(done.await.unwrap(), 7);
        }
        let began = Instant::now();
        let late = held.hold(std::future::pending::<io::Result<()>>()).await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limit);
    }
}
