//! One timer for many time limits, one after the other.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A timer for limits that follow each other and are rarely reached: those of a worker's operations, of a client's requests.
///
/// It is moved only when it expires before the end of the limit under way, not for each limit: setting and clearing a timer costs
/// as much as the rest of a worker. Needs the runtime of tokio.
#[derive(Debug, Default)]
pub struct MovingTimer(Option<Pin<Box<Sleep>>>);

impl MovingTimer {
    /// The result of `doing`; `None` if it takes longer than `limit`.
    pub async fn limit<T>(&mut self, limit: Duration, doing: impl Future<Output = T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(limit)));
        let mut doing = pin!(doing);
        poll_fn(|context| {
            if let Poll::Ready(done) = doing.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            // The end of an earlier limit only moves the timer.
            while timer.as_mut().poll(context).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer that was set for an earlier limit goes off for none that has time left.
    #[tokio::test]
    async fn each_limit_is_whole() {
        let mut timer = MovingTimer::default();
        let limit = Duration::from_millis(200);
        for _ in 0..5 {
            let done = timer.limit(limit, sleep(Duration::from_millis(70))).await;
            assert_eq!(done, Some(()));
        }
        let never = std::future::pending::<()>;
        for limit in [limit, Duration::from_millis(20), limit] {
            let began = Instant::now();
            assert_eq!(timer.limit(limit, never()).await, None);
            let took = began.elapsed();
            assert!(
                took >= limit && took < limit + Duration::from_secs(5),
                "{took:?}"
            );
        }
    }
}
