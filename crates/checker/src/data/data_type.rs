//! The trait of a data type, and the fold that checks one.

use super::element::{Element, elements};
use super::verdict_builder::VerdictBuilder;
use crate::{Checker, FoldChecker, OnlineChecker, Verdict};
use seatrial_history::chunk::{ChunkOps, ValueView};
use seatrial_history::{
    Chunk, Extra, FixedMap, Fold, History, Key, Op, OpType, Order, Process, Symbol, Value,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A data type that is checked operation by operation, with one state per independent key.
///
/// The loop: [`KeyedStates`] pairs each completion with its invocation, removes the key from the value, and calls
/// [`DataType::apply`]; at the end [`DataType::finish`] reports on each key. Memory: the states, and the values of operations
/// under way.
pub(crate) trait DataType: Checker + Clone + 'static {
    /// The state of one key.
    type State: Default + Send;

    /// The checker's name.
    const NAME: &'static str;

    /// The functions of its operations; all others are ignored.
    const FUNCTIONS: &'static [&'static str];

    /// Those functions of which lists and sets of integers that an operation returned are passed as they are in the chunk, in
    /// [`OperationEvent::integers`]. To build them takes longer than most checkers.
    const INTEGER_READS: &'static [&'static str] = &[];

    /// The consistency model that is checked, when the data type has several.
    fn model(&self) -> Option<&'static str> {
        None
    }

    /// Applies an invocation or completion of a client to the state of its key.
    fn apply(&self, state: &mut Self::State, event: &OperationEvent<'_>);

    /// Reports the anomalies and figures of one key.
    fn finish(&self, state: Self::State, builder: &mut VerdictBuilder);

    /// Starts to check one history, chunk by chunk.
    fn online(&self) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new(Self::NAME, DataTypeFold(self.clone())))
    }

    /// The verdict on a history in memory.
    fn check_history(&self, history: &History) -> Verdict {
        let mut states = KeyedStates::default();
        for (position, op) in history.iter().enumerate() {
            if !op.process.is_client() {
                continue;
            }
            let invocation = history.pair(position).filter(|&other| other < position);
            states.tally.add(op.kind, invocation.is_some());
            if !Self::FUNCTIONS.iter().any(|f| op.f == *f) {
                continue;
            }
            let invocation = invocation.map(|at| at as u64);
            states.apply(self, position as u64, invocation, op);
        }
        states.verdict(self)
    }
}

/// An invocation or completion of a client, without its key.
pub(crate) struct OperationEvent<'a> {
    pub(super) index: u64,
    pub(super) time: i64,
    pub(super) kind: OpType,
    pub(super) process: Process,
    pub(super) f: Symbol,
    pub(super) value: &'a Value,
    /// The list or set of integers that a success returned, which is not built then: `value` is nil.
    pub(super) integers: Option<&'a [i64]>,
    /// Are these integers a set, not a list?
    pub(super) is_set: bool,
    pub(super) extra: &'a Extra,
    /// The invocation of a completion, if it is known.
    pub(super) invocation: Option<&'a StartedOperation>,
}

impl<'a> OperationEvent<'a> {
    /// An operation with this value, without its key.
    fn new(
        op: &'a Op,
        value: &'a Value,
        invocation: Option<&'a StartedOperation>,
    ) -> OperationEvent<'a> {
        OperationEvent {
            index: op.index,
            time: op.time,
            kind: op.kind,
            process: op.process,
            f: op.f,
            value,
            integers: None,
            is_set: false,
            extra: &op.extra,
            invocation,
        }
    }
    /// The value; the invocation's for a completion that does not repeat it.
    pub(super) fn argument(&self) -> &Value {
        match (self.value, self.invocation) {
            (Value::Nil, Some(invocation)) => &invocation.value,
            (value, _) => value,
        }
    }

    /// The elements of the value; `None` if it is no collection.
    pub(super) fn elements(&self) -> Option<Vec<Element>> {
        match self.integers {
            Some(integers) => Some(integers.iter().map(|&one| Element::Int(one)).collect()),
            None => elements(self.value),
        }
    }

    /// Index of the invocation; its own for an invocation, and where the invocation is unknown.
    pub(super) fn started(&self) -> u64 {
        self.invocation
            .map_or(self.index, |invocation| invocation.index)
    }
}

/// An invocation without its completion so far.
#[derive(Clone, Debug)]
pub(crate) struct StartedOperation {
    pub(super) index: u64,
    pub(super) time: i64,
    pub(super) value: Value,
}

impl StartedOperation {
    /// An invocation with this value, without its key.
    fn new(op: &Op, value: Value) -> StartedOperation {
        StartedOperation {
            index: op.index,
            time: op.time,
            value,
        }
    }
}

/// Operations of clients, by type: what every checker of a data type reports beside its figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyedTally {
    kinds: [u64; 4],
    /// Completions that have an invocation.
    paired: u64,
}

impl KeyedTally {
    fn add(&mut self, kind: OpType, is_paired: bool) {
        self.kinds[kind as usize] += 1;
        self.paired += u64::from(is_paired);
    }

