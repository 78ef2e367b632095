//! Bugs to be planted, so that it can be shown that a test finds them.

use std::fmt;

/// A bug that can be planted in the service or in whoever copies. Each is one small deviation, marked where it is in
/// the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceBug {
    /// What is written is told to be durable: a crash loses messages that were confirmed.
    AckBeforeDurable,
    /// A live replay that has reached the end goes on with what is the end when it looks again.
    GapAtLive,
    /// A batch whose messages were recorded before is recorded again.
    DuplicateAfterResend,
    /// A replay sends as if it had credit without end.
    CreditIgnored,
    /// The places of batches after an extension are those of a recording that begins there.
    WrongPositionAfterExtend,
    /// Of batches that are written together, the last is confirmed and not written.
    LostInGroup,
    /// A batch whose number is too high is taken all the same, under the next number.
    GapAccepted,
    /// Who copies goes on behind the first block that is missing.
    CopySkipsBlock,
    /// A copy is gone on with whatever recording of the other archive it was made of.
    CopiesMixed,
    /// Of blocks that come together for a copy, the last is confirmed and not written.
    CopiedBlockLost,
    /// What was sent to a session and not taken counts as under way after the session has ended.
    UntakenKept,
}

impl ServiceBug {
    /// All of them.
    pub const ALL: [ServiceBug; 11] = [
        ServiceBug::AckBeforeDurable,
        ServiceBug::GapAtLive,
        ServiceBug::DuplicateAfterResend,
        ServiceBug::CreditIgnored,
        ServiceBug::WrongPositionAfterExtend,
        ServiceBug::LostInGroup,
        ServiceBug::GapAccepted,
        ServiceBug::CopySkipsBlock,
        ServiceBug::CopiesMixed,
        ServiceBug::CopiedBlockLost,
        ServiceBug::UntakenKept,
    ];

    /// The name that `--bug` takes.
    pub const fn name(self) -> &'static str {
        match self {
            ServiceBug::AckBeforeDurable => "ack-before-durable",
            ServiceBug::GapAtLive => "gap-at-live",
            ServiceBug::DuplicateAfterResend => "duplicate-after-resend",
            ServiceBug::CreditIgnored => "credit-ignored",
            ServiceBug::WrongPositionAfterExtend => "wrong-position-after-extend",
            ServiceBug::LostInGroup => "lost-in-group",
            ServiceBug::GapAccepted => "gap-accepted",
            ServiceBug::CopySkipsBlock => "copy-skips-block",
            ServiceBug::CopiesMixed => "copies-mixed",
            ServiceBug::CopiedBlockLost => "copied-block-lost",
            ServiceBug::UntakenKept => "untaken-kept",
        }
    }

    /// The bug called `name`.
    pub fn from_name(name: &str) -> Option<ServiceBug> {
        ServiceBug::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

impl fmt::Display for ServiceBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
