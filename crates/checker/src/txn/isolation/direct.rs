//! What a transaction must not miss of those that it reads from itself.

use super::Forced;
use super::program::Program;
use crate::txn::dense::Map;

/// Reads of a transaction that are compared with one another instead of through a table by key.
const READS_FEW: usize = 16;
/// Events of a transaction that are gone through, whoever asks.
const EVENTS_FEW: usize = 64;
/// Transactions whose reads are fetched together.
const READERS_AT_ONCE: usize = 64;

/// When has a transaction seen another one that it reads from?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// From that read on (read committed).
    FromThen,
    /// From its beginning on (read atomic).
    Always,
}

/// Finds, for every transaction r, each pair t and u such that r reads from t, reads a key from u that t writes too, and has
/// seen t: then t comes before u (Biswas and Enea 2019, axioms of read committed and read atomic).
///
/// For each t the shorter is gone through of what t writes and what r reads (Moeldrup and Pavlogiannis 2025), and of long
/// transactions only pairs are told from which others follow: so the square root of n times n at most, and a logarithm.
/// What many transactions at a time need is fetched side by side, as most of it is far away from the processor.
pub(super) struct Direct<'a> {
    program: &'a Program<'a>,
    sight: Sight,
    /// The keys that long transactions write, sorted.
    many: Map<u32, Vec<u32>>,
    /// By transaction: the [`bit`]s of the keys that it writes.
    marks: Vec<u64>,
    /// By key: see [`Place`]; only when a transaction reads much.
    places: Vec<Place>,
    /// By transaction: the reader (and 1) that met it last; only when a transaction reads much.
    met: Vec<u32>,
}

/// A read of a transaction in hand.
#[derive(Clone, Copy)]
struct Read {
    key: u32,
    /// The version, then where that comes from: a transaction, [`INITIAL`](super::INITIAL) or [`NOBODY`].
    source: u32,
    /// The [`bit`]s of the keys that the source writes.
    marks: u64,
}

/// One of 64 bits for a key: which keys a transaction does not write is told by them in most cases.
fn bit(key: u32) -> u64 {
    1 << (key.wrapping_mul(0x9e37_79b1) >> 26)
}

/// What is known of a key while the reads of a transaction are gone through backwards.
#[derive(Clone, Copy)]
struct Place {
    /// The reader and 1; of any other nothing is known.
    reader: u32,
    /// The source of the next read, and of the next one that has another source; [`NOBODY`].
    next: [u32; 2],
}

/// No source: neither a transaction nor the initial state.
const NOBODY: u32 = u32::MAX - 1;

