//! A trace, applied up to a point.

use super::choice::Choice;
use super::disk_recorder::{DiskOperation, DiskTrace};
use crate::simulated_storage::{FileTree, Media, Pending};

/// Applies a trace operation by operation. [`TraceReplay::build`] returns the files after a crash at the present point.
#[derive(Debug)]
pub(super) struct TraceReplay<'a> {
    pub(super) operations: &'a [DiskOperation],
    /// Number of operations applied.
    pub(super) point: usize,
    media: Media,
}

impl<'a> TraceReplay<'a> {
    pub(super) fn new<P>(trace: &'a DiskTrace<P>) -> TraceReplay<'a> {
        TraceReplay {
            operations: &trace.operations,
            point: 0,
            media: Media::new(&trace.start),
        }
    }

    /// Applies the operations up to a point, which must not be before the present one.
    pub(super) fn advance_to(&mut self, point: usize) {
        while self.point < point.min(self.operations.len()) {
            self.media.apply(self.operations[self.point].clone());
            self.point += 1;
        }
    }

    /// The changes that are not durable, of files that may have a name.
    pub(super) fn pending(&self) -> Pending {
        self.media.pending()
    }

    /// The files after a crash in which `choice` holds.
    pub(super) fn build(&self, choice: &Choice) -> FileTree {
        self.media.build(choice)
    }
}
