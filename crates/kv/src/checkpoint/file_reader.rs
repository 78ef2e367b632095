//! From the bytes of a checkpoint to a state.

use super::file_parser::{CheckpointParser, CheckpointSink, ParsedFile};
use super::format::{DELTA, FileHead, HEADER};
use super::{CheckpointError, CheckpointHead, CheckpointMark};
use crate::state::{Item, StateItems, StateKey, StoreState, StoredList};
use seatrial_kv_protocol::message::LIST_LENGTH_MAX;
use std::sync::Arc;

/// Reads a checkpoint from bytes in order, with any cuts: from a disk or from another node. Besides the state it holds one block.
/// Every block is checked before its items are used, and the digest of the whole at the end.
#[derive(Debug)]
pub(crate) struct CheckpointReader {
    parser: CheckpointParser<StateBuilder>,
}

impl CheckpointReader {
    /// At the beginning of a file of a whole state.
    pub(crate) fn new() -> CheckpointReader {
        CheckpointReader {
            parser: CheckpointParser::new(HEADER, StateBuilder::default()),
        }
    }

    /// At the beginning of a file of changes of a state, which comes with the head and the mark of its own file.
    pub(crate) fn of_changes(
        head: &CheckpointHead,
        state: &StoreState,
        mark: CheckpointMark,
    ) -> CheckpointReader {
        let builder = StateBuilder {
            items: state.items().clone(),
            list: None,
            base: Some(DeltaBase {
                cluster: head.cluster,
                index: head.index,
                digest: mark.digest,
            }),
        };
        CheckpointReader {
            parser: CheckpointParser::new(DELTA, builder),
        }
    }

    /// Takes the next bytes. After an error the file is refused for good.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.parser.push(bytes)
    }

    /// Takes the next bytes up to the end of the file. Returns their number: less than all if another file follows.
    pub(crate) fn push_to_end(&mut self, bytes: &[u8]) -> Result<usize, CheckpointError> {
        self.parser.push_to_root(bytes)
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
        let (found, expected) = ((items.len() as u64, items.size()), (head.keys, head.size));
        // The parser has counted what a whole state consists of; changes are counted here.
        assert!(found == expected || head.delta.is_some());
        if found != expected {
            let ((keys, size), (head_keys, head_size)) = (found, expected);
            let problem = format!(
                "the changed state has {keys} keys and {size} bytes, the header says {head_keys} and {head_size}"
            );
            return Err(CheckpointError { offset: 0, problem });
        }
        Ok((head.head, StoreState::restore(items, sessions), mark))
    }
}

/// Collects items. The keys of a whole state ascend, so every insertion goes to the right edge of the map, whose nodes are in the
/// cache.
#[derive(Debug, Default)]
struct StateBuilder {
    items: StateItems,
    list: Option<OpenList>,
    /// The checkpoint that `items` began with, if the file changes one.
    base: Option<DeltaBase>,
}

/// The list whose elements come.
#[derive(Debug)]
struct OpenList {
    key: StateKey,
    list: StoredList,
    /// It began with the elements of the base.
    is_appended: bool,
}

/// Identifies the checkpoint that a file changes.
#[derive(Clone, Copy, Debug)]
struct DeltaBase {
    cluster: u64,
    index: u64,
    digest: [u8; 16],
}

/// A writer leaves out what does not change, so a file with such a record is no writer's.
const NO_CHANGE: &str = "a record that changes nothing, or more than it must";

impl StateBuilder {
    fn put(&mut self, key: &[u8], item: Item) {
        if self.base.is_some() {
            self.items.replace(key, item);
        } else {
            self.items.insert(key, item);
        }
    }
}

impl CheckpointSink for StateBuilder {
    fn head(&mut self, head: &FileHead) -> Result<(), &'static str> {
        let (Some(base), Some(delta)) = (self.base, head.delta) else {
            return Ok(());
        };
        if (delta.base_index, delta.base_digest) != (base.index, base.digest) {
            return Err("the changes are those of another checkpoint");
        }
        if head.head.cluster != base.cluster || head.head.index < base.index {
            return Err("the changes are of another cluster or of the past");
        }
        Ok(())
    }

    fn register(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.base.is_some()
            && let Some(Item::Register(held)) = self.items.get(key)
            && **held == *value
        {
            return Err(NO_CHANGE);
        }
        self.put(key, Item::Register(value.into()));
        Ok(())
    }

    fn list(&mut self, key: &[u8]) {
        self.list = Some(OpenList {
            key: key.into(),
            list: StoredList::default(),
            is_appended: false,
        });
    }

    fn appended(&mut self, key: &[u8]) -> Result<(), &'static str> {
        let Some(Item::List(list)) = self.items.get(key).filter(|_| self.base.is_some()) else {
            return Err("elements for a list that is not there");
        };
        self.list = Some(OpenList {
            key: key.into(),
            list: (**list).clone(),
            is_appended: true,
        });
        Ok(())
    }

    fn element(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let Some(OpenList { list, .. }) = &mut self.list else {
            unreachable!("elements come after their list");
        };
        if list.length() + 4 + value.len() > LIST_LENGTH_MAX {
            return Err("a list over the limit");
        }
        list.push(value);
        Ok(())
    }

    fn end_list(&mut self) -> Result<(), &'static str> {
        let Some(open) = self.list.take() else {
            unreachable!("a list ends after it began");
        };
        let key = open.key.as_slice();
        if self.base.is_some()
            && !open.is_appended
            && let Some(Item::List(held)) = self.items.get(key)
            && (**held == open.list || open.list.continues(held))
        {
            return Err(NO_CHANGE);
        }
        self.put(key, Item::List(Arc::new(open.list)));
        Ok(())
    }

    fn removed(&mut self, key: &[u8]) -> Result<(), &'static str> {
        if self.base.is_none() || self.items.delete(key).is_none() {
            return Err("a removed key that is not there");
        }
        Ok(())
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
