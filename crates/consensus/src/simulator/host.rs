//! A simulated host: a core, a disk whose unsynced writes a crash loses, a state machine, checkpoints.

use super::{ConsensusBug, ConsensusSimulation, ELECTION, HEARTBEAT, node};
use crate::rule::{Rules, WrapperRule};
use crate::{
    CachedLog, Config, Consensus, EntryLog, Fetch, LogEntry, Members, Persist, Ready, Role,
    SnapshotMark, StartPoint, Vote,
};
use seatrial_machine::{Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Work of a host that is done later.
#[derive(Debug)]
pub(crate) enum Work {
    /// The oldest write becomes durable.
    Sync,
    /// The state machine reports what it applied.
    Applied(u64),
    /// The state of a checkpoint arrived.
    Transferred(SnapshotMark),
    /// Old entries were read.
    Fetched(Fetch),
}

/// What survives a crash.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub(crate) checkpoint: SnapshotMark,
    pub(crate) entries: BTreeMap<u64, LogEntry>,
    pub(crate) vote: Vote,
}

impl Durable {
    fn write(&mut self, write: &Persist, forgets_vote: bool) {
        if let Some(mark) = &write.install {
            self.checkpoint = mark.clone();
            self.entries.clear();
        }
        if let Some(first) = write.entries.first() {
            self.entries.split_off(&first.index);
        }
        for entry in &write.entries {
            self.entries.insert(entry.index, entry.clone());
        }
        self.vote = write.vote;
        if forgets_vote {
            self.vote.vote = None;
        }
    }
}

/// One member.
pub(crate) struct Host {
    pub(crate) index: usize,
    seed: u64,
    pub(crate) core: Option<Consensus<CachedLog>>,
    pub(crate) durable: Durable,
    pub(crate) writes: VecDeque<Persist>,
    /// Time of the last sync that is planned: syncs are in order.
    sync_at: u64,
    pub(crate) start: u64,
    pub(crate) applied: u64,
    pub(crate) state: u64,
    term: u64,
    members: Members,
    /// Reads without a grant: what each must see.
    pub(crate) reads: BTreeMap<u64, u64>,
    tokens: u64,
}

impl Host {
    pub(crate) fn new(index: usize, founding: &Members, seed: u64) -> Host {
        let checkpoint = SnapshotMark {
            members: founding.clone(),
            ..SnapshotMark::default()
        };
        Host {
            index,
            seed,
            core: None,
            durable: Durable {
                checkpoint,
                ..Durable::default()
            },
            writes: VecDeque::new(),
            sync_at: 0,
            start: 0,
            applied: 0,
            state: 0,
            term: 0,
            members: founding.clone(),
            reads: BTreeMap::new(),
            tokens: 0,
        }
    }

    /// Starts from the disk.
    pub(crate) fn boot(&mut self, without: Option<WrapperRule>) -> Result<(), String> {
        self.start += 1;
        let checkpoint = self.durable.checkpoint.clone();
        let mut log = CachedLog::new(checkpoint.index, checkpoint.term, 512);
        let rest = self.durable.entries.split_off(&(checkpoint.index + 1));
        self.durable.entries = rest;
        let entries: Vec<LogEntry> = self.durable.entries.values().cloned().collect();
        log.append(&entries);
        let mut config = Config::new(node(self.index), self.start, self.seed);
        config.heartbeat = Duration::from_millis(HEARTBEAT);
        config.election = Duration::from_millis(ELECTION);
        config.snapshot_timeout = Duration::from_millis(6 * ELECTION);
        config.append_bytes_max = 64;
        config.appends_max = 8;
        (self.applied, self.term) = (checkpoint.index, checkpoint.term);
        self.state = u64::from_le_bytes(checkpoint.digest[..8].try_into().expect("8 bytes"));
        self.members = checkpoint.members.clone();
        self.reads.clear();
        let recovered = StartPoint {
            checkpoint,
            vote: self.durable.vote,
        };
        let mut core = Consensus::new(config, recovered, log).map_err(|error| error.to_string())?;
        core.set_rules(Rules { without });
        self.core = Some(core);
        Ok(())
    }

    /// Loses everything but what is durable and the first `kept` writes under way.
    pub(crate) fn crash(&mut self, kept: usize, forgets_vote: bool) {
        for write in self.writes.drain(..).take(kept) {
            self.durable.write(&write, forgets_vote);
        }
        self.core = None;
        self.sync_at = 0;
    }

    pub(crate) fn next_read(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    fn mark(&self) -> SnapshotMark {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&self.state.to_le_bytes());
        SnapshotMark {
            index: self.applied,
            term: self.term,
            members: self.members.clone(),
            length: self.applied,
            digest,
        }
    }
}

