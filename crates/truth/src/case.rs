//! A small history of transactions in the form that brute force uses.

use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use std::fmt::Write as _;

/// Transactions of one history; sets of them are bits of a [`Set`].
pub(crate) const TRANSACTIONS_MAX: usize = 8;

/// Keys of one history.
pub(crate) const KEYS_MAX: usize = 4;

/// The largest element or value: a list is sixteen digits of one word, see [`Kind::write`].
pub(crate) const VALUE_MAX: u64 = 15;

/// The longest list.
pub(crate) const LENGTH_MAX: u32 = 15;

/// A set of transactions by number.
pub(crate) type Set = u8;

/// What each key holds: 0 is the initial state.
pub(crate) type State = [u64; KEYS_MAX];

/// What the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Lists; a write appends.
    Lists,
    /// Registers; a write overwrites.
    Registers,
}

impl Kind {
    /// What a key holds after a write. A list is a hexadecimal number, its newest element the last digit.
    pub(crate) fn write(self, before: u64, value: u64) -> u64 {
        match self {
            Kind::Lists => before << 4 | value,
            Kind::Registers => value,
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseOutcome {
    /// It took place.
    Ok,
    /// It did not.
    Fail,
    /// Unknown.
    Info,
}

/// A read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micro {
    pub(crate) key: u8,
    pub(crate) is_write: bool,
    /// The value written, the element appended, or what a read saw.
    pub(crate) value: u64,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Txn {
    pub(crate) process: u8,
    pub(crate) outcome: CaseOutcome,
    pub(crate) micros: Vec<Micro>,
    /// When it was invoked; each event of a case has a time of its own.
    pub(crate) begun: u16,
    /// When it completed, if it ever did.
    pub(crate) ended: Option<u16>,
}

impl Txn {
    pub(crate) fn is_ok(&self) -> bool {
        self.outcome == CaseOutcome::Ok
    }

    /// What it writes: keys and values, in order.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (u8, u64)> {
        let writes = self.micros.iter().filter(|micro| micro.is_write);
        writes.map(|micro| (micro.key, micro.value))
    }

    /// Does it write this key?
    pub(crate) fn has_written(&self, key: u8) -> bool {
        self.writes().any(|write| write.0 == key)
    }

    /// Is it over for certain when the other begins?
    pub(crate) fn is_before(&self, other: &Txn) -> bool {
        self.is_ok() && self.ended.is_some_and(|ended| ended < other.begun)
    }

    /// Does its process run it before the other?
    pub(crate) fn is_run_before(&self, other: &Txn) -> bool {
        self.process == other.process && self.begun < other.begun
    }
}

/// A small history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) txns: Vec<Txn>,
}

impl Case {
    /// Transactions that count: successful ones, and those of unknown outcome of which a successful one saw a write. To leave
    /// out an unseen one never makes a history worse.
    pub(crate) fn members(&self) -> Set {
        let mut members = 0;
        for (number, txn) in self.txns.iter().enumerate() {
            let is_member = txn.is_ok()
                || txn.outcome == CaseOutcome::Info
                    && txn.writes().any(|(key, value)| self.is_seen(key, value));
            members |= u8::from(is_member) << number;
        }
        members
    }

    /// Did a successful transaction see this write?
    fn is_seen(&self, key: u8, value: u64) -> bool {
        let ok = self.txns.iter().filter(|txn| txn.is_ok());
        let mut reads = ok.flat_map(|txn| &txn.micros);
        reads.any(|read| {
            !read.is_write
                && read.key == key
                && match self.kind {
                    Kind::Lists => elements(read.value).any(|element| element == value),
                    Kind::Registers => read.value == value,
                }
        })
    }

    /// Does each value that members write stand in one write of its key only?
    pub(crate) fn has_unique_writes(&self) -> bool {
        let members = members_of(self.members());
        let mut writes: Vec<(u8, u64)> = members.flat_map(|it| self.txns[it].writes()).collect();
        writes.sort_unstable();
        writes.is_sorted_by(|one, other| one != other)
    }

    /// Events in order: which transaction, and is it the completion?
    fn events(&self) -> Vec<(u16, usize, bool)> {
        let mut events = Vec::with_capacity(2 * self.txns.len());
        for (number, txn) in self.txns.iter().enumerate() {
            events.push((txn.begun, number, false));
            events.extend(txn.ended.map(|ended| (ended, number, true)));
        }
        events.sort_unstable();
        events
    }

    /// Gives the events the times 0, 1, 2, … in their order.
    pub(crate) fn renumber(&mut self) {
        for (time, (_, number, is_end)) in self.events().into_iter().enumerate() {
            let txn = &mut self.txns[number];
            if is_end {
                txn.ended = Some(time as u16);
            } else {
                txn.begun = time as u16;
            }
        }
    }

