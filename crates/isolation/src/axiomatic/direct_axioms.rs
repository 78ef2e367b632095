//! Read committed and read atomic: what a transaction must not miss of the transactions that it reads from itself.

use super::ForcedOrder;
use super::session_program::{ReadSource, SessionProgram};
use seatrial_cycles::{Txn, Version};
use seatrial_history::FixedMap;

/// A transaction with more reads uses a table by key instead of comparing its reads with one another.
const READS_FEW: usize = 16;
/// The keys that a transaction with more events writes are sorted once.
const EVENTS_FEW: usize = 64;
/// Number of transactions whose reads are fetched together, so that cache misses overlap.
const READERS_AT_ONCE: usize = 64;

/// From when on has a transaction seen another one that it reads from?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// From that read on (read committed).
    FromThen,
    /// From its beginning on (read atomic).
    Always,
}

/// Infers, for every transaction r, each pair t and u such that r reads from t, reads a key from u that t writes as well,
/// and has seen t: then t commits before u (Biswas and Enea 2019, axioms of read committed and read atomic).
///
/// For each t it goes through the shorter one of the keys that t writes and those that r reads (Moeldrup and Pavlogiannis
/// 2025), and for long transactions it emits only pairs from which the others follow: at most n times the square root of n,
/// times a logarithm. The data of many transactions is fetched together, since most of it is not in the cache.
pub(super) struct DirectInference<'a> {
    program: &'a SessionProgram<'a>,
    sight: Sight,
    /// By long transaction: the keys that it writes, sorted.
    many: FixedMap<u32, Vec<u32>>,
    /// By transaction: the [`bit`]s of the keys that it writes.
    marks: Vec<u64>,
    /// By key: see [`KeyReads`]; only used if a transaction reads much.
    certificate_positions: Vec<KeyReads>,
    /// By transaction: the last reader that met it as a source; only used if a transaction reads much.
    met: Vec<Option<Txn>>,
}

/// An external read of the current transaction.
#[derive(Clone, Copy)]
struct ExternalRead {
    key: u32,
    version: Version,
    /// `None` until it is fetched, and if no level constrains the read.
    source: Option<ReadSource>,
    /// The [`bit`]s of the keys that the source writes.
    marks: u64,
}

/// One of 64 bits for a key. The bits of a transaction's keys say in most cases that it does not write a key.
fn bit(key: u32) -> u64 {
    1 << (key.wrapping_mul(0x9e37_79b1) >> 26)
}

/// The reads of a key while the reads of a transaction are traversed in reverse.
#[derive(Clone, Copy)]
struct KeyReads {
    /// The rest is valid only for this reader.
    reader: Option<Txn>,
    /// The source of the next read of the key, and of the next one with another source, if there is one.
    next: [Option<ReadSource>; 2],
}

