//! The registers of a history: who wrote what, who read what.

use crate::txn::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL, LOST_UPDATE};
use crate::txn::dense::Elements;
use crate::txn::explain::shown;
use crate::txn::findings::Findings;
use crate::txn::level::Level;
use crate::txn::transactions::{NONE, Transaction, Transactions};
use seatrial_history::{Mop, Observed};

/// A value and who wrote it.
pub(super) struct Write {
    pub(super) transaction: u32,
    pub(super) key: u32,
    pub(super) value: i64,
    /// Is it its transaction's last write to the key?
    pub(super) is_final: bool,
    /// Did a successful transaction read it?
    pub(super) is_seen: bool,
}

/// What a successful transaction read of a key: before it did anything else with it, or against what it knew.
pub(super) struct Read {
    pub(super) transaction: u32,
    pub(super) key: u32,
    /// The write that it saw; [`INITIAL`] for nil, [`NONE`] for a value that nobody wrote.
    pub(super) version: u32,
    /// The transaction's last write to the key afterwards; [`NONE`] when there is none.
    pub(super) update: u32,
}

/// The version before all writes.
pub(super) const INITIAL: u32 = NONE - 1;

/// Everything that the graph and the direct anomalies are derived from.
pub(super) struct Registers<'a> {
    pub(super) transactions: &'a Transactions<'a>,
    pub(super) writes: Vec<Write>,
    index: Elements,
    /// By key and version.
    pub(super) reads: Vec<Read>,
    /// Which transactions took place: the nodes of the graph.
    pub(super) happened: Vec<bool>,
    /// Does the level forbid that a write comes before what its transaction read?
    pub(super) writes_follow_reads: bool,
}

