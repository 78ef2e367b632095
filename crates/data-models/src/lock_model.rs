//! Locks with owners, and with fences.

use seatrial_checker::Discipline;
use seatrial_history::{Op, Process, Value};
use seatrial_linear::SequentialModel;
use seatrial_linear::{HistoryModel, Unfit, ValueNumbers, plain_value};

/// A lock by its rules, decided by search: `acquire` and `release`. The owner is the process, or the field `:client` of the
/// operation's value; the fence of a successful acquisition is the field `:fence`, or the value when it is an integer; with none
/// or -1 it has none.
///
/// The checker `lock` takes one pass and answers the same, but for clients that go on under their names after an operation of
/// unknown outcome: there it is unknown, here decided.
#[derive(Clone, Copy, Debug)]
pub struct LockModel {
    discipline: Discipline,
    depth_max: u32,
}

impl LockModel {
    /// A lock of these rules; a reentrant one allows two acquisitions by one owner, as in Jepsen's tests of Hazelcast.
    pub const fn new(discipline: Discipline) -> LockModel {
        LockModel {
            discipline,
            depth_max: 2,
        }
    }

    const fn is_fenced(self) -> bool {
        matches!(
            self.discipline,
            Discipline::Fenced | Discipline::ReentrantFenced
        )
    }

    const fn depth(self) -> u32 {
        match self.discipline {
            Discipline::Reentrant | Discipline::ReentrantFenced => self.depth_max,
            _ => 1,
        }
    }
}

/// The state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockHolding {
    /// The owner's number, if it is held.
    pub owner: Option<u32>,
    /// Acquisitions that are not released.
    pub depth: u32,
    /// The fence of the hold.
    pub fence: Option<i64>,
    /// The largest fence so far.
    pub largest: Option<i64>,
}

/// What an operation does. Owners are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockOperation {
    /// By this owner, with this fence.
    Acquire(u32, Option<i64>),
    /// By this owner.
    Release(u32),
}

impl SequentialModel for LockModel {
    type State = LockHolding;
    type Operation = LockOperation;

    fn initial(&self) -> LockHolding {
        LockHolding::default()
    }

    fn step(&self, state: &LockHolding, operation: &LockOperation) -> Option<LockHolding> {
        let mut next = state.clone();
        match *operation {
            LockOperation::Release(owner) => {
                if state.owner != Some(owner) {
                    return None;
                }
                next.depth -= 1;
                if next.depth == 0 {
                    (next.owner, next.fence) = (None, None);
                }
            }
            LockOperation::Acquire(owner, fence) => {
                if state.owner.is_some_and(|holder| holder != owner) || state.depth == self.depth()
                {
                    return None;
                }
                next.owner = Some(owner);
                next.depth += 1;
                // The fence of a hold is that of its first acquisition with one.
                if let Some(fence) = fence
                    && state.fence != Some(fence)
                {
                    if state.fence.is_some()
                        || state.largest.is_some_and(|largest| fence <= largest)
                    {
                        return None;
                    }
                    (next.fence, next.largest) = (Some(fence), Some(fence));
                }
            }
        }
        Some(next)
    }
}

/// A field of an operation's value.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let is_it = |key: &Value| matches!(key, Value::Word(word) if *word == *name);
    let found = pairs.iter().find(|(key, _)| is_it(key));
    found.map(|(_, value)| value)
}

impl HistoryModel for LockModel {
    fn name(&self) -> &'static str {
        "linearizable-lock"
    }

    fn consistency_model(&self) -> String {
        self.discipline.name().into()
    }

    fn certificate_type(&self) -> Option<String> {
        Some(format!("{} {}", self.name(), self.discipline.name()))
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        values: &mut ValueNumbers,
    ) -> Result<Option<LockOperation>, Unfit> {
        let result = completion.map(|op| plain_value(&op.value));
        let client = result.and_then(|value| field(value, "client"));
        let client = client.or_else(|| field(plain_value(&invocation.value), "client"));
        let owner = match (client, invocation.process) {
            _ if self.discipline == Discipline::Mutex => ValueNumbers::NIL,
            // A list, so that a client has another number than a process.
            (Some(client), _) => values.number(&Value::List([client.clone()].into())),
            (None, Process::Client(process)) => values.integer(process.cast_signed()),
            (None, Process::Named(_)) => return Ok(None),
        };
        match invocation.f.as_str() {
            "release" => Ok(Some(LockOperation::Release(owner))),
            "acquire" => {
                let completed = completion.filter(|op| op.is_ok() && self.is_fenced());
                let fence = completed.and_then(|op| match plain_value(&op.value) {
                    Value::Int(fence) => Some(*fence),
                    value => field(value, "fence")?.as_int(),
                });
                Ok(Some(LockOperation::Acquire(
                    owner,
                    fence.filter(|&fence| fence != -1),
                )))
            }
            _ => Err(Unfit::function(invocation, "lock")),
        }
    }

    fn argument(&self, operation: &LockOperation, _: &ValueNumbers) -> String {
        match operation {
            LockOperation::Acquire(_, Some(fence)) => format!(" with fence {fence}"),
            _ => String::new(),
        }
    }

    fn describe_state(&self, state: &LockHolding, values: &ValueNumbers) -> String {
        let owner = match state.owner {
            None => return "it is free".into(),
            Some(_) if self.discipline == Discipline::Mutex => return "it is held".into(),
            Some(owner) => match values.value(owner) {
                Value::List(client) => format!("client {}", client[0]),
                process => format!("process {process}"),
            },
        };
        let fence = state.fence.map(|fence| format!(" with fence {fence}"));
        let depth = match state.depth {
            0 | 1 => String::new(),
            depth => format!(" {depth} times"),
        };
        format!("it is held by {owner}{depth}{}", fence.unwrap_or_default())
    }
}
