//! Who touched which key: what was read of it, and what was written in the end.

use crate::txn::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL, LOST_UPDATE};
use crate::txn::findings::Findings;
use crate::txn::registers::{Columns, Event, NONE};
use seatrial_history::OpType;
use std::collections::BTreeMap;

/// One transaction at one key. As a rule a transaction has one of these for each of its keys; one that contradicts
/// itself has one more for each read that came as a surprise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) transaction: u32,
    /// The version that it read before it wrote the key, or against what it knew; [`NONE`] when it only wrote.
    pub(super) read: u32,
    /// Its last write to the key, if that came later; else [`NONE`].
    pub(super) write: u32,
}

impl Touch {
    /// The first version that it met.
    pub(super) fn first(self) -> u32 {
        if self.read == NONE {
            self.write
        } else {
            self.read
        }
    }

    /// The last version that it met.
    pub(super) fn last(self) -> u32 {
        if self.write == NONE {
            self.read
        } else {
            self.write
        }
    }
}

/// All touches by key, and all readers by version.
pub(super) struct Touches<'a> {
    pub(super) columns: &'a Columns,
    /// Do effects of a transaction of unknown outcome, once they were seen, say that it committed?
    seen_is_committed: bool,
    /// By key: where its touches begin.
    starts: Vec<u32>,
    all: Vec<Touch>,
    /// By version: where its readers begin.
    reader_starts: Vec<u32>,
    readers: Vec<u32>,
}

