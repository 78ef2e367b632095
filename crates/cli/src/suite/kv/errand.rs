//! Operations of a test as transactions of the store, one after the other until the operation is done. The simulated and
//! the real suite share it.
//!
//! Registers, lists and transactions of them are what the store has. The other data types are built from these, as a user
//! of the store would build them:
//!
//! | workload | in the store |
//! | --- | --- |
//! | `set` | a list of its elements |
//! | `counter` | a list of what was added; a read adds it up |
//! | `bank` | a register per account, opened with 10; a transfer reads two and swaps both |
//! | `queue`, `total-queue` | registers for the numbers of the first and the last element, and one per element |
//! | `unique-ids` | a register that counts up |
//! | `mutex`, `lock` | a register with the owner of the lock and the fence of its last acquisition |
//! | `log` | a list of the messages of each log; a client keeps how far it has polled them |
//! | `monotonic` | a list of numbers and one of timestamps; the clock is a register that counts up |

use super::binding::{self, decimal, number};
use super::consumer::Consumer;
use seatrial_generator::workload::BankOptions;
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_kv::{Answer, Answers, Failure, Outcome, Transaction, TransactionError};

/// One operation on its way.
#[derive(Debug)]
pub(crate) struct Errand {
    op: Op,
    data: Data,
    stage: Stage,
    /// Swaps that found other values than were read just before.
    conflicts: u32,
    /// What a drain has taken out so far.
    taken: Vec<i64>,
    /// How far the client is in logs.
    consumer: Consumer,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask the store this.
    Ask(Transaction),
    /// Tell the test this.
    Done(Op),
}

/// What a workload is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Registers and transactions.
    Native,
    Set,
    Counter,
    Bank,
    Queue,
    Identifiers,
    Lock,
    Log,
    Table,
}

/// The question that the store was asked last.
#[derive(Clone, Debug)]
enum Stage {
    /// The whole operation.
    Whole,
    /// How things are.
    Look,
    /// Which elements come next in a queue, the first of them behind this head; they never change.
    Peek(Head),
    /// To change things, if they are as they were.
    Swap(Change),
}

/// The number of the element that was taken out last, as it is and as the store has it.
type Head = (i64, Option<Vec<u8>>);

/// What a swap does.
#[derive(Clone, Debug)]
enum Change {
    Put,
    /// Takes these elements out.
    Take(Vec<i64>),
    /// Answers this: an identifier, a fence, a row.
    Give(Value),
}

/// The number of the element that was taken out last, and of the one that was put in last.
const HEAD: &[u8] = b"head";
const TAIL: &[u8] = b"tail";
/// The identifier that was given out last.
const LAST: &[u8] = b"last";
/// The timestamp of the last row.
const CLOCK: &[u8] = b"clock";
/// The field that says which workload an operation of a plan is of, where the operation does not tell by itself.
pub(super) const WORKLOAD: Symbol = Symbol::new("workload");
/// What is in an account that nobody has touched.
const OPENING_BALANCE: i64 = 10;
/// Conflicts after which an operation gives up.
const CONFLICTS_MAX: u32 = 32;
/// Elements that a drain takes out at a time.
const TAKEN_AT_ONCE_MAX: i64 = 64;

impl Errand {
    /// Begins an operation of a workload, by a client that is so far in logs; without the workload's name (an operation of a
    /// plan) those of sets, counters and tables have to carry it. The error says which part of the operation the store has no
    /// word for.
    pub(crate) fn begin(
        workload: &str,
        op: &Op,
        consumer: &Consumer,
    ) -> Result<(Errand, Transaction), String> {
        let said = match op.extra.get(WORKLOAD.as_str()) {
            Some(Value::Word(name)) => name.as_str(),
            _ => workload,
        };
        let data = match (said, op.f.as_str(), &op.value) {
            ("set", ..) => Data::Set,
            ("counter", ..) => Data::Counter,
            ("monotonic", ..) => Data::Table,
            (_, "acquire" | "release", _) => Data::Lock,
            (_, "send" | "poll" | "assign", _) | (_, "txn", Value::List(_)) => Data::Log,
            (_, "transfer", _) | (_, "read", Value::Nil) => Data::Bank,
            (_, "enqueue" | "dequeue" | "drain", _) => Data::Queue,
            (_, "generate", _) => Data::Identifiers,
            _ => Data::Native,
        };
        let errand = Errand {
            op: op.clone(),
            data,
            stage: Stage::Whole,
            conflicts: 0,
            taken: Vec::new(),
            consumer: consumer.clone(),
        };
        errand.first()
    }

