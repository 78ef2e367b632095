//! The configuration of a member, and how it starts.

use crate::log_entry::{SnapshotMark, Vote, is_server};
use seatrial_machine::NodeId;
use std::time::Duration;
use thiserror::Error;

/// The configuration of one member.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Greater at each start of this node: numbers messages and reads. The store counts starts durably.
    pub start: u64,
    /// Time between a leader's heartbeats.
    pub heartbeat: Duration,
    /// A follower that hears nothing for one to two times this long campaigns. At least twice the longest sync, else nothing
    /// is ever elected.
    pub election: Duration,
    /// A snapshot that was sent and not reported for this long counts as failed (rule 6). Longer than a state transfer.
    pub snapshot_timeout: Duration,
    /// The seed of election timeouts.
    pub seed: u64,
    /// The node does not campaign before it has applied this entry. A member that lost its log may know a membership that is many
    /// changes old, of which no majority needs to know the present one.
    pub campaign_after: u64,
    /// Bound of the entry bytes of one append message (one entry may exceed it).
    pub append_bytes_max: u64,
    /// Bound of append messages under way to one follower, each of up to `append_bytes_max`.
    pub appends_max: usize,
    /// Bound of proposed bytes that are not committed.
    pub uncommitted_bytes_max: u64,
    /// Bound of the committed entries of one [`Ready`](crate::Ready) in bytes (one entry may exceed it): they become free as they
    /// are applied, and a machine can end its turn in between.
    pub committed_bytes_max: u64,
}

impl Config {
    /// The default configuration of a node.
    pub fn new(node: NodeId, start: u64, seed: u64) -> Config {
        Config {
            node,
            start,
            heartbeat: Duration::from_millis(100),
            election: Duration::from_secs(1),
            snapshot_timeout: Duration::from_mins(1),
            seed,
            campaign_after: 0,
            append_bytes_max: 1 << 20,
            appends_max: 64,
            uncommitted_bytes_max: 64 << 20,
            committed_bytes_max: 2 << 20,
        }
    }

    /// The library's options. `heartbeat_ticks`: ticks of this length between heartbeats. `applied`: the end of the checkpoint.
    pub(crate) fn library(
        &self,
        heartbeat_ticks: usize,
        tick: Duration,
        applied: u64,
    ) -> raft::Config {
        raft::Config {
            id: u64::from(self.node.number()),
            election_tick: self.election.as_nanos().div_ceil(tick.as_nanos()) as usize,
            heartbeat_tick: heartbeat_ticks,
            applied,
            max_size_per_msg: self.append_bytes_max,
            max_inflight_msgs: self.appends_max,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            max_uncommitted_size: self.uncommitted_bytes_max,
            max_committed_size_per_ready: self.committed_bytes_max,
            ..raft::Config::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !is_server(self.node) {
            return Err(ConfigError::Node(self.node));
        }
        if self.heartbeat < Duration::from_micros(10) || self.heartbeat * 2 > self.election {
            return Err(ConfigError::Times);
        }
        if self.appends_max == 0 || self.append_bytes_max > self.uncommitted_bytes_max {
            return Err(ConfigError::Bounds);
        }
        Ok(())
    }
}

/// What a node knows at its start. The state machine starts from the checkpoint; consensus hands out every committed entry
/// after it.
#[derive(Clone, Debug, Default)]
pub struct StartPoint {
    /// The newest durable checkpoint. At index 0: the founding membership of the cluster, which nodes that join later get too.
    pub checkpoint: SnapshotMark,
    /// The durable vote.
    pub vote: Vote,
}

/// Why a node cannot start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The node is a client, or number 0.
    #[error("node {0} cannot be a member: members are servers counted from 1")]
    Node(NodeId),
    /// The times do not fit.
    #[error(
        "the heartbeat interval must be at least 10 us and at most half of the election timeout"
    )]
    Times,
    /// The bounds do not fit.
    #[error("bounds of appends and of uncommitted bytes contradict each other")]
    Bounds,
    /// The membership of the checkpoint cannot be.
    #[error("the membership of the checkpoint at index {0} is invalid")]
    Membership(u64),
    /// The log does not continue the checkpoint.
    #[error(
        "the log begins at index {first}, the checkpoint ends at {checkpoint}: entries are missing"
    )]
    Gap {
        /// First index of the log.
        first: u64,
        /// Index of the checkpoint.
        checkpoint: u64,
    },
    /// The library refused.
    #[error("consensus does not start: {0}")]
    Library(String),
}