    /// Positions of the invocations in [`Case::history`], by transaction.
    pub(crate) fn places(&self) -> Vec<u64> {
        let mut places = vec![0; self.txns.len()];
        for (position, (_, number, is_end)) in self.events().into_iter().enumerate() {
            if !is_end {
                places[number] = position as u64;
            }
        }
        places
    }

    /// The history that the checkers read.
    pub(crate) fn history(&self) -> History {
        let ops = self.events().into_iter().map(|(_, number, is_end)| {
            let txn = &self.txns[number];
            let process = Process::Client(u64::from(txn.process));
            let is_observed = is_end && txn.is_ok();
            let mops: Vec<Mop> = txn
                .micros
                .iter()
                .map(|micro| self.mop(micro, is_observed))
                .collect();
            let op = Op::invoke(process, "txn", Value::Txn(mops.into()));
            if !is_end {
                return op;
            }
            let kind = match txn.outcome {
                CaseOutcome::Ok => OpType::Ok,
                CaseOutcome::Fail => OpType::Fail,
                CaseOutcome::Info => OpType::Info,
            };
            Op { kind, ..op }
        });
        let timed = ops.enumerate().map(|(time, op)| Op {
            time: time as i64 * 1_000,
            ..op
        });
        History::from_unindexed(timed.collect())
    }

    fn mop(&self, micro: &Micro, is_observed: bool) -> Mop {
        let (key, value) = (Key::Int(i64::from(micro.key)), micro.value.cast_signed());
        match (self.kind, micro.is_write) {
            (Kind::Lists, true) => Mop::Append {
                key,
                element: value,
            },
            (Kind::Registers, true) => Mop::Write { key, value },
            (kind, false) => {
                let observed = match kind {
                    _ if !is_observed => Observed::Nil,
                    Kind::Lists => {
                        let list: Vec<i64> = elements(micro.value).map(u64::cast_signed).collect();
                        Observed::List(list.into())
                    }
                    Kind::Registers if value == 0 => Observed::Nil,
                    Kind::Registers => Observed::Register(value),
                };
                Mop::Read { key, observed }
            }
        }
    }

    /// The history as EDN, an operation a line.
    pub(crate) fn edn(&self) -> String {
        let history = self.history();
        let mut text = String::new();
        for op in &history {
            let _ = writeln!(text, "{op}");
        }
        text
    }
}

/// The elements of a list, oldest first.
pub(crate) fn elements(list: u64) -> impl DoubleEndedIterator<Item = u64> + Clone {
    (0..length(list)).rev().map(move |at| list >> (4 * at) & 15)
}

/// How many elements a list has.
pub(crate) fn length(list: u64) -> u32 {
    (67 - list.leading_zeros()) / 4
}

/// The list of these elements.
pub(crate) fn list(elements: impl IntoIterator<Item = u64>) -> u64 {
    elements.into_iter().fold(0, |list, one| list << 4 | one)
}

/// The transactions of a set, in order.
pub(crate) fn members_of(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..TRANSACTIONS_MAX).filter(move |number| set >> number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_hexadecimal_number() {
        assert_eq!(length(0), 0);
        assert_eq!(length(0xf), 1);
        assert_eq!(length(0x10), 2);
        let read = list([3, 1, 15]);
        assert_eq!(read, 0x31f);
        assert_eq!(elements(read).collect::<Vec<_>>(), [3, 1, 15]);
        assert_eq!(elements(read).rev().collect::<Vec<_>>(), [15, 1, 3]);
        assert_eq!(Kind::Lists.write(read, 2), 0x31f2);
        assert_eq!(Kind::Registers.write(7, 2), 2);
    }

    #[test]
    fn a_case_is_written_as_operations() {
        let append = |value| Micro {
            key: 0,
            is_write: true,
            value,
        };
        let read = Micro {
            key: 0,
            is_write: false,
            value: 0x12,
        };
        let txn = |micros, process, begun, ended, outcome| Txn {
            process,
            outcome,
            micros,
            begun,
            ended,
        };
        let mut case = Case {
            kind: Kind::Lists,
            txns: vec![
                txn(vec![append(1), append(2)], 0, 3, None, CaseOutcome::Info),
                txn(vec![read], 1, 9, Some(12), CaseOutcome::Ok),
                txn(vec![append(3)], 2, 4, Some(5), CaseOutcome::Info),
            ],
        };
        case.renumber();
        assert_eq!(case.members(), 0b011);
        assert_eq!(case.places(), [0, 3, 1]);
        let lines = case.edn();
        let expected =
            "{:index 4, :time 4000, :type :ok, :process 1, :f :txn, :value [[:r 0 [1 2]]]}";
        assert_eq!(lines.lines().nth(4), Some(expected));
    }
}
