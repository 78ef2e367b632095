//! One replica with its log on a storage, and a client beside it, driven as by the host: write, sync, report.

use seatrial_kv::{Bug, Client, ClientOptions, Outcome, Replica, ReplicaOptions, Transaction};
use seatrial_machine::{
    DataFolder, Input, LogName, LogWriter, Machine, NodeId, OpenLog, Output, Storage, Ticket, Time,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SERVER: NodeId = NodeId::server(1);
const CLIENT: NodeId = NodeId::client(0);

/// A replica that is alone, and its client. Appends are written at once, and synced when the test says so: what comes in
/// between gathers.
pub(crate) struct LocalNode {
    replica: Replica,
    client: Client,
    log: LogWriter,
    path: String,
    pub(crate) now: Time,
    /// Written, not yet synced.
    written: Vec<Ticket>,
    pub(crate) outcomes: Vec<(Ticket, Outcome)>,
}

impl LocalNode {
    /// What a host does at a start, until a session is open. `seed` differs between lives.
    pub(crate) fn start(
        storage: &Arc<dyn Storage>,
        folder: &Path,
        bug: Option<Bug>,
        seed: u64,
    ) -> Result<LocalNode, String> {
        let path = folder.join("log").display().to_string();
        let failed = |error: &dyn std::fmt::Display| format!("{path} at its start: {error}");
        let data = DataFolder::open(Arc::clone(storage), folder).map_err(|it| failed(&it))?;
        let mut options = ReplicaOptions::new(SERVER, [SERVER]);
        options.bug = bug;
        let (replica, report) = Replica::boot(&data, options).map_err(|it| failed(&it))?;
        let end = OpenLog::new(LogName::MAIN, report.recovery.end);
        let log = LogWriter::open(storage, folder, end).map_err(|it| failed(&it))?;
        let mut options = ClientOptions::new(SERVER, seed);
        options.request_timeout = Duration::from_hours(1);
        options.repeat_interval = Duration::from_hours(1);
        let mut node = LocalNode {
            replica,
            client: Client::new(options),
            log,
            path,
            now: Time::ZERO,
            written: Vec::new(),
            outcomes: Vec::new(),
        };
        node.sync()?;
        // An empty transaction opens the session.
        node.ask(Ticket(u64::MAX - 1), Transaction::new())?;
        node.sync()?;
        let opened = node.outcomes.pop().map(|it| it.1);
        if matches!(opened, Some(Outcome::Ok(_))) {
            Ok(node)
        } else {
            Err(format!("{}: no session: {opened:?}", node.path))
        }
    }

    /// Gives the replica its wake-ups until it wants none now.
    pub(crate) fn wake(&mut self) -> Result<(), String> {
        while self.replica.wake_at().is_some_and(|due| due <= self.now) {
            self.turn(Input::Wake)?;
        }
        Ok(())
    }

    fn turn(&mut self, input: Input<Transaction>) -> Result<(), String> {
        let mut out = Vec::new();
        self.replica.turn(self.now, input, &mut out);
        self.replica.check_invariants();
        self.carry_out(out)
    }

    fn carry_out(&mut self, out: Vec<Output<Outcome>>) -> Result<(), String> {
        let mut queue = VecDeque::from(out);
        while let Some(output) = queue.pop_front() {
            let mut more = Vec::new();
            match output {
                Output::Append { bytes, ticket, .. } => {
                    let written = self.log.append(&bytes);
                    let end = self.log.end();
                    written.map_err(|error| format!("{} at {end}: {error}", self.path))?;
                    self.written.push(ticket);
                }
                Output::Send {
                    to: CLIENT,
                    message,
                } => {
                    let input = Input::Message {
                        from: SERVER,
                        bytes: message,
                    };
                    self.client.turn(self.now, input, &mut more);
                }
                Output::Send {
                    to: SERVER,
                    message,
                } => {
                    let input = Input::Message {
                        from: CLIENT,
                        bytes: message,
                    };
                    self.replica.turn(self.now, input, &mut more);
                }
                Output::Reply(ticket, outcome) => self.outcomes.push((ticket, outcome)),
                Output::Admit(_) => {}
                other => return Err(format!("{}: {other:?}", self.path)),
            }
            queue.extend(more);
        }
        Ok(())
    }

    /// Syncs until nothing waits.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        self.wake()?;
        while !self.written.is_empty() {
            let synced = self.log.sync();
            let end = self.log.end();
            synced.map_err(|error| format!("{} at {end}: {error}", self.path))?;
            for ticket in std::mem::take(&mut self.written) {
                self.turn(Input::Appended(ticket))?;
            }
            self.wake()?;
        }
        Ok(())
    }

    /// Sends a transaction.
    pub(crate) fn ask(&mut self, ticket: Ticket, transaction: Transaction) -> Result<(), String> {
        let mut out = Vec::new();
        let input = Input::Request(ticket, transaction);
        self.client.turn(self.now, input, &mut out);
        self.carry_out(out)?;
        self.wake()
    }

    /// The outcome of a transaction when everything is synced.
    pub(crate) fn answer(&mut self, transaction: Transaction) -> Result<Outcome, String> {
        let ticket = Ticket(u64::MAX);
        self.ask(ticket, transaction)?;
        self.sync()?;
        let place = self.outcomes.iter().position(|it| it.0 == ticket);
        place
            .map(|place| self.outcomes.remove(place).1)
            .ok_or_else(|| format!("{}: no answer", self.path))
    }
}
