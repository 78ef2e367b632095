//! Planted bugs, which show that a test detects violations.

use std::fmt;

/// A planted bug: one small deviation, marked at its place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Replies before the append is durable, and delays appends: a crash loses acknowledged commands.
    AckBeforeAppend,
    /// Serves transactions that only read from an old snapshot.
    StaleRead,
    /// Appends to the list as it was when the present group commit began to gather: appends of one group overwrite each other.
    LostAppend,
    /// A failed transaction leaves the effects of the operations before the failed one.
    DirtyAbort,
    /// Reports blocks of the journal as durable when they are written, before their sync.
    MissingSync,
    /// Writes no vote into the journal: a replica votes twice in a term after a restart.
    VoteForgotten,
    /// At a restart keeps entries of the journal that were replaced.
    ConflictKept,
    /// Answers reads from its own state without asking a quorum.
    StaleLeaderRead,
    /// Executes entries when they are appended, before a quorum has them.
    CommitWithoutQuorum,
    /// Replies when the leader's own journal is durable.
    ReplyAtAppend,
    /// Takes the state of a checkpoint when the file is begun, not at its index.
    FuzzyCheckpoint,
    /// Frees the journal up to the last applied entry, past the checkpoint.
    PurgePastCheckpoint,
    /// Starts from a checkpoint without its sessions.
    SessionsNotInCheckpoint,
    /// Starts from changes with the sessions of the whole checkpoint before them.
    SessionsOfBase,
    /// A node with a damaged journal votes and acknowledges entries at once.
    DamagedVotes,
    /// Stamps sessions with the replica's own clock instead of the entry's time: states differ, and no client sees it.
    OwnClock,
}

/// All bugs with their names.
const NAMES: [(Bug, &str); 16] = [
    (Bug::AckBeforeAppend, "ack-before-append"),
    (Bug::StaleRead, "stale-read"),
    (Bug::LostAppend, "lost-append"),
    (Bug::DirtyAbort, "dirty-abort"),
    (Bug::MissingSync, "missing-sync"),
    (Bug::VoteForgotten, "vote-forgotten"),
    (Bug::ConflictKept, "conflict-kept"),
    (Bug::StaleLeaderRead, "stale-leader-read"),
    (Bug::CommitWithoutQuorum, "commit-without-quorum"),
    (Bug::ReplyAtAppend, "reply-at-append"),
    (Bug::FuzzyCheckpoint, "fuzzy-checkpoint"),
    (Bug::PurgePastCheckpoint, "purge-past-checkpoint"),
    (Bug::SessionsNotInCheckpoint, "sessions-not-in-checkpoint"),
    (Bug::SessionsOfBase, "sessions-of-base"),
    (Bug::DamagedVotes, "damaged-votes"),
    (Bug::OwnClock, "own-clock"),
];

impl Bug {
    /// All bugs.
    pub fn all() -> impl Iterator<Item = Bug> {
        NAMES.into_iter().map(|it| it.0)
    }

    /// The name that `--bug` takes.
    pub const fn name(self) -> &'static str {
        let mut at = 0;
        while at < NAMES.len() {
            if NAMES[at].0 as u8 == self as u8 {
                return NAMES[at].1;
            }
            at += 1;
        }
        panic!("a bug has no name")
    }

    /// The bug called `name`.
    pub fn from_name(name: &str) -> Option<Bug> {
        NAMES.into_iter().find(|it| it.1 == name).map(|it| it.0)
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Bug;

    #[test]
    fn every_bug_is_found_by_its_name() {
        for bug in Bug::all() {
            assert_eq!(Bug::from_name(bug.name()), Some(bug));
        }
        assert_eq!(Bug::from_name("none"), None);
    }
}
