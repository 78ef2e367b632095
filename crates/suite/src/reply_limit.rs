//! The time limit of a client's requests.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The time limit of one request after the other, for a client that makes very many.
///
/// It has one timer, which is moved when it expires and not for each request: arming and removing a timer would be a good part
/// of what a request costs.
pub struct ReplyLimit {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl ReplyLimit {
    /// Each request has this long. Needs the runtime of tokio.
    pub fn new(limit: Duration) -> ReplyLimit {
        ReplyLimit {
            limit,
            timer: Box::pin(sleep(limit)),
        }
    }

    /// The result of `doing`; an error of the kind `TimedOut` if it takes longer than the limit.
    pub async fn hold<T>(&mut self, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let deadline = Instant::now() + self.limit;
        let mut doing = pin!(doing);
        poll_fn(|context| {
            if let Poll::Ready(done) = doing.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            // An expiration of an earlier request's deadline only moves the timer.
            while self.timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                self.timer.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

impl fmt::Debug for ReplyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReplyLimit").field(&self.limit).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test says where")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_request_has_the_whole_limit() {
        let limit = Duration::from_millis(1_500);
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
