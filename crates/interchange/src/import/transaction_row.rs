//! Fast path for transactions in their usual spelling.

use super::known::KnownLists;
use seatrial_history::FixedMap;
use seatrial_history::chunk::{self, OPERATION_BYTES_MAX, PartKey, TransactionPart, mop_tag};
use seatrial_history::{Extra, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};

/// A notation of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// JSON.
    Json,
    /// Extensible data notation.
    Edn,
}

/// One transaction of a client, as read; reused for the next.
///
/// An operation goes in one pass from bytes to columns if it is in its usual spelling: the members `index`, `time`, `type`,
/// `process`, `f` (`txn`) and `value`, in any order, integers for elements, at most one blank where blanks are allowed.
/// Every other spelling, and every error, is left to the general parser; the fast path accepts nothing that the general
/// parser reads differently.
pub(super) struct TransactionRow {
    pub(super) index: Option<u64>,
    time: i64,
    pub(super) kind: OpType,
    pub(super) client: u64,
    mops: Vec<RowMop>,
    /// Elements of lists that are not in the cache.
    integers: Vec<i64>,
    /// Number of elements of all lists that it read.
    elements: usize,
    names: KeyNames,
    /// Cached lists of integer keys.
    known: KnownLists,
    /// Cached lists of named keys, by the names' numbers.
    known_of_names: KnownLists,
}

/// Keys that are names, numbered.
#[derive(Default)]
struct KeyNames {
    keys: Vec<Key>,
    /// From a name's text to its number.
    by_text: FixedMap<Box<[u8]>, u32>,
}

/// Names in the table at most.
const NAMES_MAX: usize = 1_024;
/// Longest name, in bytes.
const NAME_LENGTH_MAX: usize = 64;

/// A key in a row.
#[derive(Clone, Copy)]
enum RowKey {
    Integer(i64),
    /// A name's number in [`KeyNames`].
    Name(u32),
}

/// Bytes of a micro-operation in a chunk at most, without the elements that it read.
const MOP_BYTES: usize = 64 + 2 * NAME_LENGTH_MAX;

/// A micro-operation.
#[derive(Clone, Copy)]
struct RowMop {
    tag: u8,
    key: RowKey,
    /// The value or element; of a read of a list, its length.
    argument: i64,
    list: ListPlace,
}

/// Where the elements of a read are.
#[derive(Clone, Copy)]
enum ListPlace {
    /// Not a read of a list.
    None,
    /// The first elements of the cached list with this number.
    Known(u32),
    /// In the row's integers, from this index.
    Own(usize),
}

/// The members of an operation.
mod member {
    pub(super) const INDEX: u8 = 1;
    pub(super) const TIME: u8 = 2;
    pub(super) const TYPE: u8 = 4;
    pub(super) const PROCESS: u8 = 8;
    pub(super) const F: u8 = 16;
    pub(super) const VALUE: u8 = 32;
    /// Required members.
    pub(super) const NEEDED: u8 = TYPE | PROCESS | F | VALUE;
}

impl Default for TransactionRow {
    fn default() -> TransactionRow {
        TransactionRow {
            index: None,
            time: -1,
            kind: OpType::Invoke,
            client: 0,
            mops: Vec::new(),
            integers: Vec::new(),
            elements: 0,
            names: KeyNames::default(),
            known: KnownLists::default(),
            known_of_names: KnownLists::default(),
        }
    }
}

impl TransactionRow {
    /// Reads the operation that begins at `at` and returns the offset after it; `None` when it is not in its usual spelling or
    /// not complete.
    pub(super) fn read(&mut self, text: &[u8], at: usize, dialect: Dialect) -> Option<usize> {
        self.known.make_room();
        self.known_of_names.make_room();
        if self.names.keys.len() >= NAMES_MAX {
            self.names = KeyNames::default();
            self.known_of_names.forget();
        }
        let mut cursor = TextCursor { text, at };
        match dialect {
            Dialect::Json => cursor.operation::<false>(self)?,
            Dialect::Edn => cursor.operation::<true>(self)?,
        }
        Some(cursor.at)
    }

    /// Is it below every limit of chunks, so that it needs no measuring?
    pub(super) fn is_small(&self) -> bool {
        MOP_BYTES * self.mops.len() + 8 * self.elements < OPERATION_BYTES_MAX / 2
    }

    /// Its head for a chunk, when it has this index.
    pub(super) fn head(&self, index: u64, f: Symbol) -> chunk::TransactionHead {
        chunk::TransactionHead {
            index,
            time: self.time,
            kind: self.kind,
            client: self.client,
            f,
        }
    }