    /// Counts the operations of a chunk.
    pub(crate) fn count(&mut self, chunk: &Chunk) {
        let is_client = chunk.processes().iter().map(|one| one.is_client());
        let is_client: Vec<bool> = is_client.collect();
        if !is_client.contains(&false) {
            // Without a nemesis the header knows them: one of many checkers must not look at each operation.
            let header = chunk.header();
            let completed = [header.ok, header.fail, header.info].map(u64::from);
            let invoked = chunk.len() as u64 - completed.iter().sum::<u64>();
            let [ok, fail, info] = completed;
            for (sum, count) in self.kinds.iter_mut().zip([invoked, ok, fail, info]) {
                *sum += count;
            }
            self.paired += chunk.paired_count();
            return;
        }
        let columns = chunk.kinds().iter().zip(chunk.process_ids());
        for ((kind, process), pair) in columns.zip(chunk.pairs()) {
            if is_client[*process as usize] {
                self.add(*kind, *pair > 0);
            }
        }
    }

    /// A builder with these counts, for states of these keys; without a state the verdict is unknown.
    pub(crate) fn builder<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a Option<Key>>,
        functions: &[&str],
    ) -> VerdictBuilder {
        let [invoked, ok, fail, info] = self.kinds;
        assert!(
            self.paired <= ok + fail + info,
            "{} of {} completions have an invocation",
            self.paired,
            ok + fail + info
        );
        let mut builder = VerdictBuilder::default();
        let has_none = keys.len() == 0;
        for (name, count) in [
            ("ok", ok),
            ("fail", fail),
            ("info", info + invoked.saturating_sub(self.paired)),
            ("keys", keys.flatten().count() as u64),
        ] {
            builder.count(name, count);
        }
        if has_none {
            let functions = functions.join(", ");
            builder.unknown(format!(
                "the history has none of the operations {functions}"
            ));
        }
        builder
    }
}

/// The states of all keys after the operations so far.
pub(crate) struct KeyedStates<S> {
    /// Invocations that are under way, by position; during a pass over a chunk only those of earlier chunks.
    open: FixedMap<u64, StartedOperation>,
    /// By key: its place in `states`.
    places: FixedMap<Option<Key>, usize>,
    states: Vec<S>,
    tally: KeyedTally,
}

impl<S> Default for KeyedStates<S> {
    fn default() -> KeyedStates<S> {
        KeyedStates {
            open: FixedMap::default(),
            places: FixedMap::default(),
            states: Vec::new(),
            tally: KeyedTally::default(),
        }
    }
}

impl<S: Default> KeyedStates<S> {
    /// The place of the state of this key.
    fn place(&mut self, key: Option<Key>) -> usize {
        let next = self.states.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.states.push(S::default());
        }
        place
    }

    /// Applies an operation of a history in memory.
    fn apply<J: DataType<State = S>>(
        &mut self,
        data_type: &J,
        position: u64,
        invocation: Option<u64>,
        op: &Op,
    ) {
        let (key, value) = match &op.value {
            Value::Keyed(key, value) => (Some(key.clone()), &**value),
            value => (None, value),
        };
        let started = invocation.and_then(|position| self.open.remove(&position));
        let place = self.place(key);
        let event = OperationEvent::new(op, value, started.as_ref());
        data_type.apply(&mut self.states[place], &event);
        if op.is_invoke() {
            self.keep(position, StartedOperation::new(op, value.clone()));
        }
    }

    /// Keeps an invocation that is under way.
    fn keep(&mut self, position: u64, started: StartedOperation) {
        let earlier = self.open.insert(position, started);
        assert!(earlier.is_none(), "two invocations at position {position}");
    }

    fn verdict<J: DataType<State = S>>(self, data_type: &J) -> Verdict {
        let mut builder = self.tally.builder(self.places.keys(), J::FUNCTIONS);
        let mut states: Vec<Option<S>> = self.states.into_iter().map(Some).collect();
        // Sorted: findings must not depend on a hash.
        let places: BTreeMap<Option<Key>, usize> = self.places.into_iter().collect();
        for (key, place) in places {
            builder.start_key(key);
            let state = states[place].take().expect("a state has one key");
            data_type.finish(state, &mut builder);
        }
        let mut verdict = builder.build(J::NAME);
        verdict.robustness = data_type.robustness();
        verdict.model = data_type.model().map(str::to_owned);
        verdict
    }
}

/// A pass over a chunk: keys and processes are looked up by their ids in the chunk, not in hash tables.
struct ChunkPass<'a, S> {
    chunk: &'a Chunk,
    // Columns of the chunk, which are asked for once here and not for each operation.
    kinds: &'a [OpType],
    times: &'a [i64],
    process_ids: &'a [u32],
    pairs: &'a [i64],
    /// By template id.
    functions: Vec<Symbol>,
    has_extra: bool,
    ops: ChunkOps<'a>,
    states: &'a mut KeyedStates<S>,
    /// By key id, and last for operations without a key: the place of the state, once it is known.
    places: Vec<Option<usize>>,
    /// By process id: the invocation that is under way, with its position.
    under_way: Vec<Option<(u64, StartedOperation)>>,
}

