//! A small replicated machine that uses every part of the seam: three nodes, the first of which leads, keep a set of numbers.
//! The world of `seatrial-sim` runs it under faults, `seatrial-host` as three processes that are killed.
//!
//! The leader appends a number to its journal, then sends it on; it is committed when the leader and a follower have it
//! durably, then applied and answered. Every eight numbers the state becomes a checkpoint: encoded by a job, written beside,
//! published, marked in a second log, and the journal's head is truncated. A follower that lags further than the leader's
//! journal reaches back is sent the checkpoint.

use seatrial_machine::{
    Booted, Computed, DataFolder, Disk, FileAnswer, FileName, FileResult, FileTask, Input, Job,
    LogName, LogView, Machine, NodeId, OpenLog, Output, Storage, Stream, Ticket, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LEADER: NodeId = NodeId::server(1);
pub(crate) const NODES: [NodeId; 3] = [LEADER, NodeId::server(2), NodeId::server(3)];

const JOURNAL: LogName = LogName::new("journal");
const MARKS: LogName = LogName::new("marks");
/// Short, so that heads are given back often.
const SEGMENT_LENGTH: u64 = 192;
/// Numbers between checkpoints.
const CHECKPOINT_EVERY: u64 = 8;
/// Bytes of a checkpoint that one task writes.
const SLICE_LENGTH: usize = 512;
/// Numbers in one message.
const BATCH_MAX: usize = 64;
/// How often the leader says what it has.
const INTERVAL: Duration = Duration::from_millis(10);

/// What may be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaBug {
    /// What was appended counts as durable before the sync.
    AckBeforeSync,
    /// A checkpoint gets its name without a sync of its bytes.
    PublishUnsynced,
    /// The journal's head is given back when a checkpoint begins.
    TruncateEarly,
    /// A checkpoint is written over the one before.
    OverwriteCheckpoint,
    /// A start takes the end of a journal as it is.
    UncheckedTail,
}

pub(crate) const BUGS: [ReplicaBug; 5] = [
    ReplicaBug::AckBeforeSync,
    ReplicaBug::PublishUnsynced,
    ReplicaBug::TruncateEarly,
    ReplicaBug::OverwriteCheckpoint,
    ReplicaBug::UncheckedTail,
];

fn file(name: &str) -> FileName {
    FileName::new(name).expect("a name")
}

/// A checksum of words: no more than a test needs.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0x5eed, |sum: u64, word| {
        (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// Nothing, if these bytes are no words.
fn words_of(bytes: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    rest.is_empty()
        .then(|| words.iter().map(|it| u64::from_le_bytes(*it)).collect())
}

/// Three words with their checksum: a record of either log.
const RECORD_LENGTH: u64 = 24;

fn record(one: u64, other: u64) -> Vec<u8> {
    bytes_of(&[one, other, sum(&[one, other])])
}

/// Where a record begins, and its two words.
type Record = (u64, [u64; 2]);

/// The records of a log, up to the first that is not whole, and where that is.
fn records(log: &LogView, bug: Option<ReplicaBug>) -> Result<(Vec<Record>, u64), String> {
    let mut stream = Stream::new(log, log.start());
    let mut found = Vec::new();
    loop {
        let position = stream.position();
        if log.len() - position < RECORD_LENGTH {
            return Ok((found, position));
        }
        let mut bytes = [0; RECORD_LENGTH as usize];
        stream
            .read_exact(&mut bytes)
            .map_err(|error| error.to_string())?;
        match words_of(&bytes).as_deref() {
            Some([one, other, check])
                if *check == sum(&[*one, *other]) || bug == Some(ReplicaBug::UncheckedTail) =>
            {
                found.push((position, [*one, *other]));
            }
            _ => return Ok((found, position)),
        }
    }
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// How many numbers, in the order in which they were committed.
    pub(crate) index: u64,
    /// A checksum of that order.
    pub(crate) digest: u64,
    pub(crate) numbers: BTreeSet<u64>,
}

impl State {
    fn apply(&mut self, number: u64) {
        self.index += 1;
        self.digest = sum(&[self.digest, number]);
        self.numbers.insert(number);
    }

    fn encode(&self) -> Vec<u8> {
        let mut words = vec![self.index, self.digest];
        words.extend(&self.numbers);
        words.push(sum(&words));
        bytes_of(&words)
    }

    fn decode(bytes: &[u8]) -> Result<State, String> {
        let words = words_of(bytes).ok_or("a checkpoint of another length")?;
        let [words @ .., check] = words.as_slice() else {
            return Err("an empty checkpoint".into());
        };
        let [index, digest, numbers @ ..] = words else {
            return Err("a cut checkpoint".into());
        };
        if *check != sum(words) {
            return Err("a checkpoint with a wrong checksum".into());
        }
        Ok(State {
            index: *index,
            digest: *digest,
            numbers: numbers.iter().copied().collect(),
        })
    }
}

/// Encodes a state.
struct Encode(State);

impl Job for Encode {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.0.encode())
    }
}