    /// Its micro-operations for a chunk.
    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = TransactionPart<'_>> {
        self.mops.iter().map(|mop| match mop.list {
            ListPlace::None => TransactionPart::Plain {
                tag: mop.tag,
                key: self.key(mop),
                argument: mop.argument,
            },
            ListPlace::Known(number) => TransactionPart::List {
                key: self.key(mop),
                elements: self.elements(mop),
                bond: Some(&self.known_of(mop.key).get(number).bond),
            },
            ListPlace::Own(_) => TransactionPart::List {
                key: self.key(mop),
                elements: self.elements(mop),
                bond: None,
            },
        })
    }

    fn key(&self, mop: &RowMop) -> PartKey<'_> {
        match mop.key {
            RowKey::Integer(number) => PartKey::Integer(number),
            RowKey::Name(number) => PartKey::Name(&self.names.keys[number as usize]),
        }
    }

    /// The lists of keys of this kind.
    fn known_of(&self, key: RowKey) -> &KnownLists {
        match key {
            RowKey::Integer(_) => &self.known,
            RowKey::Name(_) => &self.known_of_names,
        }
    }

    fn elements(&self, mop: &RowMop) -> &[i64] {
        let length = mop.argument as usize;
        match mop.list {
            ListPlace::None => &[],
            ListPlace::Known(number) => &self.known_of(mop.key).get(number).integers[..length],
            ListPlace::Own(start) => &self.integers[start..start + length],
        }
    }

    /// The row as an operation with this index.
    pub(super) fn op(&self, index: u64, f: Symbol) -> Op {
        let mops = self.mops.iter().map(|mop| {
            let key = match self.key(mop) {
                PartKey::Integer(number) => Key::Int(number),
                PartKey::Name(key) => key.clone(),
            };
            let observed = match mop.tag {
                mop_tag::APPEND => {
                    let element = mop.argument;
                    return Mop::Append { key, element };
                }
                mop_tag::WRITE => {
                    let value = mop.argument;
                    return Mop::Write { key, value };
                }
                mop_tag::READ_NIL => Observed::Nil,
                mop_tag::READ_REGISTER => Observed::Register(mop.argument),
                _ => Observed::List(self.elements(mop).into()),
            };
            Mop::Read { key, observed }
        });
        Op {
            index,
            time: self.time,
            kind: self.kind,
            process: Process::Client(self.client),
            f,
            value: Value::Txn(mops.collect()),
            extra: Extra::NONE,
        }
    }
}

impl KeyNames {
    /// The number of a key by its spelling; `key` parses a new one.
    fn number(&mut self, written: &[u8], key: impl FnOnce() -> Option<Key>) -> Option<RowKey> {
        if let Some(&number) = self.by_text.get(written) {
            return Some(RowKey::Name(number));
        }
        let number = self.keys.len() as u32;
        self.keys.push(key()?);
        self.by_text.insert(written.into(), number);
        Some(RowKey::Name(number))
    }
}

