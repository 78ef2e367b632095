//! The texts that reads return: which states of appended text can still matter.

use crate::model::Action;
use crate::object::ObjectOperation;
use crate::values::{NumberedValues, StateId};
use seatrial_history::Value;
use std::sync::Arc;

/// The texts that the reads of one object return, in order.
///
/// Text only grows by appends, so a state that is no beginning of any of these texts cannot become one of them, until a `put`
/// begins anew. All such states are one (`UNREAD`): their future is the same. Without any `put`, every state before the last
/// read must be a beginning of the longest text, so an append that leads elsewhere is impossible. Both are exact, and make a
/// search follow the texts, where it would try all orders of concurrent appends.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextReads {
    texts: Vec<Arc<str>>,
    longest: Arc<str>,
    has_puts: bool,
}

/// A state that no read returns, nor any text that begins with it.
pub(crate) const UNREAD: StateId = StateId::MAX - 1;

/// What a state of appended text is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextState {
    /// Some read may return it, or a longer text.
    Read,
    /// No read returns it, or a longer text.
    Unread,
    /// There is no order with it.
    Impossible,
}

impl TextReads {
    /// The reads of these operations.
    pub(crate) fn new(entries: &[ObjectOperation], values: &NumberedValues) -> TextReads {
        let mut reads = TextReads::default();
        for entry in entries {
            match entry.action {
                Action::Read(value) => {
                    if let Value::Text(text) = values.get(value) {
                        reads.texts.push(text);
                    }
                }
                Action::Write(_) => reads.has_puts = true,
                _ => {}
            }
        }
        reads.texts.sort_unstable();
        reads.texts.dedup();
        let longest = reads.texts.iter().max_by_key(|text| text.len());
        reads.longest = longest.cloned().unwrap_or_default();
        reads
    }

    /// What a state is worth that an append made.
    pub(crate) fn state(&self, text: &str) -> TextState {
        // The texts that begin with it follow one another, and the first of them is not before it.
        let first = self.texts.partition_point(|one| &**one < text);
        let is_read = self
            .texts
            .get(first)
            .is_some_and(|one| one.starts_with(text));
        if self.has_puts {
            return if is_read {
                TextState::Read
            } else {
                TextState::Unread
            };
        }
        if self.longest.starts_with(text) {
            TextState::Read
        } else if text.starts_with(&*self.longest) {
            TextState::Unread
        } else {
            TextState::Impossible
        }
    }
}
