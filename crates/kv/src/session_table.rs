//! Sessions in the replicated state: exactly-once execution of requests.

use bytes::Bytes;
use imbl::OrdMap;
use seatrial_kv_protocol::message::WINDOW;
use seatrial_machine::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Sessions of a state. Like all limits here it is part of what a command means, so it is equal on all replicas.
pub(crate) const SESSIONS_MAX: usize = 4_096;
/// A session is kept for at least this long after its last request.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(10);
/// A longer reply is not remembered.
pub(crate) const REPLY_LENGTH_MAX: usize = 64 << 10;
/// Bytes of replies that one session may have remembered.
pub(crate) const SESSION_REPLIES_LENGTH_MAX: usize = 1 << 20;
/// Bytes of replies that all sessions together may have remembered.
pub(crate) const REPLIES_LENGTH_MAX: usize = 64 << 20;

/// Decides whether a delivery of a request is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Execute: the first delivery.
    First,
    /// Do not execute: an earlier delivery was executed, or the client has finished the request. Its reply, if remembered.
    Repeated(Option<Bytes>),
    /// Refuse: the session was never opened, or is closed.
    UnknownSession,
}

/// The sessions of a state, changed by commands alone. Ids count upwards and are never given out again, so a request that
/// outlives its session is never taken for a new one.
///
/// Per session it keeps the highest request id, one bit for each of the 128 ids up to it, and the replies that the client has not
/// acknowledged. The client keeps its requests under way within that window, and acknowledges with each request all ids below
/// its oldest unfinished one.
///
/// Time is that of the commands; a command from the past counts as one of the newest time so far. A session that was silent for
/// [`IDLE_MIN`] loses its place when [`SESSIONS_MAX`] others are there.
///
/// Cloned in constant time with the state: entries are shared, and copied when they change while a snapshot is alive.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    next: u64,
    clock: Time,
    table: OrdMap<u64, Arc<SessionEntry>>,
    /// Bytes of all remembered replies.
    replies_length: usize,
    /// Before this time no session of the full table is idle. Only saves the search: it depends on when someone asked, so it is
    /// not part of the state.
    full_until: Time,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionEntry {
    /// The highest request id received.
    pub(crate) highest: u64,
    /// Bit k: id `highest - k` was received.
    pub(crate) received: u128,
    /// Time of the opening or of the last request.
    pub(crate) heard: Time,
    /// The client has finished every id below this.
    pub(crate) acknowledged: u64,
    /// Replies by ascending request id.
    pub(crate) replies: VecDeque<(u64, Bytes)>,
    /// Bytes of those replies.
    pub(crate) replies_length: usize,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            next: 1,
            clock: Time::ZERO,
            table: OrdMap::new(),
            replies_length: 0,
            full_until: Time::ZERO,
        }
    }
}

impl Sessions {
    /// The table of a checkpoint. `next` and `clock` are those of the table that the entries come from.
    pub(crate) fn restore(next: u64, clock: Time) -> Sessions {
        Sessions {
            next,
            clock,
            ..Sessions::default()
        }
    }