/// A cursor over a text. Each method consumes what it names, or returns `None` and leaves the row to the general parser.
struct TextCursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl TextCursor<'_> {
    /// The next byte; 0 at the end, which no spelling contains.
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn pass(&mut self, literal: &[u8]) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        rest.starts_with(literal).then(|| self.at += literal.len())
    }

    /// Consumes a name: its spelling in JSON or in EDN.
    #[inline]
    fn word<const EDN: bool>(&mut self, json: &[u8], edn: &[u8]) -> Option<()> {
        self.pass(if EDN { edn } else { json })
    }

    /// Consumes the separator of two elements or members.
    fn separator<const EDN: bool>(&mut self) -> Option<()> {
        self.at = separated::<EDN>(self.text, self.at)?;
        Some(())
    }

    /// Consumes the separator of a member's name and its value.
    fn colon<const EDN: bool>(&mut self) -> Option<()> {
        if EDN {
            return self.separator::<EDN>();
        }
        self.pass(b":")?;
        self.at += usize::from(self.byte() == b' ');
        Some(())
    }

    fn integer(&mut self) -> Option<i64> {
        let (integer, end) = integer(self.text, self.at)?;
        self.at = end;
        Some(integer)
    }

    fn natural(&mut self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    fn operation<const EDN: bool>(&mut self, row: &mut TransactionRow) -> Option<()> {
        if EDN && self.byte() == b'#' {
            self.pass(b"#jepsen.history.Op")?;
        }
        self.pass(b"{")?;
        (row.index, row.time) = (None, -1);
        let mut members = 0;
        loop {
            let member = self.member::<EDN>()?;
            if members & member != 0 {
                return None;
            }
            members |= member;
            match member {
                member::INDEX => row.index = Some(self.natural()?),
                member::TIME => row.time = self.integer()?,
                member::TYPE => row.kind = self.kind::<EDN>()?,
                member::PROCESS => row.client = self.natural()?,
                member::F => self.word::<EDN>(b"\"txn\"", b":txn")?,
                _ => self.value::<EDN>(row)?,
            }
            if self.byte() == b'}' {
                self.at += 1;
                return (members & member::NEEDED == member::NEEDED).then_some(());
            }
            self.separator::<EDN>()?;
        }
    }

    /// Consumes a member's name and the separator after it.
    fn member<const EDN: bool>(&mut self) -> Option<u8> {
        self.pass(if EDN { b":" } else { b"\"" })?;
        // Literals, so that they are compared without a call.
        let member = match self.byte() {
            b'i' => {
                self.word::<EDN>(b"index\"", b"index")?;
                member::INDEX
            }
            b't' if self.text.get(self.at + 1) == Some(&b'i') => {
                self.word::<EDN>(b"time\"", b"time")?;
                member::TIME
            }
            b't' => {
                self.word::<EDN>(b"type\"", b"type")?;
                member::TYPE
            }
            b'p' => {
                self.word::<EDN>(b"process\"", b"process")?;
                member::PROCESS
            }
            b'f' => {
                self.word::<EDN>(b"f\"", b"f")?;
                member::F
            }
            _ => {
                self.word::<EDN>(b"value\"", b"value")?;
                member::VALUE
            }
        };
        self.colon::<EDN>()?;
        Some(member)
    }

    fn kind<const EDN: bool>(&mut self) -> Option<OpType> {
        let first = self.text.get(self.at + 1)?;
        match first {
            b'o' => self.word::<EDN>(b"\"ok\"", b":ok")?,
            b'f' => self.word::<EDN>(b"\"fail\"", b":fail")?,
            _ if self.text.get(self.at + 3) == Some(&b'v') => {
                self.word::<EDN>(b"\"invoke\"", b":invoke")?;
                return Some(OpType::Invoke);
            }
            _ => {
                self.word::<EDN>(b"\"info\"", b":info")?;
                return Some(OpType::Info);
            }
        }
        Some(if *first == b'o' {
            OpType::Ok
        } else {
            OpType::Fail
        })
    }

    /// The micro-operations.
    fn value<const EDN: bool>(&mut self, row: &mut TransactionRow) -> Option<()> {
        row.mops.clear();
        row.integers.clear();
        row.elements = 0;
        self.pass(b"[")?;
        if self.byte() == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            let mop = self.mop::<EDN>(row)?;
            row.mops.push(mop);
            if self.byte() == b']' {
                self.at += 1;
                return Some(());
            }
            self.separator::<EDN>()?;
        }
    }

    fn mop<const EDN: bool>(&mut self, row: &mut TransactionRow) -> Option<RowMop> {
        self.pass(b"[")?;
        let mut tag = match self.text.get(self.at + 1)? {
            b'a' => {
                self.word::<EDN>(b"\"append\"", b":append")?;
                mop_tag::APPEND
            }
            b'r' => {
                self.word::<EDN>(b"\"r\"", b":r")?;
                mop_tag::READ_NIL
            }
            _ => {
                self.word::<EDN>(b"\"w\"", b":w")?;
                mop_tag::WRITE
            }
        };
        self.separator::<EDN>()?;
        let key = self.key::<EDN>(row)?;
        self.separator::<EDN>()?;
        let (mut argument, mut list) = (0, ListPlace::None);
        match self.byte() {
            b'n' if tag == mop_tag::READ_NIL => self.word::<EDN>(b"null", b"nil")?,
            b'[' if tag == mop_tag::READ_NIL => {
                tag = mop_tag::READ_PREFIX;
                (argument, list) = self.list::<EDN>(key, row)?;
                row.elements += argument as usize;
            }
            _ => {
                if tag == mop_tag::READ_NIL {
                    tag = mop_tag::READ_REGISTER;
                }
                argument = self.integer()?;
            }
        }
        self.pass(b"]")?;
        Some(RowMop {
            tag,
            key,
            argument,
            list,
        })
    }

    /// A key: an integer, a text without escapes, or a keyword of EDN.
    #[inline]
    fn key<const EDN: bool>(&mut self, row: &mut TransactionRow) -> Option<RowKey> {
        match self.byte() {
            b'"' => self.text_key(row),
            b':' if EDN => self.keyword_key(row),
            _ => Some(RowKey::Integer(self.integer()?)),
        }
    }

    fn text_key(&mut self, row: &mut TransactionRow) -> Option<RowKey> {
        let rest = &self.text[self.at + 1..];
        let rest = &rest[..rest.len().min(NAME_LENGTH_MAX + 1)];
        let length = rest
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\')?;
        let name = str::from_utf8(&rest[..length]).ok()?;
        if rest[length] != b'"' {
            return None;
        }
        let written = &self.text[self.at..=self.at + length];
        self.at += length + 2;
        row.names.number(written, || Some(Key::Text(name.into())))
    }

    fn keyword_key(&mut self, row: &mut TransactionRow) -> Option<RowKey> {
        let rest = &self.text[self.at + 1..];
        let inside = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let length = rest.iter().take_while(inside).count();
        let is_whole = matches!(rest.get(length), Some(b' ' | b','));
        if length == 0 || length > NAME_LENGTH_MAX || !is_whole {
            return None;
        }
        let name = str::from_utf8(&rest[..length]).ok()?;
        let written = &self.text[self.at..=self.at + length];
        self.at += length + 1;
        let key = || Symbol::intern(name).map(Key::Word);
        row.names.number(written, key)
    }

    /// A list that was read from this key: its length and place.
    fn list<const EDN: bool>(
        &mut self,
        key: RowKey,
        row: &mut TransactionRow,
    ) -> Option<(i64, ListPlace)> {
        self.at += 1;
        let start = row.integers.len();
        if self.byte() == b']' {
            self.at += 1;
            return Some((0, ListPlace::Own(start)));
        }
        let rest = &self.text[self.at..];
        let (lists, key) = match key {
            RowKey::Integer(key) => (&mut row.known, key),
            RowKey::Name(number) => (&mut row.known_of_names, i64::from(number)),
        };
        let number = lists.number(key);
        let known = lists.list(number, rest, integer, separated::<EDN>);
        if let Some((count, length)) = known {
            self.at += length + 1;
            return Some((count as i64, ListPlace::Known(number)));
        }
        loop {
            let integer = self.integer()?;
            row.integers.push(integer);
            if self.byte() == b']' {
                self.at += 1;
                let length = row.integers.len() - start;
                return Some((length as i64, ListPlace::Own(start)));
            }
            self.separator::<EDN>()?;
        }
    }
}

