//! Scenarios: a library, its switches, its world, and the expected failure.

use crate::ledger::FailureKind;
use seatrial_consensus::WrapperRule;

/// The library of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// omnipaxos 0.2.4.
    OmniPaxos,
    /// raft 0.7.0, by the crate `seatrial-consensus`.
    Raft,
}

/// What a member of omnipaxos uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OmniPaxosFeatures {
    /// Snapshots of the log by the library.
    pub(crate) snapshots: bool,
    /// Reconfiguration.
    pub(crate) stop_sign: bool,
    /// Messages that were overtaken are dropped.
    pub(crate) fifo: bool,
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) about: &'static str,
    pub(crate) library: Library,
    /// Founding members.
    pub(crate) nodes: u32,
    /// Nodes that may join (raft).
    pub(crate) spares: u32,
    pub(crate) omnipaxos: OmniPaxosFeatures,
    /// The rule that is off (raft).
    pub(crate) without: Option<WrapperRule>,
    /// Entries between checkpoints (raft).
    pub(crate) checkpoint_every: u64,
    /// Does a member send fields that no member sends (raft)?
    pub(crate) forges: bool,
    /// Highest probability that the network repeats a message, and that it delays one so long that others overtake it.
    pub(crate) overtaking: f64,
    /// Milliseconds between faults, on average.
    pub(crate) fault_interval: u64,
    /// Is every schedule run twice, and must both runs be equal?
    pub(crate) twice: bool,
    /// Does a decided index past the end of a member's log count as a failure?
    pub(crate) checks_length: bool,
    /// Must every member catch up after the last fault, or only a majority?
    pub(crate) all_heal: bool,
    /// The failure that is looked for; others are counted. `None`: no failure is expected.
    pub(crate) finds: Option<FailureKind>,
}

const BASE: Scenario = Scenario {
    name: "clean",
    about: "",
    library: Library::OmniPaxos,
    nodes: 3,
    spares: 0,
    omnipaxos: OmniPaxosFeatures {
        snapshots: false,
        stop_sign: false,
        fifo: true,
    },
    without: None,
    checkpoint_every: 20,
    forges: false,
    overtaking: 0.1,
    fault_interval: 200,
    twice: false,
    checks_length: false,
    all_heal: true,
    finds: None,
};

const RAFT: Scenario = Scenario {
    library: Library::Raft,
    ..BASE
};

const fn rule(
    name: &'static str,
    about: &'static str,
    without: WrapperRule,
    finds: FailureKind,
) -> Scenario {
    Scenario {
        name,
        about,
        without: Some(without),
        finds: Some(finds),
        ..RAFT
    }
}

/// omnipaxos with all its features off; links drop overtaken messages if `fifo`.
const fn omnipaxos(fifo: bool) -> OmniPaxosFeatures {
    OmniPaxosFeatures {
        snapshots: false,
        stop_sign: false,
        fifo,
    }
}

/// Every scenario, in the order in which it is run and described.
pub(crate) const SCENARIOS: [Scenario; 20] = [
    Scenario {
        name: "delta-snapshot",
        about: "a delta snapshot after lost messages replaces the follower's state",
        omnipaxos: OmniPaxosFeatures {
            snapshots: true,
            ..omnipaxos(true)
        },
        finds: Some(FailureKind::LostState),
        ..BASE
    },
    Scenario {
        name: "stop-sign",
        about: "a stop-sign is counted twice when a follower is synchronised again",
        omnipaxos: OmniPaxosFeatures {
            stop_sign: true,
            ..omnipaxos(true)
        },
        finds: Some(FailureKind::Disagreement),
        ..BASE
    },
    Scenario {
        name: "accept-sync",
        about: "a late or repeated AcceptSync removes decided entries from a follower's log",
        omnipaxos: omnipaxos(false),
        checks_length: true,
        finds: Some(FailureKind::LostState),
        ..BASE
    },
    Scenario {
        name: "accept-sync-majority",
        about: "the same, until a majority has forgotten an entry and another is decided there",
        omnipaxos: omnipaxos(false),
        overtaking: 0.4,
        finds: Some(FailureKind::Disagreement),
        ..BASE
    },
    Scenario {
        name: "prepare-request",
        about: "a late or repeated PrepareReq takes a follower out of replication",
        omnipaxos: omnipaxos(false),
        finds: Some(FailureKind::NoProgress),
        ..BASE
    },
    Scenario {
        name: "own-ballot",
        about: "a member that restarts after it promised its own ballot never catches up",
        fault_interval: 60,
        finds: Some(FailureKind::NoProgress),
        ..BASE
    },
    Scenario {
        name: "clean",
        about: "overtaken messages are dropped, no snapshots and stop-signs; a majority must catch up",
        checks_length: true,
        all_heal: false,
        ..BASE
    },
    Scenario {
        twice: true,
        ..rule(
            "pinned-timeouts",
            "rule 1 off: the library draws election timeouts",
            WrapperRule::PinnedTimeouts,
            FailureKind::NotReplayable,
        )
    },
    Scenario {
        checkpoint_every: 5,
        ..rule(
            "applied-after-persisted",
            "rule 2 off: entries count as applied before they are durable",
            WrapperRule::AppliedAfterPersisted,
            FailureKind::Panic,
        )
    },
    Scenario {
        checkpoint_every: 5,
        ..rule(
            "quiet-install",
            "rule 3 off: ticks and messages while a checkpoint is installed",
            WrapperRule::QuietInstall,
            FailureKind::Panic,
        )
    },
    Scenario {
        checkpoint_every: 3,
        ..rule(
            "compact-applied",
            "rule 4 off: entries are compacted before they count as applied",
            WrapperRule::CompactApplied,
            FailureKind::Panic,
        )
    },
    Scenario {
        spares: 2,
        ..rule(
            "removed-leader",
            "rule 5 off: a leader stays leader after its removal",
            WrapperRule::RemovedLeader,
            FailureKind::Panic,
        )
    },
    Scenario {
        checkpoint_every: 5,
        ..rule(
            "snapshot-timeout",
            "rule 6 off: a snapshot without a report never fails",
            WrapperRule::SnapshotTimeout,
            FailureKind::NoProgress,
        )
    },
    Scenario {
        spares: 2,
        checkpoint_every: 10,
        ..rule(
            "known-member",
            "rule 7 off: a member gets a checkpoint in which it is no member",
            WrapperRule::KnownMember,
            FailureKind::NoProgress,
        )
    },
    Scenario {
        forges: true,
        ..rule(
            "checked-messages",
            "rule 9 off, first half: fields that no member sends reach the library",
            WrapperRule::CheckedMessages,
            FailureKind::Panic,
        )
    },
    Scenario {
        name: "link-order",
        about: "rule 9 off, second half: overtaken messages reach the library (no failure is known)",
        without: Some(WrapperRule::LinkOrder),
        overtaking: 0.4,
        ..RAFT
    },
    rule(
        "held-messages",
        "messages leave before the writes that they depend on are durable",
        WrapperRule::HeldMessages,
        FailureKind::Disagreement,
    ),
    Scenario {
        about: "all rules on, 3 members",
        ..RAFT
    },
    Scenario {
        name: "clean-members",
        about: "all rules on, 3 members and 2 that join and leave, a checkpoint every 5 entries",
        spares: 2,
        checkpoint_every: 5,
        ..RAFT
    },
    Scenario {
        name: "clean-forged",
        about: "all rules on, a member that sends fields which no member sends",
        forges: true,
        ..RAFT
    },
];