    fn first(mut self) -> Result<(Errand, Transaction), String> {
        let mut transaction = Transaction::new();
        let put = match (self.data, self.op.f.as_str()) {
            (Data::Native, _) => {
                let transaction = binding::transaction(&self.op)?;
                return Ok((self, transaction));
            }
            (Data::Set | Data::Counter, "read") => transaction.read(&self.key()?),
            (Data::Set | Data::Counter, "add") => {
                let (key, value) = (self.key()?, self.argument().as_int());
                let value = value.ok_or_else(|| self.cannot())?;
                transaction.append(&key, &decimal(value))
            }
            (Data::Log, "assign") => self.consumer.assign(&self.op).map(|()| Ok(()))?,
            (Data::Log, _) => {
                let mops = self.op.value.as_log().ok_or_else(|| self.cannot())?;
                self.consumer.ask(&mops, &mut transaction)
            }
            (Data::Table, "read") => {
                let (rows, stamps) = (self.name("rows")?, self.name("stamps")?);
                transaction
                    .read(&rows)
                    .and_then(|()| transaction.read(&stamps))
            }
            (Data::Bank, "read") => {
                let mut accounts = 0..BankOptions::default().accounts;
                accounts.try_for_each(|account| transaction.read(&account_name(account as i64)))
            }
            _ => {
                self.stage = Stage::Look;
                let transaction = self.look()?;
                return Ok((self, transaction));
            }
        };
        put.map_err(|error| error.to_string())?;
        Ok((self, transaction))
    }

    /// The question how things are.
    fn look(&self) -> Result<Transaction, String> {
        let mut transaction = Transaction::new();
        let put = match (self.data, self.op.f.as_str()) {
            (Data::Bank, "transfer") => {
                let transfer = self.op.value.as_transfer().ok_or_else(|| self.cannot())?;
                let from = transaction.read(&account_name(transfer.from));
                from.and_then(|()| transaction.read(&account_name(transfer.to)))
            }
            (Data::Queue, "enqueue") => transaction.read(TAIL),
            (Data::Queue, "dequeue" | "drain") => {
                transaction.read(HEAD).and_then(|()| transaction.read(TAIL))
            }
            (Data::Identifiers, "generate") => transaction.read(LAST),
            (Data::Lock, _) => transaction.read(&self.name("lock")?),
            (Data::Table, "add") => {
                let numbers = transaction.read(&self.name("rows")?);
                numbers.and_then(|()| transaction.read(CLOCK))
            }
            _ => return Err(self.cannot()),
        };
        put.map_err(|error| error.to_string())?;
        Ok(transaction)
    }

    fn cannot(&self) -> String {
        format!(
            "{} of {}: the store cannot do that",
            self.op.f, self.op.value
        )
    }

    fn key(&self) -> Result<Vec<u8>, String> {
        match &self.op.value {
            Value::Keyed(key, _) => Ok(key.to_string().into_bytes()),
            _ => Err(self.cannot()),
        }
    }

    /// The key of what belongs to the operation's own key.
    fn name(&self, kind: &str) -> Result<Vec<u8>, String> {
        Ok([kind.as_bytes(), b" ", &self.key()?].concat())
    }

    /// This value under the operation's key, if it has one.
    fn keyed(&self, value: Value) -> Value {
        match &self.op.value {
            Value::Keyed(key, _) => Value::Keyed(key.clone(), value.into()),
            _ => value,
        }
    }

    fn argument(&self) -> &Value {
        match &self.op.value {
            Value::Keyed(_, value) => value,
            value => value,
        }
    }

    /// How far the client is in logs after this.
    pub(crate) fn into_consumer(self) -> Consumer {
        self.consumer
    }

    /// Ends it before it asks for more: its time is over.
    pub(crate) fn give_up(&self) -> Op {
        self.failed("timeout")
    }

