//! What sessions have observed: the transactions that they read from.

use super::Forced;
use super::program::Program;

/// Whose observations count for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observer {
    /// Its own session, before it (monotonic reads).
    Own,
    /// The sessions that it reads from, up to what it read (writes follow reads).
    Sources,
}

/// That an observer saw a transaction that writes a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Observation {
    /// The key that the seen transaction writes.
    key: u32,
    /// The session of the observer.
    observers: u32,
    /// The session of the seen transaction.
    session: u32,
    observer: u32,
    seen: u32,
}

/// Tells, for every read, that whatever counts as observed of writers of its key comes before what was read. Of each
/// session the last observed writer is enough.
///
/// Time and memory grow with reads times what those writes that are read from, and with the square of sessions per
/// read at worst.
pub(super) fn infer(program: &Program<'_>, observer: Observer, take: &mut impl FnMut(Forced)) {
    let observations = gather(program);
    let mut sources: Vec<(u32, u32)> = Vec::new();
    for &reader in program.all() {
        sources.clear();
        match observer {
            Observer::Own => sources.push((program.session(reader), reader)),
            Observer::Sources => {
                let all = program.sources(reader);
                sources.extend(all.map(|source| (program.session(source), source + 1)));
                sources.sort_unstable();
                // Of each session the last.
                sources.reverse();
                sources.dedup_by_key(|source| source.0);
            }
        }
        for (key, after) in program.reads(reader) {
            for &(observers, until) in &sources {
                let all = of(&observations, key, observers);
                for session in all.chunk_by(|a, b| a.session == b.session) {
                    let known = session.partition_point(|one| one.observer < until);
                    let last = known.checked_sub(1).map(|last| session[last].seen);
                    if let Some(before) = last.filter(|&last| last != after) {
                        take(Forced {
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
}

/// The observations of one key by one session.
fn of(observations: &[Observation], key: u32, observers: u32) -> &[Observation] {
    let wanted = (key, observers);
    let first = observations.partition_point(|one| (one.key, one.observers) < wanted);
    let rest = &observations[first..];
    &rest[..rest.partition_point(|one| (one.key, one.observers) == wanted)]
}

/// All observations, sorted, of each session only those that are later in it than what was observed before.
fn gather(program: &Program<'_>) -> Vec<Observation> {
    let mut all = Vec::new();
    for &observer in program.all() {
        let mut sources: Vec<u32> = program.sources(observer).collect();
        sources.sort_unstable();
        sources.dedup();
        for seen in sources {
            let observation = |key| Observation {
                key,
                observers: program.session(observer),
                session: program.session(seen),
                observer,
                seen,
            };
            all.extend(program.writes(seen).map(observation));
        }
    }
    all.sort_unstable();
    let place = |one: &Observation| (one.key, one.observers, one.session);
    all.dedup_by(|next, kept| place(next) == place(kept) && next.seen <= kept.seen);
    all
}
