//! The nine rules by name, so that tests and `examples/consensus-libraries` can switch each of them off.

/// A rule of the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "rules-off"),
    allow(unreachable_pub, reason = "public for rules-off")
)]
pub enum WrapperRule {
    /// 1: election timeouts come from the seed.
    PinnedTimeouts,
    /// 2: nothing counts as applied before it is durable.
    AppliedAfterPersisted,
    /// 3: nothing happens while a checkpoint is being installed.
    QuietInstall,
    /// 4: only applied entries are compacted.
    CompactApplied,
    /// 5: a leader that is no voter steps down.
    RemovedLeader,
    /// 6: snapshots have a timeout.
    SnapshotTimeout,
    /// 7: a member gets only checkpoints that know it.
    KnownMember,
    /// 9: messages are checked.
    CheckedMessages,
    /// 9: links are first in, first out.
    LinkOrder,
    /// Messages wait until what they depend on is durable.
    HeldMessages,
}

/// The rules in force: all of them, unless a test or the feature `rules-off` switches one off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(any(test, feature = "rules-off"))]
    pub(crate) without: Option<WrapperRule>,
}

impl Rules {
    #[cfg(any(test, feature = "rules-off"))]
    pub(crate) fn has(self, rule: WrapperRule) -> bool {
        self.without != Some(rule)
    }

    #[cfg(not(any(test, feature = "rules-off")))]
    #[allow(clippy::unused_self, reason = "only tests switch rules off")]
    pub(crate) fn has(self, _rule: WrapperRule) -> bool {
        true
    }
}
