//! Gathering the operations of a history, chunk by chunk.

use crate::model::{Action, CollectionEnd, Model, Taken, action, plain, shape};
use crate::object::{LinearObjects, NEVER, ObjectOperation, is_tuple};
use crate::proof_draft::RecordedPlaces;
use crate::values::NumberedValues;
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, FixedMap, Key, Op, OpType, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The operations of a history, gathered from its chunks: each row is an invocation, in order, and gets its action and its
/// completion when that arrives. Rows of operations that failed, and of reads of unknown result, stay empty and are dropped in
/// the end.
///
/// Operations are kept without their [`Op`]: 20 bytes each, 4 for its key where there are keys, and the values once
/// ([`NumberedValues`]). Only invocations that are open at the end of a chunk are kept whole, until their completion.
pub(crate) struct Gathering {
    model: Model,
    values: NumberedValues,
    rows: Vec<ObjectOperation>,
    /// By row: the number of its key.
    keys: Vec<u32>,
    key_numbers: KeyNumbers,
    /// Invocations of earlier chunks without a completion, by position: the row, and the operation.
    open: BTreeMap<u64, (u32, Op)>,
    /// Positions of the completions of operations of unknown outcome, by that of the invocation.
    indeterminate: FixedMap<u32, u32>,
    /// What a certificate must know of places, if one is wanted.
    places: Option<RecordedPlaces>,
    /// Are there successes without an invocation? Their rows are not in the order of calls.
    has_orphans: bool,
    /// The first row that the model does not have, and why.
    refused: Option<(u32, String)>,
    /// Why the history is too long.
    too_long: Option<String>,
}

/// What was gathered.
pub(crate) struct GatheredHistory {
    pub(crate) objects: LinearObjects,
    pub(crate) values: NumberedValues,
    /// Positions of the completions of operations of unknown outcome, by that of the invocation.
    pub(crate) indeterminate: FixedMap<u32, u32>,
    /// What a certificate must know of places, if one is wanted.
    pub(crate) places: Option<RecordedPlaces>,
}

/// Keys of a history, numbered in order of appearance; operations without a key have a number, too.
#[derive(Default)]
pub(crate) struct KeyNumbers {
    integers: FixedMap<i64, u32>,
    others: BTreeMap<Option<Key>, u32>,
    known: Vec<Option<Key>>,
}

impl KeyNumbers {
    /// The number of a key.
    pub(crate) fn number(&mut self, key: Option<&Key>) -> u32 {
        let next = self.known.len() as u32;
        let number = match key {
            Some(Key::Int(integer)) => *self.integers.entry(*integer).or_insert(next),
            other => *self.others.entry(other.cloned()).or_insert(next),
        };
        if number == next {
            self.known.push(key.cloned());
        }
        number
    }

    /// All keys, by number.
    pub(crate) fn into_known(self) -> Vec<Option<Key>> {
        self.known
    }
}

/// A row without an operation: no call has this position.
const EMPTY: ObjectOperation = ObjectOperation {
    action: Action::Read(0),
    call: NEVER,
    ret: NEVER,
};
/// Positions that rows can have.
const POSITIONS_MAX: u64 = NEVER as u64 - 1;

impl Gathering {
    /// `certify`: is a certificate wanted?
    pub(crate) fn new(model: Model, certify: bool) -> Gathering {
        Gathering {
            model,
            values: NumberedValues::new(model),
            rows: Vec::new(),
            keys: Vec::new(),
            key_numbers: KeyNumbers::default(),
            open: BTreeMap::new(),
            indeterminate: FixedMap::default(),
            places: certify.then(RecordedPlaces::default),
            has_orphans: false,
            refused: None,
            too_long: None,
        }
    }