impl ConsensusSimulation {
    /// Calls the core of a host, then does what it has ready.
    pub(crate) fn with_core(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Consensus<CachedLog>) -> Result<(), String>,
    ) {
        let Some(core) = self.hosts[at].core.as_mut() else {
            return;
        };
        if let Err(text) = call(core) {
            return self.fail(format!("node {}: {text}", at + 1));
        }
        loop {
            let Some(core) = self.hosts[at].core.as_mut() else {
                return;
            };
            match core.ready() {
                Ok(Some(ready)) => self.carry_out(at, ready),
                Ok(None) => return,
                Err(stopped) => return self.fail(format!("node {}: {stopped}", at + 1)),
            }
            if self.failure.is_some() {
                return;
            }
        }
    }

    fn carry_out(&mut self, at: usize, ready: Ready) {
        for message in &ready.send {
            self.send(at, message);
        }
        if let Some(persist) = ready.persist {
            self.persist(at, persist);
        }
        for committed in &ready.committed {
            self.decide(at, &committed.entry);
            self.hosts[at].term = committed.entry.term;
            if let Some(members) = &committed.membership {
                self.hosts[at].members = members.clone();
            }
        }
        if let Some(last) = ready.committed.last() {
            let delay = self.rng.below(20);
            self.after(delay, at, Work::Applied(last.entry.index));
        }
        for grant in ready.reads {
            self.reads += 1;
            let must_see = self.hosts[at].reads.remove(&grant.token).unwrap_or(0);
            if grant.index < must_see {
                self.fail(format!("read at {} must see {must_see}", grant.index));
            }
        }
        for token in ready.reads_failed {
            self.hosts[at].reads.remove(&token);
        }
        for fetch in ready.fetch {
            self.fetches += 1;
            let delay = 1 + self.rng.below(20);
            self.after(delay, at, Work::Fetched(fetch));
        }
        if let Some(transfer) = ready.transfer {
            let delay = 5 + self.rng.below(200);
            self.after(delay, at, Work::Transferred(transfer.mark));
        }
        self.checkpoint(at, ready.checkpoint_due);
    }

    fn persist(&mut self, at: usize, persist: Persist) {
        let mark = persist.install.clone();
        let ticket = persist.ticket;
        let entries = persist.entries.clone();
        let slow = if self.rng.chance(0.1) {
            self.scenario.sync_max
        } else {
            5
        };
        let delay = 1 + self.rng.below(slow);
        // Installing a checkpoint is slow: others have time to disturb.
        let delay = delay
            + if mark.is_some() {
                self.rng.below(300)
            } else {
                0
            };
        let due = (self.now + delay).max(self.hosts[at].sync_at);
        self.hosts[at].sync_at = due;
        self.hosts[at].writes.push_back(persist);
        self.after(due - self.now, at, Work::Sync);
        if self.scenario.bug == Some(ConsensusBug::MissingSync) {
            self.report(at, ticket);
        }
        if let Some(mark) = mark {
            self.install(at, &mark);
        }
        self.commit_alone(at, &entries);
    }

    fn install(&mut self, at: usize, mark: &SnapshotMark) {
        self.installs += 1;
        self.check_mark(at, mark);
        let host = &mut self.hosts[at];
        (host.applied, host.term, host.members) = (mark.index, mark.term, mark.members.clone());
        host.state = u64::from_le_bytes(mark.digest[..8].try_into().expect("8 bytes"));
        // The state machine has it, the disk not yet.
        self.after(0, at, Work::Applied(mark.index));
    }

    /// The planted bug: a leader decides alone.
    fn commit_alone(&mut self, at: usize, entries: &[LogEntry]) {
        let Some(core) = self.hosts[at].core.as_ref() else {
            return;
        };
        let leads = core.status().role == Role::Leader;
        if self.scenario.bug == Some(ConsensusBug::CommitWithoutQuorum) && leads {
            let applied = self.hosts[at].applied;
            for entry in entries.iter().filter(|entry| entry.index == applied + 1) {
                self.decide(at, entry);
            }
        }
    }

    fn checkpoint(&mut self, at: usize, is_due: bool) {
        let every = self.scenario.checkpoint_every;
        let host = &mut self.hosts[at];
        let is_new = host.applied > host.durable.checkpoint.index;
        // What a received checkpoint replaces is not durable yet.
        let installing = host.writes.iter().any(|write| write.install.is_some());
        let is_old = host.applied >= host.durable.checkpoint.index + every;
        if installing || !is_new || !(is_due || is_old) {
            return;
        }
        let mark = host.mark();
        host.durable.checkpoint = mark.clone();
        if let Some(core) = host.core.as_mut() {
            core.checkpointed(mark.clone());
            core.compact(mark.index);
        }
    }

    fn report(&mut self, at: usize, ticket: Ticket) {
        let Some(core) = self.hosts[at].core.as_mut() else {
            return;
        };
        if let Err(stopped) = core.persisted(ticket) {
            self.fail(format!("node {}: {stopped}", at + 1));
        }
    }

    pub(crate) fn work(&mut self, at: usize, work: Work) {
        let now = Time::from_milliseconds(self.now);
        match work {
            Work::Sync => {
                let Some(write) = self.hosts[at].writes.pop_front() else {
                    return;
                };
                let forgets = self.scenario.bug == Some(ConsensusBug::VoteForgotten);
                self.hosts[at].durable.write(&write, forgets);
                self.with_core(at, |core| {
                    core.persisted(write.ticket)
                        .map_err(|stopped| stopped.to_string())
                });
            }
            Work::Applied(index) => self.with_core(at, |core| {
                core.applied(index).map_err(|stopped| stopped.to_string())
            }),
            Work::Transferred(mark) => self.with_core(at, |core| {
                core.tick(now).map_err(|stopped| stopped.to_string())?;
                core.transferred(&mark)
                    .map_err(|stopped| stopped.to_string())?;
                Ok(())
            }),
            Work::Fetched(fetch) => {
                let range = self.hosts[at].durable.entries.range(fetch.low..fetch.high);
                let mut entries: Vec<LogEntry> = Vec::new();
                for (index, entry) in range {
                    if *index == fetch.low + entries.len() as u64 {
                        entries.push(entry.clone());
                    }
                }
                self.with_core(at, |core| {
                    core.fetched(entries).map_err(|stopped| stopped.to_string())
                });
            }
        }
    }
}
