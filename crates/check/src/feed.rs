//! Transactions that go from a file into a checker without becoming operations.

use crate::check_loop::{CheckStage, Stopped, Watch};
use crate::infer::{MopKind, Shapes};
use seatrial_checker::Overview;
use seatrial_history::{OpType, Stamps, TransactionSink};

/// Transactions after which the watch is asked.
const INTERVAL: u64 = 4_096;

/// Hands transactions on to a checker, counts them, and asks the watch now and then.
pub(crate) struct Feed<'a> {
    sink: &'a mut dyn TransactionSink,
    overview: Overview,
    shapes: Option<&'a mut Shapes>,
    watch: &'a dyn Watch,
    stopped: Option<Stopped>,
    /// Does the checker take no more?
    is_refused: bool,
    /// Transactions so far.
    count: u64,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(
        sink: &'a mut dyn TransactionSink,
        watch: &'a dyn Watch,
        shapes: Option<&'a mut Shapes>,
    ) -> Feed<'a> {
        Feed {
            sink,
            overview: Overview::default(),
            shapes,
            watch,
            stopped: None,
            is_refused: false,
            count: 0,
        }
    }

    /// Counts of what was fed, why it stopped, and whether the checker refused a transaction.
    pub(crate) fn into_parts(self) -> (Overview, Option<Stopped>, bool) {
        (self.overview, self.stopped, self.is_refused)
    }

    /// Notes what this transaction does; its completion stands at every second position.
    fn note(&mut self, mop: MopKind) {
        if let Some(shapes) = &mut self.shapes {
            shapes.add_mop(2 * self.count, mop);
        }
    }
}

impl TransactionSink for Feed<'_> {
    fn begin(&mut self, session: u64, stamps: Option<Stamps>) {
        self.sink.begin(session, stamps);
    }

    fn read(&mut self, key: i64, value: Option<i64>) {
        if value.is_some() {
            self.note(MopKind::RegisterRead);
        }
        self.sink.read(key, value);
    }

    fn write(&mut self, key: i64, value: i64) {
        self.note(MopKind::Write);
        self.sink.write(key, value);
    }

    fn append(&mut self, key: i64, element: i64) {
        self.note(MopKind::Append);
        self.sink.append(key, element);
    }

    fn read_list(&mut self, key: i64, elements: &[i64]) {
        self.note(MopKind::ListRead);
        self.sink.read_list(key, elements);
    }

    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        let taken = self.sink.end(outcome);
        self.overview.add_transaction(outcome);
        if let Some(shapes) = &mut self.shapes {
            shapes.add_transaction(2 * self.count, outcome);
        }
        self.count += 1;
        debug_assert_eq!(self.overview.events(), 2 * self.count);
        if taken.is_err() {
            self.is_refused = true;
            return taken;
        }
        if self.count.is_multiple_of(INTERVAL) {
            let events = self.overview.events();
            self.watch.stage(&CheckStage::Reading { events });
            self.stopped = self.watch.stop();
            if let Some(stopped) = &self.stopped {
                return Err(stopped.0.clone());
            }
        }
        Ok(())
    }
}
