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

/// Tells, for every read, that whatever counts as observed of writers of its key comes before what was read. Of each
/// session the last observed writer is enough.
///
/// Sessions are gone through one after another; what one has observed so far is all that is held, by key. Readers for whom
/// that counts are asked where it stands as they need it: before the reader, or behind the one that it reads from.
///
/// Time grows with reads times what those write that are read from, and with the square of sessions per read at worst.
pub(super) fn infer(program: &Program<'_>, observer: Observer, take: &mut impl FnMut(Forced)) {
    let readers = match observer {
        Observer::Own => Readers::default(),
        Observer::Sources => Readers::new(program),
    };
    let mut observed = Observed::new(program.columns.key_count());
    for session in 0..program.session_count() as u32 {
        observed.session = session;
        for &member in program.members(session) {
            if observer == Observer::Own {
                observed.tell(program, member, take);
            }
            for source in program.sources(member) {
                let writer = (program.session(source), source);
                for key in program.writes(source) {
                    observed.note(key, writer);
                }
            }
            for &reader in readers.of(member) {
                observed.tell(program, reader, take);
            }
        }
    }
}

/// What the session in hand has observed so far.
struct Observed {
    session: u32,
    /// By key: the session that observed this.
    observers: Vec<u32>,
    /// By key: of each session, in order, the last writer of the key that was observed.
    writers: Vec<Vec<(u32, u32)>>,
}

impl Observed {
    fn new(keys: usize) -> Observed {
        Observed {
            session: 0,
            observers: vec![0; keys],
            writers: vec![Vec::new(); keys],
        }
    }

    /// A writer (session, transaction) of the key was observed.
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

    /// Tells what must come before what this one read.
    fn tell(&self, program: &Program<'_>, reader: u32, take: &mut impl FnMut(Forced)) {
        for (key, after) in program.reads(reader) {
            if self.observers[key as usize] != self.session {
                continue;
            }
            for &(_, before) in &self.writers[key as usize] {
                if before != after {
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

/// By transaction: who reads from it and from none later in its session.
#[derive(Default)]
struct Readers {
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Readers {
    fn new(program: &Program<'_>) -> Readers {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        let mut sources = Vec::new();
        for &reader in program.all() {
            sources.clear();
            program.add_sources(reader, &mut sources);
            sources.sort_unstable_by_key(|&source| (program.session(source), source));
            // Of each session the last.
            let last =
                sources.chunk_by(|&one, &other| program.session(one) == program.session(other));
            pairs.extend(last.filter_map(|same| Some((*same.last()?, reader))));
        }
        let mut starts = vec![0_u32; program.columns.len() + 2];
        for &(source, _) in &pairs {
            starts[source as usize + 2] += 1;
        }
        for at in 2..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut all = vec![0; pairs.len()];
        for (source, reader) in pairs {
            let end = &mut starts[source as usize + 1];
            all[*end as usize] = reader;
            *end += 1;
        }
        Readers { starts, all }
    }

    fn of(&self, transaction: u32) -> &[u32] {
        let transaction = transaction as usize;
        match self.starts.get(transaction..transaction + 2) {
            Some(&[start, end]) => &self.all[start as usize..end as usize],
            _ => &[],
        }
    }
}
