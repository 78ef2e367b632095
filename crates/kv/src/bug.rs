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
}

impl Bug {
    /// All bugs.
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
