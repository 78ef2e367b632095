//! Judging registers and locks while they are recorded.

mod lane;
mod object;
mod story;

use super::explain::NONLINEARIZABLE;
use super::model::Model;
use super::{FINDINGS_MAX, Linearizable, RESULTS_MAX, entry};
use crate::closed::Closed;
use crate::online::{Fetch, Progress, Recall};
use crate::txn::Map;
use crate::{Checker as _, Finding, Validity, Verdict};
use lane::Cell;
use object::{Deed, Fate, Object};
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, Chunks, Fold, FoldError, Folder, History, Key, Op, OpType, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use story::Stuck;

/// The state of a judgement of registers or locks whose history is not at its end yet.
///
/// Each key is an object by itself. Its operations wait in a queue until it is known what became of those that began
/// before (an operation that failed must not be taken for one that did something); then they go through its lane, which keeps
/// all the configurations that it may be in: what the register may hold, and which of the operations under way may have taken
/// place. So a key costs what is under way on it, and what nobody knows the outcome of; a key that nobody names any more
/// is closed and forgotten.
///
/// What is found is definite: operations that begin later cannot take place before.
///
/// Its downside: where many compare-and-sets are under way on one key at a time, the configurations are many; past
/// [`lane::CONFIGURATIONS_MAX`] the object is left for the search that goes back where it must, in the end.
pub(crate) struct OnlineObjects {
    model: Model,
    objects: Vec<Object>,
    integers: Map<i64, u32>,
    others: BTreeMap<Option<Key>, u32>,
    closed: Closed,
    /// Invocations of earlier chunks without a completion: by position the object, and the place in its queue.
    open: Map<u64, (u32, u64)>,
    /// Values that are no integers, by their text.
    words: Words,
    position: u64,
    /// Pieces of 16,384 operations so far.
    pieces: u32,
    uncounted: usize,
    counts: Counts,
    failed: BTreeMap<Option<Key>, Stuck>,
    /// Keys that failed, of which those of the details.
    results: BTreeSet<Key>,
    keys_failed: u64,
    untold: Vec<Option<Key>>,
    /// Why it has to be judged once more in the end.
    again: Option<String>,
    /// Why it cannot be judged at all.
    refused: Option<String>,
}

/// Values that are no integers.
pub(super) struct Words {
    numbers: BTreeMap<String, u32>,
    known: Vec<Value>,
}

/// What has been let go.
#[derive(Default)]
struct Counts {
    /// Operations that took place or may have.
    operations: u64,
    unknown: u64,
    configurations: u64,
    /// Objects with an operation that did not fail.
    objects: u64,
    keyed: u64,
}

/// Operations of a piece of a history, by which idleness of keys is counted.
const PIECE_LENGTH: usize = 16_384;
/// A key that nobody named for so many pieces is closed.
const IDLE_PIECES: u32 = 8;
/// Distinct values that are no integers, at most.
const WORDS_MAX: usize = 1 << 20;

impl Words {
    fn new(model: Model) -> Words {
        let mut words = Words {
            numbers: BTreeMap::new(),
            known: Vec::new(),
        };
        if model == Model::Mutex {
            words.cell(&Value::text("free"));
            words.cell(&Value::text("held"));
        }
        words
    }

    /// The cell of a value; `None` when there are too many.
    fn cell(&mut self, value: &Value) -> Option<Cell> {
        match value {
            Value::Nil => Some(Cell::Nil),
            Value::Int(number) => Some(Cell::Int(*number)),
            other => {
                let text = other.to_string();
                if let Some(&known) = self.numbers.get(&text) {
                    return Some(Cell::Word(known));
                }
                let next = self.known.len() as u32;
                if self.known.len() >= WORDS_MAX {
                    return None;
                }
                self.numbers.insert(text, next);
                self.known.push(other.clone());
                Some(Cell::Word(next))
            }
        }
    }

