//! Requests as commands of Redis, and the values of their replies.
//!
//! | data | in Redis |
//! | --- | --- |
//! | register | a string; a compare-and-set is a script |
//! | transaction | a script over lists (`append`) and strings (`w`), or commands between `MULTI` and `EXEC` |
//! | set, counter | `SADD` and `SMEMBERS`; `INCRBY` and `GET` |
//! | bank | a string per account; transfers and reads are scripts |
//! | queue | a list; an element is looked at, then taken if it is still the last |
//! | unique ids | `INCR` |
//!
//! All keys of one script have the same hash tag, so a cluster keeps them in one slot.

use redis::{Cmd, Value as Reply, cmd};
use seatrial_history::{Key, Mop, Observed, Value};
use seatrial_suite::Transfer;
use std::sync::Arc;

/// Number of accounts of the workload `bank`, and the balance of one that was never written.
const ACCOUNTS: i64 = 8;
const OPENING_BALANCE: i64 = 10;

/// The list of the queue.
pub(crate) const QUEUE: &str = "queue";
/// The counter of unique ids.
pub(crate) const IDS: &str = "ids";
/// The hash tag of the keys of transactions, and their slot's name.
pub(crate) const TRANSACTIONS: &str = "{txn}";
/// The hash tag of the accounts.
pub(crate) const BANK: &str = "{bank}";
/// Most elements that are taken out of the queue at once.
pub(crate) const TAKEN_AT_ONCE_MAX: i64 = 100;

const CAS_SCRIPT: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 end return 0";

/// Three arguments for each key: what to do, and a value.
const TRANSACTION_SCRIPT: &str = "local out = {} \
for i = 1, #KEYS do local what, value = ARGV[2 * i - 1], ARGV[2 * i] \
if what == 'r' then \
if redis.call('TYPE', KEYS[i]).ok == 'list' then out[i] = redis.call('LRANGE', KEYS[i], 0, -1) \
else out[i] = redis.call('GET', KEYS[i]) end \
elseif what == 'append' then redis.call('RPUSH', KEYS[i], value) out[i] = false \
else redis.call('SET', KEYS[i], value) out[i] = false end end return out";

const TRANSFER_SCRIPT: &str = "local function balance(key) return tonumber(redis.call('GET', key) or ARGV[2]) end \
local from, to, amount = balance(KEYS[1]), balance(KEYS[2]), tonumber(ARGV[1]) \
if from < amount then return 0 end \
redis.call('SET', KEYS[1], from - amount) redis.call('SET', KEYS[2], to + amount) return 1";

/// Takes the elements that it is called with if they are the last ones.
const TAKE_SCRIPT: &str = "local last = redis.call('LRANGE', KEYS[1], -#ARGV, -1) \
if #last ~= #ARGV then return 0 end \
for i = 1, #ARGV do if last[i] ~= ARGV[i] then return 0 end end \
redis.call('LTRIM', KEYS[1], 0, -1 - #ARGV) return 1";

/// What is sent to a server at once.
pub(crate) enum RedisRequest {
    /// One command.
    One(Cmd),
    /// Commands between `MULTI` and `EXEC`; the reply is the list of theirs.
    Multi(Vec<Cmd>),
}

/// A request, and the key that decides which node of a cluster it goes to.
pub(crate) struct RedisCommand {
    pub(crate) key: String,
    pub(crate) request: RedisRequest,
    /// Does it change nothing?
    pub(crate) is_read: bool,
}

fn command(key: &str, is_read: bool, command: Cmd) -> RedisCommand {
    RedisCommand {
        key: key.to_owned(),
        request: RedisRequest::One(command),
        is_read,
    }
}

fn script(text: &str, keys: &[String]) -> Cmd {
    let mut call = cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(keys);
    call
}

/// The name of a key in Redis.
pub(crate) fn name(key: &Key) -> String {
    format!("k{key}")
}

pub(crate) fn get(key: &str) -> RedisCommand {
    command(key, true, cmd("GET").arg(key).clone())
}

pub(crate) fn set(key: &str, value: i64) -> RedisCommand {
    command(key, false, cmd("SET").arg(key).arg(value).clone())
}

pub(crate) fn compare_and_set(key: &str, old: i64, new: i64) -> RedisCommand {
    let call = script(CAS_SCRIPT, &[key.to_owned()])
        .arg(old)
        .arg(new)
        .clone();
    command(key, false, call)
}

pub(crate) fn add_member(key: &str, value: i64) -> RedisCommand {
    command(key, false, cmd("SADD").arg(key).arg(value).clone())
}

