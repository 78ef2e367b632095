//! Registers and locks, checked while they are recorded.

mod jit_linearizer;
mod object_queue;
mod online_counterexample;

use super::explanation::NONLINEARIZABLE;
use super::linearization_search::Bound;
use super::model::Model;
use super::object::{self, key_prefix};
use crate::linearizable::{FINDINGS_MAX, Linearizable, RESULTS_MAX};
use crate::online_verdict::{self, OnlineMethod, OnlineTotals, set_model};
use jit_linearizer::Cell;
use object_queue::{Invocation, ObjectQueue, Resolution};
use online_counterexample::OnlineCounterexample;
use seatrial_checker::{Checked, ClosedKeys, Finding, OnlineChecker, Progress, Validity, Verdict};
use seatrial_cycles::dense_id;
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, ChunkSource, FixedMap, Key, OpType, SourceError, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

dense_id! {
    /// An object of [`OnlineObjects`]; the others are renumbered when idle ones are closed.
    ObjectId
}

/// A check of registers or locks whose history has not ended yet.
///
/// Each key is an object by itself. Its operations wait in a queue until the outcomes of all operations that began before are
/// known (an operation that violations must not be taken for one that took effect); then they enter its linearizer, which
/// keeps all possible configurations: the value of the register, and which of the operations under way have taken effect. So
/// a key costs memory for its operations under way and those of unknown outcome; an idle key is closed and its state freed.
///
/// Findings are definite: operations that begin later cannot take effect earlier. At the end of a history with a violation the
/// whole of it is searched once more, for the findings that a check of the finished history has.
///
/// Its downside: many concurrent compare-and-sets on one key have many configurations; past
/// [`jit_linearizer::CONFIGURATIONS_MAX`] the whole history is searched at the end, with backtracking.
pub(crate) struct OnlineObjects {
    checker: Linearizable,
    model: Model,
    objects: Vec<ObjectQueue>,
    integers: FixedMap<i64, ObjectId>,
    others: BTreeMap<Option<Key>, ObjectId>,
    closed: ClosedKeys,
    /// Invocations of earlier chunks without a completion, by position: the object, and the number in its queue.
    open: FixedMap<u64, (ObjectId, u64)>,
    /// Values that are not integers, by their text.
    words: InternedWords,
    position: u64,
    /// Pieces of 16,384 operations so far.
    pieces: u32,
    uncounted: usize,
    /// Of objects that were closed.
    counts: OnlineTotals,
    violations: BTreeMap<Option<Key>, OnlineCounterexample>,
    /// The first keys with a violation, for the details.
    results: BTreeSet<Key>,
    keys_violated: u64,
    unreported: Vec<Option<Key>>,
    /// Is a certificate wanted? Then the finished history is checked as a whole in the end.
    certify: bool,
    /// Why the whole history must be searched at the end.
    fallback: Option<String>,
    /// Why the history cannot be checked at all.
    refused: Option<String>,
}

/// Values that are not integers, numbered.
pub(super) struct InternedWords {
    numbers: BTreeMap<String, u32>,
    known: Vec<Value>,
}

/// Operations of a piece of the history, the unit in which idle time is counted.
const PIECE_LENGTH: usize = 16_384;
/// A key without operations for this many pieces is closed.
const IDLE_PIECES: u32 = 8;
/// Configurations of the search that explains a violation in the end: about a second.
const SEARCHED_AGAIN_MAX: u64 = 400_000;
/// Distinct values that are not integers, at most.
const WORDS_MAX: usize = 1 << 20;

impl InternedWords {
    fn new(model: Model) -> InternedWords {
        let mut words = InternedWords {
            numbers: BTreeMap::new(),
            known: Vec::new(),
        };
        if model == Model::Mutex {
            words.cell(&Value::text("free"));
            words.cell(&Value::text("held"));
        }
        words
    }

    /// The cell of a value; `None` if there are too many.
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
    /// Starts the check; `None` for a data type that needs the whole history: texts and collections have too many states.
    pub(crate) fn new(checker: Linearizable, certify: bool) -> Option<OnlineObjects> {
        let model = checker.model;
        let is_register = matches!(model, Model::Register | Model::CasRegister | Model::Mutex);
        is_register.then(|| OnlineObjects {
            checker,
            model,
            objects: Vec::new(),
            integers: FixedMap::default(),
            others: BTreeMap::new(),
            closed: ClosedKeys::default(),
            open: FixedMap::default(),
            words: InternedWords::new(model),
            position: 0,
            pieces: 0,
            uncounted: 0,
            counts: OnlineTotals::default(),
            violations: BTreeMap::new(),
            results: BTreeSet::new(),
            keys_violated: 0,
            unreported: Vec::new(),
            certify,
            fallback: None,
            refused: None,
        })
    }

