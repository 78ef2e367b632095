//! Exit status, as Jepsen's.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: the history is valid, or what was asked for is done.
    Valid,
    /// 1: an anomaly was found.
    Invalid,
    /// 2: unknown; a limit was reached or a question stayed open.
    Unknown,
    /// 254: usage, input or set-up.
    Error,
    /// 255: a bug of ours.
    Bug,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Valid => 0,
            Exit::Invalid => 1,
            Exit::Unknown => 2,
            Exit::Error => 254,
            Exit::Bug => 255,
        })
    }
}

impl Exit {
    /// The worse of two: an error beats an anomaly beats a doubt beats a pass.
    #[must_use]
    pub fn worse(self, other: Exit) -> Exit {
        match (self, other) {
            (Exit::Bug, _) | (_, Exit::Bug) => Exit::Bug,
            (Exit::Error, _) | (_, Exit::Error) => Exit::Error,
            (Exit::Invalid, _) | (_, Exit::Invalid) => Exit::Invalid,
            (Exit::Unknown, _) | (_, Exit::Unknown) => Exit::Unknown,
            _ => Exit::Valid,
        }
    }
}
