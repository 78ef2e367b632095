//! The dictionaries of a chunk: names, texts, keys.

use super::column::{ChunkColumns, ChunkError};
use super::column_writer::ChunkColumnWriter;
use super::layout::{NAME_LENGTH_MAX, column, kind};
use super::shared_lists::SharedLists;
use crate::hash::FixedMap;
use crate::{Key, Symbol};
use seatrial_blocks::packed::IntegerSlice;
use std::sync::Arc;

/// Slots for recent words, by the address of their text.
const RECENT: usize = 32;
/// Slots for recent integer keys, by their lowest bits.
const RECENT_KEYS: usize = 64;
/// Stands for an id that is not assigned yet.
pub(super) const NO_ID: u32 = u32::MAX;

/// Recent integer keys.
struct RecentKeys([(i64, u32); RECENT_KEYS]);

impl Default for RecentKeys {
    fn default() -> RecentKeys {
        RecentKeys([(0, NO_ID); RECENT_KEYS])
    }
}

/// Names, texts and keys of a chunk that is being written, numbered in order of appearance. Cleared and reused for the next
/// chunk.
#[derive(Default)]
pub(crate) struct Dictionary {
    words: FixedMap<&'static str, u32>,
    word_lengths: Vec<u32>,
    word_bytes: Vec<u8>,
    /// Recent names, by address and length of their text, with their ids: saves most look-ups.
    recent: [(usize, usize, u32); RECENT],
    texts: FixedMap<Arc<str>, u32>,
    text_lengths: Vec<u32>,
    text_bytes: Vec<u8>,
    integer_keys: FixedMap<i64, u32>,
    /// Recent integer keys with their ids: saves most look-ups.
    recent_keys: RecentKeys,
    /// Per word id its key id, [`NO_ID`] if it is none.
    word_keys: Vec<u32>,
    /// The same per text id.
    text_keys: Vec<u32>,
    none_key: Option<u32>,
    key_kinds: Vec<u8>,
    key_numbers: Vec<i64>,
    /// The lists of the keys.
    pub(crate) lists: SharedLists,
    /// The elements of all lists, gathered when the chunk is written.
    pool: Vec<i64>,
    list_lengths: Vec<u32>,
}

