//! Monotonic reads and writes follow reads: the transactions that sessions have read from.

use super::ForcedOrder;
use super::session_program::{ReadSource, SessionProgram};
use seatrial_cycles::Csr;

/// The sessions whose observations count for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObservedSessions {
    /// Its own session, before it (monotonic reads).
    Own,
    /// The sessions that it reads from, up to the transactions that it read from (writes follow reads).
    Sources,
}

/// Infers, for every read, that the observed writers of its key commit before the one that was read. The last observed
/// writer of each session is enough.
///
/// Sessions are processed one after another, keeping by key what the current one has observed so far. Each reader for which
/// that counts is looked at when the session has come as far as the reader needs: before the reader itself, or after the
/// transaction that it reads from.
///
/// Time is reads times the keys that their sources write, and at worst the square of the number of sessions per read.
pub(super) fn infer(
    program: &SessionProgram<'_>,
    observer: ObservedSessions,
    take: &mut impl FnMut(ForcedOrder),
) {
    let readers = match observer {
        ObservedSessions::Own => None,
        ObservedSessions::Sources => Some(readers_by_source(program)),
    };
    let mut observed = SessionObservations::new(program.columns.key_count());
    for session in 0..program.session_count() as u32 {
        observed.session = session;
        for &member in program.members(session) {
            if observer == ObservedSessions::Own {
                observed.infer(program, member, take);
            }
            for source in program.sources(member) {
                let writer = (program.session(source), source);
                for key in program.writes(source) {
                    observed.note(key, writer);
                }
            }
            for &reader in readers.iter().flat_map(|readers| readers.row(member)) {
                observed.infer(program, reader, take);
            }
        }
    }
}

/// The observations of the current session.
struct SessionObservations {
    session: u32,
    /// By key: the session whose observations the entry has.
    observers: Vec<u32>,
    /// By key: for each session, sorted, the last writer of the key that was observed.
    writers: Vec<Vec<(u32, u32)>>,
}

impl SessionObservations {
    fn new(keys: usize) -> SessionObservations {
        SessionObservations {
            session: 0,
            observers: vec![0; keys],
            writers: vec![Vec::new(); keys],
        }
    }

    /// Adds an observed writer (session, transaction) of a key.
    fn note(&mut self, key: u32, (session, writer): (u32, u32)) {
        let writers = &mut self.writers[key as usize];
        let observer = &mut self.observers[key as usize];
        if *observer != self.session {
            *observer = self.session;
            writers.clear();
        }
        let place = writers.partition_point(|one| one.0 < session);
        match writers.get_mut(place) {
            Some((other, last)) if *other == session => *last = writer.max(*last),
            _ => writers.insert(place, (session, writer)),
        }
    }

    /// Infers the writers that commit before those that this reader read from.
    fn infer(&self, program: &SessionProgram<'_>, reader: u32, take: &mut impl FnMut(ForcedOrder)) {
        for (key, after) in program.reads(reader) {
            if self.observers[key as usize] != self.session {
                continue;
            }
            for &(_, before) in &self.writers[key as usize] {
                if ReadSource::written_by(before) != after {
                    take(ForcedOrder {
                        before,
                        after,
                        reader,
                        key,
                    });
                }
            }
        }
    }
}

/// By transaction: the transactions that read from it and from no later one of its session.
fn readers_by_source(program: &SessionProgram<'_>) -> Csr<u32> {
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut sources = Vec::new();
    for &reader in program.all() {
        sources.clear();
        program.add_sources(reader, &mut sources);
        sources.sort_unstable_by_key(|&source| (program.session(source), source));
        // Of each session only the last source.
        let last = sources.chunk_by(|&one, &other| program.session(one) == program.session(other));
        pairs.extend(last.filter_map(|same| Some((*same.last()?, reader))));
    }
    Csr::group(program.columns.len(), pairs.iter().copied())
}
