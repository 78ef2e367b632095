//! Options of a replica, and its recovery from a folder.

use super::callers::Callers;
use super::checkpoints::{CheckpointBase, CheckpointMode, Checkpoints};
use super::found_checkpoints::{FoundCheckpoints, LoadedCheckpoint, load_checkpoints};
use super::past_states::PastStates;
use super::rejoin::Rejoins;
use super::state_digest::StateDigests;
use super::stored_checkpoints::{CheckpointChain, StoredCheckpoints};
use super::transfer::Transfers;
use super::waiting_reads::WaitingReads;
use super::{PlantedState, Replica, ReplicaPhase, VOTERS_TO_REJOIN, planted};
use crate::bug::Bug;
use crate::journal::{JournalOwner, JournalWriter};
use crate::journal_mark::JournalMark;
use crate::pending::PendingCommands;
use crate::recovery::{BootError, JournalContents, move_aside, remove_moved};
use crate::session_table::Sessions;
use crate::state::{StateSnapshot, StoreState};
use seatrial_blocks::Recovery;
use seatrial_consensus::{
    CachedLog, Config, Consensus, EntryLog, LogEntry, Members, Payload, SnapshotMark, StartPoint,
    Vote,
};
use seatrial_kv_protocol::PAST_STATES_MAX;
use seatrial_machine::{DataFolder, LogName, NodeId, Time};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
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
    /// Unique for each start of each node, else a node that loses its journal twice may take part too early. Random in the real
    /// world.
    pub incarnation: u64,
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
    /// Percent of the time that writing a checkpoint may take at most, 1 to 100: less while it makes replies slower.
    pub checkpoint_share: u32,
    /// Are entries written to the journal before they are acknowledged? Without, a crash loses every entry after the newest
    /// checkpoint, so such a node must be the only member of its cluster: another could not rely on its vote.
    pub keeps_log: bool,
    /// Blocks of the journal under way at which a leader's commands gather for the next entry, 1 at least: with 1 while one block
    /// is synced.
    pub log_blocks: usize,
    /// Number of states that stay readable at their index: those at the newest checkpoints. Each costs the memory of what was
    /// overwritten since. At most [`PAST_STATES_MAX`](seatrial_kv_protocol::PAST_STATES_MAX).
    pub past_states: usize,
    /// Bytes of committed entries that a turn applies (one entry may exceed it). What is left is applied in the next turns, which
    /// follow at once: a node that starts with gigabytes of entries sends its heartbeats meanwhile, and holds an entry no longer
    /// than until it is applied.
    pub turn_bytes_max: u64,
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
            incarnation: 0,
            bug: None,
            callers_max: 65_536,
            replies_bytes_max: 32 << 20,
            checkpoint_bytes: 64 << 20,
            checkpoint_mode: CheckpointMode::Concurrent,
            checkpoint_share: 30,
            keeps_log: true,
            log_blocks: 1,
            past_states: 0,
            turn_bytes_max: 2 << 20,
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
    /// Why the journal is lost; the node takes part in nothing until it has rejoined.
    pub lost: Option<String>,
}

impl ReplicaOptions {
    /// The options of consensus for this start. `rejoined`: see [`Config::campaign_after`].
    pub(super) fn consensus(&self, start: u64, rejoined: u64) -> Config {
        let mut config = Config::new(self.node, start, self.seed);
        config.campaign_after = rejoined;
        config.heartbeat = self.heartbeat;
        config.election = self.election;
        config.committed_bytes_max = self.turn_bytes_max / 4;
        config
    }
}

/// Bound of the entries in memory that are applied; older ones are read back from the journal.
const CACHE_BYTES: usize = 64 << 20;
impl Replica {
    /// Recovers a replica from its folder: the newest whole checkpoint, then the journal. The driver truncates the journal at
    /// `recovery.end` of the report, then gives the replica turns.
    ///
    /// A lost journal of a member of three or more voters is moved aside: the replica starts without one, and takes part in
    /// nothing until it has rejoined ([`BootReport::lost`]).
    pub fn boot(
        data: &DataFolder,
        options: ReplicaOptions,
    ) -> Result<(Replica, BootReport), BootError> {
        let found = FoundFolder::read(data, &options)?;
        let members = &found.loaded.mark.members;
        if !options.keeps_log && !is_alone(options.node, members, &found.journal.entries) {
            return Err(BootError::NotAlone);
        }
        let (mut replica, report) = Replica::from_folder(data, options, found)?;
        // The entries after the checkpoint are not executed yet.
        replica.keep_state(&mut Vec::new());
        if replica.mark.is_lost && replica.options.bug == Some(Bug::DamagedVotes) {
            replica.take_part(replica.start, 0, (0, None))?; // the planted bug
        }
        Ok((replica, report))
    }

