//! Operations of a transaction that is not complete yet.

use seatrial_history::TransactionSink;

/// Limit of the operations of one transaction, and of the elements of all lists that it read.
const LENGTH_MAX: usize = 1 << 24;
/// Capacity that is kept for another transaction.
const ROOM_MAX: usize = 4_096;

/// The kind of one access of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DraftAccessKind {
    Read,
    ReadInitial,
    Write,
    Append,
    /// The value is the number of elements read, which follow those of earlier reads in `elements`.
    ReadList,
}

#[derive(Clone, Copy)]
struct DraftAccess {
    key: i64,
    value: i64,
    kind: DraftAccessKind,
}

/// The accesses of a transaction so far.
#[derive(Default)]
pub(super) struct TransactionDraft {
    events: Vec<DraftAccess>,
    /// Elements of all its reads of lists, in order.
    elements: Vec<i64>,
}

impl TransactionDraft {
    /// How many operations there are.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds an operation.
    #[inline]
    pub(super) fn add(
        &mut self,
        kind: DraftAccessKind,
        key: i64,
        value: i64,
    ) -> Result<(), String> {
        if self.events.len() == LENGTH_MAX {
            return Err(too_long());
        }
        self.events.push(DraftAccess { key, value, kind });
        Ok(())
    }

    /// Adds an element to the next read of a list.
    pub(super) fn element(&mut self, element: i64) -> Result<(), String> {
        if self.elements.len() == LENGTH_MAX {
            return Err(too_long());
        }
        self.elements.push(element);
        Ok(())
    }

    /// Passes the operations to `sink`, in order.
    #[inline]
    pub(super) fn emit<S: TransactionSink + ?Sized>(&self, sink: &mut S) {
        let mut elements = &self.elements[..];
        for event in &self.events {
            match event.kind {
                DraftAccessKind::Read => sink.read(event.key, Some(event.value)),
                DraftAccessKind::ReadInitial => sink.read(event.key, None),
                DraftAccessKind::Write => sink.write(event.key, event.value),
                DraftAccessKind::Append => sink.append(event.key, event.value),
                DraftAccessKind::ReadList => {
                    let (read, rest) = elements.split_at(event.value as usize);
                    elements = rest;
                    sink.read_list(event.key, read);
                }
            }
        }
    }

    /// Is its capacity small enough to be kept?
    pub(super) fn is_small(&self) -> bool {
        self.events.capacity() + self.elements.capacity() <= ROOM_MAX
    }

    /// Removes all accesses; the capacity remains.
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.elements.clear();
    }
}

fn too_long() -> String {
    format!("this transaction has more than {LENGTH_MAX} operations or elements")
}
