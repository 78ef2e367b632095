//! Checks the order of a foreign history: each process has at most one open invocation.

use seatrial_history::OpenInvocations;
use seatrial_history::{Mop, Op, OpType, Process, Symbol, Value};

/// Operations without `:process` that may be open at once; each completion is compared with all of them.
const ANONYMOUS_MAX: usize = 4_096;

/// Checks the order of operations within each process of a foreign history: an invocation while the client has an open one is
/// an error, and so is a completion without invocation, unless operations before it are missing (indices have a gap) or the
/// history has no invocations at all. The nemesis is exempt, as in Jepsen.
///
/// A history without processes gets them here: each operation is a client of its own, so no order within a client is
/// concluded. A completion belongs to the open invocation of the same function; among several, to the only one whose value
/// agrees.
///
/// Cost per operation: one look-up in a table by client.
#[derive(Default)]
pub(super) struct ProcessSequence {
    /// The index of each client's open invocation.
    open: OpenInvocations,
    /// Are operations missing before this place?
    gap: bool,
    /// Was anything invoked by a client?
    invokes: bool,
    /// The first completion without invocation that no gap explains.
    orphan: Option<u64>,
    /// Do operations of clients name their process? `None` before the first one.
    names_process: Option<bool>,
    /// Number of clients assigned to operations without process.
    anonymous: u64,
    /// Open invocations without process.
    open_anonymous: Vec<Anonymous>,
}

/// An invocation without process.
struct Anonymous {
    index: u64,
    client: u64,
    f: Symbol,
    value: Value,
}

impl ProcessSequence {
    /// Notes that operations are missing here.
    pub(super) fn skip(&mut self) {
        self.gap = true;
    }

    /// Takes an index into account; the first one is 0 or, in some tools, 1.
    pub(super) fn index(&mut self, previous: Option<u64>, index: u64) {
        let next = previous.map_or(1, |previous| previous.saturating_add(1));
        self.gap |= index > next;
    }

    /// May a client do this now? A subset of what [`ProcessSequence::take`] accepts, which reports errors.
    #[inline]
    pub(super) fn permits(&self, client: u64, kind: OpType) -> bool {
        let is_open = self.open.running_client(client).is_some();
        let is_plain = self.names_process == Some(true) && self.orphan.is_none();
        is_plain && is_open != (kind == OpType::Invoke)
    }

    /// Takes what [`ProcessSequence::permits`] into account.
    #[inline]
    pub(super) fn follow(&mut self, index: u64, client: u64, kind: OpType) {
        self.invokes |= kind == OpType::Invoke;
        self.open.follow_client(index, client, kind);
    }

    /// Takes the next operation into account, and gives it a process if it has none.
    pub(super) fn take(&mut self, op: &mut Op, has_process: bool) -> Result<(), String> {
        let Process::Client(_) = op.process else {
            return Ok(());
        };
        if *self.names_process.get_or_insert(has_process) != has_process {
            return Err(if has_process {
                "this operation has a :process, those before it have none".into()
            } else {
                "this operation has no :process, those before it have one".into()
            });
        }
        if !has_process {
            op.process = Process::Client(self.client_of(op)?);
        }
        let Process::Client(client) = op.process else {
            unreachable!("clients were made up")
        };
        let running = self.open.running_client(client);
        match (op.kind, running) {
            (OpType::Invoke, Some(running)) => {
                return Err(format!(
                    "operation {}: process {client} invokes while its operation {running} is running",
                    op.index
                ));
            }
            (OpType::Invoke, None) => {
                if let Some(orphan) = self.orphan {
                    return Err(format!("operation {orphan} completes what was not invoked"));
                }
            }
            (_, Some(_)) => {}
            (kind, None) if self.invokes && !self.gap => {
                let (index, kind) = (op.index, kind.name());
                return Err(if has_process {
                    format!(
                        "operation {index}: process {client} completes ({kind}) what it did not invoke"
                    )
                } else {
                    format!("operation {index} completes ({kind}) what was not invoked")
                });
            }
            (_, None) if self.gap => {}
            (_, None) => self.orphan = self.orphan.or(Some(op.index)),
        }
        self.follow(op.index, client, op.kind);
        Ok(())
    }

    /// The client of an operation without process.
    fn client_of(&mut self, op: &Op) -> Result<u64, String> {
        if op.kind != OpType::Invoke {
            if let Some(place) = self.invocation(op)? {
                return Ok(self.open_anonymous.swap_remove(place).client);
            }
            self.anonymous += 1;
            return Ok(self.anonymous - 1);
        }
        if self.open_anonymous.len() == ANONYMOUS_MAX {
            return Err(format!(
                "more than {ANONYMOUS_MAX} operations without :process are open"
            ));
        }
        self.open_anonymous.push(Anonymous {
            index: op.index,
            client: self.anonymous,
            f: op.f,
            value: op.value.clone(),
        });
        self.anonymous += 1;
        Ok(self.anonymous - 1)
    }

