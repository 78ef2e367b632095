//! Transactions and their micro-operations in few bytes.

use seatrial_history::OpType;
use seatrial_history::leb128::{put, take, unzigzag, zigzag};
use std::ops::Deref;

/// One transaction as the history records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedTransaction {
    /// The index of its completion, or of its invocation if it has no completion.
    pub(super) index: u64,
    /// Its place in a certificate.
    pub(super) place: u32,
    /// Position of its completion, if it has one.
    pub(super) ended: Option<u32>,
    /// The number of its process.
    pub(super) session: u32,
    pub(super) outcome: OpType,
    /// Was its invocation recorded?
    pub(super) is_invoked: bool,
}

impl RecordedTransaction {
    /// Position of its invocation, if that was recorded.
    pub(super) fn begun(&self) -> Option<u32> {
        self.is_invoked.then_some(self.place)
    }

    pub(super) fn is_ok(&self) -> bool {
        self.outcome == OpType::Ok
    }

    pub(super) fn is_fail(&self) -> bool {
        self.outcome == OpType::Fail
    }

    /// Had it ended before the other began, in real time?
    pub(super) fn is_over_before(&self, other: &RecordedTransaction) -> bool {
        let times = self.ended.zip(other.begun());
        self.is_ok() && times.is_some_and(|(ended, begun)| ended < begun)
    }

    /// Did its process run the other one later?
    pub(super) fn is_run_before(&self, other: &RecordedTransaction) -> bool {
        self.is_ok() && self.session == other.session && self.place < other.place
    }

    /// The index that it has if operations are numbered by position.
    fn usual_index(&self) -> u64 {
        u64::from(self.ended.unwrap_or(self.place))
    }
}

/// The kind of a micro-operation, and what its value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    /// Appended an element.
    Append,
    /// Wrote a value.
    Write,
    /// Read an empty list or the initial state of a register.
    ReadNothing,
    /// Read a value.
    ReadValue,
    /// Read a prefix of the longest list of the key; the value is its length.
    ReadPrefix,
    /// Read another list; the value is its number.
    ReadOther,
}

impl AccessKind {
    const ALL: [AccessKind; 6] = [
        AccessKind::Append,
        AccessKind::Write,
        AccessKind::ReadNothing,
        AccessKind::ReadValue,
        AccessKind::ReadPrefix,
        AccessKind::ReadOther,
    ];
}

/// One micro-operation. Of a transaction that did not succeed only the writes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MicroAccess {
    pub(super) value: i64,
    pub(super) key: u32,
    pub(super) kind: AccessKind,
}

/// The state of a register: none at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterState(pub(super) Option<i64>);

impl MicroAccess {
    const EMPTY: MicroAccess = MicroAccess {
        value: 0,
        key: 0,
        kind: AccessKind::ReadNothing,
    };

    /// The element that it appended.
    pub(super) fn appended(&self) -> Option<i64> {
        (self.kind == AccessKind::Append).then_some(self.value)
    }

    /// The value that it wrote to a register.
    pub(super) fn written(&self) -> Option<i64> {
        (self.kind == AccessKind::Write).then_some(self.value)
    }

    /// The state that it read of a register.
    pub(super) fn read(&self) -> Option<RegisterState> {
        match self.kind {
            AccessKind::ReadNothing => Some(RegisterState(None)),
            AccessKind::ReadValue => Some(RegisterState(Some(self.value))),
            _ => None,
        }
    }
}

/// The micro-operations of one transaction, unpacked; up to [`FEW`] of them without an allocation.
#[derive(Clone, Debug)]
pub(super) struct TransactionAccesses {
    few: [MicroAccess; FEW],
    length: usize,
    /// All of them if they are more than [`FEW`], otherwise empty.
    many: Vec<MicroAccess>,
}

const FEW: usize = 8;

impl Deref for TransactionAccesses {
    type Target = [MicroAccess];

    fn deref(&self) -> &[MicroAccess] {
        if self.length <= FEW {
            &self.few[..self.length]
        } else {
            &self.many
        }
    }
}

impl TransactionAccesses {
    fn new() -> TransactionAccesses {
        TransactionAccesses {
            few: [MicroAccess::EMPTY; FEW],
            length: 0,
            many: Vec::new(),
        }
    }

    fn push(&mut self, event: MicroAccess) {
        if self.length == FEW {
            self.many.extend_from_slice(&self.few);
        }
        match self.few.get_mut(self.length) {
            Some(place) => *place = event,
            None => self.many.push(event),
        }
        self.length += 1;
    }
}

