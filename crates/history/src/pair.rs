//! Which completion belongs to which invocation.

use crate::hash::FixedMap;
use crate::{Op, OpType, Process, Symbol};

/// The invocations that have not completed yet, while operations pass by in order. One rule for everybody who pairs: a
/// client's invocation pairs with the next completion of its process; a nemesis operation begins with an `info` (or an
/// `invoke`) and pairs with the next operation of the same process and `f`, as in Jepsen.
///
/// It is lenient: the invocation of a process that is still busy takes the place of the earlier one, which stays
/// without completion, and a completion without invocation has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenInvocations {
    clients: FixedMap<u64, u64>,
    /// By process and `f`.
    named: FixedMap<(Symbol, Symbol), u64>,
}

impl OpenInvocations {
    /// The position of the invocation that `op` would complete, were it no invocation itself.
    pub(crate) fn running(&self, op: &Op) -> Option<u64> {
        match op.process {
            Process::Client(number) => self.clients.get(&number).copied(),
            Process::Named(name) => self.named.get(&(name, op.f)).copied(),
        }
    }

    /// Takes the operation at `position` into account; the position of the invocation that it completes, if it does.
    pub(crate) fn follow(&mut self, position: u64, op: &Op) -> Option<u64> {
        match (op.process, op.kind) {
            (Process::Client(number), OpType::Invoke) => {
                self.clients.insert(number, position);
                None
            }
            (Process::Client(number), _) => self.clients.remove(&number),
            (Process::Named(name), OpType::Invoke) => {
                self.named.insert((name, op.f), position);
                None
            }
            (Process::Named(name), kind) => {
                let open = self.named.remove(&(name, op.f));
                if open.is_none() && kind == OpType::Info {
                    self.named.insert((name, op.f), position);
                }
                open
            }
        }
    }
}