    /// The place of the open invocation that this completion without process belongs to.
    fn invocation(&self, op: &Op) -> Result<Option<usize>, String> {
        let same_f = |open: &&(usize, &Anonymous)| open.1.f == op.f;
        let all: Vec<(usize, &Anonymous)> = self.open_anonymous.iter().enumerate().collect();
        let candidates: Vec<_> = all.iter().filter(same_f).collect();
        if let [] | [_] = candidates[..] {
            return Ok(candidates.first().map(|open| open.0));
        }
        let agreeing: Vec<_> = candidates
            .iter()
            .filter(|open| agrees(&open.1.value, &op.value))
            .collect();
        match agreeing[..] {
            [one] => Ok(Some(one.0)),
            _ => Err(format!(
                "operation {} completes operation {} or operation {}, and none of them has a :process",
                op.index, candidates[0].1.index, candidates[1].1.index
            )),
        }
    }
}

/// Can an invocation with this value complete with that one? Reads differ in what they read only.
fn agrees(invoked: &Value, completed: &Value) -> bool {
    let same = |one: &Mop, other: &Mop| match (one, other) {
        (Mop::Read { key: one, .. }, Mop::Read { key: other, .. }) => one == other,
        (one, other) => one == other,
    };
    match (invoked, completed) {
        (Value::Txn(one), Value::Txn(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| same(a, b))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ops: &[(u64, Option<u64>, OpType, i64)]) -> Result<Vec<u64>, String> {
        let mut sequence = ProcessSequence::default();
        let mut previous = None;
        let clients = ops.iter().map(|&(index, process, kind, value)| {
            let client = Process::Client(process.unwrap_or(0));
            let mut op = Op::invoke(client, "write", Value::Int(value));
            (op.kind, op.index) = (kind, index);
            sequence.index(previous.replace(index), index);
            sequence.take(&mut op, process.is_some())?;
            match op.process {
                Process::Client(number) => Ok(number),
                Process::Named(_) => unreachable!(),
            }
        });
        clients.collect()
    }

    use OpType::{Info, Invoke, Ok as Done};

    #[test]
    fn what_no_process_can_have_done_is_refused() {
        let twice = [(0, Some(3), Invoke, 1), (1, Some(3), Invoke, 2)];
        let error = "operation 1: process 3 invokes while its operation 0 is running";
        assert_eq!(taken(&twice), Err(error.into()));
        let orphan = [
            (0, Some(0), Invoke, 1),
            (1, Some(0), Info, 1),
            (2, Some(0), Done, 1),
        ];
        let error = "operation 2: process 0 completes (ok) what it did not invoke";
        assert_eq!(taken(&orphan), Err(error.into()));
        // Operation 2 may be the invocation.
        let gap = [(1, Some(0), Invoke, 1), (3, Some(5), Done, 1)];
        assert_eq!(taken(&gap), Ok(vec![0, 5]));
        let cut = [(7, Some(0), Done, 1), (8, Some(0), Invoke, 1)];
        assert_eq!(taken(&cut), Ok(vec![0, 0]));
        let beginning = [(0, Some(0), Done, 1), (1, Some(0), Invoke, 1)];
        let error = "operation 0 completes what was not invoked";
        assert_eq!(taken(&beginning), Err(error.into()));
        let completions = [(0, Some(0), Done, 1), (1, Some(0), Done, 2)];
        assert_eq!(taken(&completions), Ok(vec![0, 0]));
    }

    #[test]
    fn operations_without_process_are_clients_of_their_own() {
        let one_by_one = [
            (0, None, Invoke, 1),
            (1, None, Done, 1),
            (2, None, Invoke, 2),
            (3, None, Done, 2),
        ];
        assert_eq!(taken(&one_by_one), Ok(vec![0, 0, 1, 1]));
        let beside = [
            (0, None, Invoke, 1),
            (1, None, Invoke, 2),
            (2, None, Done, 1),
            (3, None, Done, 2),
        ];
        assert_eq!(taken(&beside), Ok(vec![0, 1, 0, 1]));
        let ambiguous = [
            (0, None, Invoke, 1),
            (1, None, Invoke, 1),
            (2, None, Done, 1),
        ];
        let error =
            "operation 2 completes operation 0 or operation 1, and none of them has a :process";
        assert_eq!(taken(&ambiguous), Err(error.into()));
        let mixed = [(0, None, Invoke, 1), (1, Some(0), Done, 1)];
        let error = "this operation has a :process, those before it have none";
        assert_eq!(taken(&mixed), Err(error.into()));
        let orphan = [(0, None, Invoke, 1), (1, None, Done, 1), (2, None, Done, 1)];
        let error = "operation 2 completes (ok) what was not invoked";
        assert_eq!(taken(&orphan), Err(error.into()));
    }
}
