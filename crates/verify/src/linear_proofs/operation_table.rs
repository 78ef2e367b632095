//! The operations of a history on data types in rows, against which linearizations and their refutations are replayed.

use crate::certificate::Fingerprint;
use crate::transaction_table::NameNumbers;
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, Key, OpType, Process, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// A value of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationValue {
    Nil,
    Int(i64),
    /// Any other value, by its number in the table.
    Other(u32),
}

/// What is known of the effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOutcome {
    /// It took effect once.
    Ok,
    /// It took effect once or never, at any time after its invocation.
    Unknown,
    /// It had no effect.
    Failed,
}

/// How a word of a row is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordTag {
    /// There is no value: a result that is not known.
    Absent,
    Nil,
    Int,
    Other,
}

/// No completion that is known: later than all positions.
pub(super) const NEVER: u32 = u32::MAX;

/// An operation, 32 bytes. A successful drain of several elements has a row for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationRow {
    /// Position of its invocation; of its completion if only that was recorded.
    pub(super) place: u32,
    /// Position of its successful completion, else [`NEVER`].
    end: u32,
    /// 0 without a key, else one more than its number.
    pub(super) key: u32,
    f: u8,
    pub(super) outcome: RowOutcome,
    tags: [WordTag; 2],
    words: [i64; 2],
}

impl OperationRow {
    /// The position from which on it may take effect. One whose invocation was not recorded may have begun at any time.
    pub(super) fn call(&self) -> u32 {
        if self.end == self.place {
            0
        } else {
            self.place
        }
    }

    /// The position until which it took effect.
    pub(super) fn ret(&self) -> u32 {
        self.end
    }

    /// Its argument: the value of its invocation, or of its successful completion if that is nil.
    pub(super) fn argument(&self) -> OperationValue {
        let completed = self.result().filter(|_| self.outcome == RowOutcome::Ok);
        match self.invoked() {
            OperationValue::Nil => completed.unwrap_or(OperationValue::Nil),
            argument => argument,
        }
    }

    /// The value of its invocation; of its completion if only that was recorded.
    pub(super) fn invoked(&self) -> OperationValue {
        self.value(0).unwrap_or(OperationValue::Nil)
    }

    /// Its result, if that is known; of a `cas` the value that it leads to.
    pub(super) fn result(&self) -> Option<OperationValue> {
        self.value(1)
    }

    fn value(&self, number: usize) -> Option<OperationValue> {
        let word = self.words[number];
        match self.tags[number] {
            WordTag::Absent => None,
            WordTag::Nil => Some(OperationValue::Nil),
            WordTag::Int => Some(OperationValue::Int(word)),
            WordTag::Other => Some(OperationValue::Other(word as u32)),
        }
    }

    fn set(&mut self, number: usize, value: Option<OperationValue>) {
        let (tag, word) = match value {
            None => (WordTag::Absent, 0),
            Some(OperationValue::Nil) => (WordTag::Nil, 0),
            Some(OperationValue::Int(integer)) => (WordTag::Int, integer),
            Some(OperationValue::Other(number)) => (WordTag::Other, i64::from(number)),
        };
        (self.tags[number], self.words[number]) = (tag, word);
    }
}

const _: () = assert!(size_of::<OperationRow>() == 32);

/// Whose rows transactions are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransactionUse {
    /// Of the other table.
    #[default]
    OtherTable,
    /// Of this one: they are operations of a data type.
    Operations,
}

