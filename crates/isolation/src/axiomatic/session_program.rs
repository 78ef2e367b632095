//! The transactions that took place, by session, and the sources of their reads.

use crate::registers::{Columns, RegisterEvent};
use seatrial_cycles::{Csr, Txn, Version, dense_id};
use seatrial_history::OpType;

dense_id! {
    /// The source of a read: number 0 is the initial state of every key, which comes before all transactions; then come
    /// the transactions.
    pub(super) ReadSource
}

impl ReadSource {
    /// The initial state of every key.
    pub(super) const INITIAL: ReadSource = ReadSource::new(0);

    /// This transaction as a source. Transactions are numbered with 31 bits, so that one more is a number.
    #[inline]
    pub(super) fn written_by(transaction: u32) -> ReadSource {
        ReadSource::new(transaction + 1)
    }

    /// The transaction; `None` for the initial state.
    #[inline]
    pub(super) fn transaction(self) -> Option<u32> {
        self.get().checked_sub(1)
    }
}

/// The transactions that took place, with the order of each session.
///
/// One of unknown outcome that was read from belongs to its session only if it is the last one there: it may take place
/// after others that the session ran later, so otherwise it is a session of its own.
pub(super) struct SessionProgram<'a> {
    pub(super) columns: &'a Columns,
    /// By transaction: its session.
    sessions: Vec<u32>,
    /// By session: its transactions that took place, in order.
    members: Csr<u32>,
    /// Did all take place?
    is_complete: bool,
}

impl<'a> SessionProgram<'a> {
    pub(super) fn new(columns: &'a Columns) -> SessionProgram<'a> {
        let sessions = columns.sessions().iter();
        let mut sessions: Vec<u32> = sessions.map(|session| session.get()).collect();
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
        let members = happened().map(|transaction| (sessions[transaction as usize], transaction));
        let members = Csr::group(count as usize, members);
        let is_complete = members.item_count() == columns.len();
        assert!(
            members.rows().all(|row| row.is_sorted()),
            "a session's transactions are numbered in its order"
        );
        SessionProgram {
            columns,
            sessions,
            members,
            is_complete,
        }
    }

    /// Number of sessions.
    pub(super) fn session_count(&self) -> usize {
        self.members.row_count()
    }

    /// The session of a transaction.
    pub(super) fn session(&self, transaction: u32) -> u32 {
        self.sessions[transaction as usize]
    }

    /// The transactions of a session that took place, in order.
    pub(super) fn members(&self, session: u32) -> &[u32] {
        self.members.row(session)
    }

    /// All transactions that took place, session after session.
    pub(super) fn all(&self) -> &[u32] {
        self.members.items()
    }

    /// The transaction before this one in its session.
    pub(super) fn before(&self, transaction: u32) -> Option<u32> {
        let members = self.members(self.session(transaction));
        let place = members.partition_point(|&member| member < transaction);
        place.checked_sub(1).map(|place| members[place])
    }

    /// The source of an external read; `None` if no level constrains it, because the version was never written, its writer
    /// did not take place, or the reader itself wrote it.
    pub(super) fn source(&self, reader: u32, read: RegisterEvent) -> Option<ReadSource> {
        self.source_of(reader, read.version())
    }

    /// The same by the version that is read.
    pub(super) fn source_of(&self, reader: u32, version: Version) -> Option<ReadSource> {
        if self.columns.is_initial(version) {
            return Some(ReadSource::INITIAL);
        }
        let writer = self.columns.writer(version)?.get();
        let counts = writer != reader && (self.is_complete || self.columns.happened(writer));
        counts.then(|| ReadSource::written_by(writer))
    }

    /// The key and the source of each external read of a transaction, in order.
    pub(super) fn reads(&self, transaction: u32) -> impl Iterator<Item = (u32, ReadSource)> {
        let events = self.columns.events(transaction).iter();
        let reads = events.filter(|event| event.is_external_read());
        reads.filter_map(move |&read| Some((read.key(), self.source(transaction, read)?)))
    }

    /// Adds the transactions that a transaction read from to `all`, with repetitions.
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "what is a read is not to be foreseen"
    )]
    pub(super) fn add_sources(&self, transaction: u32, all: &mut Vec<u32>) {
        let events = self.columns.events(transaction);
        let mut end = all.len();
        all.resize(end + events.len(), 0);
        for event in events {
            // The reader itself stands for a missing writer: neither is a source.
            let writer = self.columns.writer(event.version());
            let writer = writer.map_or(transaction, Txn::get);
            let counts = event.is_external_read() & (writer != transaction);
            all[end] = writer;
            end += usize::from(counts && (self.is_complete || self.columns.happened(writer)));
        }
        all.truncate(end);
    }

    /// The transactions that a transaction read from, with repetitions.
    pub(super) fn sources(&self, transaction: u32) -> impl Iterator<Item = u32> {
        self.reads(transaction)
            .filter_map(|(_, source)| source.transaction())
    }

    /// Prefetches the events of these transactions, all together, so that cache misses overlap.
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