    /// Applies the operations of a chunk that are new.
    fn apply(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        let known = self.position.saturating_sub(first) as usize;
        if known >= chunk.len() || self.fallback.is_some() || self.refused.is_some() {
            return;
        }
        OnlinePass::new(self, chunk, known).run();
        self.position = first + chunk.len() as u64;
        self.uncounted += chunk.len() - known;
        if self.uncounted >= PIECE_LENGTH / 2 {
            self.uncounted = 0;
            self.pieces += 1;
            self.close_idle();
        }
    }

    /// The object of this key, new if necessary; `None` if the key was closed.
    fn object(&mut self, key: Option<&Key>) -> Option<ObjectId> {
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
        let next = ObjectId::new(self.objects.len() as u32);
        self.register(key.cloned(), next);
        let start = if self.model == Model::Mutex {
            Cell::Word(0)
        } else {
            Cell::Nil
        };
        self.objects.push(ObjectQueue::new(key.cloned(), start));
        Some(next)
    }

    /// Registers a key's object.
    fn register(&mut self, key: Option<Key>, object: ObjectId) {
        let before = match key {
            Some(Key::Int(integer)) => self.integers.insert(integer, object),
            other => self.others.insert(other, object),
        };
        assert!(before.is_none(), "a key has two objects");
    }

    /// Closes keys that have been idle for [`IDLE_PIECES`], and frees their state. Only when a quarter of all objects is idle, so
    /// that the cost of renumbering is constant per object.
    fn close_idle(&mut self) {
        let horizon = self.pieces.saturating_sub(IDLE_PIECES);
        let is_idle = |object: &ObjectQueue| object.is_quiet() && object.last_piece < horizon;
        let idle = self.objects.iter().filter(|one| is_idle(one)).count();
        if 4 * idle < self.objects.len() || horizon == 0 {
            return;
        }
        let objects = std::mem::take(&mut self.objects);
        self.integers.clear();
        self.others.clear();
        // By former object: its new one, `None` if it is closed.
        let mut moved: Vec<Option<ObjectId>> = Vec::with_capacity(objects.len());
        for object in objects {
            if is_idle(&object)
                && let Some(key) = object.key.clone()
            {
                self.count(&object);
                self.closed.insert(key);
                moved.push(None);
            } else {
                let next = ObjectId::new(self.objects.len() as u32);
                self.register(object.key.clone(), next);
                self.objects.push(object);
                moved.push(Some(next));
            }
        }
        for (object, _) in self.open.values_mut() {
            *object = moved[object.index()].expect("an object with an open operation is not idle");
        }
    }

    /// Adds the counts of an object.
    fn count(&mut self, object: &ObjectQueue) {
        let counts = &mut self.counts;
        counts.operations += object.operations;
        counts.unknown += object.unknown;
        counts.configurations += object.configurations;
        if object.operations > 0 {
            counts.objects += 1;
            counts.keyed += u64::from(object.key.is_some());
        }
    }

    fn resolve(&mut self, object: ObjectId, number: u64, resolution: Resolution) {
        if let Some(object) = self.objects.get_mut(object.index())
            && let Err(reason) = object.resolve(number, resolution)
        {
            self.refused.get_or_insert(reason);
        }
    }

    /// Advances an object past all operations of known outcome; records a violation.
    fn advance(&mut self, object: ObjectId) {
        let object = &mut self.objects[object.index()];
        match object.advance() {
            Ok(None) => {}
            Ok(Some(counterexample)) => {
                let key = object.key.clone();
                self.keys_violated += 1;
                self.results.extend(key.clone());
                while self.results.len() > RESULTS_MAX {
                    self.results.pop_last();
                }
                self.unreported.push(key.clone());
                self.unreported.truncate(FINDINGS_MAX);
                self.violations.insert(key, counterexample);
                while self.violations.len() > FINDINGS_MAX {
                    self.violations.pop_last();
                }
            }
            Err(reason) => {
                let reason = format!("{}{reason}", key_prefix(object.key.as_ref()));
                self.fallback.get_or_insert(reason);
            }
        }
    }

    /// Sets the details and the validity.
    fn set_results(&self, verdict: &mut Verdict) {
        let method = OnlineMethod {
            monitor: None,
            configurations_max: jit_linearizer::CONFIGURATIONS_MAX as u64,
        };
        let violated = (self.keys_violated, self.results.iter());
        online_verdict::set_results(verdict, method, self.counts, violated);
    }
}

/// The model, as results write it.
const CONSISTENCY_MODEL: &str = "linearizable";

