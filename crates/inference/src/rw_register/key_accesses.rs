//! Accesses: the reads and final writes of each key, by transaction.

use seatrial_checker::Findings;
use seatrial_cycles::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL, LOST_UPDATE};
use seatrial_history::OpType;
use seatrial_isolation::registers::{Columns, NONE, RegisterEvent};
use std::collections::BTreeMap;

/// The access of one transaction to one key. Most transactions have one for each of their keys; a transaction with internal
/// contradictions has one more for each contradictory read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyAccess {
    pub(super) transaction: u32,
    /// The version that it read before it wrote the key, or in contradiction to an earlier read; [`NONE`] if it only wrote.
    pub(super) read: u32,
    /// Its last write to the key after that read; [`NONE`] if there is none.
    pub(super) write: u32,
}

impl KeyAccess {
    /// The first version that it accessed.
    pub(super) fn first(self) -> u32 {
        if self.read == NONE {
            self.write
        } else {
            self.read
        }
    }

    /// The last version that it accessed.
    pub(super) fn last(self) -> u32 {
        if self.write == NONE {
            self.read
        } else {
            self.write
        }
    }
}

/// All accesses by key, and all readers by version.
pub(super) struct KeyAccesses<'a> {
    pub(super) columns: &'a Columns,
    /// Did a transaction of unknown outcome commit if a successful transaction read its effect?
    seen_is_committed: bool,
    /// By key: start of its range in `all`.
    starts: Vec<u32>,
    all: Vec<KeyAccess>,
    /// By version: start of its range in `readers`.
    reader_starts: Vec<u32>,
    readers: Vec<u32>,
}

