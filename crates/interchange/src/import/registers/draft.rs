//! Collects the operations of a transaction before it is emitted.

use seatrial_history::TransactionSink;

/// Operations of one transaction, and elements of the lists that it read, at most.
const LENGTH_MAX: usize = 1 << 24;
/// Room that is worth keeping for another transaction.
const ROOM_MAX: usize = 4_096;

/// What a transaction did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    ReadInitial,
    Write,
    Append,
    /// The value is how many of the transaction's elements it saw, after those of its lists before.
    ReadList,
}

#[derive(Clone, Copy)]
struct Event {
    key: i64,
    value: i64,
    kind: Kind,
}

/// What a transaction did so far.
#[derive(Default)]
pub(super) struct Draft {
    events: Vec<Event>,
    /// Of all lists that it read.
    elements: Vec<i64>,
}

impl Draft {
    /// How many operations there are.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds an operation.
    #[inline]
    pub(super) fn add(&mut self, kind: Kind, key: i64, value: i64) -> Result<(), String> {
        if self.events.len() == LENGTH_MAX {
            return Err(too_long());
        }
        self.events.push(Event { key, value, kind });
        Ok(())
    }

    /// Adds an element to what the list read that comes next saw.
    pub(super) fn element(&mut self, element: i64) -> Result<(), String> {
        if self.elements.len() == LENGTH_MAX {
            return Err(too_long());
        }
        self.elements.push(element);
        Ok(())
    }

    /// Tells the operations.
    #[inline]
    pub(super) fn tell<S: TransactionSink + ?Sized>(&self, sink: &mut S) {
        let mut elements = &self.elements[..];
        for event in &self.events {
            match event.kind {
                Kind::Read => sink.read(event.key, Some(event.value)),
                Kind::ReadInitial => sink.read(event.key, None),
                Kind::Write => sink.write(event.key, event.value),
                Kind::Append => sink.append(event.key, event.value),
                Kind::ReadList => {
                    let (seen, rest) = elements.split_at(event.value as usize);
                    elements = rest;
                    sink.read_list(event.key, seen);
                }
            }
        }
    }

    /// Is its room worth keeping?
    pub(super) fn is_small(&self) -> bool {
        self.events.capacity() + self.elements.capacity() <= ROOM_MAX
    }

    /// Forgets everything but the room.
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.elements.clear();
    }
}

fn too_long() -> String {
    format!("this transaction has more than {LENGTH_MAX} operations or elements")
}
