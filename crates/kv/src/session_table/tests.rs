use super::*;
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The dumb twin of one session: all ids ever executed, and all replies that were ever offered and fitted.
#[derive(Clone, Debug, Default)]
struct SessionTwin {
    highest: u64,
    acknowledged: u64,
    received: BTreeSet<u64>,
    replies: BTreeMap<u64, usize>,
    heard: u64,
}

impl SessionTwin {
    /// Replies that must still be there.
    fn remembered(&self) -> impl Iterator<Item = (u64, usize)> {
        let is_kept = |id: u64| id >= self.acknowledged && id + WINDOW > self.highest;
        let replies = self.replies.iter().map(|(id, length)| (*id, *length));
        replies.filter(move |(id, _)| is_kept(*id))
    }
}

/// The dumb twin of a table.
#[derive(Clone, Debug, Default)]
struct TableTwin {
    opened: u64,
    clock: u64,
    sessions: BTreeMap<u64, SessionTwin>,
}

impl TableTwin {
    fn total(&self) -> usize {
        let sessions = self.sessions.values().flat_map(|it| it.remembered());
        sessions.map(|(_, length)| length).sum()
    }

    fn admit(&mut self, session: u64, request: u64, acknowledged: u64, now: u64) -> Admission {
        self.clock = self.clock.max(now);
        let Some(twin) = self.sessions.get_mut(&session) else {
            return Admission::UnknownSession;
        };
        twin.heard = self.clock;
        twin.acknowledged = twin.acknowledged.max(acknowledged.min(request));
        let is_old = request == 0 || request + WINDOW <= twin.highest;
        let is_new = !is_old && !twin.received.contains(&request) && request >= twin.acknowledged;
        twin.received.insert(request);
        twin.highest = twin.highest.max(request);
        if is_new {
            return Admission::First;
        }
        let reply = twin.remembered().find(|(id, _)| *id == request);
        Admission::Repeated(reply.map(|(id, length)| reply_of(session, id, length)))
    }

    fn remember(&mut self, session: u64, request: u64, length: usize) {
        let total = self.total();
        let Some(twin) = self.sessions.get_mut(&session) else {
            return;
        };
        let held: usize = twin.remembered().map(|(_, length)| length).sum();
        let fits = length <= REPLY_LENGTH_MAX
            && held + length <= SESSION_REPLIES_LENGTH_MAX
            && total + length <= REPLIES_LENGTH_MAX;
        if fits {
            twin.replies.insert(request, length);
        }
    }
}

/// A reply whose bytes name its request.
fn reply_of(session: u64, request: u64, length: usize) -> Bytes {
    vec![(session * 31 + request) as u8; length].into()
}

fn at(milliseconds: u64) -> Time {
    Time::from_milliseconds(milliseconds)
}

