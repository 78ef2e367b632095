//! Options of a replica, and its recovery from a folder.

use super::callers::Callers;
use super::checkpoints::{CheckpointMode, Checkpoints, file_name, index_of};
use super::member_changes::{Addresses, decode_cluster};
use super::transfer::Transfers;
use super::waiting_reads::WaitingReads;
use super::{PlantedState, Replica, ReplicaPhase, planted};
use crate::bug::Bug;
use crate::checkpoint::CheckpointReader;
use crate::checkpoint_schedule::CheckpointSchedule;
use crate::journal::{JournalOwner, JournalWriter};
use crate::pending::PendingCommands;
use crate::recovery::{BootError, JournalContents};
use crate::session::Sessions;
use crate::state::StoreState;
use seatrial_blocks::Recovery;
use seatrial_consensus::{
    CachedLog, Config, Consensus, EntryLog, LogEntry, Members, Payload, SnapshotMark, StartPoint,
};
use seatrial_machine::{DataFolder, LogName, NodeId, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Options of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// This node.
    pub node: NodeId,
    /// Number of the cluster: nodes of another one are refused.
    pub cluster: u64,
    /// The voters of a new cluster. Ignored by a node whose folder is not empty.
    pub voters: Vec<NodeId>,
    /// Time between a leader's heartbeats.
    pub heartbeat: Duration,
    /// A follower that hears nothing for one to two times this long campaigns. At least twice the longest sync.
    pub election: Duration,
    /// The seed of election timeouts.
    pub seed: u64,
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// Maximum number of requests and reads that wait for their result at this node; more are dropped.
    pub callers_max: usize,
    /// Maximum bytes of the replies that they wait for, of which one endpoint may have an eighth; a single one of any length may
    /// exceed it.
    pub replies_bytes_max: usize,
    /// A checkpoint is made after this many bytes of commands. A rule of the cluster: a node whose folder is not empty keeps
    /// the value of its first start.
    pub checkpoint_bytes: u64,
    /// How checkpoints are made.
    pub checkpoint_mode: CheckpointMode,
    /// Percent of the time that writing a checkpoint may take, 1 to 100: the rest is for clients.
    pub checkpoint_share: u32,
    /// Are entries written to the journal before they are acknowledged? Without, a crash loses every entry after the newest
    /// checkpoint, so such a node must be the only member of its cluster: another could not rely on its vote.
    pub keeps_log: bool,
}

impl ReplicaOptions {
    /// The default options of a node of a cluster with these voters.
    pub fn new(node: NodeId, voters: impl IntoIterator<Item = NodeId>) -> ReplicaOptions {
        ReplicaOptions {
            node,
            cluster: 1,
            voters: voters.into_iter().collect(),
            heartbeat: Duration::from_millis(100),
            election: Duration::from_secs(1),
            seed: 1,
            bug: None,
            callers_max: 65_536,
            replies_bytes_max: 32 << 20,
            checkpoint_bytes: 64 << 20,
            checkpoint_mode: CheckpointMode::Concurrent,
            checkpoint_share: 50,
            keeps_log: true,
        }
    }
}

/// Result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootReport {
    /// The end of the journal. The driver truncates it there.
    pub recovery: Recovery,
    /// Entries in the journal after the newest checkpoint.
    pub entries: u64,
    /// Index of the newest checkpoint; 0: there is none.
    pub checkpoint: u64,
    /// Number of this start, from 1.
    pub start: u64,
    /// Checkpoints that are damaged, and why. An older one was taken.
    pub damaged: Vec<String>,
}

impl ReplicaOptions {
    /// The options of consensus for this start.
    fn consensus(&self, start: u64) -> Config {
        let mut config = Config::new(self.node, start, self.seed);
        config.heartbeat = self.heartbeat;
        config.election = self.election;
        config
    }
}

/// Bound of the entries in memory that are applied; older ones are read back from the journal.
const CACHE_BYTES: usize = 64 << 20;
/// Bytes that are read at a time from a checkpoint.
const READ_LENGTH: usize = 1 << 20;

/// The newest checkpoint of a folder that is whole.
struct LoadedCheckpoint {
    mark: SnapshotMark,
    state: StoreState,
    schedule: CheckpointSchedule,
    addresses: Addresses,
}

impl LoadedCheckpoint {
    /// The empty state of a cluster before its first entry.
    fn founding(journal: &JournalContents, options: &ReplicaOptions) -> LoadedCheckpoint {
        let (voters, checkpoint_bytes) = journal
            .founding
            .clone()
            .unwrap_or_else(|| (options.voters.clone(), options.checkpoint_bytes));
        LoadedCheckpoint {
            mark: SnapshotMark {
                members: Members::of_voters(voters),
                ..SnapshotMark::default()
            },
            state: StoreState::default(),
            schedule: CheckpointSchedule::new(checkpoint_bytes),
            addresses: Addresses::new(),
        }
    }
}

