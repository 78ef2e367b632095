//! Which operation polled what another one sent, for the search for cycles.

use seatrial_cycles::CompletedOperation;
use seatrial_history::FixedMap;
use std::collections::{BTreeMap, VecDeque};

/// The operation of a message that was sent before the graph began: no edge leads from it.
pub(super) const BEFORE_GRAPH: u32 = 0;

/// No operation that completed has sent the message so far.
pub(super) const NO_SENDER: u32 = u32::MAX;

/// An operation that may still be part of a cycle.
struct WaitingOperation {
    operation: CompletedOperation,
    /// Operations below this number had completed when it was invoked.
    floor: u32,
    /// Messages that it polled and whose senders may be part of a cycle; before `next` there are none left.
    messages: Vec<u32>,
    next: usize,
}

/// What an operation waits for.
enum Obstacle {
    /// Every operation below this number is removed.
    Floor(u32),
    /// A message whose send has not completed.
    Message(u32),
    /// An operation that is not removed.
    Operation(u32),
}

/// The graph of operations that poll and send, without those that no cycle can contain.
///
/// Operations are numbered by completion, from 1. An edge leads from the operation that sent a message to one that polled
/// it; real time and the order of processes are edges too. An operation is on a cycle only if some edge into it comes from an
/// operation on that cycle. So one is removed as soon as it has completed, all that completed before its invocation are removed,
/// and so are the senders of all that it polled: what is left when a topological order is peeled off from the front. In a history
/// without cycles everything is removed, and what is kept at any time is about as much as runs at a time. Operations of which one
/// is on a cycle, or polled a message that was never sent, stay, and so do all that begin after them.
///
/// Each operation waits for one obstacle at a time: each edge is looked at once.
pub(super) struct ReadGraph {
    /// By number: index of the completion.
    completions: Vec<u64>,
    /// The number of the first operation in the window; all before it are removed.
    first: u32,
    /// From `first` on; `None` once removed.
    window: VecDeque<Option<WaitingOperation>>,
    by_operation: FixedMap<u32, Vec<u32>>,
    by_message: FixedMap<u32, Vec<u32>>,
    by_floor: BTreeMap<u32, Vec<u32>>,
}

impl Default for ReadGraph {
    fn default() -> ReadGraph {
        ReadGraph {
            completions: vec![0],
            first: BEFORE_GRAPH + 1,
            window: VecDeque::new(),
            by_operation: FixedMap::default(),
            by_message: FixedMap::default(),
            by_floor: BTreeMap::new(),
        }
    }
}

impl ReadGraph {
    /// The number of the operation that completes next.
    pub(super) fn next(&self) -> u32 {
        self.completions.len() as u32
    }

    /// No cycle can contain the operations below this number.
    pub(super) fn past(&self) -> u32 {
        self.first
    }

    /// By number: index of the completion; the first is none.
    pub(super) fn completions(&self) -> &[u64] {
        &self.completions
    }

    /// Adds an operation that completed: `floor` was [`ReadGraph::next`] at its invocation, `messages` are those polled whose
    /// senders are not past. Their senders are in `senders`, by message, its own already.
    pub(super) fn add(
        &mut self,
        operation: CompletedOperation,
        floor: u32,
        messages: Vec<u32>,
        sent: impl Iterator<Item = u32>,
        sender: impl Fn(u32) -> u32,
    ) {
        let number = self.next();
        self.completions.push(operation.index);
        self.window.push_back(Some(WaitingOperation {
            operation,
            floor,
            messages,
            next: 0,
        }));
        debug_assert_eq!(self.window.len() as u32, self.next() - self.first);
        let mut woken = vec![number];
        for message in sent {
            woken.extend(self.by_message.remove(&message).unwrap_or_default());
        }
        while let Some(number) = woken.pop() {
            match self.obstacle(number, &sender) {
                Some(Obstacle::Floor(floor)) => {
                    self.by_floor.entry(floor).or_default().push(number);
                }
                Some(Obstacle::Message(message)) => {
                    self.by_message.entry(message).or_default().push(number);
                }
                Some(Obstacle::Operation(other)) => {
                    self.by_operation.entry(other).or_default().push(number);
                }
                None => self.remove(number, &mut woken),
            }
        }
    }

    /// The first obstacle that is left to the removal of an operation.
    fn obstacle(&mut self, number: u32, sender: &impl Fn(u32) -> u32) -> Option<Obstacle> {
        let first = self.first;
        let place = (number - first) as usize;
        // Taken out and put back, since the window is asked about others.
        let mut waiting = self.window[place].take()?;
        let mut obstacle = None;
        if waiting.floor > first {
            obstacle = Some(Obstacle::Floor(waiting.floor));
        }
        while obstacle.is_none()
            && let Some(&message) = waiting.messages.get(waiting.next)
        {
            match sender(message) {
                NO_SENDER => obstacle = Some(Obstacle::Message(message)),
                other if other == number || self.is_removed(other) => waiting.next += 1,
                other => obstacle = Some(Obstacle::Operation(other)),
            }
        }
        self.window[place] = Some(waiting);
        obstacle
    }

    fn is_removed(&self, number: u32) -> bool {
        let place = number.checked_sub(self.first);
        place.is_none_or(|place| self.window[place as usize].is_none())
    }

    fn remove(&mut self, number: u32, woken: &mut Vec<u32>) {
        let place = (number - self.first) as usize;
        if self.window[place].take().is_none() {
            return;
        }
        woken.extend(self.by_operation.remove(&number).unwrap_or_default());
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.first += 1;
        }
        while let Some(entry) = self.by_floor.first_entry()
            && *entry.key() <= self.first
        {
            woken.extend(entry.remove());
        }
    }

    /// The operations that are left, by completion, and the pairs of them (by place) of which the second polled what the first
    /// sent.
    pub(super) fn into_rest(
        self,
        sender: impl Fn(u32) -> u32,
    ) -> (Vec<CompletedOperation>, Vec<(u32, u32)>) {
        let mut places = vec![NO_SENDER; self.window.len()];
        let mut count = 0;
        for (place, waiting) in places.iter_mut().zip(&self.window) {
            if waiting.is_some() {
                *place = count;
                count += 1;
            }
        }
        let (mut operations, mut reads) = (Vec::new(), Vec::new());
        for waiting in self.window.into_iter().flatten() {
            let reader = operations.len() as u32;
            for &message in &waiting.messages[waiting.next..] {
                let other = sender(message).checked_sub(self.first);
                let place = other.and_then(|other| places.get(other as usize));
                let place = place.copied().filter(|place| *place != NO_SENDER);
                reads.extend(place.map(|place| (place, reader)));
            }
            operations.push(waiting.operation);
        }
        assert_eq!(operations.len(), count as usize, "each is left once");
        reads.sort_unstable();
        reads.dedup();
        (operations, reads)
    }
}