    /// Goes on after the store's answer.
    pub(crate) fn told(&mut self, outcome: &Outcome) -> Next {
        if self.data == Data::Native {
            return Next::Done(binding::completion(&self.op, outcome));
        }
        let answers = match (outcome, &self.stage) {
            (Outcome::Ok(answers), _) => answers,
            (Outcome::Failed(Failure::CompareFailed { .. }), Stage::Swap(_)) => {
                return self.look_again();
            }
            // Who only looked has changed nothing.
            (Outcome::Unknown(doubt), Stage::Look | Stage::Peek(_)) => {
                return Next::Done(self.failed(doubt.name()));
            }
            (Outcome::Unknown(doubt), Stage::Swap(Change::Take(elements))) => {
                return Next::Done(self.perhaps_taken(elements, doubt.name()));
            }
            (Outcome::Unknown(_), _) => {
                return Next::Done(binding::completion(&self.op, outcome));
            }
            (Outcome::Failed(failure), _) => return Next::Done(self.failed(failure.name())),
        };
        let next = match self.stage.clone() {
            Stage::Whole => self.whole(answers),
            Stage::Look => self.looked(answers),
            Stage::Peek(head) => self.peeked(&head, answers),
            Stage::Swap(change) => self.swapped(change),
        };
        // The store broke its protocol; whatever it did, the operation may have taken place.
        next.unwrap_or_else(|error| Next::Done(binding::doubtful(&self.op, &error)))
    }

    fn look_again(&mut self) -> Next {
        self.conflicts += 1;
        if self.conflicts > CONFLICTS_MAX {
            return Next::Done(self.failed("contention"));
        }
        self.stage = Stage::Look;
        match self.look() {
            Ok(transaction) => Next::Ask(transaction),
            Err(error) => Next::Done(binding::doubtful(&self.op, &error)),
        }
    }

    /// It did not take place; but who has taken something out cannot say so.
    fn failed(&self, reason: &'static str) -> Op {
        if !self.taken.is_empty() {
            return self.perhaps_taken(&[], reason);
        }
        let failed = self.op.complete(OpType::Fail, self.op.value.clone());
        failed.with("error", binding::word(reason))
    }

    /// Nobody knows whether these elements were taken out; the value names all that may have been.
    fn perhaps_taken(&self, elements: &[i64], reason: &'static str) -> Op {
        let value = match elements {
            [element] if self.op.f == "dequeue" => Value::Int(*element),
            _ => Value::integers(&[&self.taken, elements].concat()),
        };
        let unknown = self.op.complete(OpType::Info, value);
        unknown.with("error", binding::word(reason))
    }

    fn ok(&self, value: Value) -> Next {
        Next::Done(self.op.complete(OpType::Ok, value))
    }

    fn whole(&mut self, answers: &Answers) -> Result<Next, String> {
        let value = match (self.data, self.op.f.as_str(), answers.iter().next()) {
            (Data::Log, "assign", _) => self.op.value.clone(),
            (Data::Log, ..) => {
                let mops = self.op.value.as_log().unwrap_or_default();
                self.consumer.answered(mops, answers)?
            }
            (Data::Table, ..) => {
                let columns = answers.iter().map(|answer| list(&answer));
                let columns = columns.collect::<Result<Vec<_>, String>>()?;
                let [numbers, stamps] = &columns[..] else {
                    return Err("an answer is missing".into());
                };
                let mut rows: Vec<_> = stamps.iter().zip(numbers).collect();
                rows.sort_by_key(|(stamp, _)| **stamp);
                let rows = rows.into_iter().map(|(stamp, number)| row(*number, *stamp));
                Value::List(rows.collect())
            }
            (Data::Bank, ..) => {
                let balances = answers
                    .iter()
                    .map(|answer| register(&answer, OPENING_BALANCE));
                let balances = balances.collect::<Result<Vec<i64>, String>>()?;
                Value::balances(&(0..).zip(balances).collect::<Vec<_>>())
            }
            (_, "add", _) => return Ok(self.ok(self.op.value.clone())),
            (data, _, Some(answer)) => {
                let numbers = list(&answer)?;
                if data == Data::Counter {
                    Value::Int(numbers.iter().sum())
                } else {
                    Value::integers(&numbers)
                }
            }
            (.., None) => return Err("an answer is missing".into()),
        };
        Ok(self.ok(self.keyed(value)))
    }

