//! Planted bugs, to show that tests find them.

use std::fmt;

/// A bug that can be planted in the service or in a copy. Each is one small deviation, marked in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceBug {
    /// Written messages are confirmed as durable: a crash loses confirmed messages.
    AckBeforeDurable,
    /// A live replay that has reached the end resumes at the end found by its next read, and skips what is in between.
    GapAtLive,
    /// A batch whose messages were recorded before is recorded again.
    DuplicateAfterResend,
    /// A replay sends without regard to the client's credit.
    CreditIgnored,
    /// Positions of batches after an extension are those of a recording that begins there.
    WrongPositionAfterExtend,
    /// The last of several batches written together is confirmed but not written.
    LostInGroup,
    /// A batch whose number is too high is accepted, under the next number.
    GapAccepted,
    /// A copy continues after the first missing block.
    CopySkipsBlock,
    /// A copy is resumed although it was made of another recording of the source archive.
    CopiesMixed,
    /// The last of several blocks received together for a copy is confirmed but not written.
    CopiedBlockLost,
    /// Bytes sent to a session and not received still count as in flight after the session has ended.
    UntakenKept,
    /// A replay to the end of a recording that was extended, and is being recorded, follows it.
    EndForgotten,
}

impl ServiceBug {
    /// All bugs.
    pub const ALL: [ServiceBug; 12] = [
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
        ServiceBug::EndForgotten,
    ];

    /// The bug's name, as an argument of `--bug`.
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
            ServiceBug::EndForgotten => "end-forgotten",
        }
    }

    /// The bug with this name.
    pub fn from_name(name: &str) -> Option<ServiceBug> {
        ServiceBug::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

impl fmt::Display for ServiceBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
