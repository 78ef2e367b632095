//! The trait of a data type, and the fold that checks one.

use super::element::{Element, elements};
use super::verdict_builder::VerdictBuilder;
use crate::{Checker, FoldChecker, OnlineChecker, Verdict};
use seatrial_history::chunk::ValueView;
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
            states.apply(
                self,
                position as u64,
                invocation.map(|at| at as u64),
                op,
                None,
            );
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
    pub(super) extra: &'a Extra,
    /// The invocation of a completion, if it is known.
    pub(super) invocation: Option<&'a StartedOperation>,
}

impl OperationEvent<'_> {
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
            let paired = chunk.pairs().iter().filter(|pair| **pair > 0);
            self.paired += paired.count() as u64;
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
    /// Invocations of the operations under way, by position.
    open: FixedMap<u64, StartedOperation>,
    keys: FixedMap<Option<Key>, S>,
    tally: KeyedTally,
}

impl<S> Default for KeyedStates<S> {
    fn default() -> KeyedStates<S> {
        KeyedStates {
            open: FixedMap::default(),
            keys: FixedMap::default(),
            tally: KeyedTally::default(),
        }
    }
}

impl<S: Default> KeyedStates<S> {
    fn apply<J: DataType<State = S>>(
        &mut self,
        data_type: &J,
        position: u64,
        invocation: Option<u64>,
        op: &Op,
        integers: Option<&[i64]>,
    ) {
        let (key, value) = match &op.value {
            Value::Keyed(key, value) => (Some(key.clone()), &**value),
            value => (None, value),
        };
        let started = invocation.and_then(|position| self.open.remove(&position));
        let event = OperationEvent {
            index: op.index,
            time: op.time,
            kind: op.kind,
            process: op.process,
            f: op.f,
            value,
            integers,
            extra: &op.extra,
            invocation: started.as_ref(),
        };
        data_type.apply(self.keys.entry(key).or_default(), &event);
        if op.is_invoke() {
            let started = StartedOperation {
                index: op.index,
                time: op.time,
                value: value.clone(),
            };
            let earlier = self.open.insert(position, started);
            assert!(earlier.is_none(), "two invocations at position {position}");
        }
    }

    fn verdict<J: DataType<State = S>>(self, data_type: &J) -> Verdict {
        let mut builder = self.tally.builder(self.keys.keys(), J::FUNCTIONS);
        // Sorted: findings must not depend on a hash.
        let keys: BTreeMap<Option<Key>, S> = self.keys.into_iter().collect();
        for (key, state) in keys {
            builder.start_key(key);
            data_type.finish(state, &mut builder);
        }
        let mut verdict = builder.build(J::NAME);
        verdict.robustness = data_type.robustness();
        verdict.model = data_type.model().map(str::to_owned);
        verdict
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
        let mut ops = chunk.ops();
        for (place, template) in chunk.template_ids().iter().enumerate() {
            if wanted[*template as usize] && chunk.process(place).is_client() {
                let position = chunk.first_position() + place as u64;
                let integers = match chunk.value(place) {
                    ValueView::Integers(integers) | ValueView::IntegerSet(integers)
                        if takes_integers[*template as usize]
                            && chunk.kinds()[place] == OpType::Ok =>
                    {
                        Some(integers)
                    }
                    _ => None,
                };
                let op = match integers {
                    Some(_) => ops.without_value(place),
                    None => ops.at(place),
                };
                states.apply(&self.0, position, chunk.invocation(place), &op, integers);
            }
        }
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