    /// Changes what it saw.
    fn looked(&mut self, answers: &Answers) -> Result<Next, String> {
        match self.data {
            Data::Lock => return self.looked_at_lock(answers),
            Data::Table => return self.looked_at_table(answers),
            _ => {}
        }
        let is_bank = self.data == Data::Bank;
        let usual = if is_bank { OPENING_BALANCE } else { 0 };
        let seen: Vec<Head> = answers
            .iter()
            .map(|answer| Ok((register(&answer, usual)?, raw(&answer))))
            .collect::<Result<_, String>>()?;
        let mut transaction = Transaction::new();
        let (stage, put) = match (self.op.f.as_str(), &seen[..]) {
            ("transfer", [from, to]) => {
                let transfer = self.op.value.as_transfer().ok_or_else(|| self.cannot())?;
                if from.0 < transfer.amount {
                    return Ok(Next::Done(self.failed("insufficient-funds")));
                }
                let (giver, taker) = (account_name(transfer.from), account_name(transfer.to));
                let put = swap(&mut transaction, &giver, from, -transfer.amount);
                let put = put.and_then(|()| swap(&mut transaction, &taker, to, transfer.amount));
                (Stage::Swap(Change::Put), put)
            }
            ("enqueue", [tail]) => {
                let element = self.op.value.as_int().ok_or_else(|| self.cannot())?;
                let (name, element) = (element_name(tail.0 + 1), decimal(element));
                let put = swap(&mut transaction, TAIL, tail, 1);
                let put = put.and_then(|()| transaction.write(&name, &element));
                (Stage::Swap(Change::Put), put)
            }
            ("dequeue", [head, tail]) if head.0 >= tail.0 => {
                return Ok(Next::Done(self.failed("empty")));
            }
            ("drain", [head, tail]) if head.0 >= tail.0 => {
                return Ok(self.ok(Value::integers(&self.taken)));
            }
            (f, [head, tail]) => {
                let most = if f == "drain" { TAKEN_AT_ONCE_MAX } else { 1 };
                let count = most.min(tail.0 - head.0);
                let mut elements = head.0 + 1..=head.0 + count;
                let put = elements.try_for_each(|one| transaction.read(&element_name(one)));
                (Stage::Peek(head.clone()), put)
            }
            (_, [last]) => {
                let put = swap(&mut transaction, LAST, last, 1);
                let identifier = Value::Int(last.0 + 1);
                (Stage::Swap(Change::Give(identifier)), put)
            }
            _ => return Err("an answer is missing".into()),
        };
        put.map_err(|error| error.to_string())?;
        self.stage = stage;
        Ok(Next::Ask(transaction))
    }

    /// Acquires a lock that is free, or releases one's own.
    fn looked_at_lock(&mut self, answers: &Answers) -> Result<Next, String> {
        let seen = answers.iter().next().and_then(|answer| raw(&answer));
        let (owner, fence) = match &seen {
            Some(bytes) => holder(bytes)?,
            None => (0, 0),
        };
        let Process::Client(process) = self.op.process else {
            return Err(self.cannot());
        };
        let me = process as i64 + 1;
        let (after, value) = if self.op.f == "acquire" {
            if owner != 0 {
                return Ok(Next::Done(self.failed("held")));
            }
            ((me, fence + 1), self.keyed(Value::Int(fence + 1)))
        } else {
            if owner != me {
                return Ok(Next::Done(self.failed("not-held")));
            }
            ((0, fence), self.op.value.clone())
        };
        let after = format!("{} {}", after.0, after.1);
        let mut transaction = Transaction::new();
        let put =
            transaction.compare_and_set(&self.name("lock")?, seen.as_deref(), after.as_bytes());
        put.map_err(|error| error.to_string())?;
        self.stage = Stage::Swap(Change::Give(value));
        Ok(Next::Ask(transaction))
    }