/// Gives a file another name: what the planted bug does in place of a publication.
struct Rename(Arc<dyn Storage>, PathBuf);

impl Job for Rename {
    fn run(self: Box<Self>) -> Computed {
        let Rename(storage, folder) = *self;
        let [from, to] = ["checkpoint.new", "checkpoint"].map(|name| folder.join(name));
        let renamed = storage.rename(&from, &to);
        Box::new(renamed.and_then(|()| storage.sync_folder(&folder)).is_ok())
    }
}

/// A number that is not in the checkpoint, and where its record begins.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    position: u64,
}

/// What becomes of a checkpoint.
#[derive(Debug)]
enum Stage {
    Idle,
    Encoding(Ticket, State),
    /// Written; published when the task or job with this ticket is done. From the leader, or of its own state?
    Saving {
        last: Ticket,
        state: State,
        length: usize,
        is_installed: bool,
    },
}

/// A follower, as the leader sees it.
#[derive(Debug, Default)]
struct Follower {
    next: u64,
    durable: u64,
    /// A checkpoint is being read for it.
    is_reading: bool,
}

/// Who waits for a number.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Local(Ticket),
    Remote(NodeId),
}

/// What came of its work so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) published: u64,
    pub(crate) installed: u64,
    pub(crate) failed: u64,
}

/// One node.
pub(crate) struct Replica {
    id: NodeId,
    bug: Option<ReplicaBug>,
    data: DataFolder,
    pub(crate) state: State,
    /// Entries after the checkpoint; the first one's index is that of the checkpoint and one.
    entries: VecDeque<Entry>,
    checkpoint: u64,
    checkpoint_length: usize,
    /// The end of the journal.
    end: u64,
    durable: u64,
    commit: u64,
    /// Index that is durable with each append under way.
    appends: BTreeMap<Ticket, u64>,
    stage: Stage,
    tickets: u64,
    followers: BTreeMap<NodeId, Follower>,
    reads: BTreeMap<Ticket, NodeId>,
    waiting: BTreeMap<u64, Caller>,
    send_at: Option<Time>,
    pub(crate) counts: Counts,
}

/// Kinds of messages.
const ADD: u8 = 1;
const ADDED: u8 = 2;
const ENTRIES: u8 = 3;
const HAVE: u8 = 4;
const CHECKPOINT: u8 = 5;
const LIST: u8 = 6;

pub(crate) fn message(kind: u8, words: &[u64]) -> Vec<u8> {
    [vec![kind], bytes_of(words)].concat()
}

/// A client's message: add this number. The answer is the kind 2 with the number.
pub(crate) fn add(number: u64) -> Vec<u8> {
    message(ADD, &[number])
}

/// A client's request for the whole state. The answer is the kind 6 with index, digest, checkpoint and the numbers.
pub(crate) fn list() -> Vec<u8> {
    message(LIST, &[])
}

impl Replica {
    /// Reads the folder of a node.
    pub(crate) fn boot(
        id: NodeId,
        data: &DataFolder,
        bug: Option<ReplicaBug>,
    ) -> Result<Booted<Replica>, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut checkpoint = Vec::new();
        match data.file(&file("checkpoint")) {
            Ok(found) => drop(
                Stream::new(&*found, 0)
                    .read_to_end(&mut checkpoint)
                    .map_err(text)?,
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(text(error)),
        }
        let state = match checkpoint.len() {
            0 => State::default(),
            _ => State::decode(&checkpoint)?,
        };
        let (marks, marks_end) = records(&data.log(MARKS).map_err(text)?, None)?;
        let marked = marks.last().map_or(0, |(_, [index, _])| *index);
        if marked > state.index {
            let there = state.index;
            return Err(format!(
                "checkpoint {marked} was published, {there} is there"
            ));
        }
        let (journal, end) = records(&data.log(JOURNAL).map_err(text)?, bug)?;
        let entries = entries_after(state.index, &journal)?;
        let last = state.index + entries.len() as u64;
        let machine = Replica {
            id,
            bug,
            data: data.clone(),
            checkpoint: state.index,
            checkpoint_length: checkpoint.len(),
            durable: last,
            commit: state.index,
            state,
            entries,
            end,
            appends: BTreeMap::new(),
            stage: Stage::Idle,
            tickets: 0,
            followers: BTreeMap::new(),
            reads: BTreeMap::new(),
            waiting: BTreeMap::new(),
            send_at: (id == LEADER).then_some(Time::ZERO),
            counts: Counts::default(),
        };
        let log = |name, end| OpenLog {
            segment_length: SEGMENT_LENGTH,
            ..OpenLog::new(name, end)
        };
        Ok(Booted {
            machine,
            logs: vec![log(JOURNAL, end), log(MARKS, marks_end)],
        })
    }