impl<'a> Touches<'a> {
    /// Collects them; what is wrong with single reads is told on the way.
    pub(super) fn new(
        columns: &'a Columns,
        seen_is_committed: bool,
        findings: &mut Findings,
    ) -> Touches<'a> {
        let mut touches = Touches {
            columns,
            seen_is_committed,
            starts: Vec::new(),
            all: Vec::new(),
            reader_starts: Vec::new(),
            readers: Vec::new(),
        };
        let mut collected = Vec::with_capacity(columns.event_count());
        let mut known = vec![Known::default(); columns.key_count()];
        for number in 0..columns.len() as u32 {
            let first = collected.len();
            if columns.outcomes()[number as usize] == OpType::Ok {
                touches.collect(number, &mut known, &mut collected, findings);
            } else if touches.happened(number) {
                let writes = columns.events(number).iter();
                collected.extend(writes.filter(|event| event.is_final_write()).map(|write| {
                    let touch = Touch {
                        transaction: number,
                        read: NONE,
                        write: write.version(),
                    };
                    (write.key(), touch)
                }));
            }
            debug_assert!(collected.len() - first <= columns.events(number).len());
        }
        touches.arrange(&collected);
        drop(collected);
        touches.index_readers();
        touches
    }

    /// The touches of a successful transaction.
    fn collect(
        &self,
        number: u32,
        known: &mut [Known],
        collected: &mut Vec<(u32, Touch)>,
        findings: &mut Findings,
    ) {
        let columns = self.columns;
        let mut is_internal = false;
        for (at, &event) in columns.events(number).iter().enumerate() {
            let (key, version) = (event.key(), event.version());
            let before = &mut known[key as usize];
            let is_first = before.transaction != number + 1;
            if is_first {
                *before = Known {
                    transaction: number + 1,
                    version: NONE,
                    touch: collected.len() as u32,
                };
            }
            if event.is_write() {
                before.version = version;
                let since = before.touch as usize;
                if event.is_final_write() && !update(&mut collected[since..], key, version) {
                    let touch = Touch {
                        transaction: number,
                        read: NONE,
                        write: version,
                    };
                    collected.push((key, touch));
                }
                continue;
            }
            if !is_first && before.version == version {
                continue;
            }
            let expected = std::mem::replace(&mut before.version, version);
            let since = before.touch as usize;
            if !is_first {
                if !is_internal {
                    is_internal = true;
                    findings.tell(INTERNAL, || contradiction(columns, number, event, expected));
                }
                let repeats =
                    |(other, touch): &(u32, Touch)| *other == key && touch.read == version;
                if collected[since..].iter().any(repeats) {
                    continue;
                }
            }
            self.tell_read(number, at, findings);
            let touch = Touch {
                transaction: number,
                read: version,
                write: NONE,
            };
            collected.push((key, touch));
        }
    }

    /// Puts the touches in the order of their keys; those of a key stay in the order of transactions.
    fn arrange(&mut self, collected: &[(u32, Touch)]) {
        self.starts = vec![0; self.columns.key_count() + 1];
        for &(key, _) in collected {
            self.starts[key as usize + 1] += 1;
        }
        for key in 0..self.columns.key_count() {
            self.starts[key + 1] += self.starts[key];
        }
        let none = Touch {
            transaction: NONE,
            read: NONE,
            write: NONE,
        };
        let mut next = self.starts.clone();
        self.all = vec![none; collected.len()];
        for &(key, touch) in collected {
            let place = &mut next[key as usize];
            self.all[*place as usize] = touch;
            *place += 1;
        }
    }

    fn index_readers(&mut self) {
        let mut starts = vec![0_u32; self.columns.version_count() + 2];
        let reads = || self.all.iter().filter(|touch| touch.read != NONE);
        for touch in reads() {
            starts[touch.read as usize + 2] += 1;
        }
        for version in 1..starts.len() {
            starts[version] += starts[version - 1];
        }
        let mut readers = vec![0; reads().count()];
        for touch in reads() {
            let place = &mut starts[touch.read as usize + 1];
            readers[*place as usize] = touch.transaction;
            *place += 1;
        }
        starts.pop();
        (self.reader_starts, self.readers) = (starts, readers);
    }

    /// The touches of a key, in the order of transactions.
    pub(super) fn of_key(&self, key: u32) -> &[Touch] {
        let key = key as usize;
        &self.all[self.starts[key] as usize..self.starts[key + 1] as usize]
    }

    /// The same, as their transactions met the versions one after the other: of several touches of one transaction before its
    /// write, only the last has that.
    pub(super) fn in_turn(&self, key: u32) -> impl Iterator<Item = Touch> {
        let all = self.of_key(key);
        all.iter().enumerate().map(|(at, touch)| {
            let is_told_later =
                |next: &Touch| next.transaction == touch.transaction && next.write == touch.write;
            let write = match all.get(at + 1) {
                Some(next) if is_told_later(next) => NONE,
                _ => touch.write,
            };
            Touch { write, ..*touch }
        })
    }

    /// Who read a version, in order and without repetition.
    pub(super) fn readers(&self, version: u32) -> &[u32] {
        let version = version as usize;
        let (start, end) = (self.reader_starts[version], self.reader_starts[version + 1]);
        &self.readers[start as usize..end as usize]
    }

    /// Did this transaction take place?
    pub(super) fn happened(&self, transaction: u32) -> bool {
        self.is_ok(transaction) || self.seen_is_committed && self.columns.happened(transaction)
    }

    /// Did this transaction succeed?
    pub(super) fn is_ok(&self, transaction: u32) -> bool {
        self.columns.outcomes()[transaction as usize] == OpType::Ok
    }

    /// Who installed this version: its writer, if that took place and did not overwrite it itself.
    pub(super) fn installer(&self, version: u32) -> u32 {
        let writer = self.columns.writer(version);
        if writer == NONE || self.columns.is_overwritten(version) || !self.happened(writer) {
            return NONE;
        }
        writer
    }

    /// Adds what is wrong with the read at this place of a transaction, if anything is.
    fn tell_read(&self, reader: u32, at: usize, findings: &mut Findings) {
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
        let writer = columns.writer(version);
        if writer == NONE {
            findings.tell(GARBAGE_READ, || {
                let summary = format!(
                    "{}\nread {} of key {}, which nobody ever wrote.",
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
            findings.tell(G1A, || {
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
        let is_this = |event: &Event| event.is_write() && event.version() == version;
        if writer == reader && !events.iter().any(is_this) {
            // It wrote that before, and then something else: it contradicts itself, no more.
        } else if writer == reader {
            findings.tell(FUTURE_READ, || {
                let summary = format!(
                    "{}\nread its own write of {} to key {}, which it performs only later.",
                    line(reader),
                    value(),
                    key()
                );
                (both(), summary)
            });
        } else if columns.is_overwritten(version) {
            findings.tell(G1B, || {
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

    /// Adds the versions that two or more transactions read and then overwrote.
    pub(super) fn tell_lost_updates(&self, findings: &mut Findings) {
        let columns = self.columns;
        let mut first = vec![NONE; columns.version_count()];
        let mut lost: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        // Who reads what it writes only later has overwritten nothing.
        let is_update =
            |touch: &&Touch| touch.read != NONE && touch.write != NONE && touch.read != touch.write;
        for touch in self.all.iter().filter(is_update) {
            let known = &mut first[touch.read as usize];
            if *known == NONE {
                *known = touch.transaction;
            } else {
                let key = columns.key_of(touch.read);
                let group = lost.entry((key, touch.read));
                group
                    .or_insert_with(|| vec![*known])
                    .push(touch.transaction);
            }
        }
        for ((key, version), group) in lost {
            findings.tell(LOST_UPDATE, || {
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

/// What the transaction at hand knows of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Which transaction, and 1.
    transaction: u32,
    version: u32,
    /// Where its touches of this key begin at the earliest.
    touch: u32,
}

/// Notes the last write to a key in the transaction's touches of this key so far; is there any?
fn update(collected: &mut [(u32, Touch)], key: u32, version: u32) -> bool {
    let mut is_update = false;
    for (_, touch) in collected.iter_mut().filter(|(other, _)| *other == key) {
        touch.write = version;
        is_update = true;
    }
    is_update
}

/// A read that contradicts what its transaction knew.
fn contradiction(columns: &Columns, number: u32, read: Event, expected: u32) -> (Vec<u64>, String) {
    let summary = format!(
        "{}\nIts {} contradicts what it read or wrote before: {} was to be expected.",
        columns.shown(number),
        columns.shown_event(read),
        columns.shown_value(expected)
    );
    (vec![columns.index(number)], summary)
}