    /// The value of a cell.
    fn value(&self, cell: Cell) -> Value {
        match cell {
            Cell::Nil => Value::Nil,
            Cell::Int(number) => Value::Int(number),
            Cell::Word(number) => self.known[number as usize].clone(),
        }
    }
}

impl OnlineObjects {
    /// The judgement of this data type; `None` when it takes the whole history: text that is appended to has too many states.
    pub(crate) fn new(model: Model) -> Option<OnlineObjects> {
        (model != Model::KeyValue).then(|| OnlineObjects {
            model,
            objects: Vec::new(),
            integers: Map::default(),
            others: BTreeMap::new(),
            closed: Closed::default(),
            open: Map::default(),
            words: Words::new(model),
            position: 0,
            pieces: 0,
            uncounted: 0,
            counts: Counts::default(),
            failed: BTreeMap::new(),
            results: BTreeSet::new(),
            keys_failed: 0,
            untold: Vec::new(),
            again: None,
            refused: None,
        })
    }

    pub(crate) fn model(&self) -> Model {
        self.model
    }

    /// Takes what is new in a chunk into account.
    pub(crate) fn push(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        let known = self.position.saturating_sub(first) as usize;
        if known >= chunk.len() || self.again.is_some() || self.refused.is_some() {
            return;
        }
        Pass::new(self, chunk, known).run();
        self.position = first + chunk.len() as u64;
        self.uncounted += chunk.len() - known;
        if self.uncounted >= PIECE_LENGTH / 2 {
            self.uncounted = 0;
            self.pieces += 1;
            self.close_idle();
        }
    }

    /// The object of this key, a new one if need be; `None` when the key was closed.
    fn object(&mut self, key: Option<&Key>) -> Option<u32> {
        let known = match key {
            Some(Key::Int(integer)) => self.integers.get(integer),
            other => self.others.get(&other.cloned()),
        };
        if let Some(&known) = known {
            return Some(known);
        }
        if key.is_some_and(|key| self.closed.contains(key)) {
            return None;
        }
        let next = self.objects.len() as u32;
        self.name(key.cloned(), next);
        let start = if self.model == Model::Mutex {
            Cell::Word(0)
        } else {
            Cell::Nil
        };
        self.objects.push(Object::new(key.cloned(), start));
        Some(next)
    }

    fn name(&mut self, key: Option<Key>, number: u32) {
        match key {
            Some(Key::Int(integer)) => _ = self.integers.insert(integer, number),
            other => _ = self.others.insert(other, number),
        }
    }

    /// Forgets the keys that nobody named for so long that nobody will.
    fn close_idle(&mut self) {
        let horizon = self.pieces.saturating_sub(IDLE_PIECES);
        let is_idle = |object: &Object| object.is_quiet() && object.named < horizon;
        let idle = self.objects.iter().filter(|one| is_idle(one)).count();
        if 4 * idle < self.objects.len() || horizon == 0 {
            return;
        }
        let objects = std::mem::take(&mut self.objects);
        self.integers.clear();
        self.others.clear();
        let mut numbers = Vec::with_capacity(objects.len());
        for object in objects {
            if is_idle(&object)
                && let Some(key) = object.key.clone()
            {
                self.count(&object);
                self.closed.insert(key);
                numbers.push(u32::MAX);
            } else {
                let number = self.objects.len() as u32;
                self.name(object.key.clone(), number);
                self.objects.push(object);
                numbers.push(number);
            }
        }
        for (object, _) in self.open.values_mut() {
            *object = numbers[*object as usize];
        }
    }

    /// Adds what is known of an object.
    fn count(&mut self, object: &Object) {
        let counts = &mut self.counts;
        counts.operations += object.operations;
        counts.unknown += object.unknown;
        counts.configurations += object.configurations;
        if object.operations > 0 || object.is_named_for_good {
            counts.objects += 1;
            counts.keyed += u64::from(object.key.is_some());
        }
    }

    fn end(&mut self, object: u32, place: u64, fate: Fate) {
        if let Some(object) = self.objects.get_mut(object as usize)
            && let Err(reason) = object.end(place, fate)
        {
            self.refused.get_or_insert(reason);
        }
    }