/// All operations of clients that are no transactions, in the order of their places; the rows of a drain in the order of
/// their elements.
///
/// 32 bytes an operation; values that are no integers once, with their text.
#[derive(Default)]
pub(crate) struct OperationTable {
    rows: Vec<OperationRow>,
    /// The elements of drains after the first of each, until the end of the history.
    drained: Vec<OperationRow>,
    functions: Vec<String>,
    keys: NameNumbers,
    key_names: Vec<Key>,
    /// By text: its number among `others`.
    texts: BTreeMap<String, u32>,
    others: Vec<Value>,
    /// By number of another value: its place in the order of texts.
    ranks: Vec<u32>,
    /// By invocation of an operation on a lock: the number of its owner among `owner_names`.
    owners: Vec<(u32, u32)>,
    owner_names: Vec<String>,
    owner_numbers: BTreeMap<String, u32>,
    /// Is any operation a transaction? Then the table has none, unless it keeps them.
    has_transactions: bool,
    transactions: TransactionUse,
    has_operations: bool,
    is_ended: bool,
    refusal: Option<String>,
    /// The fingerprint of all operations so far.
    pub(crate) fingerprint: Fingerprint,
}

impl OperationTable {
    /// A table that also has the transactions of a history.
    pub(crate) fn keeping_transactions() -> OperationTable {
        OperationTable {
            transactions: TransactionUse::Operations,
            ..OperationTable::default()
        }
    }

    /// Has the history operations that are no transactions?
    pub(crate) fn is_used(&self) -> bool {
        self.has_operations
    }

    /// Reads the next chunk.
    pub(crate) fn take(&mut self, chunk: &Chunk) {
        self.fingerprint.events += chunk.len() as u64;
        if chunk.first_position() + chunk.len() as u64 >= u64::from(NEVER) {
            self.refuse("the history has more than 2^32 operations".into());
        }
        let mut keys = vec![0; chunk.key_count()];
        for place in 0..chunk.len() {
            if self.has_transactions {
                return;
            }
            if let Process::Client(client) = chunk.process(place) {
                self.operation(chunk, place, client, &mut keys);
            }
        }
    }