impl<'a> Direct<'a> {
    pub(super) fn new(program: &'a Program<'a>, sight: Sight) -> Direct<'a> {
        let mut many = Map::default();
        let mut marks = vec![0; program.columns.len()];
        for &transaction in program.all() {
            let bits = program.writes(transaction).map(bit);
            marks[transaction as usize] = bits.fold(0, |all, bit| all | bit);
            if program.columns.events(transaction).len() > EVENTS_FEW {
                let mut keys: Vec<u32> = program.writes(transaction).collect();
                keys.sort_unstable();
                many.insert(transaction, keys);
            }
        }
        Direct {
            program,
            sight,
            many,
            marks,
            places: Vec::new(),
            met: Vec::new(),
        }
    }

    /// Tells the pairs of all readers.
    pub(super) fn infer(&mut self, take: &mut impl FnMut(Forced)) {
        let mut reads: Vec<Read> = Vec::new();
        let mut ends = Vec::new();
        for readers in self.program.all().chunks(READERS_AT_ONCE) {
            self.fetch(readers, &mut reads, &mut ends);
            let mut start = 0;
            for (&reader, &end) in readers.iter().zip(&ends) {
                let reads = &reads[start..end];
                start = end;
                if reads.len() > READS_FEW {
                    self.infer_many(reader, reads, take);
                } else if reads.len() > 1 {
                    self.infer_few(reader, reads, take);
                }
            }
        }
    }

    /// The external reads of these readers, and where those of each end.
    fn fetch(&self, readers: &[u32], reads: &mut Vec<Read>, ends: &mut Vec<usize>) {
        let columns = self.program.columns;
        reads.clear();
        ends.clear();
        for &reader in readers {
            let events = columns.events(reader).iter();
            let external = events.filter(|event| event.is_external_read());
            reads.extend(external.map(|&read| Read {
                key: read.key(),
                source: read.version(),
                marks: 0,
            }));
            ends.push(reads.len());
        }
        let mut start = 0;
        for (&reader, &end) in readers.iter().zip(&*ends) {
            for read in &mut reads[start..end] {
                let source = self.program.source_of(reader, read.source);
                read.source = source.unwrap_or(NOBODY);
            }
            start = end;
        }
        for read in reads.iter_mut() {
            read.marks = self.marks.get(read.source as usize).copied().unwrap_or(0);
        }
    }

    fn infer_few(&self, reader: u32, reads: &[Read], take: &mut impl FnMut(Forced)) {
        for (at, read) in reads.iter().enumerate() {
            let source = read.source;
            let is_known = reads[..at].iter().any(|other| other.source == source);
            if source >= NOBODY || is_known {
                continue;
            }
            let seen = match self.sight {
                Sight::FromThen => &reads[at + 1..],
                Sight::Always => reads,
            };
            for other in seen.iter().filter(|other| read.marks & bit(other.key) != 0) {
                let is_other = other.source != source && other.source != NOBODY;
                if is_other && self.does_write(source, other.key) {
                    take(Forced {
                        before: source,
                        after: other.source,
                        reader,
                        key: other.key,
                    });
                }
            }
        }
    }

    /// Does a transaction write the key?
    fn does_write(&self, transaction: u32, key: u32) -> bool {
        match self.many.get(&transaction) {
            Some(keys) => keys.binary_search(&key).is_ok(),
            None => self.program.writes(transaction).any(|other| other == key),
        }
    }

    fn infer_many(&mut self, reader: u32, reads: &[Read], take: &mut impl FnMut(Forced)) {
        let stamp = reader + 1;
        self.met.resize(self.program.columns.len(), 0);
        let unknown = Place {
            reader: 0,
            next: [NOBODY; 2],
        };
        self.places
            .resize(self.program.columns.key_count(), unknown);
        // Where each source was met first.
        let mut is_first = |source: u32| {
            source < NOBODY && std::mem::replace(&mut self.met[source as usize], stamp) != stamp
        };
        let first: Vec<bool> = reads.iter().map(|read| is_first(read.source)).collect();
        let mut keys = Vec::new();
        if self.sight == Sight::Always {
            for read in reads.iter().rev() {
                self.note(stamp, read, &mut keys);
            }
        }
        for (read, is_first) in reads.iter().zip(first).rev() {
            if is_first {
                self.look_up(reader, read.source, &keys, take);
            }
            if self.sight == Sight::FromThen {
                self.note(stamp, read, &mut keys);
            }
        }
    }

    /// Notes a read that stands before those noted so far.
    fn note(&mut self, stamp: u32, read: &Read, keys: &mut Vec<u32>) {
        let &Read { key, source, .. } = read;
        if source == NOBODY {
            return;
        }
        let place = &mut self.places[key as usize];
        if place.reader != stamp {
            *place = Place {
                reader: stamp,
                next: [source, NOBODY],
            };
            keys.push(key);
        } else if place.next[0] != source {
            place.next = [source, place.next[0]];
        }
    }

    /// Looks up what `source` writes among the reads that are noted, those of `keys`.
    fn look_up(&self, reader: u32, source: u32, keys: &[u32], take: &mut impl FnMut(Forced)) {
        let told = |key: u32| {
            let place = &self.places[key as usize];
            if place.reader != reader + 1 {
                return;
            }
            let other = place.next.iter().find(|&&next| next != source);
            if let Some(&after) = other.filter(|&&next| next != NOBODY) {
                take(Forced {
                    before: source,
                    after,
                    reader,
                    key,
                });
            }
        };
        match self.many.get(&source) {
            Some(written) if written.len() > keys.len() => {
                let both = keys.iter().filter(|key| written.binary_search(key).is_ok());
                both.copied().for_each(told);
            }
            _ => self.program.writes(source).for_each(told),
        }
    }
}
