//! From the bytes of a checkpoint to a state.

use super::file_parser::{CheckpointParser, CheckpointSink, ParsedFile};
use super::{CheckpointError, CheckpointHead, CheckpointMark};
use crate::state::{Item, StateItems, StateKey, StoreState, StoredList};
use std::sync::Arc;

/// Reads a checkpoint from bytes in order, with any cuts: from a disk or from another node. Besides the state it holds one block.
/// Every block is checked before its items are used, and the digest of the whole at the end.
#[derive(Debug)]
pub(crate) struct CheckpointReader {
    parser: CheckpointParser<StateBuilder>,
}

impl CheckpointReader {
    /// At the beginning of a file.
    pub(crate) fn new() -> CheckpointReader {
        CheckpointReader {
            parser: CheckpointParser::new(StateBuilder::default()),
        }
    }

    /// Takes the next bytes. After an error the file is refused for good.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.parser.push(bytes)
    }

    /// The state, once the whole file was pushed. The caller compares cluster, index and, of a transferred file, the mark.
    pub(crate) fn finish(
        self,
    ) -> Result<(CheckpointHead, StoreState, CheckpointMark), CheckpointError> {
        let ParsedFile {
            sink,
            head,
            sessions,
            mark,
        } = self.parser.finish()?;
        let items = sink.items;
        // The parser has counted what the sink got.
        assert_eq!((items.len() as u64, items.size()), (head.keys, head.size));
        Ok((head.head, StoreState::restore(items, sessions), mark))
    }
}

/// Collects items. Keys ascend, so every insertion goes to the right edge of the map, whose nodes are in the cache.
#[derive(Debug, Default)]
struct StateBuilder {
    items: StateItems,
    list: Option<(StateKey, StoredList)>,
}

impl CheckpointSink for StateBuilder {
    fn register(&mut self, key: &[u8], value: &[u8]) {
        self.items.insert(key, Item::Register(value.into()));
    }

    fn list(&mut self, key: &[u8]) {
        self.list = Some((key.into(), StoredList::default()));
    }

    fn element(&mut self, value: &[u8]) {
        if let Some((_, list)) = &mut self.list {
            list.push(value);
        }
    }

    fn end_list(&mut self) {
        if let Some((key, list)) = self.list.take() {
            self.items
                .insert(key.as_slice(), Item::List(Arc::new(list)));
        }
    }
}

#[cfg(test)]
impl CheckpointReader {
    /// A reader that claims to be at this position of the file.
    pub(super) fn at(self, position: u64) -> CheckpointReader {
        let parser = self.parser.at(position);
        CheckpointReader { parser }
    }
}