    /// Lets an object go on as far as it can; notes when it is stuck.
    fn advance(&mut self, number: u32) {
        let object = &mut self.objects[number as usize];
        match object.advance() {
            Ok(None) => {}
            Ok(Some(stuck)) => {
                let key = object.key.clone();
                self.keys_failed += 1;
                self.results.extend(key.clone());
                while self.results.len() > RESULTS_MAX {
                    self.results.pop_last();
                }
                self.untold.push(key.clone());
                self.untold.truncate(FINDINGS_MAX);
                self.failed.insert(key, stuck);
                while self.failed.len() > FINDINGS_MAX {
                    self.failed.pop_last();
                }
            }
            Err(reason) => {
                let key = object.key.as_ref().map(|key| format!("key {key}: "));
                let reason = format!("{}{reason}", key.unwrap_or_default());
                self.again.get_or_insert(reason);
            }
        }
    }

    /// What was found and not told before.
    pub(crate) fn tell<R: Recall>(&mut self, recall: &R) -> Result<Vec<Finding>, R::Error> {
        let mut findings = Vec::new();
        for key in std::mem::take(&mut self.untold) {
            if let Some(stuck) = self.failed.get(&key) {
                findings.push(self.finding(key.as_ref(), stuck, recall)?);
            }
        }
        Ok(findings)
    }

    fn finding<R: Recall>(
        &self,
        key: Option<&Key>,
        stuck: &Stuck,
        recall: &R,
    ) -> Result<Finding, R::Error> {
        let ops = recall.recall(&stuck.positions())?;
        Ok(stuck.finding(self.model, key, &ops, &self.words))
    }

    /// How far it is.
    pub(crate) fn progress(&mut self) -> Progress {
        let held: u64 = self.objects.iter().map(Object::held).sum();
        let judged = self.objects.iter().map(|object| object.operations);
        let mut anomalies = BTreeMap::new();
        if self.keys_failed > 0 {
            anomalies.insert(NONLINEARIZABLE, self.keys_failed);
        }
        let again = self.again.as_ref();
        let again = again.map(|again| format!("{again}; it will be judged as a whole in the end"));
        Progress {
            judged: self.counts.operations + judged.sum::<u64>(),
            held,
            windows: u64::from(self.pieces),
            anomalies,
            note: self.refused.clone().or(again),
        }
    }

    /// Names the model, and what the anomalies of this verdict say about it.
    pub(crate) fn rule_out(verdict: &mut Verdict) {
        verdict.model = Some("linearizable".into());
        if !verdict.anomalies.is_empty() {
            verdict.not = vec!["linearizable"];
        }
    }

    /// The verdict on the whole history.
    pub(crate) fn finish<C: Chunks + 'static>(
        mut self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        // Nobody will ever know what became of the rest.
        for (object, place) in std::mem::take(&mut self.open).into_values() {
            self.end(object, place, Fate::Unknown);
        }
        for number in 0..self.objects.len() as u32 {
            self.advance(number);
        }
        if self.again.is_some() {
            let history = folder.fold(Gather)?;
            return Ok(Linearizable::new(self.model).check(&history));
        }
        for object in std::mem::take(&mut self.objects) {
            self.count(&object);
        }
        let mut verdict = Verdict::valid(self.model.name());
        OnlineObjects::rule_out(&mut verdict);
        if let Some(reason) = self.refused.take() {
            return Ok(verdict.unknown(reason));
        }
        if self.counts.keyed > 0 && self.counts.objects > self.counts.keyed {
            return Ok(verdict.unknown("some operations have a key and some have none"));
        }
        self.fill(&mut verdict);
        let positions = self.failed.values().flat_map(Stuck::positions);
        let positions: BTreeSet<_> = positions.collect();
        if !positions.is_empty() {
            let ops = folder.fold(Fetch { positions })?;
            for (key, stuck) in &self.failed {
                let finding = stuck.finding(self.model, key.as_ref(), &ops, &self.words);
                verdict.findings.push(finding);
            }
        }
        Ok(verdict)
    }

    fn fill(&self, verdict: &mut Verdict) {
        let counts = &self.counts;
        verdict.details = serde_json::json!({
            "objects": counts.objects,
            "operations": counts.operations,
            "unknown": counts.unknown,
            "configurations": counts.configurations,
            "configurations_max": lane::CONFIGURATIONS_MAX,
            "findings_max": FINDINGS_MAX,
        });
        if counts.keyed > 0 {
            verdict.details["keys"] = counts.keyed.into();
            verdict.details["keys_checked"] = counts.keyed.into();
            verdict.details["keys_invalid"] = self.keys_failed.into();
            let result = serde_json::json!({"valid": false, "anomalies": [NONLINEARIZABLE]});
            let results = self.results.iter();
            let results = results.map(|key| (key.to_string(), result.clone()));
            verdict.details["results"] = serde_json::Value::Object(results.collect());
        }
        if self.keys_failed > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, self.keys_failed);
            OnlineObjects::rule_out(verdict);
        }
    }
}

