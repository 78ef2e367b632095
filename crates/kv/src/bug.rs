//! Bugs to be planted, so that it can be shown that a test finds them.

use std::fmt;

/// A bug that can be planted in the store. Each is one small deviation, marked where it is in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Replies before the append is durable, and lets appends gather for a while: a crash loses acknowledged commands.
    AckBeforeAppend,
    /// Transactions that only read are served from a snapshot that is refreshed now and then.
    StaleRead,
    /// An append is computed against the list as it was when the present group commit began to gather: appends within
    /// one group overwrite each other.
    LostAppend,
    /// A failed transaction leaves the effects of the operations before the one that failed.
    DirtyAbort,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 4] = [
        Bug::AckBeforeAppend,
        Bug::StaleRead,
        Bug::LostAppend,
        Bug::DirtyAbort,
    ];

    /// The name that `--bug` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::AckBeforeAppend => "ack-before-append",
            Bug::StaleRead => "stale-read",
            Bug::LostAppend => "lost-append",
            Bug::DirtyAbort => "dirty-abort",
        }
    }

    /// The bug called `name`.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == name)
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
        for bug in Bug::ALL {
            assert_eq!(Bug::from_name(bug.name()), Some(bug));
        }
        assert_eq!(Bug::from_name("none"), None);
    }
}
