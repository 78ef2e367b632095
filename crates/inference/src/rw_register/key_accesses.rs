//! Accesses: the reads and final writes of each key, by transaction.

use seatrial_checker::Findings;
use seatrial_cycles::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL, LOST_UPDATE};
use seatrial_cycles::{Txn, Version};
use seatrial_history::OpType;
use seatrial_isolation::registers::{Columns, RegisterEvent};
use std::collections::BTreeMap;

/// The access of one transaction to one key. Most transactions have one for each of their keys; a transaction with internal
/// contradictions has one more for each contradictory read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyAccess {
    pub(super) transaction: Txn,
    /// The version that it read before it wrote the key, or in contradiction to an earlier read; `None` if it only wrote.
    pub(super) read: Option<Version>,
    /// Its last write to the key after that read, if there is one.
    pub(super) write: Option<Version>,
}

impl KeyAccess {
    /// The first version that it accessed.
    pub(super) fn first(self) -> Option<Version> {
        self.read.or(self.write)
    }

    /// The last version that it accessed.
    pub(super) fn last(self) -> Option<Version> {
        self.write.or(self.read)
    }

    /// The versions that it read and wrote in place of it, if it is an update.
    pub(super) fn update(self) -> Option<(Version, Version)> {
        self.read.zip(self.write)
    }

    /// The versions that it accessed, in its order.
    pub(super) fn versions(self) -> impl Iterator<Item = Version> {
        self.read.into_iter().chain(self.write)
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
    /// Transactions as nodes of the graph: edges are made from slices of them.
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
        for number in Txn::all(columns.len()) {
            let first = collected.len();
            if columns.outcomes()[number.index()] == OpType::Ok {
                accesses.collect(number, &mut known, &mut collected, findings);
            } else if accesses.happened(number) {
                let writes = columns.events(number.get()).iter();
                collected.extend(writes.filter(|event| event.is_final_write()).map(|write| {
                    let access = KeyAccess {
                        transaction: number,
                        read: None,
                        write: Some(write.version()),
                    };
                    (write.key(), access)
                }));
            }
            debug_assert!(
                collected.len() - first <= columns.events(number.get()).len(),
                "each access has an event of its own"
            );
        }
        accesses.arrange(&collected);
        drop(collected);
        accesses.index_readers();
        accesses
    }

    /// Collects the accesses of a successful transaction.
    fn collect(
        &self,
        number: Txn,
        known: &mut [LastAccess],
        collected: &mut Vec<(u32, KeyAccess)>,
        findings: &mut Findings,
    ) {
        let columns = self.columns;
        let mut is_internal = false;
        for (at, &event) in columns.events(number.get()).iter().enumerate() {
            let (key, version) = (event.key(), event.version());
            let before = &mut known[key as usize];
            let is_first = before.transaction != Some(number);
            if is_first {
                *before = LastAccess {
                    transaction: Some(number),
                    version: None,
                    access: collected.len() as u32,
                };
            }
            if event.is_write() {
                before.version = Some(version);
                let since = before.access as usize;
                if event.is_final_write() && !update(&mut collected[since..], key, version) {
                    let access = KeyAccess {
                        transaction: number,
                        read: None,
                        write: Some(version),
                    };
                    collected.push((key, access));
                }
                continue;
            }
            if !is_first && before.version == Some(version) {
                continue;
            }
            let expected = before.version.replace(version);
            let since = before.access as usize;
            // What it accessed before is expected again; at its first access nothing is.
            if let Some(expected) = expected {
                if !is_internal {
                    is_internal = true;
                    findings.explain(INTERNAL, || contradiction(columns, number, event, expected));
                }
                let repeats = |(other, access): &(u32, KeyAccess)| {
                    *other == key && access.read == Some(version)
                };
                if collected[since..].iter().any(repeats) {
                    continue;
                }
            }
            self.check_read(number, at, findings);
            let access = KeyAccess {
                transaction: number,
                read: Some(version),
                write: None,
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
        // Overwritten below: each place belongs to one access.
        let none = KeyAccess {
            transaction: Txn::new(0),
            read: None,
            write: None,
        };
        let mut next = self.starts.clone();
        self.all = vec![none; collected.len()];
        for &(key, access) in collected {
            let place = &mut next[key as usize];
            self.all[*place as usize] = access;
            *place += 1;
        }
        debug_assert!(
            self.all.iter().all(|access| access.first().is_some()),
            "an access reads or writes"
        );
        assert!(
            self.starts.is_sorted() && self.starts.last() == Some(&(self.all.len() as u32)),
            "the ranges of keys cover all accesses"
        );
    }

    fn index_readers(&mut self) {
        let mut starts = vec![0_u32; self.columns.version_count() + 2];
        let reads = || {
            let all = self.all.iter();
            all.filter_map(|access| Some((access.read?, access.transaction)))
        };
        // Two places ahead, so that after the second pass, which moves each start to its end, they are one ahead.
        for (version, _) in reads() {
            starts[version.index() + 2] += 1;
        }
        for version in 1..starts.len() {
            starts[version] += starts[version - 1];
        }
        let mut readers = vec![0; reads().count()];
        for (version, reader) in reads() {
            let place = &mut starts[version.index() + 1];
            readers[*place as usize] = reader.get();
            *place += 1;
        }
        starts.pop();
        assert!(
            starts.is_sorted() && starts.last() == Some(&(readers.len() as u32)),
            "the ranges of versions cover all readers"
        );
        debug_assert!(
            starts.array_windows().all(|&[start, end]| {
                readers[start as usize..end as usize].is_sorted_by(|one, next| one < next)
            }),
            "the readers of a version ascend, each once"
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
                Some(next) if has_write_later(next) => None,
                _ => access.write,
            };
            KeyAccess { write, ..*access }
        })
    }