    fn last(&self) -> u64 {
        self.checkpoint + self.entries.len() as u64
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        let place = index.checked_sub(self.checkpoint + 1)?;
        self.entries.get(place as usize).copied()
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Appends numbers to the journal.
    fn append(&mut self, numbers: &[u64], out: &mut Vec<Output<u64>>) {
        if numbers.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for &number in numbers {
            let position = self.end + bytes.len() as u64;
            self.entries.push_back(Entry { number, position });
            bytes.extend(record(self.last(), number));
        }
        self.end += bytes.len() as u64;
        let ticket = self.ticket();
        self.appends.insert(ticket, self.last());
        if self.bug == Some(ReplicaBug::AckBeforeSync) {
            self.durable = self.last();
        }
        out.push(Output::Append {
            log: JOURNAL,
            bytes,
            ticket,
        });
    }

    fn add(&mut self, number: u64, caller: Caller, out: &mut Vec<Output<u64>>) {
        if self.id != LEADER {
            return;
        }
        if self.state.numbers.contains(&number) {
            answer(caller, number, out);
            return;
        }
        if self.waiting.insert(number, caller).is_none()
            && !self.entries.iter().any(|it| it.number == number)
        {
            self.append(&[number], out);
        }
    }

    /// What the leader has after `before`, and how much is committed.
    fn on_entries(&mut self, words: &[u64], out: &mut Vec<Output<u64>>) {
        let [before, commit, numbers @ ..] = words else {
            return;
        };
        if *before <= self.last() {
            let known = self.last() - before;
            for (index, number) in (before + 1..).zip(numbers).take(known as usize) {
                let same = self.entry(index).is_none_or(|it| it.number == *number);
                assert!(
                    same,
                    "{} has another number {index} than its leader",
                    self.id
                );
            }
            let new = numbers.get(known as usize..).unwrap_or_default().to_vec();
            self.append(&new, out);
            self.commit = self.commit.max((*commit).min(self.last()));
        }
        self.report_contents(out);
    }

    fn report_contents(&self, out: &mut Vec<Output<u64>>) {
        let message = message(HAVE, &[self.durable, self.last()]);
        let to = LEADER;
        out.push(Output::Send { to, message });
    }

    fn on_have(&mut self, from: NodeId, words: &[u64]) {
        let &[durable, last] = words else {
            return;
        };
        let follower = self.followers.entry(from).or_default();
        follower.durable = follower.durable.max(durable);
        follower.next = last.saturating_add(1);
    }

    /// The leader's checkpoint, for a follower that lags too far.
    fn on_checkpoint(&mut self, bytes: &[u8], out: &mut Vec<Output<u64>>) {
        self.report_contents(out);
        let Ok(state) = State::decode(bytes) else {
            return;
        };
        if state.index <= self.last() || !matches!(self.stage, Stage::Idle) {
            return;
        }
        self.save(state, bytes, true, out);
    }

    /// Writes a checkpoint beside the one that is there, and publishes it.
    fn save(&mut self, state: State, bytes: &[u8], installs: bool, out: &mut Vec<Output<u64>>) {
        let overwrites = self.bug == Some(ReplicaBug::OverwriteCheckpoint);
        let name = file(if overwrites {
            "checkpoint"
        } else {
            "checkpoint.new"
        });
        let mut tasks = vec![FileTask::Create { file: name.clone() }];
        for (number, slice) in (0..).zip(bytes.chunks(SLICE_LENGTH)) {
            tasks.push(FileTask::Write {
                file: name.clone(),
                offset: number * SLICE_LENGTH as u64,
                bytes: slice.to_vec(),
            });
        }
        match self.bug {
            Some(ReplicaBug::OverwriteCheckpoint) => tasks.push(FileTask::Sync { file: name }),
            Some(ReplicaBug::PublishUnsynced) => {}
            _ => tasks.push(FileTask::Publish {
                file: name,
                to: file("checkpoint"),
            }),
        }
        for task in tasks {
            let ticket = self.ticket();
            out.push(Output::File(task, ticket));
        }
        self.stage = Stage::Saving {
            last: Ticket(self.tickets),
            state,
            length: bytes.len(),
            is_installed: installs,
        };
    }

    fn on_file_done(&mut self, ticket: Ticket, result: FileResult, out: &mut Vec<Output<u64>>) {
        if let Some(to) = self.reads.remove(&ticket) {
            self.followers.entry(to).or_default().is_reading = false;
            if let Ok(FileAnswer::Bytes(bytes)) = result {
                let message = [&[CHECKPOINT], &bytes[..]].concat();
                out.push(Output::Send { to, message });
            }
            return;
        }
        // The tasks before it are done; had one failed, this one would have been refused.
        if matches!(self.stage, Stage::Saving { last, .. } if last == ticket) {
            if result.is_ok() && self.bug == Some(ReplicaBug::PublishUnsynced) {
                let storage = Arc::clone(self.data.storage());
                let job = Box::new(Rename(storage, self.data.files_path()));
                let renamed = self.ticket();
                out.push(Output::Compute(job, renamed));
                if let Stage::Saving { last, .. } = &mut self.stage {
                    *last = renamed;
                }
                return;
            }
            self.saved(result.is_ok(), out);
        }
    }

    fn on_computed(&mut self, ticket: Ticket, result: Computed, out: &mut Vec<Output<u64>>) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Encoding(encoding, state) if encoding == ticket => {
                let bytes = result.downcast::<Vec<u8>>().expect("an encoded state");
                self.save(state, &bytes, false, out);
            }
            stage => {
                self.stage = stage;
                self.saved(*result.downcast::<bool>().expect("a rename"), out);
            }
        }
    }

    /// A checkpoint is published, or could not be.
    fn saved(&mut self, is_published: bool, out: &mut Vec<Output<u64>>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Idle);
        let Stage::Saving {
            state,
            length,
            is_installed,
            ..
        } = stage
        else {
            return;
        };
        if !is_published {
            self.counts.failed += 1;
            return;
        }
        let ticket = self.ticket();
        out.push(Output::Append {
            log: MARKS,
            bytes: record(state.index, state.digest),
            ticket,
        });
        self.checkpoint_length = length;
        self.forget_up_to(state.index, out);
        if is_installed {
            self.counts.installed += 1;
            self.durable = self.durable.max(state.index);
            self.commit = self.commit.max(state.index);
            if state.index > self.state.index {
                self.state = state;
            }
            self.report_contents(out);
        } else {
            self.counts.published += 1;
        }
    }

    /// Gives the journal before the entry after `index` back.
    fn forget_up_to(&mut self, index: u64, out: &mut Vec<Output<u64>>) {
        while self.checkpoint < index && self.entries.pop_front().is_some() {
            self.checkpoint += 1;
        }
        self.checkpoint = self.checkpoint.max(index);
        let position = self.entries.front().map_or(self.end, |it| it.position);
        out.push(Output::TruncateHead {
            log: JOURNAL,
            position,
        });
    }

    /// Commits, applies, and begins a checkpoint where one is due.
    fn proceed(&mut self, out: &mut Vec<Output<u64>>) {
        if self.id == LEADER {
            let best = self.followers.values().map(|it| it.durable).max();
            self.commit = self.commit.max(self.durable.min(best.unwrap_or(0)));
        }
        while self.state.index < self.commit
            && let Some(entry) = self.entry(self.state.index + 1)
        {
            self.state.apply(entry.number);
            if let Some(caller) = self.waiting.remove(&entry.number) {
                answer(caller, entry.number, out);
            }
            let is_due = self.state.index.is_multiple_of(CHECKPOINT_EVERY);
            if is_due && matches!(self.stage, Stage::Idle) {
                let ticket = self.ticket();
                let state = self.state.clone();
                out.push(Output::Compute(Box::new(Encode(state.clone())), ticket));
                if self.bug == Some(ReplicaBug::TruncateEarly) {
                    self.forget_up_to(state.index, out);
                }
                self.stage = Stage::Encoding(ticket, state);
            }
        }
    }

    /// Sends each follower what it has not said that it has.
    fn replicate(&mut self, now: Time, out: &mut Vec<Output<u64>>) {
        self.send_at = Some(now + INTERVAL);
        for to in NODES.into_iter().filter(|it| *it != LEADER) {
            let next = self.followers.entry(to).or_default().next.max(1);
            if next <= self.checkpoint {
                self.read_checkpoint_for(to, out);
                continue;
            }
            let wanted = next..=self.durable.min(self.last());
            let numbers = wanted.filter_map(|it| Some(self.entry(it)?.number));
            let mut words = vec![next - 1, self.commit];
            words.extend(numbers.take(BATCH_MAX));
            let message = message(ENTRIES, &words);
            out.push(Output::Send { to, message });
        }
    }

    fn read_checkpoint_for(&mut self, to: NodeId, out: &mut Vec<Output<u64>>) {
        let ticket = self.ticket();
        let follower = self.followers.entry(to).or_default();
        if !std::mem::replace(&mut follower.is_reading, true) {
            self.reads.insert(ticket, to);
            let read = FileTask::Read {
                file: file("checkpoint"),
                offset: 0,
                length: self.checkpoint_length,
            };
            out.push(Output::File(read, ticket));
        }
    }

    fn on_message(&mut self, from: NodeId, bytes: &[u8], out: &mut Vec<Output<u64>>) {
        let Some((&kind, rest)) = bytes.split_first() else {
            return;
        };
        let Some(words) = words_of(rest) else {
            return;
        };
        match (kind, &words[..]) {
            (ADD, &[number]) => self.add(number, Caller::Remote(from), out),
            (LIST, []) => {
                let state = &self.state;
                let mut words = vec![state.index, state.digest, self.checkpoint];
                words.extend(&state.numbers);
                let message = message(LIST, &words);
                out.push(Output::Send { to: from, message });
            }
            _ if from.is_client() => {}
            (ENTRIES, words) => self.on_entries(words, out),
            (HAVE, words) => self.on_have(from, words),
            (CHECKPOINT, _) => self.on_checkpoint(rest, out),
            _ => {}
        }
    }

    fn on_appended(&mut self, ticket: Ticket, out: &mut Vec<Output<u64>>) {
        if !self.appends.contains_key(&ticket) {
            return; // a mark, whose sync says nothing about the journal
        }
        let before = self.durable;
        // It speaks for all that were pushed to the journal before.
        while let Some(first) = self.appends.first_entry()
            && *first.key() <= ticket
        {
            self.durable = self.durable.max(first.remove());
        }
        if self.id != LEADER && self.durable > before {
            self.report_contents(out);
        }
    }
}