pub(crate) fn members(key: &str) -> RedisCommand {
    command(key, true, cmd("SMEMBERS").arg(key).clone())
}

pub(crate) fn increment(key: &str, by: i64) -> RedisCommand {
    command(key, false, cmd("INCRBY").arg(key).arg(by).clone())
}

/// What is under the keys of transactions: a read in `MULTI` must name it, a script looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionKeys {
    Lists,
    Registers,
}

/// A transaction as commands between `MULTI` and `EXEC`.
pub(crate) fn multi(mops: &[Mop], keys: TransactionKeys) -> RedisCommand {
    let commands = mops.iter().zip(transaction_keys(mops)).map(|(mop, key)| {
        let named = |name| cmd(name).arg(key).clone();
        match (mop, keys) {
            (Mop::Read { .. }, TransactionKeys::Lists) => named("LRANGE").arg(0).arg(-1).clone(),
            (Mop::Read { .. }, TransactionKeys::Registers) => named("GET"),
            (Mop::Append { element, .. }, _) => named("RPUSH").arg(*element).clone(),
            (Mop::Write { value, .. }, _) => named("SET").arg(*value).clone(),
        }
    });
    RedisCommand {
        key: TRANSACTIONS.to_owned(),
        request: RedisRequest::Multi(commands.collect()),
        is_read: is_read(mops),
    }
}

fn transaction_keys(mops: &[Mop]) -> Vec<String> {
    let keys = mops.iter();
    keys.map(|mop| format!("{TRANSACTIONS}{}", mop.key()))
        .collect()
}

fn is_read(mops: &[Mop]) -> bool {
    mops.iter().all(|mop| matches!(mop, Mop::Read { .. }))
}

/// A transaction as a script.
pub(crate) fn transaction(mops: &[Mop]) -> RedisCommand {
    let keys = transaction_keys(mops);
    let mut call = script(TRANSACTION_SCRIPT, &keys);
    for mop in mops {
        match mop {
            Mop::Read { .. } => call.arg("r").arg(""),
            Mop::Append { element, .. } => call.arg("append").arg(*element),
            Mop::Write { value, .. } => call.arg("w").arg(*value),
        };
    }
    command(TRANSACTIONS, is_read(mops), call)
}

pub(crate) fn balances() -> RedisCommand {
    let keys: Vec<String> = (0..ACCOUNTS)
        .map(|account| format!("{BANK}{account}"))
        .collect();
    command(BANK, true, cmd("MGET").arg(keys).clone())
}

pub(crate) fn transfer(transfer: Transfer) -> RedisCommand {
    let keys = [transfer.from, transfer.to].map(|account| format!("{BANK}{account}"));
    let call = script(TRANSFER_SCRIPT, &keys)
        .arg(transfer.amount)
        .arg(OPENING_BALANCE)
        .clone();
    command(BANK, false, call)
}

pub(crate) fn enqueue(element: i64) -> RedisCommand {
    command(QUEUE, false, cmd("LPUSH").arg(QUEUE).arg(element).clone())
}

/// The elements that come out next, at most `count`, the next one last.
pub(crate) fn look(count: i64) -> RedisCommand {
    assert!(
        count > 0 && count <= TAKEN_AT_ONCE_MAX,
        "{count} elements at once"
    );
    command(
        QUEUE,
        true,
        cmd("LRANGE").arg(QUEUE).arg(-count).arg(-1).clone(),
    )
}

/// Takes these elements, as [`look`] returned them.
pub(crate) fn take(elements: &[i64]) -> RedisCommand {
    let call = script(TAKE_SCRIPT, &[QUEUE.to_owned()])
        .arg(elements)
        .clone();
    command(QUEUE, false, call)
}

/// The integer in a reply; `None` for nil.
pub(crate) fn integer(reply: &Reply) -> Result<Option<i64>, String> {
    let text = match reply {
        Reply::Nil => return Ok(None),
        Reply::Int(number) => return Ok(Some(*number)),
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::SimpleString(text) => text.clone(),
        other => return Err(format!("{other:?} is no number")),
    };
    let number = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Ok(Some(number))
}

/// The integers of a reply that is a list.
pub(crate) fn integers(reply: &Reply) -> Result<Vec<i64>, String> {
    let (Reply::Array(items) | Reply::Set(items)) = reply else {
        return Err(format!("{reply:?} is no list"));
    };
    let number = |item| integer(item)?.ok_or_else(|| "nil in a list of numbers".to_owned());
    items.iter().map(number).collect()
}