impl OnlineChecker for OnlineObjects {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn is_early(&self) -> bool {
        true
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        self.apply(chunk);
        if self.refused.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn definite(&mut self, source: &dyn ChunkSource) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        for key in std::mem::take(&mut self.unreported) {
            if let Some(counterexample) = self.violations.get(&key) {
                let ops = source.recall(&counterexample.positions())?;
                findings.push(counterexample.finding(self.model, key.as_ref(), &ops, &self.words));
            }
        }
        Ok(findings)
    }

    fn rule_out(&self, verdict: &mut Verdict) {
        set_model(verdict, CONSISTENCY_MODEL.into());
    }

    fn progress(&mut self) -> Progress {
        let held: u64 = self.objects.iter().map(ObjectQueue::held).sum();
        let decided = self.objects.iter().map(|object| object.operations);
        let mut anomalies = BTreeMap::new();
        if self.keys_violated > 0 {
            anomalies.insert(NONLINEARIZABLE, self.keys_violated);
        }
        let fallback = self.fallback.as_ref();
        let fallback =
            fallback.map(|fallback| format!("{fallback}; checked as a whole in the end"));
        Progress {
            decided: self.counts.operations + decided.sum::<u64>(),
            held,
            windows: u64::from(self.pieces),
            anomalies,
            note: self.refused.clone().or(fallback),
        }
    }

    fn finish(mut self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        // Operations that are still open at the end are of unknown outcome.
        for (object, number) in std::mem::take(&mut self.open).into_values() {
            self.resolve(object, number, Resolution::NeverCompleted);
        }
        for object in ObjectId::all(self.objects.len()) {
            self.advance(object);
        }
        if self.fallback.is_some() {
            return self.checker.check_again(source, self.certify);
        }
        let mut unproven = None;
        if self.certify && self.refused.is_none() {
            // An order was not kept: configurations are freed when they are decided.
            let checked = self.checker.check_again(source, true)?;
            match checked.verdict.valid {
                Validity::Unknown(reason) => unproven = Some(reason),
                _ => return Ok(checked),
            }
        }
        if self.keys_violated > 0 {
            // The search of the whole history explains a violation in fewer operations, as `check` of the finished file does.
            // Where it gives up, the counterexamples found so far stand.
            let bound = Bound {
                configurations_max: self
                    .checker
                    .bound
                    .configurations_max
                    .min(SEARCHED_AGAIN_MAX),
                ..self.checker.bound
            };
            let checker = self.checker.with_bound(bound);
            let searched = checker.check_again(source, false)?.verdict;
            assert!(searched.valid != Validity::Valid, "a violation is definite");
            if searched.valid == Validity::Invalid {
                return Ok(searched.into());
            }
        }
        for object in std::mem::take(&mut self.objects) {
            self.count(&object);
        }
        let mut verdict = Verdict::valid(self.model.name());
        set_model(&mut verdict, CONSISTENCY_MODEL.into());
        if let Some(reason) = self.refused.take() {
            return Ok(verdict.unknown(reason).into());
        }
        if self.counts.keyed > 0 && self.counts.objects > self.counts.keyed {
            let reason = "some operations have a key and some have none";
            return Ok(verdict.unknown(reason).into());
        }
        self.set_results(&mut verdict);
        verdict.details.unproven = unproven;
        let positions = self
            .violations
            .values()
            .flat_map(OnlineCounterexample::positions);
        let ops = source.recall(&positions.collect())?;
        for (key, counterexample) in &self.violations {
            let finding = counterexample.finding(self.model, key.as_ref(), &ops, &self.words);
            verdict.findings.push(finding);
        }
        Ok(verdict.into())
    }
}

/// One pass over a chunk, which distributes its operations to the objects.
struct OnlinePass<'a> {
    state: &'a mut OnlineObjects,
    chunk: &'a Chunk,
    known: usize,
    /// By key id: its object; `None` before its first use.
    names: Vec<Option<ObjectId>>,
    /// By row of an invocation without completion so far: its object, and its number in the queue.
    open: Vec<Option<(ObjectId, u64)>>,
}

impl<'a> OnlinePass<'a> {
    fn new(state: &'a mut OnlineObjects, chunk: &'a Chunk, known: usize) -> OnlinePass<'a> {
        OnlinePass {
            known,
            names: vec![None; chunk.key_count()],
            open: vec![None; chunk.len()],
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
        for (row, (&kind, &process)) in kinds.enumerate().skip(self.known) {
            if !clients[process as usize] {
                continue;
            }
            if kind == OpType::Invoke {
                self.begin(row);
            } else {
                self.end(row, kind);
            }
            if self.state.fallback.is_some() || self.state.refused.is_some() {
                return;
            }
        }
        for (position, open) in (chunk.first_position()..).zip(&self.open) {
            if let Some(open) = *open {
                self.state.open.insert(position, open);
            }
        }
    }