/// The entries after a checkpoint, in order. What the checkpoint covers may be missing.
fn entries_after(checkpoint: u64, journal: &[Record]) -> Result<VecDeque<Entry>, String> {
    let mut entries = VecDeque::new();
    for &(position, [index, number]) in journal {
        let next = checkpoint + 1 + entries.len() as u64;
        if index > next {
            return Err(format!("numbers {next} to {} are missing", index - 1));
        }
        if index == next {
            entries.push_back(Entry { number, position });
        }
    }
    Ok(entries)
}

fn answer(caller: Caller, number: u64, out: &mut Vec<Output<u64>>) {
    out.push(match caller {
        Caller::Local(ticket) => Output::Reply(ticket, number),
        Caller::Remote(to) => Output::Send {
            to,
            message: message(ADDED, &[number]),
        },
    });
}

impl Machine for Replica {
    type Request = u64;
    type Reply = u64;

    fn turn(&mut self, now: Time, input: Input<u64>, out: &mut Vec<Output<u64>>) {
        let durable = self.durable;
        match input {
            Input::Wake => {}
            Input::Message { from, bytes } => self.on_message(from, &bytes, out),
            Input::Appended(ticket) => self.on_appended(ticket, out),
            Input::FileDone(ticket, result) => self.on_file_done(ticket, result, out),
            Input::Computed(ticket, result) => self.on_computed(ticket, result, out),
            Input::Request(ticket, number) => self.add(number, Caller::Local(ticket), out),
        }
        let committed = self.commit;
        self.proceed(out);
        let has_news = self.durable > durable || self.commit > committed;
        if self.send_at.is_some_and(|at| at <= now || has_news) {
            self.replicate(now, out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.send_at
    }

    fn check_invariants(&self) {
        assert!(self.state.index <= self.commit);
        assert!(self.state.index >= self.checkpoint || self.bug.is_some());
        assert_eq!(
            self.state.numbers.len() as u64,
            self.state.index,
            "a number twice"
        );
        let positions = self.entries.iter().map(|it| it.position);
        assert!(positions.is_sorted());
    }
}
