//! Sessions of one start of a server: at-most-once execution of requests.

use crate::message::WINDOW;
use crate::session::Admission;
use seatrial_machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// The sessions of one incarnation of the server. A session's number is never given out again within an incarnation,
/// and its id contains the incarnation, which is counted durably; so a request that outlives its session, by a restart
/// or because the session made room for another, can never be taken for a new one.
///
/// Per session it keeps the highest request id and one bit for each of the 128 ids up to it; the client keeps its
/// requests under way within that window. Its downside: a session that was silent for long may lose its place when
/// more than `count_max` clients are there, and what it had under way becomes unknown to its client.
#[derive(Debug)]
pub(crate) struct IncarnationSessions {
    incarnation: u32,
    next: u32,
    count_max: usize,
    idle_min: Duration,
    table: BTreeMap<u32, ReceivedIds>,
}

#[derive(Debug)]
struct ReceivedIds {
    /// The highest request id received.
    highest: u64,
    /// Bit k: id `highest - k` was received.
    seen: u128,
    /// Time of the last message.
    heard: Time,
}

impl IncarnationSessions {
    /// A table without sessions.
    pub(crate) fn new(
        incarnation: u32,
        count_max: usize,
        idle_min: Duration,
    ) -> IncarnationSessions {
        IncarnationSessions {
            incarnation,
            next: 1,
            count_max,
            idle_min,
            table: BTreeMap::new(),
        }
    }

    /// Opens a session; `None` if all places are taken by clients that were active recently.
    pub(crate) fn open(&mut self, now: Time) -> Option<u64> {
        if self.table.len() >= self.count_max {
            let idlest = self.table.iter().min_by_key(|(_, session)| session.heard);
            let (&number, session) = idlest?;
            if now.since(session.heard) < self.idle_min {
                return None;
            }
            self.table.remove(&number);
        }
        let number = self.next;
        self.next = number.checked_add(1)?;
        let session = ReceivedIds {
            highest: 0,
            seen: 1,
            heard: now,
        };
        self.table.insert(number, session);
        Some(u64::from(self.incarnation) << 32 | u64::from(number))
    }

    /// Records one delivery of a request and decides whether it is executed.
    #[inline]
    pub(crate) fn admit(&mut self, session: u64, request: u64, now: Time) -> Admission {
        if (session >> 32) as u32 != self.incarnation {
            return Admission::UnknownSession;
        }
        let Some(session) = self.table.get_mut(&(session as u32)) else {
            return Admission::UnknownSession;
        };
        session.heard = now;
        if session.admit(request) {
            Admission::First
        } else {
            Admission::Repeated(None)
        }
    }
}

impl ReceivedIds {
    /// True if this id is new and within the window.
    #[inline]
    fn admit(&mut self, request: u64) -> bool {
        if let Some(ahead) = request.checked_sub(self.highest).filter(|&ahead| ahead > 0) {
            self.seen = if ahead < WINDOW {
                self.seen << ahead
            } else {
                0
            };
            self.seen |= 1;
            self.highest = request;
            return true;
        }
        let age = self.highest - request;
        if age >= WINDOW || self.seen >> age & 1 == 1 {
            return false;
        }
        self.seen |= 1 << age;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;
    use std::collections::BTreeSet;

    fn sessions() -> IncarnationSessions {
        IncarnationSessions::new(3, 4, Duration::from_secs(10))
    }

    #[test]
    fn within_the_window_each_id_is_admitted_once_in_any_order() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut sessions = sessions();
            let session = sessions.open(Time::ZERO).unwrap();
            let mut seen = BTreeSet::new();
            let mut highest = 0;
            for _ in 0..600 {
                let jump = if rng.chance(0.02) { 300 } else { 6 };
                let request = (highest + rng.below(jump)).saturating_sub(rng.below(200));
                let in_window = request > 0 && request + WINDOW > highest;
                let first = in_window && seen.insert(request);
                highest = highest.max(request);
                let expected = if first {
                    Admission::First
                } else {
                    Admission::Repeated(None)
                };
                let found = sessions.admit(session, request, Time::ZERO);
                assert_eq!(found, expected, "seed {seed}, request {request}");
            }
        }
    }

    #[test]
    fn another_incarnation_knows_no_session() {
        let session = sessions().open(Time::ZERO).unwrap();
        let mut next = IncarnationSessions::new(4, 4, Duration::ZERO);
        next.open(Time::ZERO).unwrap();
        let admission = next.admit(session, 1, Time::ZERO);
        assert_eq!(admission, Admission::UnknownSession);
    }

    #[test]
    fn a_session_gives_way_only_after_a_silence_and_never_comes_back() {
        let mut sessions = sessions();
        let at = Time::from_milliseconds;
        let ids: Vec<u64> = (0..4).map(|n| sessions.open(at(n)).unwrap()).collect();
        sessions.admit(ids[0], 1, at(5_000));
        assert_eq!(sessions.open(at(9_000)), None);
        let fifth = sessions.open(at(10_001)).unwrap();
        assert!(!ids.contains(&fifth));
        let admission = sessions.admit(ids[1], 1, at(10_001));
        assert_eq!(admission, Admission::UnknownSession);
        assert_eq!(sessions.admit(ids[0], 2, at(10_001)), Admission::First);
        let extreme = sessions.admit(ids[0], u64::MAX, at(10_001));
        assert_eq!(extreme, Admission::First);
        assert_eq!(
            sessions.admit(ids[0], 3, at(10_001)),
            Admission::Repeated(None)
        );
    }
}
