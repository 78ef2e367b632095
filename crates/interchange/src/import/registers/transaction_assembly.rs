//! Assembles transactions whose operations are on separate lines.

use super::InputFault;
use super::draft::{DraftAccessKind, TransactionDraft};
use crate::import::SourcePosition;
use seatrial_history::FixedMap;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::collections::VecDeque;

/// Operations that wait at most for further lines of their transactions.
const WAITING_MAX: usize = 65_536;

/// A transaction that further lines may belong to.
#[derive(Default)]
struct OpenDraft {
    session: u64,
    /// `None`: aborted, so without a number.
    id: Option<i64>,
    /// The line where it begins.
    line: u64,
    draft: TransactionDraft,
    /// Is it complete?
    closed: bool,
}

/// Transactions that come line by line, each line with the numbers of its session and transaction.
///
/// A session runs one transaction at a time, so its transaction is over when its next one begins. Lines of different
/// sessions may be mixed. Transactions are emitted in the order of their first lines; an open one delays later ones until
/// 65,536 operations wait, and then counts as complete, so that a file sorted by session needs constant memory. A line for
/// a transaction that is complete is an error, never a second transaction of the same number: all numbers are kept in a
/// set, half a byte for each transaction when they are dense, 16 bytes when they are far apart.
pub(super) struct TransactionAssembly {
    queue: VecDeque<OpenDraft>,
    /// Transactions emitted so far, so the number of the queue's first.
    first: u64,
    /// The number of each session's open transaction, or of one that was emitted.
    sessions: FixedMap<u64, u64>,
    seen: Numbers,
    /// Operations in the queue.
    waiting: usize,
    /// Index in the queue of the previous line's transaction.
    current: usize,
    spare: Vec<OpenDraft>,
}

/// A set of numbers, 64 to a word.
#[derive(Default)]
struct Numbers {
    words: FixedMap<i64, u64>,
}

impl Numbers {
    /// Adds a number; returns whether it was new.
    fn insert(&mut self, number: i64) -> bool {
        let word = self.words.entry(number >> 6).or_default();
        let bit = 1 << (number & 63);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl TransactionAssembly {
    pub(super) fn new() -> TransactionAssembly {
        TransactionAssembly {
            queue: VecDeque::new(),
            first: 0,
            sessions: FixedMap::default(),
            seen: Numbers::default(),
            waiting: 0,
            current: usize::MAX,
            spare: Vec::new(),
        }
    }

    /// Selects the transaction that a line names; `None`: an aborted one, which continues on directly following lines.
    #[inline]
    pub(super) fn select(
        &mut self,
        session: u64,
        id: Option<i64>,
        line: u64,
    ) -> Result<(), String> {
        if let Some(open) = self.queue.get(self.current)
            && open.session == session
            && open.id == id
        {
            return Ok(());
        }
        self.change(session, id, line)
    }

    fn change(&mut self, session: u64, id: Option<i64>, line: u64) -> Result<(), String> {
        if let Some(open) = self.queue.get_mut(self.current) {
            open.closed |= open.id.is_none();
        }
        let Some(number) = id else {
            self.push(session, id, line);
            return Ok(());
        };
        let before = self.sessions.get(&session).copied();
        let place = before.and_then(|number| number.checked_sub(self.first));
        if let Some(place) = place
            && self.queue[place as usize].id == id
        {
            self.current = place as usize;
            return Ok(());
        }
        if !self.seen.insert(number) {
            return Err(self.again(session, number));
        }
        if let Some(place) = place {
            self.queue[place as usize].closed = true;
        }
        let next = self.first + self.queue.len() as u64;
        self.sessions.insert(session, next);
        self.push(session, id, line);
        Ok(())
    }

    /// The error for a line of a transaction that cannot continue here.
    fn again(&self, session: u64, number: i64) -> String {
        let mut known = self.queue.iter().filter(|open| open.id == Some(number));
        match known.next() {
            Some(open) if open.session != session => format!(
                "transaction {number} belongs to session {} (line {}), here to session {session}",
                open.session, open.line
            ),
            _ => format!(
                "transaction {number} has ended: all its lines must come before its session's next transaction, at most \
                 {WAITING_MAX} operations after the first"
            ),
        }
    }

    fn push(&mut self, session: u64, id: Option<i64>, line: u64) {
        let mut open = self.spare.pop().unwrap_or_default();
        open.session = session;
        open.id = id;
        open.line = line;
        self.current = self.queue.len();
        self.queue.push_back(open);
    }

    /// Is the transaction of the line before the first of the file?
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        self.first == 0 && self.current == 0
    }

    /// Adds an operation to the selected transaction.
    #[inline]
    pub(super) fn add(
        &mut self,
        kind: DraftAccessKind,
        key: i64,
        value: i64,
    ) -> Result<(), String> {
        self.waiting += 1;
        self.queue[self.current].draft.add(kind, key, value)
    }

    /// Adds an element to the next read of a list.
    pub(super) fn element(&mut self, element: i64) -> Result<(), String> {
        self.queue[self.current].draft.element(element)
    }

    /// Can a transaction be emitted?
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        // Never the previous line's transaction: it may continue on the next line.
        self.current > 0
            && self.current < usize::MAX
            && (self.waiting > WAITING_MAX || self.queue[0].closed)
    }

    /// Ends the input; returns whether a transaction is left.
    pub(super) fn finish(&mut self) -> bool {
        self.current = usize::MAX;
        !self.queue.is_empty()
    }

    /// Emits the first transaction and returns the position of its start, which an error has too.
    pub(super) fn emit<S: TransactionSink + ?Sized>(
        &mut self,
        sink: &mut S,
    ) -> Result<SourcePosition, InputFault> {
        let Some(mut open) = self.queue.pop_front() else {
            return Ok(SourcePosition::line(0));
        };
        let number = self.first;
        self.first += 1;
        self.current = match self.current {
            usize::MAX => usize::MAX,
            current => current.wrapping_sub(1),
        };
        if !open.closed && self.sessions.get(&open.session) == Some(&number) {
            self.sessions.remove(&open.session);
        }
        self.waiting -= open.draft.len();
        sink.begin(open.session, None);
        open.draft.emit(sink);
        let outcome = match open.id {
            Some(_) => OpType::Ok,
            None => OpType::Fail,
        };
        let place = SourcePosition::line(open.line);
        sink.end(outcome)
            .map_err(|problem| InputFault { place, problem })?;
        if open.draft.is_small() {
            open.draft.clear();
            open.closed = false;
            self.spare.push(open);
        }
        Ok(place)
    }
}