    /// Ends the history. The error is why there is no replay.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if self.has_transactions {
            return Err("the history has transactions".into());
        }
        if self.is_ended {
            return Ok(());
        }
        self.is_ended = true;
        self.rows.append(&mut self.drained);
        self.rows.sort_by_key(|row| (row.place, row.result()));
        self.ranks = vec![0; self.others.len()];
        for (rank, &number) in (0..).zip(self.texts.values()) {
            self.ranks[number as usize] = rank;
        }
        Ok(())
    }

    /// All rows.
    pub(super) fn rows(&self) -> &[OperationRow] {
        &self.rows
    }

    /// The numbers of the rows at this place: several of a drain, none of a place without an operation.
    pub(super) fn at(&self, place: u64) -> Range<usize> {
        let first = self
            .rows
            .partition_point(|row| u64::from(row.place) < place);
        let rest = self.rows[first..].iter();
        let count = rest.take_while(|row| u64::from(row.place) == place).count();
        first..first + count
    }

    /// The name of a row's function.
    pub(super) fn function(&self, row: &OperationRow) -> &str {
        &self.functions[usize::from(row.f)]
    }

    /// Number of keys, and the one of operations without any.
    pub(super) fn key_count(&self) -> usize {
        self.key_names.len() + 1
    }

    /// The number of the key with this name, as EDN writes it; 0 of no name.
    pub(super) fn key(&self, name: Option<&str>) -> Option<u32> {
        let Some(name) = name else {
            return Some(0);
        };
        let mut names = self.key_names.iter();
        let number = names.position(|key| key.to_string() == name)?;
        Some(number as u32 + 1)
    }

    /// " of key 3", or nothing.
    pub(super) fn of_key(&self, key: u32) -> String {
        let name = key.checked_sub(1).map(|key| &self.key_names[key as usize]);
        name.map_or(String::new(), |name| format!(" of key {name}"))
    }

    /// The value with this text, as EDN writes it, if an operation has it.
    pub(super) fn value_of(&self, text: &str) -> Option<OperationValue> {
        if let Some(&number) = self.texts.get(text) {
            return Some(OperationValue::Other(number));
        }
        let integer = text.parse().ok()?;
        Some(OperationValue::Int(integer))
    }

    /// A value in words.
    pub(super) fn text(&self, value: OperationValue) -> String {
        match value {
            OperationValue::Nil => "nil".into(),
            OperationValue::Int(integer) => integer.to_string(),
            OperationValue::Other(number) => self.others[number as usize].to_string(),
        }
    }

    /// A value as it was recorded.
    pub(super) fn value(&self, value: OperationValue) -> Value {
        match value {
            OperationValue::Nil => Value::Nil,
            OperationValue::Int(integer) => Value::Int(integer),
            OperationValue::Other(number) => self.others[number as usize].clone(),
        }
    }

    /// The owner of an operation on a lock: its process, or the client that its value names.
    pub(super) fn owner(&self, row: &OperationRow) -> Option<&str> {
        let found = self
            .owners
            .binary_search_by_key(&row.place, |owner| owner.0);
        let (_, number) = self.owners[found.ok()?];
        Some(&self.owner_names[number as usize])
    }

    /// The contents of a value that is a text.
    pub(super) fn as_text(&self, value: OperationValue) -> Option<&str> {
        match value {
            OperationValue::Other(number) => match &self.others[number as usize] {
                Value::Text(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The order of values in a priority queue: integers first, then all others by their texts.
    pub(super) fn priority(&self, value: OperationValue) -> (bool, i64) {
        match value {
            OperationValue::Nil => (false, i64::MIN),
            OperationValue::Int(integer) => (false, integer),
            OperationValue::Other(number) => (true, i64::from(self.ranks[number as usize])),
        }
    }

    fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }

    fn operation(&mut self, chunk: &Chunk, place: usize, client: u64, keys: &mut [u32]) {
        if let ValueView::Txn(_) = chunk.value(place)
            && self.transactions == TransactionUse::OtherTable
        {
            // The other table has these.
            self.has_transactions = true;
            (self.rows, self.drained) = (Vec::new(), Vec::new());
            return;
        }
        // A history that has transactions has the fingerprint of the other table.
        self.has_operations |= !matches!(chunk.value(place), ValueView::Txn(_));
        let position = (chunk.first_position() + place as u64) as u32;
        let kind = chunk.kinds()[place];
        self.fingerprint.mix(chunk.index(place) << 2 | kind as u64);
        self.fingerprint.mix(client);
        let f = self.function_number(chunk.f(place).as_str());
        let key = self.key_number(chunk, place, keys);
        let word = OperationWord::of(chunk, place);
        self.mix_value(&word);
        if self.refusal.is_some() {
            return;
        }
        match kind {
            OpType::Invoke => {
                let mut row = new_row(position, key, f);
                self.set_argument(&mut row, &word);
                self.rows.push(row);
                self.add_owner(&row, client, &word);
            }
            kind => {
                let count = self.rows.len();
                self.complete(chunk.invocation(place), position, (kind, key, f), &word);
                if let Some(&row) = self.rows.get(count) {
                    self.add_owner(&row, client, &word);
                }
            }
        }
    }

    /// A completion: of the operation that was invoked at this position, or of one whose invocation was not recorded.
    fn complete(
        &mut self,
        invocation: Option<u64>,
        position: u32,
        (kind, key, f): (OpType, u32, u8),
        word: &OperationWord,
    ) {
        let number = match invocation {
            Some(invocation) => self
                .rows
                .binary_search_by_key(&invocation, |row| u64::from(row.place))
                .ok(),
            None if kind == OpType::Ok => {
                let row = new_row(position, key, f);
                self.rows.push(row);
                Some(self.rows.len() - 1)
            }
            None => return,
        };
        let Some(number) = number else {
            return self.refuse(format!("the completion at {position} has no invocation"));
        };
        let mut row = self.rows[number];
        if let Some(client) = word.client()
            && let Ok(owner) = self
                .owners
                .binary_search_by_key(&row.place, |owner| owner.0)
        {
            self.owners[owner].1 = self.owner_number(client);
        }
        match kind {
            OpType::Fail => row.outcome = RowOutcome::Failed,
            OpType::Ok => {
                (row.outcome, row.end) = (RowOutcome::Ok, position);
                let is_orphan = invocation.is_none();
                if is_orphan || self.is_cas(row.f) && row.invoked() == OperationValue::Nil {
                    self.set_argument(&mut row, word);
                }
                if !self.is_cas(row.f) {
                    self.set_result(&mut row, word);
                }
            }
            _ => {}
        }
        self.rows[number] = row;
    }

    /// Notes the owner of an operation on a lock.
    fn add_owner(&mut self, row: &OperationRow, client: u64, word: &OperationWord) {
        let f = &self.functions[usize::from(row.f)];
        if matches!(f.as_str(), "acquire" | "release") {
            let name = word.client();
            let name = name.unwrap_or_else(|| format!("process {client}"));
            let number = self.owner_number(name);
            debug_assert!(
                self.owners
                    .last()
                    .is_none_or(|&(place, _)| place < row.place)
            );
            self.owners.push((row.place, number));
        }
    }

    fn owner_number(&mut self, name: String) -> u32 {
        let next = self.owner_names.len() as u32;
        let number = *self.owner_numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.owner_names.push(name);
        }
        number
    }

    fn is_cas(&self, f: u8) -> bool {
        self.functions[usize::from(f)] == "cas"
    }

    /// The argument; a `cas` has two.
    fn set_argument(&mut self, row: &mut OperationRow, word: &OperationWord) {
        if !self.is_cas(row.f) {
            let value = self.number(word);
            row.set(0, Some(value));
            return;
        }
        let both = match word {
            OperationWord::Pair(from, to) => {
                Some((OperationValue::Int(*from), OperationValue::Int(*to)))
            }
            OperationWord::Other(Value::List(items)) => match &items[..] {
                [from, to] => Some((self.intern(from), self.intern(to))),
                _ => None,
            },
            _ => None,
        };
        if let Some((from, to)) = both {
            row.set(0, Some(from));
            row.set(1, Some(to));
        } else {
            // Without a second value it is no compare-and-set of registers, see `LinearModel::effect`.
            let value = self.number(word);
            row.set(0, Some(value));
        }
    }

    /// The result. Each element of a drain has a row of its own.
    fn set_result(&mut self, row: &mut OperationRow, word: &OperationWord) {
        if self.functions[usize::from(row.f)] != "drain" {
            let value = self.number(word);
            row.set(1, Some(value));
            return;
        }
        let elements: Vec<OperationValue> = match word {
            OperationWord::Pair(one, other) => {
                vec![OperationValue::Int(*one), OperationValue::Int(*other)]
            }
            OperationWord::Other(Value::List(items)) => {
                items.iter().map(|item| self.intern(item)).collect()
            }
            _ => return self.refuse(format!("the drain at {} has no list", row.place)),
        };
        let Some((first, others)) = elements.split_first() else {
            // It took nothing, and says nothing: it may have ended before the collection was empty.
            row.outcome = RowOutcome::Failed;
            return;
        };
        row.set(1, Some(*first));
        for &element in others {
            let mut other = *row;
            other.set(1, Some(element));
            self.drained.push(other);
        }
    }

    fn number(&mut self, word: &OperationWord) -> OperationValue {
        match word {
            OperationWord::Nil => OperationValue::Nil,
            OperationWord::Int(integer) => OperationValue::Int(*integer),
            OperationWord::Pair(from, to) => self.intern(&Value::Cas(*from, *to)),
            OperationWord::Other(value) => self.intern(value),
        }
    }

    fn intern(&mut self, value: &Value) -> OperationValue {
        match value {
            Value::Nil => return OperationValue::Nil,
            Value::Int(integer) => return OperationValue::Int(*integer),
            _ => {}
        }
        let next = self.others.len() as u32;
        let number = *self.texts.entry(value.to_string()).or_insert(next);
        if number == next {
            self.others.push(value.clone());
        }
        OperationValue::Other(number)
    }

    fn function_number(&mut self, name: &str) -> u8 {
        let known = self.functions.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.fingerprint.mix_text(name);
            if self.functions.len() > usize::from(u8::MAX) {
                self.refuse("the history has more than 256 functions".into());
                return 0;
            }
            self.functions.push(name.to_owned());
            self.functions.len() - 1
        });
        self.fingerprint.mix(number as u64);
        number as u8
    }

    fn key_number(&mut self, chunk: &Chunk, place: usize, keys: &mut [u32]) -> u32 {
        let number = match chunk.key_id(place) {
            None => 0,
            Some(id) if keys[id as usize] > 0 => keys[id as usize],
            Some(id) => {
                let key = chunk.key(id);
                let (number, is_new) = self.keys.of(key);
                if is_new {
                    self.fingerprint.mix_name(key);
                    self.key_names.push(key.clone());
                }
                keys[id as usize] = number + 1;
                number + 1
            }
        };
        self.fingerprint.mix(u64::from(number));
        number
    }

    fn mix_value(&mut self, word: &OperationWord) {
        let fingerprint = &mut self.fingerprint;
        match word {
            OperationWord::Nil => fingerprint.mix(0),
            OperationWord::Int(integer) => {
                fingerprint.mix(1);
                fingerprint.mix(integer.cast_unsigned());
            }
            OperationWord::Pair(one, other) => {
                fingerprint.mix(2);
                fingerprint.mix(one.cast_unsigned());
                fingerprint.mix(other.cast_unsigned());
            }
            OperationWord::Other(value) => {
                fingerprint.mix(3);
                let mut text = String::new();
                write_plainly(value, &mut text);
                fingerprint.mix_text(&text);
            }
        }
    }
}