/// The balances in the reply to [`balances`].
pub(crate) fn balances_value(reply: &Reply) -> Result<Value, String> {
    let Reply::Array(items) = reply else {
        return Err(format!("{reply:?} is no list"));
    };
    let balance = |item| Ok(integer(item)?.unwrap_or(OPENING_BALANCE));
    let balances = items
        .iter()
        .map(balance)
        .collect::<Result<Vec<i64>, String>>()?;
    let pairs: Vec<(i64, i64)> = (0..).zip(balances).collect();
    Ok(Value::balances(&pairs))
}

/// The micro-operations with what the reply to their transaction says.
pub(crate) fn transaction_value(mops: &[Mop], reply: &Reply) -> Result<Value, String> {
    let Reply::Array(items) = reply else {
        return Err(format!("{reply:?} is no list"));
    };
    if items.len() != mops.len() {
        return Err(format!(
            "{} replies to {} micro-operations",
            items.len(),
            mops.len()
        ));
    }
    let seen = |(mop, item): (&Mop, &Reply)| -> Result<Mop, String> {
        let Mop::Read { key, .. } = mop else {
            return Ok(mop.clone());
        };
        let observed = match item {
            Reply::Nil => Observed::Nil,
            // A list that is not there is empty for LRANGE.
            Reply::Array(items) if items.is_empty() => Observed::Nil,
            Reply::Array(_) => Observed::List(integers(item)?.into()),
            other => Observed::Register(integer(other)?.unwrap_or_default()),
        };
        Ok(Mop::Read {
            key: key.clone(),
            observed,
        })
    };
    let mops: Result<Arc<[Mop]>, String> = mops.iter().zip(items).map(seen).collect();
    Ok(Value::Txn(mops?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mops() -> [Mop; 3] {
        let read = |key| Mop::Read {
            key: Key::Int(key),
            observed: Observed::Nil,
        };
        let append = Mop::Append {
            key: Key::Int(1),
            element: 7,
        };
        [read(1), append, read(2)]
    }

    /// The words of a command.
    fn words(command: &Cmd) -> Vec<String> {
        let packed = String::from_utf8(command.get_packed_command()).expect("text");
        let words = packed.split("\r\n");
        words
            .filter(|word| !word.starts_with(['*', '$']))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn transactions_are_one_script_in_one_slot() {
        let call = transaction(&mops());
        let RedisRequest::One(command) = &call.request else {
            panic!("a script is one command");
        };
        assert_eq!(
            words(command)[2..],
            [
                "3", "{txn}1", "{txn}1", "{txn}2", "r", "", "append", "7", "r", "", ""
            ]
        );
        assert!(!call.is_read);
        assert!(transaction(&mops()[..1]).is_read);
    }

    #[test]
    fn transactions_are_commands_in_one_slot() {
        let sent = |keys| {
            let call = multi(&mops(), keys);
            assert!(!call.is_read && call.key == TRANSACTIONS);
            let RedisRequest::Multi(commands) = call.request else {
                panic!("several commands");
            };
            let lines = commands.iter().map(|command| words(command).join(" "));
            lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            sent(TransactionKeys::Lists),
            ["LRANGE {txn}1 0 -1", "RPUSH {txn}1 7", "LRANGE {txn}2 0 -1"]
        );
        assert_eq!(sent(TransactionKeys::Registers)[2], "GET {txn}2");
        assert!(multi(&mops()[..1], TransactionKeys::Lists).is_read);
    }

    #[test]
    fn replies_become_values() {
        let text = |text: &str| Reply::BulkString(text.into());
        let list = Reply::Array(vec![text("3"), text("7")]);
        let reply = Reply::Array(vec![list, Reply::Nil, text("5")]);
        let value = transaction_value(&mops(), &reply).expect("a value");
        assert_eq!(value.to_string(), "[[:r 1 [3 7]] [:append 1 7] [:r 2 5]]");
        let empty = Reply::Array(vec![Reply::Array(vec![]), Reply::Int(1), text("5")]);
        let value = transaction_value(&mops(), &empty).expect("a value");
        assert_eq!(value.to_string(), "[[:r 1 nil] [:append 1 7] [:r 2 5]]");
        let short = Reply::Array(vec![Reply::Nil]);
        assert!(transaction_value(&mops(), &short).is_err());
        assert!(transaction_value(&mops(), &Reply::Okay).is_err());
        assert_eq!(integer(&Reply::Nil), Ok(None));
        assert!(integer(&text("x")).is_err());
        assert!(integers(&Reply::Array(vec![Reply::Nil])).is_err());
        let accounts = Reply::Array(vec![Reply::Nil, text("12")]);
        assert_eq!(
            balances_value(&accounts),
            Ok(Value::balances(&[(0, 10), (1, 12)]))
        );
    }
}
