//! Writes transactions on registers in the formats of other isolation checkers.
//!
//! These formats have sessions, transactions and what these read and wrote, but no times of clients and no unknown outcome. A
//! transaction of unknown outcome is written as committed when a committed transaction read from it: it took place, with
//! all its writes. Otherwise it is omitted; no isolation level distinguishes that from a commit after all others. Its reads
//! are unknown in both cases and are omitted. When its session continues (Jepsen's never do), the transaction is written in a
//! session of its own, because the file's order within a session would otherwise claim that it came first.

use seatrial_history::FixedMap;
use seatrial_history::{Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_history::{Stamp, Stamps};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A format of transactions on registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterLayout {
    /// Plume's and PolySI's text, a line for each operation.
    Plume,
    /// TimeKiller's JSON, a transaction in a line, with the timestamps of completions ([`Stamps`]); aborted
    /// transactions are omitted.
    TimeKiller,
    /// dbcop's bincode of 2019, which PolySI, VeriStrong and AWDIT read as well. Its header contains totals, so
    /// all transactions are held in memory: 18 bytes for each operation.
    Dbcop,
}

/// Why a history cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The format cannot carry it.
    #[error("operation {index}: {problem}")]
    Unfit {
        /// The operation's index.
        index: u64,
        /// What cannot be carried.
        problem: String,
    },
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The value of the initial state.
const INITIAL: i64 = 0;
/// Plume's transaction number for aborted operations.
const ABORTED: i64 = -1;
/// The error for a transaction without timestamps.
const UNSTAMPED: &str = "it has no start-stamp and commit-stamp, which this format requires";
/// A point of time that dbcop can parse; histories have none.
const TIME: &str = "1970-01-01T00:00:00+00:00";

/// Writes transactions one after another. [`RegisterWriter::finish`] must be called.
pub struct RegisterWriter<W> {
    out: RegisterOutput<W>,
    /// Invocations without a known outcome.
    waiting: UndecidedTransactions,
}

/// Transactions without a known outcome, which a later read may prove to have committed.
#[derive(Default)]
struct UndecidedTransactions {
    /// By the number of the invocation.
    transactions: BTreeMap<u64, UndecidedTransaction>,
    /// From a written key and value to the number of the invocation.
    writers: FixedMap<(Key, i64), u64>,
    /// The invocation of each process that has not completed.
    open: FixedMap<u64, u64>,
    /// Invocations so far.
    count: u64,
}

struct UndecidedTransaction {
    index: u64,
    process: u64,
    writes: Vec<(Key, i64)>,
    /// Did a committed transaction read from it?
    observed: bool,
    /// Did its process invoke another operation?
    has_continued: bool,
}

/// One operation of a transaction.
#[derive(Clone, Copy)]
struct RegisterAccess {
    writes: bool,
    key: i64,
    value: i64,
}

enum RegisterOutput<W> {
    Plume {
        out: W,
        /// Transactions so far.
        count: i64,
        /// The first number that no session has.
        next_session: u64,
    },
    TimeKiller {
        out: W,
        /// Transactions so far.
        count: u64,
        /// The first number that no session has.
        next_session: u64,
    },
    Dbcop {
        out: W,
        sessions: Vec<DbcopSession>,
        /// Which session each process has.
        numbers: FixedMap<u64, usize>,
        events: u64,
        keys: BTreeSet<i64>,
        next_session: u64,
    },
}

/// A session of dbcop, as its bytes.
#[derive(Default)]
struct DbcopSession {
    transactions: u64,
    bytes: Vec<u8>,
}

impl DbcopSession {
    /// Adds a transaction; the error is why it cannot be written.
    fn add(&mut self, events: &[RegisterAccess], committed: bool) -> Result<(), String> {
        self.transactions += 1;
        self.bytes.extend((events.len() as u64).to_le_bytes());
        for event in events {
            let natural = |number: i64, what: &str| {
                let negative = |_| format!("{what} {number} is negative");
                u64::try_from(number).map_err(negative)
            };
            let key = natural(event.key, "key")?.to_le_bytes();
            let value = natural(event.value, "value")?.to_le_bytes();
            self.bytes.push(u8::from(event.writes));
            self.bytes.extend(key.into_iter().chain(value));
            self.bytes.push(u8::from(committed));
        }
        self.bytes.push(u8::from(committed));
        Ok(())
    }
}

impl UndecidedTransactions {
    fn invoke(&mut self, op: &Op, process: u64) {
        self.continue_process(process);
        let mops = op.value.as_txn().unwrap_or_default();
        let writes = mops.iter().filter_map(|mop| match mop {
            Mop::Write { key, value } => Some((key.clone(), *value)),
            _ => None,
        });
        let writes: Vec<_> = writes.collect();
        let number = self.count;
        self.count += 1;
        for write in &writes {
            self.writers.insert(write.clone(), number);
        }
        self.open.insert(process, number);
        let transaction = UndecidedTransaction {
            index: op.index,
            process,
            writes,
            observed: false,
            has_continued: false,
        };
        self.transactions.insert(number, transaction);
    }

    /// Notes that a process invokes another operation after one of unknown outcome.
    fn continue_process(&mut self, process: u64) {
        if let Some(before) = self.open.remove(&process)
            && let Some(transaction) = self.transactions.get_mut(&before)
        {
            transaction.has_continued = true;
        }
    }

    /// Removes a process's transaction, whose outcome is known now.
    fn settle(&mut self, process: u64) {
        let number = self.open.remove(&process);
        let Some(transaction) = number.and_then(|number| self.transactions.remove(&number)) else {
            return;
        };
        for write in transaction.writes {
            if self.writers.get(&write) == number.as_ref() {
                self.writers.remove(&write);
            }
        }
    }

    /// Notes that a committed transaction read this value.
    fn observe(&mut self, key: &Key, value: i64) {
        let writer = self.writers.get(&(key.clone(), value));
        if let Some(transaction) = writer.and_then(|number| self.transactions.get_mut(number)) {
            transaction.observed = true;
        }
    }
}

impl<W: Write> RegisterWriter<W> {
    /// Begins a history.
    pub fn new(out: W, layout: RegisterLayout) -> RegisterWriter<W> {
        let out = match layout {
            RegisterLayout::Plume => RegisterOutput::Plume {
                out,
                count: 0,
                next_session: 0,
            },
            RegisterLayout::TimeKiller => RegisterOutput::TimeKiller {
                out,
                count: 0,
                next_session: 0,
            },
            RegisterLayout::Dbcop => RegisterOutput::Dbcop {
                out,
                sessions: Vec::new(),
                numbers: FixedMap::default(),
                events: 0,
                keys: BTreeSet::new(),
                next_session: 0,
            },
        };
        RegisterWriter {
            out,
            waiting: UndecidedTransactions::default(),
        }
    }

    /// Adds one operation of a history; operations of the nemesis are skipped.
    pub fn push(&mut self, op: &Op) -> Result<(), RegisterError> {
        let Process::Client(process) = op.process else {
            return Ok(());
        };
        let unfit = |problem: String| RegisterError::Unfit {
            index: op.index,
            problem,
        };
        let Value::Txn(mops) = &op.value else {
            return Err(unfit("no transaction on registers".to_owned()));
        };
        let ok = match op.kind {
            OpType::Invoke => {
                self.waiting.invoke(op, process);
                return Ok(());
            }
            OpType::Info => return Ok(()),
            OpType::Ok => true,
            OpType::Fail => false,
        };
        self.waiting.settle(process);
        let mut events = Vec::with_capacity(mops.len());
        for mop in mops.iter() {
            // Reads of an aborted transaction are not part of any level's definition.
            if ok || !matches!(mop, Mop::Read { .. }) {
                events.push(event(mop).map_err(unfit)?);
            }
            if let Mop::Read { key, observed } = mop
                && let Observed::Register(value) = observed
                && ok
            {
                self.waiting.observe(key, *value);
            }
        }
        let stamps = Stamps::of(&op.extra);
        self.out.add(op.index, process, &events, ok, stamps)
    }

    /// Writes the transactions of unknown outcome that committed ones read from, flushes the output and returns it.
    pub fn finish(mut self) -> Result<W, RegisterError> {
        let waiting = std::mem::take(&mut self.waiting.transactions);
        for transaction in waiting.into_values().filter(|one| one.observed) {
            let index = transaction.index;
            let unfit = |problem| RegisterError::Unfit { index, problem };
            let events = transaction.writes.into_iter().map(|(key, value)| {
                let write = Mop::Write { key, value };
                event(&write).map_err(unfit)
            });
            let events: Vec<_> = events.collect::<Result<_, _>>()?;
            let process = if transaction.has_continued {
                self.out.new_session()
            } else {
                transaction.process
            };
            self.out.add(index, process, &events, true, None)?;
        }
        self.out.finish()
    }
}

/// A micro-operation in these formats; the error is the reason why it has no form.
fn event(mop: &Mop) -> Result<RegisterAccess, String> {
    let (writes, key, value) = match mop {
        Mop::Write { key, value } => (true, key, Some(*value)),
        Mop::Append { .. } => return Err("appends to lists have no place in this format".into()),
        Mop::Read { key, observed } => match observed {
            Observed::Nil => (false, key, None),
            Observed::Register(value) => (false, key, Some(*value)),
            Observed::List(_) => {
                return Err("reads of lists have no place in this format".into());
            }
        },
    };
    let Key::Int(number) = key else {
        return Err(format!("key {key} is no integer"));
    };
    if value == Some(INITIAL) {
        let problem = "which in this format is the initial state";
        return Err(format!("key {key} has the value {INITIAL}, {problem}"));
    }
    Ok(RegisterAccess {
        writes,
        key: *number,
        value: value.unwrap_or(INITIAL),
    })
}

impl<W: Write> RegisterOutput<W> {
    fn add(
        &mut self,
        index: u64,
        process: u64,
        events: &[RegisterAccess],
        committed: bool,
        stamps: Option<Stamps>,
    ) -> Result<(), RegisterError> {
        let unfit = |problem| RegisterError::Unfit { index, problem };
        match self {
            RegisterOutput::Plume {
                out,
                count,
                next_session,
            } => {
                if i64::try_from(process).is_err() {
                    return Err(unfit(format!("session {process} does not fit in 63 bits")));
                }
                *next_session = (*next_session).max(process + 1);
                let transaction = if committed { *count } else { ABORTED };
                for event in events {
                    let &RegisterAccess { key, value, .. } = event;
                    let f = if event.writes { 'w' } else { 'r' };
                    writeln!(out, "{f}({key},{value},{process},{transaction})")?;
                }
                *count += i64::from(committed);
            }
            RegisterOutput::TimeKiller {
                out,
                count,
                next_session,
            } => {
                *next_session = (*next_session).max(process.saturating_add(1));
                if committed {
                    let stamps = stamps.ok_or_else(|| unfit(UNSTAMPED.to_owned()))?;
                    write_stamped(out, *count, process, stamps, events)?;
                    *count += 1;
                }
            }
            RegisterOutput::Dbcop {
                sessions,
                numbers,
                events: count,
                keys,
                next_session,
                ..
            } => {
                *next_session = (*next_session).max(process.saturating_add(1));
                let number = *numbers.entry(process).or_insert(sessions.len());
                if number == sessions.len() {
                    sessions.push(DbcopSession::default());
                }
                sessions[number].add(events, committed).map_err(unfit)?;
                keys.extend(events.iter().map(|event| event.key));
                *count += events.len() as u64;
            }
        }
        Ok(())
    }

    /// A session number that no process has.
    fn new_session(&self) -> u64 {
        match self {
            RegisterOutput::Plume { next_session, .. }
            | RegisterOutput::TimeKiller { next_session, .. }
            | RegisterOutput::Dbcop { next_session, .. } => *next_session,
        }
    }

    fn finish(self) -> Result<W, RegisterError> {
        let mut out = match self {
            RegisterOutput::Plume { out, .. } => out,
            RegisterOutput::TimeKiller { mut out, count, .. } => {
                out.write_all(if count == 0 { b"[]\n" } else { b"\n]\n" })?;
                out
            }
            RegisterOutput::Dbcop {
                mut out,
                sessions,
                events,
                keys,
                ..
            } => {
                let count = sessions.len() as u64;
                let transactions = sessions.iter().map(|session| session.transactions).sum();
                for number in [0, count, keys.len() as u64, transactions, events] {
                    out.write_all(&u64::to_le_bytes(number))?;
                }
                for text in ["seatrial", TIME, TIME] {
                    out.write_all(&(text.len() as u64).to_le_bytes())?;
                    out.write_all(text.as_bytes())?;
                }
                out.write_all(&count.to_le_bytes())?;
                for session in sessions {
                    out.write_all(&session.transactions.to_le_bytes())?;
                    out.write_all(&session.bytes)?;
                }
                out
            }
        };
        out.flush()?;
        Ok(out)
    }
}

/// Writes a transaction as a line of TimeKiller's JSON.
fn write_stamped(
    out: &mut impl Write,
    number: u64,
    session: u64,
    Stamps { start, commit }: Stamps,
    events: &[RegisterAccess],
) -> io::Result<()> {
    let stamp = |Stamp { physical, logical }| format!(r#"{{"p":{physical},"l":{logical}}}"#);
    let begin = if number == 0 { "[" } else { "," };
    let (start, commit) = (stamp(start), stamp(commit));
    write!(
        out,
        r#"{begin}
{{"tid":{number},"sid":{session},"sts":{start},"cts":{commit},"ops":["#
    )?;
    for (place, &RegisterAccess { writes, key, value }) in events.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let f = if writes { 'w' } else { 'r' };
        write!(out, r#"{comma}{{"t":"{f}","k":{key},"v":"#)?;
        if value == INITIAL {
            write!(out, "null}}")?;
        } else {
            write!(out, "{value}}}")?;
        }
    }
    write!(out, "]}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::registers::TransactionReader;
    use crate::import::{self, Format, ImportOptions};
    use expect_test::expect;
    use seatrial_history::History;
    use seatrial_history::TransactionSink;
    use seatrial_machine::Rng;
    use std::fmt::Write as _;

    fn export(ops: &[Op], layout: RegisterLayout) -> Result<Vec<u8>, RegisterError> {
        let mut writer = RegisterWriter::new(Vec::new(), layout);
        for op in ops {
            writer.push(op)?;
        }
        writer.finish()
    }

    fn history(text: &str) -> History {
        import::read("a", text.as_bytes(), Format::Edn, ImportOptions::default()).unwrap()
    }

    #[test]
    fn unknown_transactions_are_written_if_their_effects_were_read() {
        let ops = history(
            "{:process 0 :type :invoke :f :txn :value [[:w 1 7] [:r 2 nil]]}
             {:process 1 :type :invoke :f :txn :value [[:r 1 nil] [:r 3 nil]]}
             {:process 1 :type :ok :f :txn :value [[:r 1 7] [:r 3 nil]]}
             {:process :nemesis :type :info :f :kill :value nil}
             {:process 0 :type :info :f :txn :value [[:w 1 7] [:r 2 nil]]}
             {:process 2 :type :invoke :f :txn :value [[:w 1 8]]}
             {:process 2 :type :info :f :txn :value [[:w 1 8]]}
             {:process 3 :type :invoke :f :txn :value [[:w 1 9] [:r 1 nil]]}
             {:process 3 :type :fail :f :txn :value [[:w 1 9] [:r 1 nil]]}
             {:process 4 :type :invoke :f :txn :value [[:w 1 10]]}
             {:process 5 :type :invoke :f :txn :value [[:r 1 nil]]}
             {:process 5 :type :ok :f :txn :value [[:r 1 10]]}",
        );
        let text = export(ops.ops(), RegisterLayout::Plume).unwrap();
        expect![[r"
            r(1,7,1,0)
            r(3,0,1,0)
            w(1,9,3,-1)
            r(1,10,5,1)
            w(1,7,0,2)
            w(1,10,4,3)
        "]]
        .assert_eq(&String::from_utf8(text).unwrap());
    }

    #[test]
    fn what_cannot_be_carried_is_named() {
        let mut errors = String::new();
        for (layout, value) in [
            (RegisterLayout::Plume, "[[:append 1 2]]"),
            (RegisterLayout::Plume, "[[:r 1 [1 2]]]"),
            (RegisterLayout::Plume, "[[:w :x 2]]"),
            (RegisterLayout::Plume, "[[:w 1 0]]"),
            (RegisterLayout::Dbcop, "[[:w -1 2]]"),
            (RegisterLayout::Dbcop, "[[:w 1 -2]]"),
            (RegisterLayout::Dbcop, "3"),
        ] {
            let text = format!("{{:index 5 :process 0 :type :ok :f :txn :value {value}}}");
            let error = export(history(&text).ops(), layout).unwrap_err();
            writeln!(errors, "{error}").unwrap();
        }
        expect![[r"
            operation 5: appends to lists have no place in this format
            operation 5: reads of lists have no place in this format
            operation 5: key :x is no integer
            operation 5: key 1 has the value 0, which in this format is the initial state
            operation 5: key -1 is negative
            operation 5: value -2 is negative
            operation 5: no transaction on registers
        "]]
        .assert_eq(&errors);
    }

    #[test]
    fn timestamps_are_written_and_read_back() {
        let ops = history(
            "{:process 0 :type :invoke :f :txn :value [[:w 1 7] [:r 2 nil]]}
             {:process 1 :type :invoke :f :txn :value [[:w 1 8]]}
             {:process 0 :type :ok :f :txn :value [[:w 1 7] [:r 2 nil]] :start-stamp [4 1] :commit-stamp [5 0]}
             {:process 1 :type :fail :f :txn :value [[:w 1 8]]}
             {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
             {:process 1 :type :ok :f :txn :value [[:r 1 7]] :start-stamp [5 1] :commit-stamp [5 1]}",
        );
        let text = export(ops.ops(), RegisterLayout::TimeKiller).unwrap();
        expect![[r#"
            [
            {"tid":0,"sid":0,"sts":{"p":4,"l":1},"cts":{"p":5,"l":0},"ops":[{"t":"w","k":1,"v":7},{"t":"r","k":2,"v":null}]},
            {"tid":1,"sid":1,"sts":{"p":5,"l":1},"cts":{"p":5,"l":1},"ops":[{"t":"r","k":1,"v":7}]}
            ]
        "#]]
        .assert_eq(std::str::from_utf8(&text).unwrap());
        let again =
            import::read("a", &text[..], Format::TimeKiller, ImportOptions::default()).unwrap();
        let text_again = export(again.ops(), RegisterLayout::TimeKiller).unwrap();
        assert_eq!(text_again, text);
        let none = export(&[], RegisterLayout::TimeKiller).unwrap();
        assert_eq!(read_back(&none, Format::TimeKiller), ReadBack::default());
        let unstamped = history("{:process 0 :type :ok :f :txn :value [[:w 1 7]]}");
        let refused = export(unstamped.ops(), RegisterLayout::TimeKiller).unwrap_err();
        assert!(refused.to_string().contains("no start-stamp"), "{refused}");
    }

    /// Sessions, committed or not, and what each transaction did.
    #[derive(Default, PartialEq, Debug)]
    struct ReadBack(BTreeMap<u64, Vec<(bool, Vec<Mop>)>>, u64);

    impl TransactionSink for ReadBack {
        fn begin(&mut self, session: u64, _: Option<Stamps>) {
            self.1 = session;
            self.0.entry(session).or_default().push((false, Vec::new()));
        }
        fn read(&mut self, key: i64, value: Option<i64>) {
            let observed = value.map_or(Observed::Nil, Observed::Register);
            self.mop(Mop::Read {
                key: Key::Int(key),
                observed,
            });
        }
        fn write(&mut self, key: i64, value: i64) {
            self.mop(Mop::Write {
                key: Key::Int(key),
                value,
            });
        }
        fn append(&mut self, _: i64, _: i64) {
            panic!("no lists");
        }
        fn read_list(&mut self, _: i64, _: &[i64]) {
            panic!("no lists");
        }
        fn end(&mut self, outcome: OpType) -> Result<(), String> {
            self.0.get_mut(&self.1).unwrap().last_mut().unwrap().0 = outcome == OpType::Ok;
            Ok(())
        }
    }

    impl ReadBack {
        fn mop(&mut self, mop: Mop) {
            self.0
                .get_mut(&self.1)
                .unwrap()
                .last_mut()
                .unwrap()
                .1
                .push(mop);
        }
    }

    fn read_back(bytes: &[u8], format: Format) -> ReadBack {
        let mut transactions = ReadBack::default();
        let mut reader = TransactionReader::open("a", bytes, format, ImportOptions::default());
        while reader.advance(&mut transactions).unwrap() {}
        transactions
    }

    /// A read of anything, or a write of this value.
    fn random(value: i64, rng: &mut Rng) -> Mop {
        let key = Key::Int(rng.below(5).cast_signed());
        let observed = match rng.below(3) {
            0 => return Mop::Write { key, value },
            1 => Observed::Nil,
            _ => Observed::Register(1 + rng.below(300).cast_signed()),
        };
        Mop::Read { key, observed }
    }

    #[test]
    fn written_histories_are_read_back() {
        let mut rng = Rng::from_seed(17);
        for _ in 0..300 {
            let mut ops = Vec::new();
            let mut expected = ReadBack::default();
            for value in 0..rng.below(30).cast_signed() {
                let session = rng.below(4);
                let committed = rng.chance(0.8);
                let mops = (0..=rng.below(4).cast_signed())
                    .map(|number| random(1 + 10 * value + number, &mut rng));
                let mops: Vec<Mop> = mops.collect();
                let process = Process::Client(session);
                let invocation = Op::invoke(process, "txn", Value::Txn(mops.clone().into()));
                let kind = if committed { OpType::Ok } else { OpType::Fail };
                ops.push(invocation.clone());
                ops.push(invocation.complete(kind, invocation.value.clone()));
                let kept = mops.into_iter();
                let kept = kept.filter(|mop| committed || matches!(mop, Mop::Write { .. }));
                let kept: Vec<Mop> = kept.collect();
                // Plume has no transactions without operations, and joins aborted ones.
                if !kept.is_empty() && (committed || expected.1 != session + 1) {
                    expected.begin(session, None);
                    for mop in kept {
                        expected.mop(mop);
                    }
                    let outcome = if committed { OpType::Ok } else { OpType::Fail };
                    expected.end(outcome).unwrap();
                    expected.1 = if committed { 0 } else { session + 1 };
                } else {
                    ops.truncate(ops.len() - 2);
                }
            }
            let ops = History::from_unindexed(ops);
            expected.1 = 0;
            let mut plume = read_back(
                &export(ops.ops(), RegisterLayout::Plume).unwrap(),
                Format::Plume,
            );
            plume.1 = 0;
            assert_eq!(plume, expected);
            // dbcop numbers sessions as they come.
            let bytes = export(ops.ops(), RegisterLayout::Dbcop).unwrap();
            let dbcop = read_back(&bytes, Format::Dbcop);
            let mut sessions: Vec<_> = Vec::new();
            for op in &ops {
                let Process::Client(number) = op.process else {
                    continue;
                };
                if !sessions.contains(&number) {
                    sessions.push(number);
                }
            }
            assert_eq!(dbcop.0.len(), sessions.len());
            for (number, session) in sessions.iter().enumerate() {
                assert_eq!(dbcop.0[&(number as u64)], expected.0[session]);
            }
        }
    }
}
