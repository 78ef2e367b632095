//! The transactions that took place, by session, and where their reads come from.

use crate::txn::registers::{Columns, Event, NONE};
use seatrial_history::OpType;

/// What stands for the transaction that wrote every key's initial state: it comes before all others.
pub(super) const INITIAL: u32 = NONE;

/// Transactions that took place, with the order of each session.
///
/// One of unknown outcome that somebody saw belongs to its session only as the last: it may take place after others that
/// the session ran later, so it then is a session of its own.
pub(super) struct Program<'a> {
    pub(super) columns: &'a Columns,
    /// By transaction: its session.
    sessions: Vec<u32>,
    /// By session: where its transactions begin in `members`; the end of the last one too.
    starts: Vec<u32>,
    /// Transactions that took place, session after session.
    members: Vec<u32>,
    /// Did all take place?
    is_complete: bool,
}

impl<'a> Program<'a> {
    pub(super) fn new(columns: &'a Columns) -> Program<'a> {
        let mut sessions = columns.sessions().to_vec();
        let mut count = columns.session_count() as u32;
        let mut is_followed = vec![false; count as usize];
        for transaction in (0..columns.len() as u32).rev() {
            let session = &mut sessions[transaction as usize];
            match columns.outcomes()[transaction as usize] {
                OpType::Ok => is_followed[*session as usize] = true,
                _ if columns.happened(transaction) && is_followed[*session as usize] => {
                    *session = count;
                    count += 1;
                }
                _ => {}
            }
        }
        let happened = || (0..columns.len() as u32).filter(|&one| columns.happened(one));
        let mut starts = vec![0; count as usize + 1];
        for transaction in happened() {
            starts[sessions[transaction as usize] as usize + 1] += 1;
        }
        for session in 0..count as usize {
            starts[session + 1] += starts[session];
        }
        let mut ends = starts.clone();
        let mut members = vec![0; starts[count as usize] as usize];
        for transaction in happened() {
            let end = &mut ends[sessions[transaction as usize] as usize];
            members[*end as usize] = transaction;
            *end += 1;
        }
        Program {
            columns,
            sessions,
            starts,
            is_complete: members.len() == columns.len(),
            members,
        }
    }

    /// Number of sessions.
    pub(super) fn session_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The session of a transaction.
    pub(super) fn session(&self, transaction: u32) -> u32 {
        self.sessions[transaction as usize]
    }

    /// The transactions of a session that took place, in order.
    pub(super) fn members(&self, session: u32) -> &[u32] {
        let session = session as usize;
        &self.members[self.starts[session] as usize..self.starts[session + 1] as usize]
    }

    /// All transactions that took place, session after session.
    pub(super) fn all(&self) -> &[u32] {
        &self.members
    }

    /// The transaction before this one, which took place, in its session.
    pub(super) fn before(&self, transaction: u32) -> Option<u32> {
        let members = self.members(self.session(transaction));
        let place = members.partition_point(|&member| member < transaction);
        place.checked_sub(1).map(|place| members[place])
    }

    /// Where an external read comes from: a transaction, [`INITIAL`], or `None` for what no level speaks of, as nobody
    /// wrote it, or nobody whose writes took place, or the reader itself.
    pub(super) fn source(&self, reader: u32, read: Event) -> Option<u32> {
        self.source_of(reader, read.version())
    }

    /// The same by the version that is read.
    pub(super) fn source_of(&self, reader: u32, version: u32) -> Option<u32> {
        if self.columns.is_initial(version) {
            return Some(INITIAL);
        }
        let writer = self.columns.writer(version);
        let counts = writer != NONE
            && writer != reader
            && (self.is_complete || self.columns.happened(writer));
        counts.then_some(writer)
    }

    /// The key and the source of each external read of a transaction, in order.
    pub(super) fn reads(&self, transaction: u32) -> impl Iterator<Item = (u32, u32)> {
        let events = self.columns.events(transaction).iter();
        let reads = events.filter(|event| event.is_external_read());
        reads.filter_map(move |&read| Some((read.key(), self.source(transaction, read)?)))
    }

    /// Adds the transactions that a transaction read from, as often as it did, to `all`.
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "what is a read is not to be foreseen"
    )]
    pub(super) fn add_sources(&self, transaction: u32, all: &mut Vec<u32>) {
        let events = self.columns.events(transaction);
        let mut end = all.len();
        all.resize(end + events.len(), 0);
        for event in events {
            let writer = self.columns.writer(event.version());
            let counts = event.is_external_read() & (writer != NONE) & (writer != transaction);
            all[end] = writer;
            end += usize::from(counts && (self.is_complete || self.columns.happened(writer)));
        }
        all.truncate(end);
    }

    /// The transactions that a transaction read from, as often as it did.
    pub(super) fn sources(&self, transaction: u32) -> impl Iterator<Item = u32> {
        let sources = self.reads(transaction).map(|(_, source)| source);
        sources.filter(|&source| source != INITIAL)
    }

    /// Looks at these transactions, so that what they did comes near the processor side by side.
    pub(super) fn glance(&self, transactions: &[u32]) {
        let first = transactions
            .iter()
            .map(|&one| self.columns.events(one).first());
        let keys = first.map(|event| event.map_or(0, |event| event.key()));
        std::hint::black_box(keys.fold(0, |sum, key| sum ^ key));
    }

    /// The keys that a transaction writes, each once.
    pub(super) fn writes(&self, transaction: u32) -> impl Iterator<Item = u32> {
        let events = self.columns.events(transaction).iter();
        let writes = events.filter(|event| event.is_final_write());
        writes.map(|event| event.key())
    }
}