impl<'a> Registers<'a> {
    /// Collects the registers; contradictions within one transaction are found on the way. The error says what makes a
    /// judgement impossible.
    pub(super) fn new(
        transactions: &'a Transactions<'a>,
        level: Level,
        findings: &mut Findings,
    ) -> Result<Registers<'a>, String> {
        let mut registers = Registers {
            transactions,
            writes: Vec::new(),
            index: Elements::default(),
            reads: Vec::new(),
            happened: transactions.all.iter().map(Transaction::is_ok).collect(),
            writes_follow_reads: level.implies(Level::ReadCommitted),
        };
        let mut last = vec![NONE; transactions.keys.len()];
        for number in 0..transactions.len() as u32 {
            registers.collect_writes(number, &mut last)?;
        }
        let pairs = registers
            .writes
            .iter()
            .map(|write| (write.key, write.value));
        registers.index = Elements::new(transactions.keys.len(), pairs)
            .map_err(|(one, other)| registers.repeated(one, other))?;
        let mut mops = Vec::new();
        for number in 0..transactions.len() as u32 {
            if transactions.all[number as usize].is_ok() {
                registers.collect_reads(number, &mut mops, findings);
            }
        }
        let place = |read: &Read| (read.key, read.version, read.transaction);
        // A transaction that came back to a version keeps the read before its last write.
        let reads = &mut registers.reads;
        reads.sort_unstable_by_key(|read| (place(read), read.update));
        reads.dedup_by_key(|read| place(read));
        for read in &registers.reads {
            if let Some(write) = registers.writes.get_mut(read.version as usize) {
                write.is_seen = true;
            }
        }
        // Below read committed, effects of an unknown transaction that were seen do not say that it committed.
        if level.implies(Level::ReadCommitted) {
            for write in registers.writes.iter().filter(|write| write.is_seen) {
                let number = write.transaction as usize;
                registers.happened[number] |= !transactions.all[number].is_fail();
            }
        }
        Ok(registers)
    }

    /// Numbers a transaction's writes. `last` holds for each key the last transaction that was seen to write it.
    fn collect_writes(&mut self, number: u32, last: &mut [u32]) -> Result<(), String> {
        let first = self.writes.len();
        for (key, mop) in self.transactions.keyed_mops(number) {
            match mop {
                Mop::Write { value, .. } => self.writes.push(Write {
                    transaction: number,
                    key,
                    value: *value,
                    is_final: false,
                    is_seen: false,
                }),
                Mop::Read {
                    observed: Observed::Register(_) | Observed::Nil,
                    ..
                } => {}
                other => {
                    return Err(format!(
                        "op {}: {other} is neither a write of a register nor a read of one",
                        self.transactions.index(number)
                    ));
                }
            }
        }
        for write in self.writes[first..].iter_mut().rev() {
            write.is_final = last[write.key as usize] != number;
            last[write.key as usize] = number;
        }
        Ok(())
    }

    fn repeated(&self, one: u32, other: u32) -> String {
        let [one, other] = [one, other].map(|number| &self.writes[number as usize]);
        format!(
            "op {} does [:w {} {}], as op {} did: values must be unique for each key",
            self.transactions.index(other.transaction),
            self.transactions.keys.key(other.key),
            other.value,
            self.transactions.index(one.transaction)
        )
    }

    /// Collects what a transaction read from others, and checks the rest of its reads against what it knew.
    fn collect_reads(&mut self, number: u32, mops: &mut Vec<(u32, u32)>, findings: &mut Findings) {
        let transactions = self.transactions;
        mops.clear();
        let keys = transactions.mop_keys(number).iter();
        mops.extend(keys.zip(0..).map(|(&key, mop)| (key, mop)));
        mops.sort_unstable();
        let mut is_internal = false;
        for group in mops.chunk_by(|a, b| a.0 == b.0) {
            let key = group[0].0;
            let mut known: Option<Option<i64>> = None;
            for (first, &(_, at)) in group.iter().enumerate() {
                let mop = &transactions.mops(number)[at as usize];
                let value = value(mop);
                if matches!(mop, Mop::Read { .. }) && known != Some(value) {
                    self.reads.push(Read {
                        transaction: number,
                        key,
                        version: value.map_or(INITIAL, |value| self.find(key, value)),
                        update: self.last_write(number, key, &group[first..]),
                    });
                    if let Some(expected) = known.filter(|_| !is_internal) {
                        is_internal = true;
                        findings.tell(INTERNAL, || {
                            contradiction(transactions, number, mop, expected)
                        });
                    }
                }
                known = Some(value);
            }
        }
    }

    fn last_write(&self, number: u32, key: u32, group: &[(u32, u32)]) -> u32 {
        let mops = self.transactions.mops(number);
        let mut mops = group.iter().rev().map(|&(_, at)| &mops[at as usize]);
        let last = mops.find(|mop| matches!(mop, Mop::Write { .. }));
        last.and_then(value)
            .map_or(NONE, |value| self.find(key, value))
    }

    /// The number of the write of this value; [`NONE`] when nobody wrote it.
    pub(super) fn find(&self, key: u32, value: i64) -> u32 {
        self.index.find(key, value).unwrap_or(NONE)
    }

    /// Did the transaction of this write take place?
    pub(super) fn is_committed(&self, write: &Write) -> bool {
        self.happened[write.transaction as usize]
    }

    /// Adds the anomalies that need no cycle.
    pub(super) fn tell(&self, findings: &mut Findings) {
        let transactions = self.transactions;
        let mut in_order: Vec<_> = self.reads.iter().collect();
        in_order.sort_unstable_by_key(|read| (read.transaction, read.key));
        for read in in_order {
            let (reader, key) = (read.transaction, transactions.keys.key(read.key));
            let index = transactions.index(reader);
            match self.writes.get(read.version as usize) {
                None if read.version == NONE => findings.tell(GARBAGE_READ, || {
                    let summary = format!(
                        "{}\nread a value of key {key} that nobody ever wrote.",
                        shown(transactions, reader)
                    );
                    (vec![index], summary)
                }),
                None => {}
                Some(write) => self.tell_read(read, write, findings),
            }
        }
        self.tell_lost_updates(findings);
    }

    /// Adds an aborted or intermediate read, if this is one.
    fn tell_read(&self, read: &Read, write: &Write, findings: &mut Findings) {
        let transactions = self.transactions;
        let key = transactions.keys.key(read.key);
        let writer = write.transaction;
        let both = || {
            vec![
                transactions.index(read.transaction),
                transactions.index(writer),
            ]
        };
        if transactions.all[writer as usize].is_fail() {
            findings.tell(G1A, || {
                let summary = format!(
                    "{}\nread value {} of key {key}, whose write was aborted:\n{}",
                    shown(transactions, read.transaction),
                    write.value,
                    shown(transactions, writer)
                );
                (both(), summary)
            });
        }
        if writer == read.transaction {
            findings.tell(FUTURE_READ, || {
                let summary = format!(
                    "{}\nread its own write of {} to key {key}, which it performs only later.",
                    shown(transactions, writer),
                    write.value
                );
                (both(), summary)
            });
        } else if !write.is_final {
            findings.tell(G1B, || {
                let summary = format!(
                    "{}\nread key {key} as it was in the middle of another transaction, which wrote it again \
                     after {}:\n{}",
                    shown(transactions, read.transaction),
                    write.value,
                    shown(transactions, writer)
                );
                (both(), summary)
            });
        }
    }

    /// Adds the versions that two or more transactions read and then overwrote.
    fn tell_lost_updates(&self, findings: &mut Findings) {
        let updates = |read: &&Read| read.update != NONE && read.version != NONE;
        let updates: Vec<_> = self.reads.iter().filter(updates).collect();
        for group in updates.chunk_by(|a, b| (a.key, a.version) == (b.key, b.version)) {
            if let [one, other, ..] = group {
                let transactions = self.transactions;
                findings.tell(LOST_UPDATE, || {
                    let version = self.writes.get(one.version as usize);
                    let version = version.map_or("nil".into(), |write| write.value.to_string());
                    let summary = format!(
                        "{} transactions read key {} as {version} and then overwrote it, among them:\n  {}\n  {}",
                        group.len(),
                        transactions.keys.key(one.key),
                        shown(transactions, one.transaction),
                        shown(transactions, other.transaction)
                    );
                    let readers = group.iter().map(|read| transactions.index(read.transaction));
                    (readers.collect(), summary)
                });
            }
        }
    }
}

/// A read that contradicts what its transaction knew.
fn contradiction(
    transactions: &Transactions<'_>,
    number: u32,
    mop: &Mop,
    expected: Option<i64>,
) -> (Vec<u64>, String) {
    let expected = expected.map_or("nil".into(), |value| value.to_string());
    let summary = format!(
        "{}\nIts {mop} contradicts what it read or wrote before: {expected} was to be expected.",
        shown(transactions, number)
    );
    (vec![transactions.index(number)], summary)
}

/// The value that was written or read.
pub(super) fn value(mop: &Mop) -> Option<i64> {
    match mop {
        Mop::Write { value, .. }
        | Mop::Read {
            observed: Observed::Register(value),
            ..
        } => Some(*value),
        _ => None,
    }
}