/// One chunk on its way into the objects.
struct Pass<'a> {
    state: &'a mut OnlineObjects,
    chunk: &'a Chunk,
    known: usize,
    /// By key id: its object; [`NOBODY`] as long as nobody asked.
    names: Vec<u32>,
    /// By place of an invocation: object and place in its queue, while it has not completed.
    open: Vec<(u32, u64)>,
}

const NOBODY: u32 = u32::MAX;

impl<'a> Pass<'a> {
    fn new(state: &'a mut OnlineObjects, chunk: &'a Chunk, known: usize) -> Pass<'a> {
        Pass {
            known,
            names: vec![NOBODY; chunk.key_count()],
            open: vec![(NOBODY, 0); chunk.len()],
            state,
            chunk,
        }
    }

    fn run(&mut self) {
        let chunk = self.chunk;
        let clients: Vec<_> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (&kind, &process)) in kinds.enumerate().skip(self.known) {
            if !clients[process as usize] {
                continue;
            }
            if kind == OpType::Invoke {
                self.begin(place);
            } else {
                self.end(place, kind);
            }
            if self.state.again.is_some() || self.state.refused.is_some() {
                return;
            }
        }
        for place in 0..self.open.len() {
            if self.open[place].0 != NOBODY {
                let position = chunk.first_position() + place as u64;
                self.state.open.insert(position, self.open[place]);
            }
        }
    }

    /// The object of the operation at `place`.
    fn object(&mut self, place: usize) -> Option<u32> {
        let id = self.chunk.key_id(place);
        if let Some(&known) = id.and_then(|id| self.names.get(id as usize))
            && known != NOBODY
        {
            return Some(known);
        }
        let key = id.map(|id| self.chunk.key(id));
        let Some(object) = self.state.object(key) else {
            let reason = format!(
                "key {} was named again after nobody had for so long that it was taken for closed",
                key.map(Key::to_string).unwrap_or_default()
            );
            self.state.again.get_or_insert(reason);
            return None;
        };
        if let Some(id) = id {
            self.names[id as usize] = object;
        }
        self.state.objects[object as usize].named = self.state.pieces;
        Some(object)
    }

    fn begin(&mut self, place: usize) {
        let Some(object) = self.object(place) else {
            return;
        };
        let position = self.chunk.first_position() + place as u64;
        let deed = self.deed(place);
        let object_state = &mut self.state.objects[object as usize];
        self.open[place] = (object, object_state.begin(position, deed));
    }

    fn end(&mut self, place: usize, kind: OpType) {
        let Some(position) = self.chunk.invocation(place) else {
            if kind == OpType::Ok {
                let index = self.chunk.index(place);
                let reason = format!("op {index} has no invocation");
                self.state.again.get_or_insert(reason);
            }
            return;
        };
        let first = self.chunk.first_position();
        let local = position.checked_sub(first).map(|at| at as usize);
        let found = match local.filter(|&at| at >= self.known) {
            Some(at) => Some(std::mem::replace(&mut self.open[at], (NOBODY, 0))),
            None => self.state.open.remove(&position),
        };
        let Some((object, at)) = found.filter(|(object, _)| *object != NOBODY) else {
            return;
        };
        let fate = match kind {
            OpType::Fail => Fate::Failed,
            OpType::Ok => Fate::Done(first + place as u64, self.argument(place)),
            _ => Fate::Ended(first + place as u64),
        };
        self.state.end(object, at, fate);
        self.state.advance(object);
    }

    /// What the operation at `place` is about to do.
    fn deed(&mut self, place: usize) -> Deed {
        let model = self.state.model;
        let registers = matches!(model, Model::Register | Model::CasRegister);
        if is_odd(self.chunk.value(place)) && entry::is_tuple(&self.chunk.op(place)) {
            let index = self.chunk.index(place);
            return Deed::Unknown(format!(
                "op {index}: its value looks like a tuple [key value]: read the history as keyed"
            ));
        }
        match self.chunk.f(place).as_str() {
            "acquire" if model == Model::Mutex => Deed::Acquire,
            "release" if model == Model::Mutex => Deed::Release,
            "read" if registers => Deed::Read,
            "write" if registers => Deed::Write(self.argument(place)),
            "cas" if model == Model::CasRegister => Deed::Cas(self.argument(place)),
            f => {
                let (index, model) = (self.chunk.index(place), model.name());
                Deed::Unknown(format!("op {index}: a {model} has no `{f}`"))
            }
        }
    }

    /// The value of the operation at `place`, without its key.
    fn argument(&mut self, place: usize) -> Argument {
        let is_pair = self.chunk.f(place) == "cas";
        match self.chunk.value(place) {
            ValueView::Nil => Argument::Nil,
            ValueView::Int(number) => Argument::One(Cell::Int(number)),
            ValueView::Cas(from, to) if is_pair => Argument::Two(Cell::Int(from), Cell::Int(to)),
            _ => {
                let value = self.chunk.op(place).value;
                let value = super::model::plain(&value);
                let pair = super::model::pair(value).filter(|_| is_pair);
                let words = &mut self.state.words;
                let argument = match pair {
                    Some((from, to)) => words.cell(&from).zip(words.cell(&to)).map(Argument::of),
                    None => words.cell(value).map(Argument::One),
                };
                argument.unwrap_or_else(|| {
                    let reason = format!("more than {WORDS_MAX} values that are no integers");
                    self.state.again.get_or_insert(reason);
                    Argument::Nil
                })
            }
        }
    }
}

/// May this be a list?
fn is_odd(value: ValueView<'_>) -> bool {
    !matches!(
        value,
        ValueView::Nil | ValueView::Int(_) | ValueView::Cas(..)
    )
}

/// A value as far as registers look into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Argument {
    #[default]
    Nil,
    One(Cell),
    /// That of a compare-and-set.
    Two(Cell, Cell),
}

impl Argument {
    fn of((from, to): (Cell, Cell)) -> Argument {
        Argument::Two(from, to)
    }
}

/// All operations, in memory.
struct Gather;

impl Fold for Gather {
    type Accumulator = Vec<Op>;
    type Output = History;

    fn order(&self) -> seatrial_history::Order {
        seatrial_history::Order::Linear
    }

    fn start(&self) -> Vec<Op> {
        Vec::new()
    }

    fn reduce(&self, ops: &mut Vec<Op>, chunk: &Chunk) -> ControlFlow<()> {
        ops.extend(chunk.ops());
        ControlFlow::Continue(())
    }

    fn combine(&self, ops: &mut Vec<Op>, later: Vec<Op>) -> ControlFlow<()> {
        ops.extend(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, ops: Vec<Op>) -> History {
        History::from_ops(ops)
    }
}
