//! A timer with the kernel's precision, for the driver.

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes the driver at a time, with the precision of a timerfd. The runtime's own timers have a resolution of 1 ms: at 2,000
/// operations per second they would begin operations in pairs.
///
/// It is set only to an earlier time than it is set to already, so its user may be woken early. In a loop whose deadlines move
/// forward (the age of a batch) it costs one system call each time that the earliest of them is reached.
pub(crate) struct Timer {
    file: AsyncFd<OwnedFd>,
    /// The time that it is set to; `None`: it is not set.
    set_to: Option<Instant>,
}

impl Timer {
    /// An unset timer. Panics outside of a runtime.
    #[expect(
        unsafe_code,
        reason = "the runtime has no safe way to wait for a file that is no socket and no pipe"
    )]
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` is open and the same descriptor as long as it lives, and it lives as long as what owns it.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Timer {
            file: file.map_err(|error| error.into_parts().1)?,
            set_to: None,
        })
    }

    /// Returns at `deadline`, or earlier.
    pub(crate) async fn sleep_until(&mut self, deadline: Instant) {
        if self.set_to.is_none_or(|earlier| earlier > deadline) && !self.set(deadline) {
            return; // the deadline has passed, or the timer failed: the caller polls without a pause
        }
        if let Ok(mut ready) = self.file.readable().await {
            ready.clear_ready();
        }
        self.set_to = None;
    }

    /// Sets it, which also clears an earlier expiration. False if the deadline has passed or the kernel refuses.
    fn set(&mut self, deadline: Instant) -> bool {
        let wait = deadline.saturating_duration_since(Instant::now());
        let value = Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        // A value of zero would disarm the timer.
        let is_set = !wait.is_zero() && self.settime(value).is_ok();
        self.set_to = is_set.then_some(deadline);
        is_set
    }

    fn settime(&self, it_value: Timespec) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value,
        };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_goes_off_in_time_and_can_be_set_again() {
        let mut timer = Timer::new().unwrap();
        let mut late = Vec::new();
        for microseconds in [0, 100, 3_000, 250, 700] {
            let deadline = Instant::now() + Duration::from_micros(microseconds);
            timer.sleep_until(deadline).await;
            let now = Instant::now();
            assert!(now >= deadline, "{microseconds} µs: early");
            late.push(now - deadline);
        }
        late.sort();
        assert!(late[2] < Duration::from_micros(900), "{late:?}");
    }

    #[tokio::test]
    async fn an_earlier_deadline_replaces_a_later_one() {
        let mut timer = Timer::new().unwrap();
        let began = Instant::now();
        let later = began + Duration::from_mins(1);
        let early = began + Duration::from_millis(5);
        tokio::select! {
            () = timer.sleep_until(later) => panic!("a minute has passed"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        timer.sleep_until(early).await;
        assert!(began.elapsed() >= Duration::from_millis(5));
        // A wait that was dropped leaves the timer set: its user is woken early.
        tokio::select! {
            () = timer.sleep_until(began + Duration::from_millis(20)) => panic!("too early"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        timer.sleep_until(later).await;
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