#[test]
fn equals_its_dumb_twin() {
    for seed in 0..120 {
        let mut rng = Rng::from_seed(seed);
        let (mut sessions, mut twin) = (Sessions::default(), TableTwin::default());
        let mut held: Vec<(Sessions, Vec<(u64, SessionEntry)>)> = Vec::new();
        let mut now = 0;
        for step in 0..500 {
            // Sometimes a new leader's clock is behind.
            now = (now + rng.below(20)).saturating_sub(if rng.chance(0.02) { 500 } else { 0 });
            if twin.opened == 0 || rng.chance(0.02) {
                let session = sessions.open(at(now)).unwrap();
                twin.opened += 1;
                twin.clock = twin.clock.max(now);
                assert_eq!(session, twin.opened, "seed {seed}");
                let heard = twin.clock;
                let opened = SessionTwin {
                    heard,
                    ..SessionTwin::default()
                };
                twin.sessions.insert(session, opened);
                continue;
            }
            let session = 1 + rng.below(twin.opened + 1);
            if rng.chance(0.01) {
                sessions.close(session);
                twin.sessions.remove(&session);
                continue;
            }
            let highest = twin.sessions.get(&session).map_or(5, |it| it.highest);
            let jump = if rng.chance(0.02) { 300 } else { 6 };
            let back = if rng.chance(0.5) { 3 } else { 200 };
            let request = (highest + rng.below(jump)).saturating_sub(rng.below(back));
            let acknowledged = (request + 2).saturating_sub(rng.below(140));
            let expected = twin.admit(session, request, acknowledged, now);
            let found = sessions.admit(session, request, acknowledged, at(now));
            assert_eq!(
                found, expected,
                "seed {seed}, step {step}: {session} {request}"
            );
            if found == Admission::First {
                let lengths = [
                    25,
                    25,
                    100,
                    60 << 10,
                    REPLY_LENGTH_MAX,
                    REPLY_LENGTH_MAX + 1,
                ];
                let length = *rng.pick(&lengths);
                twin.remember(session, request, length);
                sessions.remember(session, request, reply_of(session, request, length));
            }
            if rng.chance(0.02) {
                let entries = sessions.after(0).map(|(id, entry)| (id, entry.clone()));
                held.push((sessions.clone(), entries.collect()));
            }
        }
        sessions.check_invariants();
        assert_eq!(sessions.replies_length, twin.total(), "seed {seed}");
        for (snapshot, entries) in held {
            // A snapshot is what it was, and its table comes back from its parts.
            let mut restored = Sessions::restore(snapshot.next(), snapshot.clock());
            for (id, entry) in &entries {
                restored.restore_session(*id, entry.clone()).unwrap();
            }
            assert_eq!(restored, snapshot, "seed {seed}");
        }
    }
}

#[test]
fn within_the_window_each_id_is_admitted_once_in_any_order() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut sessions = Sessions::default();
        let session = sessions.open(Time::ZERO).unwrap();
        let mut seen = BTreeSet::new();
        let mut highest = 0;
        for _ in 0..600 {
            let jump = if rng.chance(0.02) { 300 } else { 6 };
            let request = (highest + rng.below(jump)).saturating_sub(rng.below(200));
            let in_window = request > 0 && request + WINDOW > highest;
            let first = in_window && seen.insert(request);
            highest = highest.max(request);
            let found = sessions.admit(session, request, 0, Time::ZERO);
            assert_eq!(
                found == Admission::First,
                first,
                "seed {seed}, request {request}"
            );
        }
    }
}

#[test]
fn an_acknowledged_request_is_never_executed_again_nor_answered() {
    let mut sessions = Sessions::default();
    let session = sessions.open(Time::ZERO).unwrap();
    let reply = Bytes::from_static(b"reply");
    for request in 1..=3 {
        let admission = sessions.admit(session, request, 1, Time::ZERO);
        assert_eq!(admission, Admission::First);
        sessions.remember(session, request, reply.clone());
    }
    let admission = sessions.admit(session, 2, 1, Time::ZERO);
    assert_eq!(admission, Admission::Repeated(Some(reply.clone())));
    // The client gave up 4 and finished 1 and 2.
    assert_eq!(sessions.admit(session, 5, 5, Time::ZERO), Admission::First);
    for request in [1, 2, 3, 4] {
        let admission = sessions.admit(session, request, 0, Time::ZERO);
        assert_eq!(admission, Admission::Repeated(None), "{request}");
    }
    sessions.check_invariants();
    let extreme = sessions.admit(session, u64::MAX, u64::MAX, Time::ZERO);
    assert_eq!(extreme, Admission::First);
    let admission = sessions.admit(session, 6, 0, Time::ZERO);
    assert_eq!(admission, Admission::Repeated(None));
    sessions.check_invariants();
}