impl Dictionary {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.word_lengths.clear();
        self.word_bytes.clear();
        self.recent = [(0, 0, 0); RECENT];
        self.texts.clear();
        self.text_lengths.clear();
        self.text_bytes.clear();
        self.integer_keys.clear();
        self.recent_keys = RecentKeys::default();
        self.word_keys.clear();
        self.text_keys.clear();
        self.none_key = None;
        self.key_kinds.clear();
        self.key_numbers.clear();
        self.lists.clear();
    }

    /// A lower bound of the bytes that it takes in the chunk.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.word_bytes.len() + 4 * self.word_lengths.len();
        let texts = self.text_bytes.len() + 8 * self.text_lengths.len();
        let keys = 17 * self.key_kinds.len();
        let references = 8 * self.lists.branches_of_references.len();
        words + texts + keys + references + 8 * self.lists.elements()
    }

    #[inline]
    pub(crate) fn word(&mut self, word: Symbol) -> u32 {
        let name = word.as_str();
        let address = name.as_ptr().addr();
        let place = (address >> 3 ^ address >> 9) % RECENT;
        let (known, length, id) = self.recent[place];
        if known == address && length == name.len() {
            return id;
        }
        self.look_up_word(name, place)
    }

    /// [`Dictionary::word`] for a name that is not in its slot of recent ones.
    #[inline(never)]
    fn look_up_word(&mut self, name: &'static str, place: usize) -> u32 {
        let fresh = self.word_lengths.len() as u32;
        let id = *self.words.entry(name).or_insert(fresh);
        if id == fresh {
            self.word_lengths.push(name.len() as u32);
            self.word_bytes.extend_from_slice(name.as_bytes());
        }
        self.recent[place] = (name.as_ptr().addr(), name.len(), id);
        id
    }

    pub(crate) fn text(&mut self, text: &Arc<str>) -> u32 {
        if let Some(&id) = self.texts.get(&**text) {
            return id;
        }
        let id = self.text_lengths.len() as u32;
        self.texts.insert(text.clone(), id);
        self.text_lengths.push(text.len() as u32);
        self.text_bytes.extend_from_slice(text.as_bytes());
        id
    }

    #[inline]
    pub(crate) fn key(&mut self, key: &Key) -> u32 {
        if let Key::Int(number) = key {
            let (known, id) = self.recent_keys.0[*number as usize % RECENT_KEYS];
            if known == *number && id != NO_ID {
                return id;
            }
        }
        self.look_up_key(key)
    }

    /// [`Dictionary::key`] for a key that is not a recent integer.
    #[inline(never)]
    fn look_up_key(&mut self, key: &Key) -> u32 {
        match key {
            Key::Int(number) => self.integer_key(*number),
            Key::Word(word) => {
                let word = self.word(*word);
                self.name_key(kind::KEY_WORD, word)
            }
            Key::Text(text) => {
                let text = self.text(text);
                self.name_key(kind::KEY_TEXT, text)
            }
        }
    }

    fn integer_key(&mut self, number: i64) -> u32 {
        let fresh = self.key_kinds.len() as u32;
        let id = *self.integer_keys.entry(number).or_insert(fresh);
        if id == fresh {
            self.add_key(kind::KEY_INT, number);
        }
        self.recent_keys.0[number as usize % RECENT_KEYS] = (number, id);
        id
    }

    /// The key that is the word or text with this id.
    fn name_key(&mut self, kind: u8, name: u32) -> u32 {
        let keys = if kind == kind::KEY_WORD {
            &mut self.word_keys
        } else {
            &mut self.text_keys
        };
        let place = name as usize;
        if keys.len() <= place {
            keys.resize(place + 1, NO_ID);
        }
        if keys[place] == NO_ID {
            keys[place] = self.key_kinds.len() as u32;
            self.add_key(kind, i64::from(name));
        }
        match kind {
            kind::KEY_WORD => self.word_keys[place],
            _ => self.text_keys[place],
        }
    }

    /// The key of lists that belong to no key.
    pub(crate) fn none_key(&mut self) -> u32 {
        if let Some(id) = self.none_key {
            return id;
        }
        let id = self.add_key(kind::KEY_NONE, 0);
        self.none_key = Some(id);
        id
    }

    /// The same, if it was assigned.
    pub(crate) fn known_none_key(&self) -> Option<u32> {
        self.none_key
    }

    fn add_key(&mut self, kind: u8, number: i64) -> u32 {
        self.key_kinds.push(kind);
        self.key_numbers.push(number);
        self.lists.add_key();
        debug_assert_eq!(self.key_kinds.len(), self.key_numbers.len());
        self.key_kinds.len() as u32 - 1
    }

    /// The columns of all dictionaries.
    pub(crate) fn put<'a>(&'a mut self, columns: &mut ChunkColumnWriter<'a>) {
        self.pool.clear();
        self.list_lengths.clear();
        for list in self.lists.all() {
            self.pool.extend_from_slice(list);
            self.list_lengths.push(list.len() as u32);
        }
        assert_eq!(self.pool.len(), self.lists.elements());
        assert!(
            self.list_lengths.len() >= self.key_kinds.len(),
            "a key has no list"
        );
        assert_eq!(
            self.lists.branches_of_references.len(),
            self.lists.lengths_of_references.len()
        );
        columns.put(column::LIST_LENGTH, IntegerSlice::Ids(&self.list_lengths));
        columns.put(column::POOL, IntegerSlice::Integers(&self.pool));
        let references = IntegerSlice::Ids(&self.lists.branches_of_references);
        columns.put(column::REFERENCE_LIST, references);
        let lengths = IntegerSlice::Ids(&self.lists.lengths_of_references);
        columns.put(column::REFERENCE_LENGTH, lengths);
        columns.put(column::WORD_LENGTH, IntegerSlice::Ids(&self.word_lengths));
        columns.put(column::WORD_BYTES, IntegerSlice::Bytes(&self.word_bytes));
        columns.put(column::TEXT_LENGTH, IntegerSlice::Ids(&self.text_lengths));
        columns.put(column::TEXT_BYTES, IntegerSlice::Bytes(&self.text_bytes));
        columns.put(column::KEY_KIND, IntegerSlice::Bytes(&self.key_kinds));
        columns.put(
            column::KEY_NUMBER,
            IntegerSlice::Integers(&self.key_numbers),
        );
    }
}

/// Names, texts and keys of a chunk that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkDictionary {
    pub(crate) words: Vec<Symbol>,
    texts: String,
    text_starts: Vec<u32>,
    /// `None` for the key of kind *none*.
    pub(crate) keys: Vec<Option<Key>>,
    pub(crate) none_key: Option<u32>,
}

