//! What a client learns about its transaction.

use crate::answer::Answers;
use crate::message::{Code, Header, MessageError, MessageKind};
use std::fmt;

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, and durable.
    Ok(Answers),
    /// Not executed, now or ever.
    Failed(Failure),
    /// Executed or not, perhaps later: nobody can say.
    Unknown(Doubt),
}

/// Why a transaction was certainly not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A register did not hold the expected value.
    CompareFailed {
        /// Index of the operation.
        operation: u32,
    },
    /// A list was touched as a register, or the other way round.
    WrongKind {
        /// Index of the operation.
        operation: u32,
    },
    /// A list would become too long.
    ListFull {
        /// Index of the operation.
        operation: u32,
    },
    /// What the transaction reads does not fit into a message.
    AnswerTooLong {
        /// Index of the operation.
        operation: u32,
    },
    /// A queue of the server is full.
    Overloaded,
    /// The server could not read the request.
    Malformed,
    /// It was never sent: no session could be had in time.
    NoSession,
    /// It was never sent: too many requests wait for their turn at this client.
    Busy,
    /// It was never sent: the server speaks another version of the protocol.
    WrongVersion,
}

/// Why nobody can say what became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It was sent, and no answer came in time.
    Timeout,
    /// It was sent, and the connection was closed.
    ConnectionLost,
    /// It was sent in a session that the server no longer knows (it restarted).
    SessionLost,
}

impl Failure {
    /// The name under which histories record it.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::CompareFailed { .. } => "compare-failed",
            Failure::WrongKind { .. } => "wrong-kind",
            Failure::ListFull { .. } => "list-full",
            Failure::AnswerTooLong { .. } => "answer-too-long",
            Failure::Overloaded => "overloaded",
            Failure::Malformed => "malformed",
            Failure::NoSession => "no-session",
            Failure::Busy => "busy",
            Failure::WrongVersion => "wrong-version",
        }
    }
}

impl Doubt {
    /// The name under which histories record it.
    pub const fn name(self) -> &'static str {
        match self {
            Doubt::Timeout => "timeout",
            Doubt::ConnectionLost => "connection-lost",
            Doubt::SessionLost => "session-lost",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Outcome {
    /// The outcome that a reply to a transaction of `operations` operations tells.
    pub fn from_reply(reply: Vec<u8>, operations: u16) -> Result<Outcome, MessageError> {
        let header = Header::decode(&reply)?;
        let never = |field, offset, value| MessageError::Value {
            field,
            offset,
            value,
        };
        if header.kind != MessageKind::Reply {
            return Err(never("type", 0, header.kind as u64));
        }
        let code = header.outcome()?;
        let count = if code == Code::Committed {
            operations
        } else {
            0
        };
        if header.count != count {
            return Err(never("answers", 2, u64::from(header.count)));
        }
        let operation = header.detail;
        let answers = Answers::new(reply, count)?;
        Ok(match code {
            Code::Committed => Outcome::Ok(answers),
            Code::CompareFailed => Outcome::Failed(Failure::CompareFailed { operation }),
            Code::WrongKind => Outcome::Failed(Failure::WrongKind { operation }),
            Code::ListFull => Outcome::Failed(Failure::ListFull { operation }),
            Code::AnswerTooLong => Outcome::Failed(Failure::AnswerTooLong { operation }),
            Code::Overloaded => Outcome::Failed(Failure::Overloaded),
            Code::Malformed => Outcome::Failed(Failure::Malformed),
            Code::WrongSession => Outcome::Unknown(Doubt::SessionLost),
            Code::WrongVersion => return Err(never("code", 1, u64::from(header.code))),
        })
    }
}