fn new_row(place: u32, key: u32, f: u8) -> OperationRow {
    OperationRow {
        place,
        end: NEVER,
        key,
        f,
        outcome: RowOutcome::Unknown,
        tags: [WordTag::Nil, WordTag::Absent],
        words: [0; 2],
    }
}

/// The value of a recorded operation, without its key.
enum OperationWord {
    Nil,
    Int(i64),
    /// A list of two integers.
    Pair(i64, i64),
    Other(Value),
}

impl OperationWord {
    /// The client that it names in a field.
    fn client(&self) -> Option<String> {
        let OperationWord::Other(value) = self else {
            return None;
        };
        let client = super::further_types::field(value, "client");
        client.map(|client| format!("client {client}"))
    }

    fn of(chunk: &Chunk, place: usize) -> OperationWord {
        match chunk.value(place) {
            ValueView::Nil => OperationWord::Nil,
            ValueView::Int(integer) => OperationWord::Int(integer),
            ValueView::Cas(from, to) => OperationWord::Pair(from, to),
            _ => {
                let value = match chunk.op(place).value {
                    Value::Keyed(_, value) => (*value).clone(),
                    value => value,
                };
                match &value {
                    Value::List(items) => match items[..] {
                        [Value::Int(one), Value::Int(other)] => OperationWord::Pair(one, other),
                        _ => OperationWord::Other(value),
                    },
                    _ => OperationWord::Other(value),
                }
            }
        }
    }
}

/// Writes a value such that it is the same after JSON, which has no words and no sets.
fn write_plainly(value: &Value, out: &mut String) {
    match value {
        Value::Word(word) => out.push_str(&Value::text(word.as_str()).to_string()),
        Value::List(items) | Value::Set(items) => {
            out.push('[');
            for item in items.iter() {
                write_plainly(item, out);
                out.push(' ');
            }
            out.push(']');
        }
        Value::Map(pairs) => {
            out.push('{');
            for (key, value) in pairs.iter() {
                write_plainly(key, out);
                out.push(' ');
                write_plainly(value, out);
                out.push(' ');
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}