impl ChunkDictionary {
    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = self.keys.iter().flatten().map(|key| match key {
            Key::Text(text) => text.len() + 16,
            Key::Int(_) | Key::Word(_) => 0,
        });
        let words = self.words.capacity() * size_of::<Symbol>();
        let keys = self.keys.capacity() * size_of::<Option<Key>>() + texts.sum::<usize>();
        words + keys + self.texts.capacity() + 4 * self.text_starts.capacity()
    }

    pub(crate) fn text_count(&self) -> usize {
        self.text_starts.len().saturating_sub(1)
    }

    /// The text with this id; empty if there is none.
    pub(crate) fn text(&self, id: usize) -> &str {
        match self.text_starts.get(id..) {
            Some(&[start, end, ..]) => &self.texts[start as usize..end as usize],
            _ => "",
        }
    }

    /// The word with this id.
    pub(crate) fn word(&self, id: usize) -> Symbol {
        let nothing = const { Symbol::new("") };
        self.words.get(id).copied().unwrap_or(nothing)
    }

    /// The key with this id, which is not the one of kind *none*.
    pub(crate) fn key(&self, id: usize) -> &Key {
        static NOTHING: Key = Key::Int(0);
        self.keys
            .get(id)
            .and_then(Option::as_ref)
            .unwrap_or(&NOTHING)
    }

    /// Does `id` name a key?
    pub(crate) fn is_key(&self, id: i64) -> bool {
        let key = usize::try_from(id).ok().and_then(|id| self.keys.get(id));
        key.is_some_and(Option::is_some)
    }

    /// Reads the dictionaries.
    pub(crate) fn read(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        self.read_words(columns)?;
        self.read_texts(columns)?;
        self.read_keys(columns)
    }

    fn read_words(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let lengths = columns.get(column::WORD_LENGTH);
        let bytes = columns.get(column::WORD_BYTES);
        let mut starts = Vec::new();
        lengths.starts(bytes.len(), &mut starts)?;
        bytes.expect(starts[starts.len() - 1] as usize)?;
        let bytes_read = bytes.raw()?;
        self.words.clear();
        for pair in starts.windows(2) {
            let name = &bytes_read[pair[0] as usize..pair[1] as usize];
            let name = std::str::from_utf8(name).map_err(|_| bytes.error("is not UTF-8"))?;
            if name.len() > NAME_LENGTH_MAX {
                return Err(lengths.error("holds a name of more than 256 bytes"));
            }
            let word = Symbol::intern(name)
                .ok_or_else(|| lengths.error("brings too many names into this program"))?;
            self.words.push(word);
        }
        Ok(())
    }

    fn read_texts(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let bytes = columns.get(column::TEXT_BYTES);
        let lengths = columns.get(column::TEXT_LENGTH);
        lengths.starts(bytes.len(), &mut self.text_starts)?;
        bytes.expect(self.text_starts[self.text_starts.len() - 1] as usize)?;
        let text = std::str::from_utf8(bytes.raw()?).map_err(|_| bytes.error("is not UTF-8"))?;
        let mut starts = self.text_starts.iter();
        if !starts.all(|&start| text.is_char_boundary(start as usize)) {
            return Err(lengths.error("ends inside a character"));
        }
        self.texts.clear();
        self.texts.push_str(text);
        Ok(())
    }

    fn read_keys(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let kinds = columns.get(column::KEY_KIND);
        let numbers = columns.get(column::KEY_NUMBER);
        numbers.expect(kinds.len())?;
        let (mut kind, mut number) = (Vec::new(), Vec::new());
        kinds.ids(kind::KEY_NONE as usize + 1, &mut kind)?;
        numbers.integers(&mut number);
        self.keys.clear();
        self.none_key = None;
        for (id, (kind, number)) in kind.into_iter().zip(number).enumerate() {
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            let nothing = || numbers.error("points at nothing");
            let key = match kind as u8 {
                kind::KEY_INT => Some(Key::Int(number)),
                kind::KEY_WORD => {
                    let word = self.words.get(place).ok_or_else(nothing)?;
                    Some(Key::Word(*word))
                }
                kind::KEY_TEXT if place < self.text_count() => {
                    Some(Key::Text(self.text(place).into()))
                }
                kind::KEY_NONE if self.none_key.is_none() => {
                    self.none_key = Some(id as u32);
                    None
                }
                _ => return Err(nothing()),
            };
            self.keys.push(key);
        }
        Ok(())
    }
}