impl<'a> DirectInference<'a> {
    pub(super) fn new(program: &'a SessionProgram<'a>, sight: Sight) -> DirectInference<'a> {
        let mut many = FixedMap::default();
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
        DirectInference {
            program,
            sight,
            many,
            marks,
            certificate_positions: Vec::new(),
            met: Vec::new(),
        }
    }

    /// Infers the pairs of all readers.
    pub(super) fn infer(&mut self, take: &mut impl FnMut(ForcedOrder)) {
        let (mut reads, mut ends) = (Vec::new(), Vec::new());
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

    /// Fetches the external reads of these readers, and where those of each end, in steps over all of them, so that cache
    /// misses overlap.
    fn fetch(&self, readers: &[u32], reads: &mut Vec<ExternalRead>, ends: &mut Vec<usize>) {
        let columns = self.program.columns;
        reads.clear();
        ends.clear();
        for &reader in readers {
            let events = columns.events(reader).iter();
            let external = events.filter(|event| event.is_external_read());
            reads.extend(external.map(|read| ExternalRead {
                key: read.key(),
                version: read.version(),
                source: None,
                marks: 0,
            }));
            ends.push(reads.len());
        }
        let mut start = 0;
        for (&reader, &end) in readers.iter().zip(&*ends) {
            for read in &mut reads[start..end] {
                read.source = self.program.source_of(reader, read.version);
            }
            start = end;
        }
        for read in reads.iter_mut() {
            let source = read.source.and_then(ReadSource::transaction);
            read.marks = source.map_or(0, |source| self.marks[source as usize]);
        }
        debug_assert_eq!(start, reads.len(), "a read without a reader");
    }

    fn infer_few(&self, reader: u32, reads: &[ExternalRead], take: &mut impl FnMut(ForcedOrder)) {
        for (at, read) in reads.iter().enumerate() {
            let Some(before) = read.source.and_then(ReadSource::transaction) else {
                continue;
            };
            if reads[..at].iter().any(|other| other.source == read.source) {
                continue;
            }
            let seen = match self.sight {
                Sight::FromThen => &reads[at + 1..],
                Sight::Always => reads,
            };
            for other in seen.iter().filter(|other| read.marks & bit(other.key) != 0) {
                if let Some(after) = other.source
                    && other.source != read.source
                    && self.does_write(before, other.key)
                {
                    take(ForcedOrder {
                        before,
                        after,
                        reader,
                        key: other.key,
                    });
                }
            }
        }
    }

    /// Does a transaction write this key?
    fn does_write(&self, transaction: u32, key: u32) -> bool {
        match self.many.get(&transaction) {
            Some(keys) => keys.binary_search(&key).is_ok(),
            None => self.program.writes(transaction).any(|other| other == key),
        }
    }

    fn infer_many(
        &mut self,
        reader: u32,
        reads: &[ExternalRead],
        take: &mut impl FnMut(ForcedOrder),
    ) {
        self.met.resize(self.program.columns.len(), None);
        let unknown = KeyReads {
            reader: None,
            next: [None; 2],
        };
        self.certificate_positions
            .resize(self.program.columns.key_count(), unknown);
        let stamp = Some(Txn::new(reader));
        // By read: its source, if it is a transaction that no earlier read has as its source.
        let mut first_source = |read: &ExternalRead| {
            let source = read.source?.transaction()?;
            let met = std::mem::replace(&mut self.met[source as usize], stamp);
            (met != stamp).then_some(source)
        };
        let first: Vec<Option<u32>> = reads.iter().map(&mut first_source).collect();
        let mut keys = Vec::new();
        if self.sight == Sight::Always {
            for read in reads.iter().rev() {
                self.note(stamp, read, &mut keys);
            }
        }
        for (read, first) in reads.iter().zip(first).rev() {
            if let Some(source) = first {
                self.look_up(reader, source, &keys, take);
            }
            if self.sight == Sight::FromThen {
                self.note(stamp, read, &mut keys);
            }
        }
    }

    /// Adds a read that is before all reads added so far.
    fn note(&mut self, stamp: Option<Txn>, read: &ExternalRead, keys: &mut Vec<u32>) {
        let &ExternalRead { key, source, .. } = read;
        if source.is_none() {
            return;
        }
        let place = &mut self.certificate_positions[key as usize];
        if place.reader != stamp {
            *place = KeyReads {
                reader: stamp,
                next: [source, None],
            };
            keys.push(key);
        } else if place.next[0] != source {
            place.next = [source, place.next[0]];
        }
    }

    /// Infers pairs from the keys that `source` writes and the reads added so far, which are those of `keys`.
    fn look_up(&self, reader: u32, source: u32, keys: &[u32], take: &mut impl FnMut(ForcedOrder)) {
        let own = ReadSource::written_by(source);
        let emit = |key: u32| {
            let place = &self.certificate_positions[key as usize];
            if place.reader != Some(Txn::new(reader)) {
                return;
            }
            let mut others = place.next.iter().flatten();
            if let Some(&after) = others.find(|&&next| next != own) {
                take(ForcedOrder {
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
                both.copied().for_each(emit);
            }
            _ => self.program.writes(source).for_each(emit),
        }
    }
}
