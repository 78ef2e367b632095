//! What a transaction must not miss of those that it reads from itself.

use super::Forced;
use super::program::{INITIAL, Program};
use crate::txn::dense::Map;

/// Reads of a transaction that are compared with one another instead of through a table by key.
const READS_FEW: usize = 16;
/// Writes of a transaction that are gone through, whoever asks.
const WRITES_FEW: usize = 64;

/// When has a transaction seen another one that it reads from?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// From that read on (read committed).
    FromThen,
    /// From its beginning on (read atomic).
    Always,
}

/// Finds, for every transaction r, each pair t ≠ u such that r reads from t, reads a key from u that t writes too, and has
/// seen t: then t comes before u (Biswas and Enea 2019, axioms of read committed and read atomic).
///
/// Pairs that follow from others are left out: of the reads of a key after r saw t the first that does not come from t
/// is enough, as from there the argument goes on. For each t the shorter is gone through of what t writes and what r
/// reads (Moeldrup and Pavlogiannis 2025): so the square root of n times n at most, and a logarithm.
pub(super) struct Direct<'a> {
    program: &'a Program<'a>,
    sight: Sight,
    /// The keys that transactions of many writes write, sorted.
    many: Map<u32, Vec<u32>>,
    /// Key and source of the reads of the transaction in hand.
    reads: Vec<(u32, u32)>,
    /// By key: see [`Place`]; only when a transaction reads much.
    places: Vec<Place>,
    /// By transaction: the reader (and 1) that met it last; only when a transaction reads much.
    met: Vec<u32>,
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
        for &transaction in program.all() {
            if program.columns.events(transaction).len() > WRITES_FEW {
                let mut keys: Vec<u32> = program.writes(transaction).collect();
                keys.sort_unstable();
                if keys.len() > WRITES_FEW {
                    many.insert(transaction, keys);
                }
            }
        }
        Direct {
            program,
            sight,
            many,
            reads: Vec::new(),
            places: Vec::new(),
            met: Vec::new(),
        }
    }

    /// Tells the pairs of this reader.
    pub(super) fn infer(&mut self, reader: u32, take: &mut impl FnMut(Forced)) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.clear();
        reads.extend(self.program.reads(reader));
        if reads.len() > READS_FEW {
            self.infer_many(reader, &reads, take);
        } else if reads.len() > 1 {
            self.infer_few(reader, &reads, take);
        }
        self.reads = reads;
    }

    fn infer_few(&self, reader: u32, reads: &[(u32, u32)], take: &mut impl FnMut(Forced)) {
        for (at, &(_, source)) in reads.iter().enumerate() {
            let is_known = reads[..at].iter().any(|read| read.1 == source);
            if source == INITIAL || is_known {
                continue;
            }
            let seen = match self.sight {
                Sight::FromThen => &reads[at + 1..],
                Sight::Always => reads,
            };
            if !seen.is_empty() {
                self.compare(reader, source, seen, take);
            }
        }
    }

    /// Compares what `source` writes with a few reads.
    fn compare(
        &self,
        reader: u32,
        source: u32,
        seen: &[(u32, u32)],
        take: &mut impl FnMut(Forced),
    ) {
        let mut told = |key: u32| {
            let others = seen.iter().filter(|read| read.0 == key && read.1 != source);
            for &(_, after) in others {
                take(Forced {
                    before: source,
                    after,
                    reader,
                    key,
                });
                if self.sight == Sight::FromThen {
                    break;
                }
            }
        };
        if let Some(keys) = self.many.get(&source) {
            for (at, &(key, _)) in seen.iter().enumerate() {
                let is_first = seen[..at].iter().all(|read| read.0 != key);
                if is_first && keys.binary_search(&key).is_ok() {
                    told(key);
                }
            }
        } else {
            self.program.writes(source).for_each(told);
        }
    }

    fn infer_many(&mut self, reader: u32, reads: &[(u32, u32)], take: &mut impl FnMut(Forced)) {
        let stamp = reader + 1;
        self.met.resize(self.program.columns.len(), 0);
        let unknown = Place {
            reader: 0,
            next: [NOBODY; 2],
        };
        self.places
            .resize(self.program.columns.key_count(), unknown);
        // Where each source was met first.
        let first: Vec<bool> = reads
            .iter()
            .map(|&(_, source)| {
                source != INITIAL
                    && std::mem::replace(&mut self.met[source as usize], stamp) != stamp
            })
            .collect();
        let mut keys = Vec::new();
        if self.sight == Sight::Always {
            for &(key, source) in reads.iter().rev() {
                self.note(stamp, key, source, &mut keys);
            }
        }
        for (at, &(key, source)) in reads.iter().enumerate().rev() {
            if first[at] {
                self.look_up(reader, source, &keys, take);
            }
            if self.sight == Sight::FromThen {
                self.note(stamp, key, source, &mut keys);
            }
        }
    }

    /// Notes a read that stands before those noted so far.
    fn note(&mut self, stamp: u32, key: u32, source: u32, keys: &mut Vec<u32>) {
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