    /// The readers of a version, in order and without repetition.
    pub(super) fn readers(&self, version: Version) -> &[u32] {
        let version = version.index();
        let (start, end) = (self.reader_starts[version], self.reader_starts[version + 1]);
        &self.readers[start as usize..end as usize]
    }

    /// Did this transaction take effect?
    pub(super) fn happened(&self, transaction: Txn) -> bool {
        self.is_ok(transaction)
            || self.seen_is_committed && self.columns.happened(transaction.get())
    }

    /// Did this transaction succeed?
    pub(super) fn is_ok(&self, transaction: Txn) -> bool {
        self.columns.outcomes()[transaction.index()] == OpType::Ok
    }

    /// The transaction that installed a version: its writer, if that took effect and did not overwrite it itself.
    pub(super) fn installer(&self, version: Version) -> Option<Txn> {
        let writer = self.columns.writer(version)?;
        let is_last = !self.columns.is_overwritten(version);
        (is_last && self.happened(writer)).then_some(writer)
    }

    /// Adds the anomaly of a single read, if it has one.
    fn check_read(&self, reader: Txn, at: usize, findings: &mut Findings) {
        let columns = self.columns;
        let events = &columns.events(reader.get())[at..];
        let read = events[0];
        let version = read.version();
        if columns.is_initial(version) {
            return;
        }
        let key = || columns.key(read.key());
        let value = || columns.shown_value(version);
        let line = |number: Txn| columns.shown(number.get());
        let index = |number: Txn| columns.index(number.get());
        let Some(writer) = columns.writer(version) else {
            findings.explain(GARBAGE_READ, || {
                let summary = format!(
                    "{}\nread {} of key {}, which no operation wrote.",
                    line(reader),
                    value(),
                    key()
                );
                (vec![index(reader)], summary)
            });
            return;
        };
        let both = || vec![index(reader), index(writer)];
        if columns.outcomes()[writer.index()] == OpType::Fail {
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
        let mut first: Vec<Option<Txn>> = vec![None; columns.version_count()];
        let mut lost: BTreeMap<(u32, Version), Vec<Txn>> = BTreeMap::new();
        // A read of the transaction's own later write is no update.
        for access in &self.all {
            let Some((read, _)) = access.update().filter(|(read, write)| read != write) else {
                continue;
            };
            match first[read.index()] {
                None => first[read.index()] = Some(access.transaction),
                Some(known) => {
                    let group = lost.entry((columns.key_of(read), read));
                    let group = group.or_insert_with(|| vec![known]);
                    group.push(access.transaction);
                }
            }
        }
        for ((key, version), group) in lost {
            findings.explain(LOST_UPDATE, || {
                let summary = format!(
                    "{} transactions read key {} as {} and then overwrote it, among them:\n  {}\n  {}",
                    group.len(),
                    columns.key(key),
                    columns.shown_value(version),
                    columns.shown(group[0].get()),
                    columns.shown(group[1].get())
                );
                (group.iter().map(|one| columns.index(one.get())).collect(), summary)
            });
        }
    }
}

/// The last access of the current transaction to a key.
#[derive(Clone, Copy, Debug, Default)]
struct LastAccess {
    /// The current transaction, if it has accessed the key: entries of earlier ones are not cleared, but differ in this.
    transaction: Option<Txn>,
    version: Option<Version>,
    /// Lower bound of the number of its first access to this key.
    access: u32,
}

/// Sets the last write in the transaction's accesses to this key so far; false if there are none.
fn update(collected: &mut [(u32, KeyAccess)], key: u32, version: Version) -> bool {
    let mut is_update = false;
    for (_, access) in collected.iter_mut().filter(|(other, _)| *other == key) {
        access.write = Some(version);
        is_update = true;
    }
    is_update
}

/// The explanation of a read that contradicts an earlier read or write of its transaction.
fn contradiction(
    columns: &Columns,
    number: Txn,
    read: RegisterEvent,
    expected: Version,
) -> (Vec<u64>, String) {
    let summary = format!(
        "{}\nIts {} contradicts what it read or wrote before: {} was to be expected.",
        columns.shown(number.get()),
        columns.shown_event(read),
        columns.shown_value(expected)
    );
    (vec![columns.index(number.get())], summary)
}
