//! The outcome of a transaction, as its client knows it.

use crate::answer::Answers;
use crate::message::{Code, MessageError, MessageHeader, MessageKind};
use std::fmt;

/// Outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, and durable.
    Ok(Answers),
    /// Not executed, now or ever.
    Failed(Failure),
    /// Unknown: it may have been executed, or may still be.
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
    /// A list was used as a register, or a register as a list.
    WrongKind {
        /// Index of the operation.
        operation: u32,
    },
    /// A list would become too long.
    ListFull {
        /// Index of the operation.
        operation: u32,
    },
    /// The values that the transaction reads exceed the maximum length of a message.
    AnswerTooLong {
        /// Index of the operation.
        operation: u32,
    },
    /// A queue of the server is full.
    Overloaded,
    /// The server could not decode the request.
    Malformed,
    /// It was not sent: no session was opened in time.
    NoSession,
    /// It was not sent: too many requests wait at this client.
    Busy,
    /// It was not sent: the server has another version of the protocol.
    WrongVersion,
    /// The node keeps no state at the index that it reads.
    NoState,
}

/// Why the outcome of a transaction is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It was sent, and no reply arrived in time.
    Timeout,
    /// It was sent, and the connection was closed.
    ConnectionLost,
    /// It was sent in a session that the server has lost (it restarted).
    SessionLost,
}

impl Failure {
    /// Name in histories.
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
            Failure::NoState => "no-state",
        }
    }
}

impl Doubt {
    /// Name in histories.
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
    /// Decodes the reply to a transaction of `operations` operations.
    pub fn from_reply(reply: Vec<u8>, operations: u16) -> Result<Outcome, MessageError> {
        let header = MessageHeader::decode(&reply)?;
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
            Code::NoState => Outcome::Failed(Failure::NoState),
            Code::WrongSession => Outcome::Unknown(Doubt::SessionLost),
            Code::WrongVersion => return Err(never("code", 1, u64::from(header.code))),
        })
    }
}
