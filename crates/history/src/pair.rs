//! Pairs invocations with their completions.

use crate::hash::FixedMap;
use crate::{Op, OpType, Process, Symbol};

/// The open invocations while operations are visited in order: the one pairing rule of the workspace.
///
/// A client's invocation pairs with the next completion of its process. A nemesis operation begins with an `info` (or an
/// `invoke`) and pairs with the next operation of the same process and `f`, as in Jepsen.
///
/// Pairing is lenient: an invocation of a process that has an open one replaces it, and the earlier one stays without
/// completion; a completion without an open invocation has none. Constant time per operation.
#[derive(Clone, Debug, Default)]
pub struct OpenInvocations {
    /// Clients below [`LOW_CLIENTS`]: position of the open invocation plus one, 0 if there is none.
    low_clients: Vec<u64>,
    /// All other clients.
    clients: FixedMap<u64, u64>,
    /// By process and `f`.
    named: FixedMap<(Symbol, Symbol), u64>,
}

/// Clients with lower numbers are found without hashing. Usually all: numbers grow only when clients crash.
const LOW_CLIENTS: u64 = 4_096;

impl OpenInvocations {
    /// Replaces the open invocation of a client and returns the former one.
    #[inline]
    fn replace(&mut self, client: u64, position: Option<u64>) -> Option<u64> {
        if client < LOW_CLIENTS {
            let place = client as usize;
            let next = position.map_or(0, |position| position.saturating_add(1));
            if let Some(open) = self.low_clients.get_mut(place) {
                return std::mem::replace(open, next).checked_sub(1);
            }
            self.low_clients.resize(place + 1, 0);
            self.low_clients[place] = next;
            return None;
        }
        match position {
            Some(position) => self.clients.insert(client, position),
            None => self.clients.remove(&client),
        }
    }

    /// The position of the open invocation of the operation's process (of a named process: with the same `f`).
    pub fn running(&self, op: &Op) -> Option<u64> {
        match op.process {
            Process::Client(number) => self.running_client(number),
            Process::Named(name) => self.named.get(&(name, op.f)).copied(),
        }
    }

    /// [`OpenInvocations::running`] for a client.
    #[inline]
    pub fn running_client(&self, client: u64) -> Option<u64> {
        if client < LOW_CLIENTS {
            return self.low_clients.get(client as usize)?.checked_sub(1);
        }
        self.clients.get(&client).copied()
    }

    /// [`OpenInvocations::follow`] for a client.
    #[inline]
    pub fn follow_client(&mut self, position: u64, client: u64, kind: OpType) -> Option<u64> {
        if kind == OpType::Invoke {
            self.replace(client, Some(position));
            return None;
        }
        self.replace(client, None)
    }

    /// Visits the operation at `position`; returns the position of the invocation that it completes, if any.
    #[inline]
    pub fn follow(&mut self, position: u64, op: &Op) -> Option<u64> {
        match (op.process, op.kind) {
            (Process::Client(number), kind) => self.follow_client(position, number, kind),
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

#[cfg(test)]
mod tests;