    /// Inserts a row with the next number and the next timestamp.
    fn looked_at_table(&mut self, answers: &Answers) -> Result<Next, String> {
        let mut answers = answers.iter();
        let mut next = || answers.next().ok_or("an answer is missing");
        let number = list(&next()?)?.into_iter().max().unwrap_or(-1) + 1;
        let clock = next()?;
        let clock: Head = (register(&clock, 0)?, raw(&clock));
        let stamp = clock.0 + 1;
        let mut transaction = Transaction::new();
        let (rows, stamps) = (self.name("rows")?, self.name("stamps")?);
        let put = swap(&mut transaction, CLOCK, &clock, 1);
        let put = put.and_then(|()| transaction.append(&rows, &decimal(number)));
        let put = put.and_then(|()| transaction.append(&stamps, &decimal(stamp)));
        put.map_err(|error| error.to_string())?;
        let value = self.keyed(row(number, stamp));
        self.stage = Stage::Swap(Change::Give(value));
        Ok(Next::Ask(transaction))
    }

    /// Takes out the elements that it saw.
    fn peeked(&mut self, head: &Head, answers: &Answers) -> Result<Next, String> {
        let elements = answers.iter().map(|answer| match raw(&answer) {
            Some(bytes) => number(&bytes),
            None => Err("an element of the queue is not there".into()),
        });
        let elements = elements.collect::<Result<Vec<i64>, String>>()?;
        let mut transaction = Transaction::new();
        let put = swap(&mut transaction, HEAD, head, elements.len() as i64);
        put.map_err(|error| error.to_string())?;
        self.stage = Stage::Swap(Change::Take(elements));
        Ok(Next::Ask(transaction))
    }

    /// Tells what came of the change; a drain goes on.
    fn swapped(&mut self, change: Change) -> Result<Next, String> {
        match change {
            Change::Put => Ok(self.ok(self.op.value.clone())),
            Change::Give(value) => Ok(self.ok(value)),
            Change::Take(elements) if self.op.f == "drain" => {
                self.taken.extend(elements);
                self.stage = Stage::Look;
                Ok(Next::Ask(self.look()?))
            }
            Change::Take(elements) => {
                let element = elements.first().ok_or("an answer is missing")?;
                Ok(self.ok(Value::Int(*element)))
            }
        }
    }
}

fn account_name(account: i64) -> Vec<u8> {
    format!("account {account}").into_bytes()
}

fn element_name(element: i64) -> Vec<u8> {
    format!("element {element}").into_bytes()
}

/// The owner of a lock (the number of the process and one, 0: nobody) and the fence of its last acquisition.
fn holder(bytes: &[u8]) -> Result<(i64, i64), String> {
    let mut words = bytes.split(|byte| *byte == b' ').map(number);
    match (words.next(), words.next()) {
        (Some(owner), Some(fence)) => Ok((owner?, fence?)),
        _ => Err(format!("{bytes:?} is no lock")),
    }
}

/// A row of a table.
fn row(number: i64, stamp: i64) -> Value {
    let field = |name: &'static str, number| (Value::Word(Symbol::new(name)), Value::Int(number));
    Value::Map([field("val", number), field("sts", stamp)].into())
}

/// Adds to the number in a register, if that is still what was seen.
fn swap(
    transaction: &mut Transaction,
    key: &[u8],
    (value, raw): &Head,
    amount: i64,
) -> Result<(), TransactionError> {
    transaction.compare_and_set(key, raw.as_deref(), &decimal(value + amount))
}

/// What is in a register.
fn raw(answer: &Answer<'_>) -> Option<Vec<u8>> {
    match answer {
        Answer::Register(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

/// The number in a register; `usual` if nobody has written to it.
fn register(answer: &Answer<'_>, usual: i64) -> Result<i64, String> {
    match answer {
        Answer::Absent => Ok(usual),
        Answer::Register(bytes) => number(bytes),
        other => Err(format!("{other:?} is no register")),
    }
}

/// The numbers of a list.
fn list(answer: &Answer<'_>) -> Result<Vec<i64>, String> {
    match answer {
        Answer::Absent => Ok(Vec::new()),
        Answer::List(list) => list.iter().map(number).collect(),
        other => Err(format!("{other:?} is no list")),
    }
}
