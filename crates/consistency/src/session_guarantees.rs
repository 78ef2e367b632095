//! Read your writes and monotonic reads: guarantees that concern one session at a time.

use crate::happens_before::SessionOrder;
use seatrial_history::FixedMap;

/// A violation of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionViolation {
    /// `read` returned the initial state after the session wrote the key in `write`.
    InitialAfterWrite {
        /// The session's write.
        write: u32,
        /// Its later read.
        read: u32,
    },
    /// Two reads returned values of the session itself in contradicting orders, though both had been written before each.
    OwnWritesSwapped {
        /// The earlier read.
        first: u32,
        /// The later one, of another version.
        second: u32,
    },
    /// `second` returned the version that `first` had returned, after `between` had returned another one.
    Returned {
        /// The first read of the version.
        first: u32,
        /// A later read of another version.
        between: u32,
        /// The read that went back.
        second: u32,
    },
    /// `second` returned the initial state after `between` had returned a version.
    ReturnedToInitial {
        /// The read of a version.
        between: u32,
        /// The read that went back.
        second: u32,
    },
}

/// Read your writes (Terry and others 1994): for each session there is an order of the versions of each key in which no read
/// returns a version before one that the session itself wrote earlier. Calls `take` for each read that contradicts it.
///
/// A read of the session's own version *v* puts all its other versions written so far before *v*; a read of the initial state
/// has none before it; a read of another session's version contradicts nothing. An order exists unless two reads of own
/// versions *a* and *b* each put the other version first: in a cycle, the latest read puts all other versions of the cycle
/// before its own, so it and the read after its own version in the cycle contradict each other. The latest read of another own
/// version decides, unless the session read a version before it wrote it. Time O(n); memory: the keys of one session.
pub(crate) fn read_your_writes(program: &SessionOrder<'_>, mut take: impl FnMut(SessionViolation)) {
    #[derive(Default)]
    struct OwnWrites {
        /// The first certain write of the session.
        first: Option<u32>,
        /// Reads of own versions, as (version's writer, read); only the last one, unless a version was read too early.
        reads: Vec<(u32, u32)>,
        is_early: bool,
    }
    let history = program.history;
    for session in program.sessions.rows() {
        let mut keys: FixedMap<u32, OwnWrites> = FixedMap::default();
        for &number in session {
            let action = &history.actions[number as usize];
            let own = keys.entry(action.key).or_default();
            if action.written().is_some() && action.is_certain() {
                own.first.get_or_insert(number);
            }
            let Some(version) = action.read() else {
                continue;
            };
            if history.versions[version as usize].is_initial() {
                if let Some(write) = own.first {
                    let read = number;
                    take(SessionViolation::InitialAfterWrite { write, read });
                }
                continue;
            }
            let Some(writer) = history.source(number) else {
                continue;
            };
            if program.session(writer) != action.session
                || !history.actions[writer as usize].is_certain()
            {
                continue;
            }
            let place = |action: u32| program.places[action as usize];
            own.is_early |= place(writer) > place(number);
            let contradicts = |&&(other, read): &&(u32, u32)| {
                other != writer && place(writer) < place(read) && place(other) < place(number)
            };
            if let Some(&(_, first)) = own.reads.iter().find(contradicts) {
                let second = number;
                take(SessionViolation::OwnWritesSwapped { first, second });
            }
            if !own.is_early {
                own.reads.clear();
            }
            own.reads.push((writer, number));
        }
    }
}

/// Monotonic reads (Terry and others 1994): for each session there is an order of the versions of each key in which its reads
/// never go back. Calls `take` for each read that contradicts it.
///
/// Such an order exists unless a read returns a version that an earlier one returned, with another version between, or the
/// initial state after a version. Time O(n); memory: the versions that one session read.
pub(crate) fn monotonic_reads(program: &SessionOrder<'_>, mut take: impl FnMut(SessionViolation)) {
    let history = program.history;
    for session in program.sessions.rows() {
        // By key: the last read and its version. By version: the first read.
        let mut last: FixedMap<u32, (u32, u32)> = FixedMap::default();
        let mut firsts: FixedMap<u32, u32> = FixedMap::default();
        for &number in session {
            let action = &history.actions[number as usize];
            let Some(version) = action.read() else {
                continue;
            };
            let earlier = last.insert(action.key, (version, number));
            let first = *firsts.entry(version).or_insert(number);
            let Some((other, between)) = earlier.filter(|&(other, _)| other != version) else {
                continue;
            };
            debug_assert!(other != version, "another version was read before");
            if first != number {
                take(SessionViolation::Returned {
                    first,
                    between,
                    second: number,
                });
            } else if history.versions[version as usize].is_initial() {
                let second = number;
                take(SessionViolation::ReturnedToInitial { between, second });
            }
        }
    }
}