    fn from_folder(
        data: &DataFolder,
        options: ReplicaOptions,
        found: FoundFolder,
    ) -> Result<(Replica, BootReport), BootError> {
        let FoundFolder {
            mark: file,
            journal,
            loaded,
            checkpoints,
            continues,
            lost,
            is_new,
        } = found;
        let (mark, mut state) = (loaded.mark, loaded.state);
        plant(&mut state, options.bug, loaded.whole.as_ref());
        let entries = recovered_log(&mark, &journal.entries);
        let start = journal.start().max(file.start) + 1;
        let (recovery, vote) = (journal.recovery, journal.vote());
        let report = BootReport {
            entries: journal.entries.len() as u64,
            checkpoint: mark.index,
            damaged: checkpoints.damaged,
            lost: lost.map(|problem| problem.to_string()),
            recovery,
            start,
        };
        let config = options.consensus(start, file.rejoined);
        let core = Consensus::new(config, start_point(&mark, vote), entries)?;
        let position = (recovery.next_sequence, recovery.end);
        let base = found_base(loaded.chain.as_ref(), loaded.whole, loaded.schedule.whole());
        let stored = StoredCheckpoints::new(loaded.chain, checkpoints.leftover);
        let replica = Replica {
            journal: JournalWriter::new(file.owner, start, vote, position, journal.blocks),
            stamped: state.sessions().clock(),
            has_more: false,
            state,
            schedule: loaded.schedule,
            addresses: loaded.addresses,
            checkpoints: Checkpoints::new(stored, base, options.checkpoint_share),
            past_states: PastStates::new(options.past_states.min(PAST_STATES_MAX)),
            digests: StateDigests::default(),
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
            rejoins: Rejoins::new(file.is_lost, file.start > 0),
            mark: file,
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

/// The state of the whole checkpoint, if later files of changes are those since that one, which was due at the index `whole`.
fn found_base(
    chain: Option<&CheckpointChain>,
    state: Option<StateSnapshot>,
    whole: u64,
) -> Option<CheckpointBase> {
    let (chain, state) = chain.zip(state)?;
    (chain.whole.index == whole).then(|| CheckpointBase::new(&chain.whole, state))
}

/// Plants a bug in a recovered state. `whole`: that of its whole file.
fn plant(state: &mut StoreState, bug: Option<Bug>, whole: Option<&StateSnapshot>) {
    if let (Some(Bug::SessionsOfBase), Some(whole)) = (bug, whole) {
        *state.sessions() = whole.sessions().clone();
    }
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

/// Where consensus starts: after this checkpoint.
fn start_point(checkpoint: &SnapshotMark, vote: Vote) -> StartPoint {
    let checkpoint = checkpoint.clone();
    StartPoint { checkpoint, vote }
}

/// The log of a node whose journal has these entries after a checkpoint.
fn recovered_log(mark: &SnapshotMark, entries: &[LogEntry]) -> CachedLog {
    let mut log = empty_log(mark);
    log.append(entries);
    log
}

/// The log of a node whose journal has nothing after a checkpoint.
pub(super) fn empty_log(mark: &SnapshotMark) -> CachedLog {
    CachedLog::new(mark.index, mark.term, CACHE_BYTES)
}

/// What a start finds in its folder.
struct FoundFolder {
    mark: JournalMark,
    /// Its entries continue the checkpoint.
    journal: JournalContents,
    loaded: LoadedCheckpoint,
    checkpoints: FoundCheckpoints,
    /// Do the entries of the journal continue the checkpoint?
    continues: bool,
    /// Why the journal is lost.
    lost: Option<BootError>,
    is_new: bool,
}

impl FoundFolder {
    /// Reads journal, mark and checkpoints. If the journal is lost and the others of the cluster can replace it, records that
    /// before anything else, and moves it aside.
    fn read(data: &DataFolder, options: &ReplicaOptions) -> Result<FoundFolder, BootError> {
        let owner = JournalOwner {
            cluster: options.cluster,
            node: options.node,
        };
        let (mark, damaged_mark) = read_mark(data, owner)?;
        let mut checkpoints = load_checkpoints(data, options.cluster)?;
        let newest = checkpoints.newest.take();
        let index = newest.as_ref().map_or(0, |loaded| loaded.mark.index);
        let journal = read_journal(data, (owner, index), options, mark.as_ref());
        let (mut journal, mut lost) = match journal {
            Ok(journal) => (journal, None),
            Err(problem) if problem.is_loss() => (JournalContents::empty(), Some(problem)),
            Err(problem) => return Err(problem),
        };
        if newest.is_none() && !journal.is_complete() {
            lost = checkpoints.without_whole(data).or(lost);
        }
        let has_data = newest.is_some() || damaged_mark.is_some();
        if journal.head.is_none() && has_data && lost.is_none() {
            lost = Some(BootError::Mark("the journal is gone".into()));
        }
        let is_new = journal.head.is_none() && lost.is_none();
        // 0 in a mark: an earlier start did not know it either.
        let knows_start =
            mark.as_ref().is_some_and(|mark| mark.start > 0) || journal.head.is_some();
        let file = mark.unwrap_or_else(|| founding_mark(owner, &journal, options));
        let loaded = newest.unwrap_or_else(|| LoadedCheckpoint::founding(&file));
        let mut continues = loaded.mark.index == 0;
        if lost.is_none() {
            match journal.continue_from(loaded.mark.index, loaded.mark.term) {
                Ok(found) => continues = found,
                Err(problem) => lost = Some(problem),
            }
        }
        if file.is_lost && lost.is_none() {
            let text = "an earlier start found that the journal is lost";
            lost = Some(BootError::Mark(text.into()));
        }
        let found = FoundFolder {
            mark: file,
            journal,
            loaded,
            checkpoints,
            continues,
            lost,
            is_new,
        };
        found.settle(data, damaged_mark, knows_start)
    }

    /// Decides whether a lost journal is an error, and moves it aside if not.
    fn settle(
        mut self,
        data: &DataFolder,
        damaged_mark: Option<BootError>,
        knows_start: bool,
    ) -> Result<FoundFolder, BootError> {
        let voters = self.loaded.mark.members.voters.len();
        if voters >= VOTERS_TO_REJOIN {
            // Of the mark of a single node is needed only what the journal has too.
            self.lost = self.lost.or(damaged_mark);
        }
        match self.lost {
            Some(problem) if voters < VOTERS_TO_REJOIN => {
                let problem = Box::new(problem);
                return Err(BootError::Lost { problem, voters });
            }
            Some(_) => {
                let start = self.mark.start.max(self.journal.start()) + 1;
                self.mark.start = if knows_start { start } else { 0 };
                self.mark.is_lost = true;
                begin_anew(data, &self.mark)?;
                self.journal = JournalContents::empty();
            }
            None => remove_moved(data)?,
        }
        Ok(self)
    }
}

/// The mark of the journal, or why it cannot be read. That of another node is an error.
fn read_mark(
    data: &DataFolder,
    owner: JournalOwner,
) -> Result<(Option<JournalMark>, Option<BootError>), BootError> {
    match JournalMark::read(data) {
        Ok(Some(mark)) if mark.owner != owner => Err(BootError::owner(mark.owner, owner)),
        Ok(mark) => Ok((mark, None)),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Ok((None, Some(BootError::File(error))))
        }
        Err(error) => Err(BootError::File(error)),
    }
}

/// Reads the journal to its end, which is not before that of its mark. `checkpoint`: the index of the one from which to start.
fn read_journal(
    data: &DataFolder,
    (owner, checkpoint): (JournalOwner, u64),
    options: &ReplicaOptions,
    mark: Option<&JournalMark>,
) -> Result<JournalContents, BootError> {
    let log = data.direct_log(LogName::MAIN)?;
    let keeps_replaced = options.bug == Some(Bug::ConflictKept);
    let journal = JournalContents::read(&log, owner, checkpoint, keeps_replaced)?;
    let expected = mark.map_or(0, |mark| mark.end);
    let found = journal.recovery.end;
    if found < expected {
        return Err(BootError::Short { found, expected });
    }
    Ok(journal)
}

/// The mark of a folder that has none.
fn founding_mark(
    owner: JournalOwner,
    journal: &JournalContents,
    options: &ReplicaOptions,
) -> JournalMark {
    let given = || (options.voters.clone(), options.checkpoint_bytes);
    let (voters, checkpoint_bytes) = journal.founding.clone().unwrap_or_else(given);
    JournalMark {
        owner,
        start: 0,
        end: 0,
        is_lost: false,
        rejoined: 0,
        checkpoint_bytes,
        voters,
    }
}

/// Records durably that the journal is lost, then moves it aside: a crash in between finds the record.
fn begin_anew(data: &DataFolder, mark: &JournalMark) -> Result<(), BootError> {
    let files = data.file_folder();
    let mut mark = mark.clone();
    mark.end = 0;
    for task in mark.tasks() {
        files
            .run(task)
            .map_err(|error| io::Error::new(error.kind, error.to_string()))?;
    }
    Ok(move_aside(data, mark.start)?)
}