impl<'a, S: Default> ChunkPass<'a, S> {
    fn new(chunk: &'a Chunk, states: &'a mut KeyedStates<S>) -> ChunkPass<'a, S> {
        ChunkPass {
            states,
            places: vec![None; chunk.key_count() + 1],
            under_way: chunk.processes().iter().map(|_| None).collect(),
            kinds: chunk.kinds(),
            times: chunk.times(),
            process_ids: chunk.process_ids(),
            pairs: chunk.pairs(),
            functions: chunk.template_fs().collect(),
            has_extra: chunk.has_extra(),
            ops: chunk.ops(),
            chunk,
        }
    }

    /// Applies the operation at `place`, which has this template. The integers that a read returned are passed as they are in the
    /// chunk if it `takes_integers`.
    fn apply<J: DataType<State = S>>(
        &mut self,
        data_type: &J,
        (place, template): (usize, usize),
        takes_integers: bool,
    ) {
        let chunk = self.chunk;
        let kind = self.kinds[place];
        let view = (takes_integers && kind == OpType::Ok).then(|| chunk.value(place));
        let (integers, is_set) = match view {
            Some(ValueView::Integers(integers)) => (Some(integers), false),
            Some(ValueView::IntegerSet(integers)) => (Some(integers), true),
            _ => (None, false),
        };
        let value = match integers {
            Some(_) => Value::Nil,
            None => self.ops.value(place),
        };
        let extra = if self.has_extra {
            self.ops.extra(place)
        } else {
            Extra::NONE
        };
        let process = self.process_ids[place] as usize;
        let started = self.started(place);
        // Field by field, not by way of an operation: to build one takes as long as most checkers take for it.
        let event = OperationEvent {
            index: chunk.index(place),
            time: self.times[place],
            kind,
            process: chunk.processes()[process],
            f: self.functions[template],
            value: &value,
            integers,
            is_set,
            extra: &extra,
            invocation: started.as_ref(),
        };
        data_type.apply(self.state(place), &event);
        if kind == OpType::Invoke {
            let (index, time) = (event.index, event.time);
            let started = StartedOperation { index, time, value };
            let position = chunk.first_position() + place as u64;
            if let Some((position, started)) = self.under_way[process].replace((position, started))
            {
                self.states.keep(position, started);
            }
        }
    }

    /// The state of the key of the operation at `place`.
    fn state(&mut self, place: usize) -> &mut S {
        let chunk = self.chunk;
        let has_keys = self.places.len() > 1;
        let key = has_keys.then(|| chunk.key_id(place)).flatten();
        let id = key.map_or(chunk.key_count(), |id| id as usize);
        let states = &mut *self.states;
        let place = *self.places[id]
            .get_or_insert_with(|| states.place(key.map(|id| chunk.key(id).clone())));
        &mut states.states[place]
    }

    /// Takes the invocation of the operation at `place`, if it is known.
    fn started(&mut self, place: usize) -> Option<StartedOperation> {
        if self.pairs[place] <= 0 {
            return None;
        }
        let invocation = self.chunk.invocation(place)?;
        let process = self.process_ids[place] as usize;
        let own = self.under_way[process].take_if(|it| it.0 == invocation);
        match own {
            Some((_, started)) => Some(started),
            None => self.states.open.remove(&invocation),
        }
    }

    /// Keeps the invocations that are under way at the end of the chunk.
    fn end(self) {
        for (position, started) in self.under_way.into_iter().flatten() {
            self.states.keep(position, started);
        }
    }
}

/// The fold of a data type over chunks, in order.
struct DataTypeFold<J>(J);

impl<J: DataType> Fold for DataTypeFold<J> {
    type Accumulator = KeyedStates<J::State>;
    type Output = Verdict;

    fn name(&self) -> String {
        J::NAME.into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> KeyedStates<J::State> {
        KeyedStates::default()
    }

    fn reduce(&self, states: &mut KeyedStates<J::State>, chunk: &Chunk) -> ControlFlow<()> {
        states.tally.count(chunk);
        let is_any = |names: &[&str]| -> Vec<bool> {
            let functions = chunk.template_fs();
            let found = functions.map(|f| names.iter().any(|name| f == *name));
            found.collect()
        };
        let wanted = is_any(J::FUNCTIONS);
        if !wanted.contains(&true) {
            return ControlFlow::Continue(());
        }
        let takes_integers = is_any(J::INTEGER_READS);
        let is_client = chunk.processes().iter().map(|one| one.is_client());
        let is_client: Vec<bool> = is_client.collect();
        let mut pass = ChunkPass::new(chunk, states);
        let columns = chunk.template_ids().iter().zip(chunk.process_ids());
        for (place, (template, process)) in columns.enumerate() {
            let template = *template as usize;
            if wanted[template] && is_client[*process as usize] {
                pass.apply(&self.0, (place, template), takes_integers[template]);
            }
        }
        pass.end();
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut KeyedStates<J::State>, _: KeyedStates<J::State>) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, states: KeyedStates<J::State>) -> Verdict {
        states.verdict(&self.0)
    }
}
