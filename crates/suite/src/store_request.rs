//! The operations of seatrial's workloads as typed requests to a store, and a client made from a store that answers them.

use seatrial_generator::workload;
use seatrial_history::{Key, Mop, Op, OpType, Symbol, Transfer, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError};
use std::fmt::Display;
use std::sync::Arc;

/// One operation of a workload, decoded.
///
/// | workloads | requests |
/// | --- | --- |
/// | `register`, `cas-register` | `Read`, `Write`, `CompareAndSet` |
/// | `list-append`, `rw-register`, `long-fork` | `Transaction` |
/// | `set`, `counter` | `Add`, `Read` |
/// | `queue`, `total-queue` | `Enqueue`, `Dequeue`, `Drain` |
/// | `bank` | `Transfer`, `Balances` |
/// | `unique-ids` | `Generate` |
/// | `mutex`, `lock` | `Acquire`, `Release` |
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DataRequest<'a> {
    /// The value under a key: of a register, a set or a counter, which the workload decides.
    Read(&'a Key),
    /// Sets a register.
    Write(&'a Key, i64),
    /// Sets a register from the first value to the second one, if it has the first.
    CompareAndSet(&'a Key, i64, i64),
    /// Adds to a set or counter.
    Add(&'a Key, i64),
    /// Micro-operations, all or nothing.
    Transaction(&'a [Mop]),
    /// The balances of all accounts.
    Balances,
    /// Moves money between accounts.
    Transfer(Transfer),
    /// Puts an element into the queue.
    Enqueue(i64),
    /// Takes an element out of the queue.
    Dequeue,
    /// Takes all elements out of the queue.
    Drain,
    /// A number that was never returned before.
    Generate,
    /// Acquires a lock.
    Acquire(&'a Key),
    /// Releases a lock.
    Release(&'a Key),
}

impl DataRequest<'_> {
    /// The request of an operation; an error says that none fits.
    pub fn of(op: &Op) -> Result<DataRequest<'_>, String> {
        let request = match (op.f.as_str(), &op.value) {
            (_, Value::Txn(mops)) => DataRequest::Transaction(mops),
            ("read", Value::Nil) => DataRequest::Balances,
            ("transfer", value) => {
                DataRequest::Transfer(value.as_transfer().ok_or_else(|| no(op))?)
            }
            ("enqueue", Value::Int(element)) => DataRequest::Enqueue(*element),
            ("dequeue", _) => DataRequest::Dequeue,
            ("drain", _) => DataRequest::Drain,
            ("generate", _) => DataRequest::Generate,
            (f, Value::Keyed(key, value)) => match (f, &**value) {
                ("read", _) => DataRequest::Read(key),
                ("write", Value::Int(value)) => DataRequest::Write(key, *value),
                ("cas", Value::Cas(old, new)) => DataRequest::CompareAndSet(key, *old, *new),
                ("add", Value::Int(value)) => DataRequest::Add(key, *value),
                ("acquire", _) => DataRequest::Acquire(key),
                ("release", _) => DataRequest::Release(key),
                _ => return Err(no(op)),
            },
            _ => return Err(no(op)),
        };
        Ok(request)
    }

    /// Does it leave the data as they are? The failure of such a request is definite, whatever its cause.
    pub fn is_read(&self) -> bool {
        match self {
            DataRequest::Read(_) | DataRequest::Balances => true,
            DataRequest::Transaction(mops) => {
                mops.iter().all(|mop| matches!(mop, Mop::Read { .. }))
            }
            _ => false,
        }
    }
}

/// The workloads of seatrial whose operations are [`DataRequest`]s: all but those of logs, and of rows with timestamps.
pub const STORE_WORKLOADS: [&str; workload::NAMES.len() - 2] = without(workload::NAMES, LOGS);

/// The same without locks.
pub const STORE_WORKLOADS_WITHOUT_LOCKS: [&str; STORE_WORKLOADS.len() - 2] =
    without(STORE_WORKLOADS, LOCKS);

/// Workloads that need more than a store of keys.
const LOGS: [&str; 2] = ["log", "monotonic"];

/// The names without these two, in their order.
const fn without<const ALL: usize, const REST: usize>(
    names: [&'static str; ALL],
    omitted: [&str; 2],
) -> [&'static str; REST] {
    let mut rest = [""; REST];
    let (mut at, mut count) = (0, 0);
    while at < ALL {
        if !is_same(names[at], omitted[0]) && !is_same(names[at], omitted[1]) {
            rest[count] = names[at];
            count += 1;
        }
        at += 1;
    }
    assert!(count == REST, "both omitted names are in the list");
    rest
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

fn no(op: &Op) -> String {
    format!("{} of {}: no request of a store", op.f, op.value)
}

/// The answer to a request that took place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreAnswer {
    /// The result of what returns one, without its key; `None` if the request returns nothing but its success.
    pub value: Option<Value>,
    /// The node that answered.
    pub node: Option<NodeId>,
}

impl StoreAnswer {
    /// The success of a request without a result.
    pub fn done() -> StoreAnswer {
        StoreAnswer::default()
    }

    /// A result.
    pub fn value(value: Value) -> StoreAnswer {
        StoreAnswer {
            value: Some(value),
            node: None,
        }
    }

    /// The same, from this node.
    pub fn from(mut self, node: NodeId) -> StoreAnswer {
        self.node = Some(node);
        self
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreRefusal {
    /// It certainly did not take place and never will; the reason.
    Failed(String),
    /// It may have taken place, or may yet; the reason.
    Unknown(String),
    /// The same, and this would be its result.
    Perhaps(Value, String),
}

impl StoreRefusal {
    /// A definite failure.
    pub fn failed(reason: impl Display) -> StoreRefusal {
        StoreRefusal::Failed(reason.to_string())
    }

    /// An unknown outcome.
    pub fn unknown(reason: impl Display) -> StoreRefusal {
        StoreRefusal::Unknown(reason.to_string())
    }

    /// The refusal of an operation that has taken these elements before what is refused here.
    #[must_use]
    pub fn after(self, mut taken: Vec<i64>) -> StoreRefusal {
        let reason = match self {
            StoreRefusal::Failed(reason) if taken.is_empty() => {
                return StoreRefusal::Failed(reason);
            }
            StoreRefusal::Perhaps(Value::Int(element), reason) => {
                taken.push(element);
                reason
            }
            StoreRefusal::Failed(reason)
            | StoreRefusal::Unknown(reason)
            | StoreRefusal::Perhaps(_, reason) => reason,
        };
        StoreRefusal::Perhaps(Value::integers(&taken), reason)
    }
}

/// A connection to a store that answers [`DataRequest`]s. [`StoreClient`] makes a client of a test from it.
pub trait DataStore: Send {
    /// Answers one request.
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>>;

    /// Can it execute another request? Called after each one; after an unknown outcome no further one follows in any case.
    fn is_usable(&self) -> bool {
        true
    }
}

/// The client of a [`DataStore`]: decodes operations and completes them.
///
/// The refusal of a request that only reads is a definite failure. Completions carry the node that answered as `node`, and the
/// reason of a refusal as `error`.
#[derive(Debug)]
pub struct StoreClient<S> {
    store: S,
    /// Was the outcome of a read unknown? Its answer may still arrive on the connection.
    is_late: bool,
}

const NODE: Symbol = Symbol::new("node");
const ERROR: Symbol = Symbol::new("error");

impl<S: DataStore + 'static> StoreClient<S> {
    /// The client of this store, as [`Clients::open`](seatrial_runner::Clients::open) returns it.
    pub fn boxed(store: S) -> Box<dyn Client> {
        Box::new(StoreClient {
            store,
            is_late: false,
        })
    }
}

impl<S: DataStore> Client for StoreClient<S> {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let request = match DataRequest::of(op) {
                Ok(request) => request,
                Err(reason) => return Ok(completed(op, Err(StoreRefusal::Failed(reason)))),
            };
            let mut answer = self.store.execute(request).await;
            if let (true, Err(StoreRefusal::Unknown(reason))) = (request.is_read(), &mut answer) {
                self.is_late = true;
                answer = Err(StoreRefusal::Failed(std::mem::take(reason)));
            }
            Ok(completed(op, answer))
        })
    }

    fn is_usable(&self) -> bool {
        !self.is_late && self.store.is_usable()
    }
}

/// The completion of an operation.
fn completed(op: &Op, answer: Result<StoreAnswer, StoreRefusal>) -> Op {
    let keyed = |value: Value| match &op.value {
        Value::Keyed(key, _) => Value::Keyed(key.clone(), Arc::new(value)),
        _ => value,
    };
    let (kind, value, reason) = match answer {
        Ok(StoreAnswer { value, node }) => {
            let value = value.map_or_else(|| op.value.clone(), keyed);
            let op = op.complete(OpType::Ok, value);
            return match node {
                Some(node) => op.with(NODE, Value::text(node.to_string())),
                None => op,
            };
        }
        Err(StoreRefusal::Failed(reason)) => (OpType::Fail, op.value.clone(), reason),
        Err(StoreRefusal::Unknown(reason)) => (OpType::Info, op.value.clone(), reason),
        Err(StoreRefusal::Perhaps(value, reason)) => (OpType::Info, keyed(value), reason),
    };
    op.complete(kind, value).with(ERROR, Value::text(reason))
}

/// Workloads of locks.
const LOCKS: [&str; 2] = ["mutex", "lock"];

#[cfg(test)]
mod tests;