impl<'a> KeyAccesses<'a> {
    /// Collects all accesses; anomalies of single reads are added to the findings.
    pub(super) fn new(
        columns: &'a Columns,
        seen_is_committed: bool,
        findings: &mut Findings,
    ) -> KeyAccesses<'a> {
        let mut accesses = KeyAccesses {
            columns,
            seen_is_committed,
            starts: Vec::new(),
            all: Vec::new(),
            reader_starts: Vec::new(),
            readers: Vec::new(),
        };
        let mut collected = Vec::with_capacity(columns.event_count());
        let mut known = vec![LastAccess::default(); columns.key_count()];
        for number in 0..columns.len() as u32 {
            let first = collected.len();
            if columns.outcomes()[number as usize] == OpType::Ok {
                accesses.collect(number, &mut known, &mut collected, findings);
            } else if accesses.happened(number) {
                let writes = columns.events(number).iter();
                collected.extend(writes.filter(|event| event.is_final_write()).map(|write| {
                    let access = KeyAccess {
                        transaction: number,
                        read: NONE,
                        write: write.version(),
                    };
                    (write.key(), access)
                }));
            }
            debug_assert!(collected.len() - first <= columns.events(number).len());
        }
        accesses.arrange(&collected);
        drop(collected);
        accesses.index_readers();
        accesses
    }

    /// Collects the accesses of a successful transaction.
    fn collect(
        &self,
        number: u32,
        known: &mut [LastAccess],
        collected: &mut Vec<(u32, KeyAccess)>,
        findings: &mut Findings,
    ) {
        let columns = self.columns;
        let mut is_internal = false;
        for (at, &event) in columns.events(number).iter().enumerate() {
            let (key, version) = (event.key(), event.version());
            let before = &mut known[key as usize];
            let is_first = before.transaction != number + 1;
            if is_first {
                *before = LastAccess {
                    transaction: number + 1,
                    version: NONE,
                    access: collected.len() as u32,
                };
            }
            if event.is_write() {
                before.version = version;
                let since = before.access as usize;
                if event.is_final_write() && !update(&mut collected[since..], key, version) {
                    let access = KeyAccess {
                        transaction: number,
                        read: NONE,
                        write: version,
                    };
                    collected.push((key, access));
                }
                continue;
            }
            if !is_first && before.version == version {
                continue;
            }
            let expected = std::mem::replace(&mut before.version, version);
            let since = before.access as usize;
            if !is_first {
                if !is_internal {
                    is_internal = true;
                    findings.explain(INTERNAL, || contradiction(columns, number, event, expected));
                }
                let repeats =
                    |(other, access): &(u32, KeyAccess)| *other == key && access.read == version;
                if collected[since..].iter().any(repeats) {
                    continue;
                }
            }
            self.check_read(number, at, findings);
            let access = KeyAccess {
                transaction: number,
                read: version,
                write: NONE,
            };
            collected.push((key, access));
        }
    }

    /// Groups the accesses by key, in the order of transactions: a counting sort.
    fn arrange(&mut self, collected: &[(u32, KeyAccess)]) {
        self.starts = vec![0; self.columns.key_count() + 1];
        for &(key, _) in collected {
            self.starts[key as usize + 1] += 1;
        }
        for key in 0..self.columns.key_count() {
            self.starts[key + 1] += self.starts[key];
        }
        let none = KeyAccess {
            transaction: NONE,
            read: NONE,
            write: NONE,
        };
        let mut next = self.starts.clone();
        self.all = vec![none; collected.len()];
        for &(key, access) in collected {
            let place = &mut next[key as usize];
            self.all[*place as usize] = access;
            *place += 1;
        }
        assert!(
            self.starts.is_sorted() && self.starts.last() == Some(&(self.all.len() as u32)),
            "the ranges of keys cover all accesses"
        );
    }

    fn index_readers(&mut self) {
        let mut starts = vec![0_u32; self.columns.version_count() + 2];
        let reads = || self.all.iter().filter(|access| access.read != NONE);
        for access in reads() {
            starts[access.read as usize + 2] += 1;
        }
        for version in 1..starts.len() {
            starts[version] += starts[version - 1];
        }
        let mut readers = vec![0; reads().count()];
        for access in reads() {
            let place = &mut starts[access.read as usize + 1];
            readers[*place as usize] = access.transaction;
            *place += 1;
        }
        starts.pop();
        assert!(
            starts.is_sorted() && starts.last() == Some(&(readers.len() as u32)),
            "the ranges of versions cover all readers"
        );
        (self.reader_starts, self.readers) = (starts, readers);
    }

    /// The accesses of a key, in the order of transactions.
    pub(super) fn of_key(&self, key: u32) -> &[KeyAccess] {
        let key = key as usize;
        &self.all[self.starts[key] as usize..self.starts[key + 1] as usize]
    }

    /// The accesses of a key in the order of the transactions' operations: of several accesses of one transaction before its
    /// write, only the last has the write.
    pub(super) fn in_turn(&self, key: u32) -> impl Iterator<Item = KeyAccess> {
        let all = self.of_key(key);
        all.iter().enumerate().map(|(at, access)| {
            let has_write_later = |next: &KeyAccess| {
                next.transaction == access.transaction && next.write == access.write
            };
            let write = match all.get(at + 1) {
                Some(next) if has_write_later(next) => NONE,
                _ => access.write,
            };
            KeyAccess { write, ..*access }
        })
    }

    /// The readers of a version, in order and without repetition.
    pub(super) fn readers(&self, version: u32) -> &[u32] {
        let version = version as usize;
        let (start, end) = (self.reader_starts[version], self.reader_starts[version + 1]);
        &self.readers[start as usize..end as usize]
    }

    /// Did this transaction take effect?
    pub(super) fn happened(&self, transaction: u32) -> bool {
        self.is_ok(transaction) || self.seen_is_committed && self.columns.happened(transaction)
    }

    /// Did this transaction succeed?
    pub(super) fn is_ok(&self, transaction: u32) -> bool {
        self.columns.outcomes()[transaction as usize] == OpType::Ok
    }

    /// The transaction that installed a version: its writer, if that took effect and did not overwrite it itself.
    pub(super) fn installer(&self, version: u32) -> u32 {
        let writer = self
            .columns
            .writer(version)
            .map_or(NONE, seatrial_cycles::Txn::get);
        if writer == NONE || self.columns.is_overwritten(version) || !self.happened(writer) {
            return NONE;
        }
        writer
    }

    /// Adds the anomaly of a single read, if it has one.
    fn check_read(&self, reader: u32, at: usize, findings: &mut Findings) {
        let columns = self.columns;
        let events = &columns.events(reader)[at..];
        let read = events[0];
        let version = read.version();
        if columns.is_initial(version) {
            return;
        }
        let key = || columns.key(read.key());
        let value = || columns.shown_value(version);
        let line = |number| columns.shown(number);
        let writer = columns
            .writer(version)
            .map_or(NONE, seatrial_cycles::Txn::get);
        if writer == NONE {
            findings.explain(GARBAGE_READ, || {
                let summary = format!(
                    "{}\nread {} of key {}, which no operation wrote.",
                    line(reader),
                    value(),
                    key()
                );
                (vec![columns.index(reader)], summary)
            });
            return;
        }
        let both = || vec![columns.index(reader), columns.index(writer)];
        if columns.outcomes()[writer as usize] == OpType::Fail {
            findings.explain(G1A, || {
                let summary = format!(
                    "{}\nread value {} of key {}, whose write was aborted:\n{}",
                    line(reader),
                    value(),
                    key(),
                    line(writer)
                );
                (both(), summary)
            });
        }
        let is_this = |event: &RegisterEvent| event.is_write() && event.version() == version;
        if writer == reader && !events.iter().any(is_this) {
            // It wrote this version before, and then another: an internal contradiction, which is reported as such.
        } else if writer == reader {
            findings.explain(FUTURE_READ, || {
                let summary = format!(
                    "{}\nread its own write of {} to key {}, which it performs only later.",
                    line(reader),
                    value(),
                    key()
                );
                (both(), summary)
            });
        } else if columns.is_overwritten(version) {
            findings.explain(G1B, || {
                let summary = format!(
                    "{}\nread key {} as it was in the middle of another transaction, which wrote it again after \
                     {}:\n{}",
                    line(reader),
                    key(),
                    value(),
                    line(writer)
                );
                (both(), summary)
            });
        }
    }

    /// Adds the versions that several transactions read and then overwrote.
    pub(super) fn find_lost_updates(&self, findings: &mut Findings) {
        let columns = self.columns;
        let mut first = vec![NONE; columns.version_count()];
        let mut lost: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        // A read of the transaction's own later write is no update.
        let is_update = |access: &&KeyAccess| {
            access.read != NONE && access.write != NONE && access.read != access.write
        };
        for access in self.all.iter().filter(is_update) {
            let known = &mut first[access.read as usize];
            if *known == NONE {
                *known = access.transaction;
            } else {
                let key = columns.key_of(access.read);
                let group = lost.entry((key, access.read));
                group
                    .or_insert_with(|| vec![*known])
                    .push(access.transaction);
            }
        }
        for ((key, version), group) in lost {
            findings.explain(LOST_UPDATE, || {
                let summary = format!(
                    "{} transactions read key {} as {} and then overwrote it, among them:\n  {}\n  {}",
                    group.len(),
                    columns.key(key),
                    columns.shown_value(version),
                    columns.shown(group[0]),
                    columns.shown(group[1])
                );
                (group.iter().map(|&one| columns.index(one)).collect(), summary)
            });
        }
    }
}

/// The last access of the current transaction to a key.
#[derive(Clone, Copy, Debug, Default)]
struct LastAccess {
    /// The transaction, plus one.
    transaction: u32,
    version: u32,
    /// Lower bound of the number of its first access to this key.
    access: u32,
}

/// Sets the last write in the transaction's accesses to this key so far; false if there are none.
fn update(collected: &mut [(u32, KeyAccess)], key: u32, version: u32) -> bool {
    let mut is_update = false;
    for (_, access) in collected.iter_mut().filter(|(other, _)| *other == key) {
        access.write = version;
        is_update = true;
    }
    is_update
}

/// The explanation of a read that contradicts an earlier read or write of its transaction.
fn contradiction(
    columns: &Columns,
    number: u32,
    read: RegisterEvent,
    expected: u32,
) -> (Vec<u64>, String) {
    let summary = format!(
        "{}\nIts {} contradicts what it read or wrote before: {} was to be expected.",
        columns.shown(number),
        columns.shown_event(read),
        columns.shown_value(expected)
    );
    (vec![columns.index(number)], summary)
}