    /// Invocations so far.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds the operations of the next chunk. Breaks at more operations than there can be.
    pub(crate) fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        let end = chunk.first_position() + chunk.len() as u64;
        if end > POSITIONS_MAX {
            self.too_long = Some(format!(
                "more than {POSITIONS_MAX} events, which is what a search can have"
            ));
            return ControlFlow::Break(());
        }
        GatheringPass {
            key_numbers: vec![NEVER; chunk.key_count()],
            rows: vec![NEVER; chunk.len()],
            gathering: self,
            chunk,
        }
        .run();
        ControlFlow::Continue(())
    }

    /// Sets the action of a row from its operation, which did not fail.
    fn set(
        &mut self,
        (row, call): (u32, u64),
        invocation: &Op,
        completion: Option<&Op>,
        end: Option<u64>,
    ) {
        let index = invocation.index;
        let shape = if is_tuple(invocation) {
            Err(format!(
                "op {index}: its value looks like a tuple [key value]: read the history as keyed"
            ))
        } else {
            shape(self.model, invocation, completion)
        };
        match shape {
            Ok(Some(shape)) => {
                let action = action(&shape, &mut self.values);
                let is_certain = completion.is_some_and(Op::is_ok);
                self.fill(row, call, action, end, is_certain);
            }
            Ok(None) => {}
            Err(reason) => {
                if self.refused.as_ref().is_none_or(|(first, _)| row < *first) {
                    self.refused = Some((row, reason));
                }
            }
        }
    }

    /// Fills a row; `call` and `end` are the positions of its invocation and completion.
    fn fill(&mut self, row: u32, call: u64, action: Action, end: Option<u64>, is_certain: bool) {
        let (call, end) = (call as u32, end.map(|end| end as u32));
        let ret = end.filter(|_| is_certain).unwrap_or(NEVER);
        debug_assert!(call <= ret, "it ends after its call");
        self.rows[row as usize] = ObjectOperation { action, call, ret };
        if let Some(end) = end.filter(|_| !is_certain) {
            self.indeterminate.insert(call, end);
        }
    }

    /// All objects. The error is the reason why they cannot be checked.
    pub(crate) fn finish(mut self) -> Result<GatheredHistory, String> {
        if let Some(reason) = self.too_long {
            return Err(reason);
        }
        for (position, (row, op)) in std::mem::take(&mut self.open) {
            self.set((row, position), &op, None, None);
        }
        if let Some((_, reason)) = self.refused {
            return Err(reason);
        }
        let objects = LinearObjects::new(
            self.rows,
            &self.keys,
            self.key_numbers.known,
            self.values.len(),
            self.has_orphans,
        )?;
        let mut places = self.places;
        if let Some(places) = &mut places {
            places.end();
        }
        Ok(GatheredHistory {
            objects,
            values: self.values,
            indeterminate: self.indeterminate,
            places,
        })
    }
}

/// One pass over a chunk.
struct GatheringPass<'a> {
    gathering: &'a mut Gathering,
    chunk: &'a Chunk,
    /// By key id of the chunk: the key's number, [`NEVER`] before its first use.
    key_numbers: Vec<u32>,
    /// By place in the chunk: the row of an invocation without completion so far.
    rows: Vec<u32>,
}