/// Digits of integers on the fast path; longer ones may not fit 64 bits.
const DIGITS_MAX: usize = 18;

/// The integer at `at` and its end. The caller checks the byte after it.
#[inline]
pub(super) fn integer(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let rest = text.get(at..)?;
    let is_negative = rest.first() == Some(&b'-');
    let rest = &rest[usize::from(is_negative)..];
    let (integer, length) = match rest.first_chunk::<8>() {
        Some(&first) => match eight_digits(u64::from_le_bytes(first)) {
            (integer, 8) => digits(rest, integer, 8)?,
            few => few,
        },
        None => digits(rest, 0, 0)?,
    };
    if length == 0 {
        return None;
    }
    let integer = if is_negative { -integer } else { integer };
    Some((integer, at + usize::from(is_negative) + length))
}

/// The integer of the leading digits of eight bytes, the first byte lowest, and their number. All bytes are examined at once:
/// a branch per digit would be mispredicted, because lengths of numbers vary.
#[inline]
fn eight_digits(word: u64) -> (i64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    // A digit's upper half is 3, and still is when 6 is added. A carry out of a byte past 0xf9 reaches later bytes only.
    let is_other = (word & HIGH ^ ZEROS) | (word.wrapping_add(SIXES) & HIGH ^ ZEROS);
    let length = is_other.trailing_zeros() as usize / 8;
    if length == 0 {
        return (0, 0);
    }
    // Leading zeros up to eight digits; then neighbours are combined: pairs, fours, all.
    let digits = (word ^ ZEROS) << (64 - 8 * length);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let upper = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let lower = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    ((upper.wrapping_add(lower) >> 32).cast_signed(), length)
}

/// The integer whose first digits were read, and how many there are; `None` when there are too many.
fn digits(rest: &[u8], first: i64, read: usize) -> Option<(i64, usize)> {
    let (mut integer, mut length) = (first, read);
    while let Some(&digit) = rest.get(length)
        && let digit = digit.wrapping_sub(b'0')
        && digit < 10
    {
        if length == DIGITS_MAX {
            return None;
        }
        integer = integer * 10 + i64::from(digit);
        length += 1;
    }
    Some((integer, length))
}

/// The start of the element after a separator at `at`: after a comma and at most one blank in JSON, after any blanks and
/// commas in EDN.
fn separated<const EDN: bool>(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    if EDN {
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b','));
        let length = blanks.count();
        return (length > 0).then_some(at + length);
    }
    match rest {
        [b',', b' ', ..] => Some(at + 2),
        [b',', ..] => Some(at + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