    /// Adds a session of a checkpoint; an error names what no table contains. Ids ascend.
    pub(crate) fn restore_session(
        &mut self,
        session: u64,
        entry: SessionEntry,
    ) -> Result<(), &'static str> {
        let last = self.table.get_max().map_or(0, |(last, _)| *last);
        if session <= last || session >= self.next {
            return Err("id of a session out of order");
        }
        if self.table.len() == SESSIONS_MAX {
            return Err("more sessions than a state has");
        }
        entry.check(self.clock)?;
        self.replies_length += entry.replies_length;
        if self.replies_length > REPLIES_LENGTH_MAX {
            return Err("more bytes of replies than a state has");
        }
        self.table.insert(session, Arc::new(entry));
        Ok(())
    }

    /// Have two tables the same sessions? (Their commands may have searched at different times.)
    pub(crate) fn is_same(&self, other: &Sessions) -> bool {
        let fields = |it: &Sessions| (it.next, it.clock, it.replies_length);
        fields(self) == fields(other) && self.table == other.table
    }

    /// Number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The id of the next session.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The latest time of a command.
    pub(crate) fn clock(&self) -> Time {
        self.clock
    }

    /// The sessions with ids after `after`, in order. Finding the first takes O(log n).
    pub(crate) fn after(&self, after: u64) -> impl Iterator<Item = (u64, &SessionEntry)> {
        let range = self.table.range(after.saturating_add(1)..);
        range.map(|(session, entry)| (*session, &**entry))
    }

    /// Opens a session; `None` if all places are taken by sessions that were heard less than [`IDLE_MIN`] ago.
    pub(crate) fn open(&mut self, now: Time) -> Option<u64> {
        let now = self.advance(now);
        let next = self.next.checked_add(1)?;
        if self.table.len() >= SESSIONS_MAX {
            let idle = self.idle(now)?;
            self.close(idle);
        }
        let entry = SessionEntry {
            highest: 0,
            received: 1, // id 0, which no request has
            heard: now,
            acknowledged: 0,
            replies: VecDeque::new(),
            replies_length: 0,
        };
        let session = std::mem::replace(&mut self.next, next);
        self.table.insert(session, Arc::new(entry));
        Some(session)
    }

    /// Closes a session, if it is open.
    pub(crate) fn close(&mut self, session: u64) {
        if let Some(entry) = self.table.remove(&session) {
            self.replies_length -= entry.replies_length;
        }
    }

    /// The session to replace in a full table: the one that was silent longest, if that is long enough; O(n), or O(1) if it is
    /// known that all were heard.
    fn idle(&mut self, now: Time) -> Option<u64> {
        if now < self.full_until {
            return None;
        }
        // On a tie the lowest id: the order of the table decides, which all replicas share.
        let (session, entry) = self.table.iter().min_by_key(|(_, entry)| entry.heard)?;
        if now.since(entry.heard) < IDLE_MIN {
            // Times of requests only grow, so nothing becomes idle before this one would.
            self.full_until = entry.heard + IDLE_MIN;
            return None;
        }
        Some(*session)
    }

    /// The time of a command that was stamped with `now`.
    fn advance(&mut self, now: Time) -> Time {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Decides on one applied request. `acknowledged`: every id below it is finished at its client, so remembered replies below
    /// it are dropped, and what arrives of them later is not executed.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        session: u64,
        request: u64,
        acknowledged: u64,
        now: Time,
    ) -> Admission {
        let now = self.advance(now);
        let Some(entry) = self.table.get_mut(&session) else {
            return Admission::UnknownSession;
        };
        let entry = Arc::make_mut(entry);
        entry.heard = now;
        let before = entry.replies_length;
        let is_first = entry.admit(request, acknowledged);
        self.replies_length -= before - entry.replies_length;
        if is_first {
            Admission::First
        } else {
            Admission::Repeated(entry.reply(request).cloned())
        }
    }

    /// Remembers the reply to a request that was admitted as the first of its id, if the limits allow it.
    pub(crate) fn remember(&mut self, session: u64, request: u64, reply: Bytes) {
        let length = reply.len();
        let fits = |held: usize, max: usize| held + length <= max;
        if length > REPLY_LENGTH_MAX || !fits(self.replies_length, REPLIES_LENGTH_MAX) {
            return;
        }
        let Some(entry) = self.table.get_mut(&session) else {
            return;
        };
        if fits(entry.replies_length, SESSION_REPLIES_LENGTH_MAX)
            && Arc::make_mut(entry).remember(request, reply)
        {
            self.replies_length += length;
        }
    }
}

