//! A trace, played up to a point.

use super::choice::Choice;
use super::recorder::{Operation, Trace};
use crate::storage::{FileTree, Media, Pending};

/// Plays a trace operation by operation. [`Replay::build`] answers the files after a crash at the present point.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub(super) operations: &'a [Operation],
    /// Operations that were done.
    pub(super) point: usize,
    media: Media,
}

impl<'a> Replay<'a> {
    pub(super) fn new<P>(trace: &'a Trace<P>) -> Replay<'a> {
        Replay {
            operations: &trace.operations,
            point: 0,
            media: Media::new(&trace.start),
        }
    }

    /// Plays up to a point.
    pub(super) fn advance_to(&mut self, point: usize) {
        while self.point < point.min(self.operations.len()) {
            self.media.apply(self.operations[self.point].clone());
            self.point += 1;
        }
    }

    /// What is not durable, of files that may have a name.
    pub(super) fn pending(&self) -> Pending {
        self.media.pending()
    }

    /// The files after a crash.
    pub(super) fn build(&self, choice: &Choice) -> FileTree {
        self.media.build(choice)
    }
}