#[test]
fn a_session_gives_way_only_after_a_silence_and_never_comes_back() {
    let mut sessions = Sessions::default();
    for id in 1..=SESSIONS_MAX as u64 {
        assert_eq!(sessions.open(at(id)), Some(id));
    }
    assert_eq!(sessions.admit(1, 1, 1, at(5_000)), Admission::First);
    sessions.remember(1, 1, Bytes::from_static(b"reply"));
    assert_eq!(sessions.open(at(9_000)), None);
    // A clock that lags counts as the newest time so far.
    let next = SESSIONS_MAX as u64 + 1;
    assert_eq!(sessions.open(at(10_002)), Some(next));
    assert_eq!(sessions.open(at(7_000)), None, "the next was heard at 3 ms");
    let admission = sessions.admit(2, 1, 1, at(10_002));
    assert_eq!(admission, Admission::UnknownSession);
    assert_eq!(sessions.admit(1, 2, 1, at(10_002)), Admission::First);
    sessions.close(5);
    sessions.close(5);
    assert_eq!(sessions.open(at(10_002)), Some(next + 1));
    assert_eq!(sessions.len(), SESSIONS_MAX);
    sessions.check_invariants();
}

type Forgery = fn(&mut SessionEntry);

#[test]
fn parts_that_no_table_has_are_refused() {
    let mut sessions = Sessions::default();
    let session = sessions.open(at(1)).unwrap();
    for request in 1..=3 {
        sessions.admit(session, request, 2, at(2));
        sessions.remember(session, request, Bytes::from_static(b"reply"));
    }
    let good = sessions.after(0).next().unwrap().1.clone();
    let forgeries: [(&str, Forgery); 8] = [
        ("highest id", |it| it.received &= !1),
        ("below the first", |it| it.received |= 1 << 90),
        ("future", |it| it.heard = at(3)),
        ("above the highest", |it| it.acknowledged = 4),
        ("out of order", |it| it.replies.swap(0, 1)),
        ("outside", |it| it.acknowledged = 3),
        ("length of the replies", |it| it.replies_length += 1),
        ("over the limit", |it| {
            let long = Bytes::from(vec![0; REPLY_LENGTH_MAX + 1]);
            it.replies_length += long.len() - it.replies[0].1.len();
            it.replies[0].1 = long;
        }),
    ];
    let mut table = Sessions::restore(2, at(2));
    assert_eq!(table.restore_session(1, good.clone()), Ok(()));
    for id in [0, 1, 2] {
        let error = table.restore_session(id, good.clone()).unwrap_err();
        assert!(error.contains("order"), "{error}");
    }
    for (expected, forge) in forgeries {
        let mut entry = good.clone();
        forge(&mut entry);
        let error = Sessions::restore(2, at(2)).restore_session(1, entry);
        assert!(
            error.unwrap_err().contains(expected),
            "{expected}: {error:?}"
        );
    }
}

#[test]
fn replies_over_the_limits_are_forgotten_and_the_fact_is_not() {
    let mut sessions = Sessions::default();
    let reply = Bytes::from(vec![7; REPLY_LENGTH_MAX]);
    let repeated = |sessions: &mut Sessions, session, request| match sessions.admit(
        session,
        request,
        1,
        Time::ZERO,
    ) {
        Admission::Repeated(reply) => reply.is_some(),
        other => panic!("{other:?}"),
    };
    let per_session = (SESSION_REPLIES_LENGTH_MAX / REPLY_LENGTH_MAX) as u64;
    let full = (REPLIES_LENGTH_MAX / SESSION_REPLIES_LENGTH_MAX) as u64;
    for session in 1..=full + 1 {
        assert_eq!(sessions.open(Time::ZERO), Some(session));
        for request in 1..=per_session + 1 {
            let admission = sessions.admit(session, request, 1, Time::ZERO);
            assert_eq!(admission, Admission::First);
            sessions.remember(session, request, reply.clone());
            let is_kept = session <= full && request <= per_session;
            assert_eq!(repeated(&mut sessions, session, request), is_kept);
        }
    }
    sessions.check_invariants();
    // What one session gives back another one may have.
    sessions.close(1);
    sessions.admit(full + 1, 100, 1, Time::ZERO);
    sessions.remember(full + 1, 100, reply.clone());
    assert!(repeated(&mut sessions, full + 1, 100));
    sessions.check_invariants();
}