impl SessionEntry {
    /// Drops what is acknowledged and what leaves the window; true if this id is new, within the window and not finished.
    #[inline]
    fn admit(&mut self, request: u64, acknowledged: u64) -> bool {
        // An id above its own request would be a claim about the future.
        self.acknowledged = self.acknowledged.max(acknowledged.min(request));
        let is_new = self.receive(request) && request >= self.acknowledged;
        let oldest = self
            .acknowledged
            .max(self.highest.saturating_sub(WINDOW - 1));
        while let Some((_, reply)) = self.replies.pop_front_if(|(id, _)| *id < oldest) {
            self.replies_length -= reply.len();
        }
        is_new
    }

    /// Marks an id as received; true if it was not and lies within the window.
    #[inline]
    fn receive(&mut self, request: u64) -> bool {
        if let Some(ahead) = request.checked_sub(self.highest).filter(|&ahead| ahead > 0) {
            self.received = if ahead < WINDOW {
                self.received << ahead
            } else {
                0
            };
            self.received |= 1;
            self.highest = request;
            return true;
        }
        let age = self.highest - request;
        if age >= WINDOW || self.received >> age & 1 == 1 {
            return false;
        }
        self.received |= 1 << age;
        true
    }

    /// The remembered reply to a request.
    fn reply(&self, request: u64) -> Option<&Bytes> {
        let place = self.replies.binary_search_by_key(&request, |(id, _)| *id);
        place.ok().map(|place| &self.replies[place].1)
    }

    /// Adds a reply; false if there is one, or the request is not within the window.
    fn remember(&mut self, request: u64, reply: Bytes) -> bool {
        if !self.may_remember(request) {
            return false;
        }
        let Err(place) = self.replies.binary_search_by_key(&request, |(id, _)| *id) else {
            return false;
        };
        self.replies_length += reply.len();
        self.replies.insert(place, (request, reply));
        true
    }

    /// Was this id received, is it within the window and not acknowledged?
    fn may_remember(&self, request: u64) -> bool {
        let age = self.highest.checked_sub(request);
        let is_received = age.is_some_and(|age| age < WINDOW && self.received >> age & 1 == 1);
        is_received && request >= self.acknowledged
    }

    /// Names what no entry of a table with this clock contains.
    pub(crate) fn check(&self, clock: Time) -> Result<(), &'static str> {
        let ids = self.replies.iter().map(|(id, _)| *id);
        let longest = self.replies.iter().map(|(_, reply)| reply.len()).max();
        let lengths = self.replies.iter().map(|(_, reply)| reply.len());
        let conditions = [
            (self.received & 1 == 1, "highest id that was not received"),
            (
                self.highest >= WINDOW || self.received >> self.highest == 1,
                "received id below the first",
            ),
            (self.heard <= clock, "session heard in the future"),
            (
                self.acknowledged <= self.highest,
                "acknowledged id above the highest",
            ),
            (
                ids.clone().is_sorted_by(|one, next| one < next),
                "replies out of order",
            ),
            (
                ids.clone().all(|id| self.may_remember(id)),
                "reply outside of the window",
            ),
            (
                longest.is_none_or(|length| length <= REPLY_LENGTH_MAX),
                "reply over the limit",
            ),
            (
                self.replies_length == lengths.sum::<usize>(),
                "length of the replies",
            ),
            (
                self.replies_length <= SESSION_REPLIES_LENGTH_MAX,
                "replies over the limit",
            ),
        ];
        match conditions.iter().find(|(holds, _)| !holds) {
            Some((_, problem)) => Err(problem),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// Asserts the invariants of the table.
    pub(crate) fn check_invariants(&self) {
        assert!(self.table.len() <= SESSIONS_MAX);
        let mut length = 0;
        for (session, entry) in &self.table {
            assert!(*session > 0 && *session < self.next);
            entry.check(self.clock).unwrap();
            length += entry.replies_length;
        }
        assert_eq!(length, self.replies_length);
        assert!(length <= REPLIES_LENGTH_MAX);
    }
}

#[cfg(test)]
impl PartialEq for Sessions {
    fn eq(&self, other: &Sessions) -> bool {
        self.is_same(other)
    }
}

#[cfg(test)]
mod tests;