impl GatheringPass<'_> {
    fn run(&mut self) {
        let chunk = self.chunk;
        let processes = chunk.processes().iter();
        let clients: Vec<_> = processes.map(|one| one.is_client()).collect();
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (&kind, &process)) in kinds.enumerate() {
            if !clients[process as usize] {
                continue;
            }
            if kind == OpType::Invoke {
                self.rows[place] = self.add(place);
            } else {
                self.complete(place, kind);
            }
        }
        for (place, &row) in self.rows.iter().enumerate() {
            if row != NEVER {
                let position = chunk.first_position() + place as u64;
                let open = (row, chunk.op(place));
                self.gathering.open.insert(position, open);
            }
        }
    }

    /// Adds a row for the operation at `place`, which is empty until its completion.
    fn add(&mut self, place: usize) -> u32 {
        let key = self.key(place);
        let gathering = &mut *self.gathering;
        let row = gathering.rows.len() as u32;
        gathering.rows.push(EMPTY);
        // Histories without keys have no column of keys.
        if key != 0 && gathering.keys.is_empty() {
            gathering.keys.resize(row as usize, 0);
        }
        if key != 0 || !gathering.keys.is_empty() {
            gathering.keys.push(key);
        }
        row
    }

    /// The number of the key of the operation at `place`.
    fn key(&mut self, place: usize) -> u32 {
        let numbers = &mut self.gathering.key_numbers;
        let Some(id) = self.chunk.key_id(place) else {
            return numbers.number(None);
        };
        let known = self.key_numbers[id as usize];
        if known != NEVER {
            return known;
        }
        let number = numbers.number(Some(self.chunk.key(id)));
        self.key_numbers[id as usize] = number;
        number
    }

    /// Adds the removals of a drain, a client's repeated `dequeue`: they are concurrent with one another, so the order of the
    /// elements within the drain is not checked. False if this is no drain of the model's.
    fn drain(&mut self, place: usize, kind: OpType, position: u64) -> bool {
        let model = self.gathering.model;
        if !matches!(model, Model::FifoQueue | Model::Bag) || self.chunk.f(place) != "drain" {
            return false;
        }
        let op = self.chunk.op(place);
        let Value::List(elements) = plain(&op.value) else {
            return false;
        };
        if kind != OpType::Ok {
            return false;
        }
        let end = self.chunk.first_position() + place as u64;
        if let Some(places) = &mut self.gathering.places {
            places.drains.push(position as u32);
        }
        for element in elements.iter() {
            let row = self.add(place);
            let element = self.gathering.values.intern(element);
            let action = Action::Take(CollectionEnd::Front, Taken::Element(element));
            self.gathering.fill(row, position, action, Some(end), true);
        }
        // Their rows come after those of operations that were invoked later.
        self.gathering.has_orphans = true;
        true
    }

    /// Completes an operation; a success without invocation may have begun at any time before.
    fn complete(&mut self, place: usize, kind: OpType) {
        let first = self.chunk.first_position();
        let end = first + place as u64;
        let Some(position) = self.chunk.invocation(place) else {
            if kind == OpType::Ok {
                self.gathering.has_orphans = true;
                if let Some(places) = &mut self.gathering.places {
                    places.orphans.push(end as u32);
                }
                let row = self.add(place);
                let op = self.chunk.op(place);
                self.gathering.set((row, 0), &op, Some(&op), Some(end));
            }
            return;
        };
        if let Some(local) = position.checked_sub(first) {
            let local = local as usize;
            let row = std::mem::replace(&mut self.rows[local], NEVER);
            if row == NEVER || kind == OpType::Fail || self.drain(place, kind, position) {
                return;
            }
            if kind == OpType::Ok
                && let Some(action) = self.quick(local, place)
            {
                self.gathering.fill(row, position, action, Some(end), true);
                return;
            }
            let (invocation, completion) = (self.chunk.op(local), self.chunk.op(place));
            let at = (row, position);
            self.gathering
                .set(at, &invocation, Some(&completion), Some(end));
        } else if let Some((row, invocation)) = self.gathering.open.remove(&position)
            && kind != OpType::Fail
            && !self.drain(place, kind, position)
        {
            let completion = self.chunk.op(place);
            let at = (row, position);
            self.gathering
                .set(at, &invocation, Some(&completion), Some(end));
        }
    }

    /// The action of a successful operation on a register with integers, without building its [`Op`]; the general way
    /// ([`Gathering::set`]) takes several times as long.
    fn quick(&mut self, invocation: usize, completion: usize) -> Option<Action> {
        let model = self.gathering.model;
        if !matches!(model, Model::Register | Model::CasRegister) {
            return None;
        }
        let values = &mut self.gathering.values;
        let argument = self.chunk.value(invocation);
        match self.chunk.f(invocation).as_str() {
            "read" => {
                if !matches!(argument, ValueView::Nil | ValueView::Int(_)) {
                    return None;
                }
                match self.chunk.value(completion) {
                    ValueView::Nil => Some(Action::Read(0)),
                    ValueView::Int(value) => Some(Action::Read(values.integer(value))),
                    _ => None,
                }
            }
            "write" => match argument {
                ValueView::Int(value) => Some(Action::Write(values.integer(value))),
                _ => None,
            },
            "cas" if model == Model::CasRegister => match argument {
                ValueView::Cas(from, to) => {
                    let from = values.integer(from);
                    Some(Action::Cas(from, values.integer(to)))
                }
                _ => None,
            },
            _ => None,
        }
    }
}
