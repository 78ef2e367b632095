//! Replicas with logs and files on a storage, driven as by a host: write, sync, report; a file task or a job at a time.

use seatrial_kv::{BootReport, Bug, Replica, ReplicaOptions};
use seatrial_kv_protocol::message::{MessageHeader, MessageKind};
use seatrial_kv_protocol::{
    Answer, Outcome, Transaction, TransactionClient, TransactionClientOptions,
};
use seatrial_machine::{
    DataFolder, FileFolder, FileQueue, Input, Job, LogName, LogWriter, Machine, NodeId, OpenLog,
    Output, SEGMENT_LENGTH, Storage, Ticket, Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SERVER: NodeId = NodeId::server(1);
const CLIENT: NodeId = NodeId::client(0);
/// An endpoint that repeats requests of clients.
const REPEATER: NodeId = NodeId::client(1);

/// The index of the checkpoint that a file with this name belongs to, whole or of changes.
pub(crate) fn checkpoint_index(name: &str) -> Option<u64> {
    let changes = name.strip_prefix("changes-");
    let changes = changes.and_then(|rest| Some(rest.split_once("-of-")?.0));
    let digits = name.strip_prefix("checkpoint-").or(changes)?;
    digits.parse().ok()
}

/// A replica and what a host does for it. Appends are written at once, and synced when the test asks for it: what comes in
/// between gathers. File tasks and jobs run one at a time, also when the test asks for it.
pub(crate) struct ReplicaDriver {
    pub(crate) replica: Replica,
    pub(crate) report: BootReport,
    log: LogWriter,
    path: String,
    files: FileFolder,
    tasks: FileQueue,
    jobs: VecDeque<(Ticket, Box<dyn Job>)>,
    /// Written, not yet synced.
    written: Vec<Ticket>,
    /// Messages for other endpoints, in order.
    pub(crate) sent: VecDeque<(NodeId, Vec<u8>)>,
}

impl ReplicaDriver {
    /// What a host does at a start, up to the first turn.
    pub(crate) fn start(
        storage: &Arc<dyn Storage>,
        folder: &Path,
        options: ReplicaOptions,
        segment_length: u64,
    ) -> Result<ReplicaDriver, String> {
        let path = folder.join("log").display().to_string();
        let failed = |error: &dyn std::fmt::Display| format!("{path} at its start: {error}");
        let data = DataFolder::open(Arc::clone(storage), folder).map_err(|it| failed(&it))?;
        let (replica, report) = Replica::boot(&data, options).map_err(|it| failed(&it))?;
        let end = OpenLog {
            segment_length,
            // Where each crash is tried, zeros after the end of a large segment would only cost time.
            spares_max: if segment_length < SEGMENT_LENGTH {
                2
            } else {
                0
            },
            ..OpenLog::new(LogName::MAIN, report.recovery.end)
        };
        let log = LogWriter::open(storage, folder, end).map_err(|it| failed(&it))?;
        Ok(ReplicaDriver {
            replica,
            report,
            log,
            path,
            files: data.file_folder(),
            tasks: FileQueue::default(),
            jobs: VecDeque::new(),
            written: Vec::new(),
            sent: VecDeque::new(),
        })
    }

    /// Gives the replica its wake-ups until it wants none now.
    pub(crate) fn wake(&mut self, now: Time) -> Result<(), String> {
        while self.replica.wake_at().is_some_and(|due| due <= now) {
            self.turn(now, Input::Wake)?;
        }
        Ok(())
    }

    /// One turn.
    pub(crate) fn turn(&mut self, now: Time, input: Input<Transaction>) -> Result<(), String> {
        let mut out = Vec::new();
        self.replica.turn(now, input, &mut out);
        self.replica.check_invariants();
        for output in out {
            match output {
                Output::Append { bytes, ticket, .. } => {
                    let written = self.log.append(&bytes);
                    written.map_err(|error| self.log_error(&error))?;
                    self.written.push(ticket);
                }
                Output::TruncateHead { position, .. } => {
                    let freed = self.log.truncate_head(position);
                    freed.map_err(|error| self.log_error(&error))?;
                }
                Output::File(task, ticket) => self.tasks.push(ticket, task),
                Output::Compute(job, ticket) => self.jobs.push_back((ticket, job)),
                Output::Send { to, message } => self.sent.push_back((to, message)),
                Output::Admit(_) => {}
                other => return Err(format!("{}: {other:?}", self.path)),
            }
        }
        Ok(())
    }

    fn log_error(&self, error: &std::io::Error) -> String {
        format!("{} at {}: {error}", self.path, self.log.end())
    }

    /// Syncs the log, if something is written. False: nothing was.
    pub(crate) fn sync_log(&mut self, now: Time) -> Result<bool, String> {
        if self.written.is_empty() {
            return Ok(false);
        }
        self.log.sync().map_err(|error| self.log_error(&error))?;
        for ticket in std::mem::take(&mut self.written) {
            self.turn(now, Input::Appended(ticket))?;
        }
        Ok(true)
    }

    /// Runs one file task or one job. False: there is none.
    pub(crate) fn work(&mut self, now: Time) -> Result<bool, String> {
        if let Some((ticket, task)) = self.tasks.start() {
            let result = self.files.run(task);
            self.tasks.finish(ticket);
            self.turn(now, Input::FileDone(ticket, result))?;
            return Ok(true);
        }
        let Some((ticket, job)) = self.jobs.pop_front() else {
            return Ok(false);
        };
        self.turn(now, Input::Computed(ticket, job.run()))?;
        Ok(true)
    }
}

/// A replica that is alone, and its client.
pub(crate) struct LocalNode {
    pub(crate) driver: ReplicaDriver,
    client: TransactionClient,
    pub(crate) now: Time,
    pub(crate) outcomes: Vec<(Ticket, Outcome)>,
    /// Messages of the requests that were sent.
    pub(crate) requests: BTreeMap<Ticket, Vec<u8>>,
    /// Replies to repeated requests.
    repeated: Vec<Vec<u8>>,
}

impl LocalNode {
    /// What a host does at a start, until a session is open. `seed` differs between lives.
    pub(crate) fn start(
        storage: &Arc<dyn Storage>,
        folder: &Path,
        bug: Option<Bug>,
        seed: u64,
    ) -> Result<LocalNode, String> {
        let mut options = ReplicaOptions::new(SERVER, [SERVER]);
        options.bug = bug;
        let segment_length = SEGMENT_LENGTH;
        LocalNode::start_with(storage, folder, options, segment_length, seed)
    }

    /// [`LocalNode::start`] with options, and segments of the log of this many bytes.
    pub(crate) fn start_with(
        storage: &Arc<dyn Storage>,
        folder: &Path,
        options: ReplicaOptions,
        segment_length: u64,
        seed: u64,
    ) -> Result<LocalNode, String> {
        let driver = ReplicaDriver::start(storage, folder, options, segment_length)?;
        let mut options = TransactionClientOptions::new(SERVER, seed);
        options.request_timeout = Duration::from_hours(1);
        options.repeat_interval = Duration::from_hours(1);
        let mut node = LocalNode {
            driver,
            client: TransactionClient::new(options),
            now: Time::ZERO,
            outcomes: Vec::new(),
            requests: BTreeMap::new(),
            repeated: Vec::new(),
        };
        node.sync()?;
        // An empty transaction opens the session.
        node.ask(Ticket(u64::MAX - 1), Transaction::new())?;
        node.sync()?;
        let opened = node.outcomes.pop().map(|it| it.1);
        if matches!(opened, Some(Outcome::Ok(_))) {
            Ok(node)
        } else {
            // A start waits until the mark of its journal is durable.
            let error = node.driver.replica.status().checkpoints.last_error;
            let (path, error) = (&node.driver.path, error.unwrap_or_default());
            Err(format!("{path}: no session: {opened:?} {error}"))
        }
    }

    /// Gives the replica its wake-ups until it wants none now.
    pub(crate) fn wake(&mut self) -> Result<(), String> {
        self.driver.wake(self.now)?;
        self.deliver()
    }

    /// Carries messages between the replica and its client until there are none.
    fn deliver(&mut self) -> Result<(), String> {
        while let Some((to, message)) = self.driver.sent.pop_front() {
            if to == REPEATER {
                self.repeated.push(message);
                continue;
            }
            let input = Input::Message {
                from: SERVER,
                bytes: message,
            };
            self.turn_client(input)?;
        }
        Ok(())
    }

    fn turn_client(&mut self, input: Input<Transaction>) -> Result<(), String> {
        let asked = match &input {
            Input::Request(ticket, _) => Some(*ticket),
            _ => None,
        };
        let mut out = Vec::new();
        self.client.turn(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Send { message, .. } => {
                    if let Some(ticket) = asked
                        && MessageHeader::decode(&message)
                            .is_ok_and(|it| it.kind == MessageKind::Request)
                    {
                        self.requests.insert(ticket, message.clone());
                    }
                    let input = Input::Message {
                        from: CLIENT,
                        bytes: message,
                    };
                    self.driver.turn(self.now, input)?;
                }
                Output::Reply(ticket, outcome) => self.outcomes.push((ticket, outcome)),
                other => return Err(format!("{}: {other:?}", self.driver.path)),
            }
        }
        Ok(())
    }

    /// One sync of the log, and one file task or job.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        self.wake()?;
        let has_worked = self.driver.work(self.now)?;
        let has_synced = self.driver.sync_log(self.now)?;
        self.deliver()?;
        self.wake()?;
        Ok(has_worked || has_synced)
    }

    /// Syncs and works until nothing waits.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        while self.step()? {}
        Ok(())
    }

    /// Sends a transaction.
    pub(crate) fn ask(&mut self, ticket: Ticket, transaction: Transaction) -> Result<(), String> {
        self.turn_client(Input::Request(ticket, transaction))?;
        self.deliver()?;
        self.wake()
    }

    /// Asks for an element to be appended to the list of the tests.
    pub(crate) fn append(&mut self, ticket: Ticket, value: &[u8]) -> Result<(), String> {
        let mut transaction = Transaction::new();
        transaction.append(b"list", value).unwrap();
        self.ask(ticket, transaction)
    }

    /// The elements of that list, each read by `element_of`.
    pub(crate) fn list<T>(
        &mut self,
        element_of: impl FnMut(&[u8]) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut transaction = Transaction::new();
        transaction.read(b"list").unwrap();
        let outcome = self.answer(transaction)?;
        let Outcome::Ok(answers) = outcome else {
            return Err(format!("{outcome:?}"));
        };
        let Some(Answer::List(list)) = answers.iter().next() else {
            return Ok(Vec::new());
        };
        list.iter().map(element_of).collect()
    }

    /// The outcome of a transaction when everything is synced.
    pub(crate) fn answer(&mut self, transaction: Transaction) -> Result<Outcome, String> {
        let ticket = Ticket(u64::MAX);
        self.ask(ticket, transaction)?;
        self.sync()?;
        let place = self.outcomes.iter().position(|it| it.0 == ticket);
        place
            .map(|place| self.outcomes.remove(place).1)
            .ok_or_else(|| format!("{}: no answer", self.driver.path))
    }

    /// Sends the message of a request again, from another endpoint. The outcome; `None`: no reply, because the client has had it.
    pub(crate) fn repeat(&mut self, message: &[u8]) -> Result<Option<Outcome>, String> {
        let header = MessageHeader::decode(message).map_err(|it| it.to_string())?;
        let input = Input::Message {
            from: REPEATER,
            bytes: message.to_vec(),
        };
        self.driver.turn(self.now, input)?;
        self.wake()?;
        self.sync()?;
        let reply = self.repeated.pop();
        reply
            .map(|reply| Outcome::from_reply(reply, header.count).map_err(|it| it.to_string()))
            .transpose()
    }
}