    /// The object of the operation at `row`.
    fn object(&mut self, row: usize) -> Option<ObjectId> {
        let id = self.chunk.key_id(row);
        if let Some(&known @ Some(_)) = id.and_then(|id| self.names.get(id as usize)) {
            return known;
        }
        let key = id.map(|id| self.chunk.key(id));
        let Some(object) = self.state.object(key) else {
            let reason = format!(
                "key {} was used again after it had been idle and was closed",
                key.map(Key::to_string).unwrap_or_default()
            );
            self.state.fallback.get_or_insert(reason);
            return None;
        };
        if let Some(id) = id {
            self.names[id as usize] = Some(object);
        }
        self.state.objects[object.index()].last_piece = self.state.pieces;
        Some(object)
    }

    fn begin(&mut self, row: usize) {
        let Some(object) = self.object(row) else {
            return;
        };
        let position = self.chunk.first_position() + row as u64;
        let invocation = self.invocation(row);
        let object_state = &mut self.state.objects[object.index()];
        self.open[row] = Some((object, object_state.begin(position, invocation)));
    }

    fn end(&mut self, row: usize, kind: OpType) {
        let Some(position) = self.chunk.invocation(row) else {
            if kind == OpType::Ok {
                let index = self.chunk.index(row);
                let reason = format!("op {index} has no invocation");
                self.state.fallback.get_or_insert(reason);
            }
            return;
        };
        let first = self.chunk.first_position();
        let local = position.checked_sub(first).map(|at| at as usize);
        let found = match local.filter(|&at| at >= self.known) {
            Some(at) => self.open[at].take(),
            None => self.state.open.remove(&position),
        };
        let Some((object, at)) = found else {
            return;
        };
        let resolution = match kind {
            OpType::Fail => Resolution::Failed,
            OpType::Ok => Resolution::Succeeded(first + row as u64, self.argument(row)),
            _ => Resolution::Indeterminate(first + row as u64),
        };
        self.state.resolve(object, at, resolution);
        self.state.advance(object);
    }

    /// The invocation at `row`.
    fn invocation(&mut self, row: usize) -> Invocation {
        let model = self.state.model;
        let registers = matches!(model, Model::Register | Model::CasRegister);
        if may_be_list(self.chunk.value(row)) && object::is_tuple(&self.chunk.op(row)) {
            let index = self.chunk.index(row);
            return Invocation::Unknown(format!(
                "op {index}: its value looks like a tuple [key value]: read the history as keyed"
            ));
        }
        match self.chunk.f(row).as_str() {
            "acquire" if model == Model::Mutex => Invocation::Acquire,
            "release" if model == Model::Mutex => Invocation::Release,
            "read" if registers => Invocation::Read,
            "write" if registers => Invocation::Write(self.argument(row)),
            "cas" if model == Model::CasRegister => Invocation::Cas(self.argument(row)),
            f => {
                let (index, model) = (self.chunk.index(row), model.name());
                Invocation::Unknown(format!("op {index}: a {model} has no `{f}`"))
            }
        }
    }

    /// The value of the operation at `row`, without its key.
    fn argument(&mut self, row: usize) -> Argument {
        let is_pair = self.chunk.f(row) == "cas";
        match self.chunk.value(row) {
            ValueView::Nil => Argument::Nil,
            ValueView::Int(number) => Argument::One(Cell::Int(number)),
            ValueView::Cas(from, to) if is_pair => Argument::Two(Cell::Int(from), Cell::Int(to)),
            _ => {
                let value = self.chunk.op(row).value;
                let value = super::model::plain(&value);
                let pair = super::model::pair(value).filter(|_| is_pair);
                let words = &mut self.state.words;
                let argument = match pair {
                    Some((from, to)) => words.cell(&from).zip(words.cell(&to)).map(Argument::of),
                    None => words.cell(value).map(Argument::One),
                };
                argument.unwrap_or_else(|| {
                    let reason = format!("more than {WORDS_MAX} values that are not integers");
                    self.state.fallback.get_or_insert(reason);
                    Argument::Nil
                })
            }
        }
    }
}

/// May this be a list?
fn may_be_list(value: ValueView<'_>) -> bool {
    !matches!(
        value,
        ValueView::Nil | ValueView::Int(_) | ValueView::Cas(..)
    )
}

/// The value of an operation, as far as registers read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Argument {
    #[default]
    Nil,
    One(Cell),
    /// The values of a compare-and-set.
    Two(Cell, Cell),
}

impl Argument {
    fn of((from, to): (Cell, Cell)) -> Argument {
        Argument::Two(from, to)
    }
}