impl Replica {
    /// Recovers a replica from its folder: the newest whole checkpoint, then the journal. The driver truncates the journal at
    /// `recovery.end` of the report, then gives the replica turns.
    pub fn boot(
        data: &DataFolder,
        options: ReplicaOptions,
    ) -> Result<(Replica, BootReport), BootError> {
        let owner = JournalOwner {
            cluster: options.cluster,
            node: options.node,
        };
        let log = data.log(LogName::MAIN)?;
        let keeps_replaced = options.bug == Some(Bug::ConflictKept);
        let mut found = JournalContents::read(&log, owner, keeps_replaced)?;
        let checkpoints = load_checkpoints(data, options.cluster)?;
        let is_new = found.head.is_none() && checkpoints.newest.is_none();
        let newest = checkpoints.newest.as_ref().map(|it| it.mark.clone());
        let founding = || LoadedCheckpoint::founding(&found, &options);
        let loaded = checkpoints.newest.unwrap_or_else(founding);
        let (mark, mut state) = (loaded.mark, loaded.state);
        let continues = found.continue_from(mark.index, mark.term)?;
        if !options.keeps_log && !is_alone(options.node, &mark.members, &found.entries) {
            return Err(BootError::NotAlone);
        }
        plant(&mut state, options.bug);
        let mut entries = CachedLog::new(mark.index, mark.term, CACHE_BYTES);
        entries.append(&found.entries);
        let start = found.start() + 1;
        let position = (found.recovery.next_sequence, found.recovery.end);
        let report = BootReport {
            entries: found.entries.len() as u64,
            checkpoint: mark.index,
            damaged: checkpoints.damaged,
            recovery: found.recovery,
            start,
        };
        let (vote, checkpoint) = (found.vote(), mark.clone());
        let start_point = StartPoint { checkpoint, vote };
        let core = Consensus::new(options.consensus(start), start_point, entries)?;
        let replica = Replica {
            journal: JournalWriter::new(owner, start, vote, position, found.blocks),
            stamped: state.sessions().clock(),
            state,
            schedule: loaded.schedule,
            addresses: loaded.addresses,
            checkpoints: Checkpoints::new(newest, checkpoints.leftover, options.checkpoint_share),
            transfers: Transfers::new(options.cluster, options.election * 2),
            turn_end: (Time::ZERO, None),
            arrived: None,
            blocked: VecDeque::new(),
            applied: (mark.index, mark.term),
            members: mark.members.clone(),
            pending: PendingCommands::default(),
            not_before: Time::ZERO,
            callers: Callers::new((options.node, start), &options),
            reads: WaitingReads::new(&options),
            phase: ReplicaPhase::Booted,
            founding: is_new.then(|| (mark.members.clone(), options.checkpoint_bytes)),
            install: (!continues).then_some(mark),
            start,
            received: 0,
            now: Time::ZERO,
            data: data.clone(),
            jobs: 0,
            planted: PlantedState::default(),
            figures: Box::default(),
            options,
            core: Box::new(core),
        };
        Ok((replica, report))
    }
}

/// Plants a bug in a recovered state.
fn plant(state: &mut StoreState, bug: Option<Bug>) {
    if bug == Some(Bug::SessionsNotInCheckpoint) {
        *state.sessions() = Sessions::default();
    }
    state.plant(planted(bug));
}

/// Is this node the only member, and does no entry after the checkpoint change that?
fn is_alone(node: NodeId, members: &Members, entries: &[LogEntry]) -> bool {
    let changes = |entry: &LogEntry| matches!(entry.payload, Payload::Membership(_));
    *members == Members::of_voters([node]) && !entries.iter().any(changes)
}

/// What the files of a folder hold.
#[derive(Default)]
struct FoundCheckpoints {
    /// The newest that is whole.
    newest: Option<LoadedCheckpoint>,
    /// Indices of all others.
    leftover: Vec<u64>,
    /// What is wrong with newer ones.
    damaged: Vec<String>,
}

fn load_checkpoints(data: &DataFolder, cluster: u64) -> Result<FoundCheckpoints, BootError> {
    let folder = || data.files_path().display().to_string();
    let files = data.files().map_err(|error| BootError::Checkpoint {
        file: folder(),
        problem: error.to_string(),
    })?;
    let mut indices: Vec<u64> = files.iter().filter_map(index_of).collect();
    indices.sort_unstable();
    let mut found = FoundCheckpoints::default();
    while let Some(index) = indices.pop() {
        match load(data, cluster, index) {
            Ok(loaded) => {
                found.newest = Some(loaded);
                found.leftover.extend(indices);
                return Ok(found);
            }
            Err(problem) => {
                found.leftover.push(index);
                found
                    .damaged
                    .push(format!("{}: {problem}", file_name(index)));
            }
        }
    }
    match found.damaged.first() {
        None => Ok(found),
        Some(problem) => Err(BootError::Checkpoint {
            file: folder(),
            problem: format!("no checkpoint is whole: {problem}"),
        }),
    }
}

/// Reads a checkpoint in bounded pieces.
fn load(data: &DataFolder, cluster: u64, index: u64) -> Result<LoadedCheckpoint, String> {
    let file = data
        .file(&file_name(index))
        .map_err(|error| error.to_string())?;
    let mut reader = CheckpointReader::new();
    let mut buffer = Vec::new();
    let (mut at, end) = (0, file.len());
    while at < end {
        buffer.resize(
            usize::try_from(end - at)
                .unwrap_or(READ_LENGTH)
                .min(READ_LENGTH),
            0,
        );
        file.read_at(at, &mut buffer)
            .map_err(|error| format!("at {at}: {error}"))?;
        reader.push(&buffer).map_err(|error| error.to_string())?;
        at += buffer.len() as u64;
    }
    let (head, state, mark) = reader.finish().map_err(|error| error.to_string())?;
    if head.cluster != cluster {
        return Err(format!("of cluster {}, not {cluster}", head.cluster));
    }
    if head.index != index {
        return Err(format!("the state at index {}", head.index));
    }
    let (members, addresses) = decode_cluster(&head.members)?;
    let schedule = CheckpointSchedule::decode(&head.schedule).map_err(|error| error.to_string())?;
    Ok(LoadedCheckpoint {
        mark: SnapshotMark {
            index,
            term: head.term,
            members,
            length: mark.length,
            digest: mark.digest,
        },
        state,
        schedule,
        addresses,
    })
}