/// All transactions in the order of their places, each packed with its micro-operations when it ends.
///
/// A record consists of variable-length numbers (LEB128, 7 bits a byte): outcome and number of micro-operations; the
/// distance from its place to its end; its session; for each micro-operation the key, relative to the number of keys known
/// when its block of transactions began, with the kind; and the value. Transactions close together access keys close
/// together, and elements and lengths are small: 3 to 4 bytes a micro-operation on lists, 5 to 8 on registers.
///
/// Besides the records it takes 9 bytes a transaction for its place and the offset of its record, 1.5 bits for each
/// position of the history to find a transaction by its place, and 8 bytes a transaction if indices are not positions. A
/// transaction is unpacked each time that it is read, in some nanoseconds a micro-operation.
#[derive(Default)]
pub(super) struct PackedRecords {
    places: Vec<u32>,
    /// The offset of the record in `bytes`: the lower 32 bits, and the upper 8; [`OPEN`] until it has one.
    starts: Vec<u32>,
    upper: Vec<u8>,
    bytes: Vec<u8>,
    /// By block: the number of keys that were known when its first transaction began.
    bases: Vec<u32>,
    /// By transaction: its index; empty while each index is the position of the operation.
    indices: Vec<u64>,
    /// A bit for each position, set where a transaction has its place; and by word the number of bits set before it.
    words: Vec<u64>,
    ranks: Vec<u32>,
}

/// Number of transactions in a block.
const BLOCK: usize = 256;

/// The offset of transactions without a record; no history is so long.
const OPEN: u64 = (1 << 40) - 1;

impl PackedRecords {
    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds a transaction at this place, which is after all others, when `key_count` keys are known. Returns its number.
    pub(super) fn begin(&mut self, place: u32, key_count: usize) -> u32 {
        let number = self.places.len();
        assert!(
            self.places.last().is_none_or(|&last| last < place),
            "places go up"
        );
        if number.is_multiple_of(BLOCK) {
            self.bases.push(key_count as u32);
        }
        self.places.push(place);
        self.starts.push(OPEN as u32);
        self.upper.push((OPEN >> 32) as u8);
        if !self.indices.is_empty() {
            self.indices.push(0);
        }
        let word = place as usize / 64;
        while self.words.len() <= word {
            self.words.push(0);
            self.ranks.push(number as u32);
        }
        self.words[word] |= 1 << (place % 64);
        assert_eq!(self.starts.len(), self.places.len());
        assert_eq!(self.words.len(), self.ranks.len());
        number as u32
    }

    /// Packs a transaction that ended or never will. Its place must be the one with which it began.
    pub(super) fn close(&mut self, number: u32, one: &RecordedTransaction, events: &[MicroAccess]) {
        assert_eq!(self.start(number), None, "it ends once");
        assert_eq!(self.places[number as usize], one.place, "it began there");
        if one.index != one.usual_index() && self.indices.is_empty() {
            let all = (0..self.len() as u32).map(|number| match self.start(number) {
                None => 0,
                Some(_) => self.one(number).index,
            });
            self.indices = all.collect();
        }
        if let Some(index) = self.indices.get_mut(number as usize) {
            *index = one.index;
        }
        let start = self.bytes.len() as u64;
        self.starts[number as usize] = start as u32;
        self.upper[number as usize] = (start >> 32) as u8;
        let flags = u64::from(one.ended.is_some()) << 3
            | u64::from(one.is_invoked) << 2
            | one.outcome as u64;
        put(&mut self.bytes, (events.len() as u64) << 4 | flags);
        if let Some(ended) = one.ended {
            put(&mut self.bytes, u64::from(ended - one.place));
        }
        put(&mut self.bytes, u64::from(one.session));
        let base = self.base(number);
        for event in events {
            let key = zigzag(i64::from(event.key) - base);
            put(&mut self.bytes, key << 3 | event.kind as u64);
            match event.kind {
                AccessKind::ReadNothing => {}
                AccessKind::Append | AccessKind::Write | AccessKind::ReadValue => {
                    put(&mut self.bytes, zigzag(event.value));
                }
                AccessKind::ReadPrefix | AccessKind::ReadOther => {
                    put(&mut self.bytes, event.value.cast_unsigned());
                }
            }
        }
    }

    /// The transaction with this number, which must have been closed.
    pub(super) fn one(&self, number: u32) -> RecordedTransaction {
        self.head(number).0
    }

    /// The same with its micro-operations.
    pub(super) fn get(&self, number: u32) -> (RecordedTransaction, TransactionAccesses) {
        let (one, count, mut at) = self.head(number);
        let base = self.base(number);
        let mut events = TransactionAccesses::new();
        for _ in 0..count {
            let code = take(&self.bytes, &mut at);
            let kind = AccessKind::ALL[(code & 7) as usize];
            let value = match kind {
                AccessKind::ReadNothing => 0,
                AccessKind::Append | AccessKind::Write | AccessKind::ReadValue => {
                    unzigzag(take(&self.bytes, &mut at))
                }
                AccessKind::ReadPrefix | AccessKind::ReadOther => {
                    take(&self.bytes, &mut at).cast_signed()
                }
            };
            let key = (base + unzigzag(code >> 3)) as u32;
            events.push(MicroAccess { value, key, kind });
        }
        assert_eq!(events.length as u64, count);
        (one, events)
    }

    /// The number of the transaction at this place.
    pub(super) fn at(&self, place: u64) -> Option<u32> {
        let word = usize::try_from(place / 64).ok()?;
        let (bits, bit) = (*self.words.get(word)?, 1 << (place % 64));
        let before = (bits & (bit - 1)).count_ones();
        (bits & bit != 0).then(|| self.ranks[word] + before)
    }

    /// A transaction, the number of its micro-operations, and their offset.
    #[inline]
    fn head(&self, number: u32) -> (RecordedTransaction, u64, usize) {
        let start = self.start(number);
        let mut at = start.expect("every transaction is closed before it is looked at");
        let place = self.places[number as usize];
        let flags = take(&self.bytes, &mut at);
        let has_ended = flags & 8 != 0;
        let ended = has_ended.then(|| place + take(&self.bytes, &mut at) as u32);
        let mut one = RecordedTransaction {
            index: 0,
            place,
            ended,
            session: take(&self.bytes, &mut at) as u32,
            outcome: OUTCOMES[(flags & 3) as usize],
            is_invoked: flags & 4 != 0,
        };
        let known = self.indices.get(number as usize).copied();
        one.index = known.unwrap_or_else(|| one.usual_index());
        (one, flags >> 4, at)
    }

    fn start(&self, number: u32) -> Option<usize> {
        let at = number as usize;
        let start = u64::from(self.upper[at]) << 32 | u64::from(self.starts[at]);
        (start != OPEN).then_some(start as usize)
    }

    fn base(&self, number: u32) -> i64 {
        i64::from(self.bases[number as usize / BLOCK])
    }
}

/// Outcomes by the lowest two bits of a record.
const OUTCOMES: [OpType; 4] = {
    let mut all = [OpType::Invoke; 4];
    all[OpType::Ok as usize] = OpType::Ok;
    all[OpType::Fail as usize] = OpType::Fail;
    all[OpType::Info as usize] = OpType::Info;
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn any_event(rng: &mut Rng) -> MicroAccess {
        let kind = *rng.pick(&AccessKind::ALL);
        let value = match kind {
            AccessKind::ReadNothing => 0,
            AccessKind::ReadPrefix | AccessKind::ReadOther => rng.below(1 << 20).cast_signed(),
            _ => *rng.pick(&[0, 1, -1, 63, 64, 200, -70_000, i64::MAX, i64::MIN]),
        };
        let key = *rng.pick(&[0, 3, 90, 1_000, 70_000, u32::MAX - 1]);
        MicroAccess { value, key, kind }
    }

    #[test]
    fn packed_integers_are_unpacked() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let is_numbered = rng.chance(0.5);
            let mut records = PackedRecords::default();
            let mut model: Vec<(RecordedTransaction, Vec<MicroAccess>)> = Vec::new();
            let mut open: Vec<usize> = Vec::new();
            let mut place = 0;
            let count = 1 + rng.index(900);
            while model.len() < count || !open.is_empty() {
                if model.len() < count && rng.chance(0.5) {
                    place += 1 + *rng.pick(&[0, 0, 1, 70, 10_000]);
                    let number = records.begin(place, rng.index(100));
                    assert_eq!(number as usize, model.len());
                    open.push(model.len());
                    let one = RecordedTransaction {
                        index: u64::from(place),
                        place,
                        ended: None,
                        session: rng.below(20_000) as u32,
                        outcome: OpType::Info,
                        is_invoked: rng.chance(0.9),
                    };
                    model.push((one, Vec::new()));
                } else if !open.is_empty() {
                    let number = open.swap_remove(rng.index(open.len()));
                    let (one, events) = &mut model[number];
                    one.outcome = *rng.pick(&[OpType::Ok, OpType::Fail, OpType::Info]);
                    if rng.chance(0.8) {
                        let ended = place + rng.below(1_000) as u32;
                        one.ended = Some(ended);
                        one.index = u64::from(ended);
                    }
                    if is_numbered && rng.chance(0.01) {
                        one.index = rng.below(u64::MAX);
                    }
                    *events = (0..rng.below(20)).map(|_| any_event(&mut rng)).collect();
                    records.close(number as u32, one, events);
                }
            }
            assert_eq!(records.len(), model.len());
            for (number, (one, events)) in (0..).zip(&model) {
                let (unpacked, found) = records.get(number);
                assert_eq!((&unpacked, &*found), (one, &events[..]), "seed {seed}");
                assert_eq!(records.one(number), *one);
                assert_eq!(records.at(u64::from(one.place)), Some(number));
                let is_place = model.iter().any(|(other, _)| other.place == one.place + 1);
                assert_eq!(records.at(u64::from(one.place) + 1).is_some(), is_place);
            }
            assert_eq!(records.at(1 << 40), None);
        }
    }
}
