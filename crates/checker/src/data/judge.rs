//! Checkers that take one operation after another.

use super::outcome::Outcome;
use crate::Verdict;
use seatrial_history::{
    Chunk, Extra, Fold, History, Key, Op, OpType, Order, Process, Symbol, Value,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A checker as a fold over operations, one state per independent key.
pub(crate) trait Judge: Clone + Send + Sync + 'static {
    /// What is known of one key so far.
    type State: Default + Send;

    /// The checker's name.
    const NAME: &'static str;

    /// The functions that it looks at; all others pass by.
    const FUNCTIONS: &'static [&'static str];

    /// The promise that it holds a history to, when it knows several.
    fn model(&self) -> Option<&'static str> {
        None
    }

    /// Takes an operation of a client into account.
    fn take(&self, state: &mut Self::State, event: &Event<'_>);

    /// Says what came out for one key.
    fn finish(&self, state: Self::State, outcome: &mut Outcome);

    /// The verdict on a history in memory.
    fn judge(&self, history: &History) -> Verdict {
        let mut passed = Passed::default();
        for (position, op) in history.iter().enumerate() {
            let invocation = history.pair(position).filter(|&other| other < position);
            passed.take(self, position as u64, invocation.map(|at| at as u64), op);
        }
        passed.verdict(self)
    }
}

/// An operation of a client, its key taken off.
pub(crate) struct Event<'a> {
    pub(super) index: u64,
    pub(super) time: i64,
    pub(super) kind: OpType,
    pub(super) process: Process,
    pub(super) f: Symbol,
    pub(super) value: &'a Value,
    pub(super) extra: &'a Extra,
    /// Of a completion: what it completes, if that is known.
    pub(super) invocation: Option<&'a Started>,
}

impl Event<'_> {
    /// The value; of a completion that does not repeat it, that of the invocation.
    pub(super) fn argument(&self) -> &Value {
        match (self.value, self.invocation) {
            (Value::Nil, Some(invocation)) => &invocation.value,
            (value, _) => value,
        }
    }

    /// Index of what it completes, its own if that is not known.
    pub(super) fn started(&self) -> u64 {
        self.invocation
            .map_or(self.index, |invocation| invocation.index)
    }
}

/// An invocation that is not complete yet.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(super) index: u64,
    pub(super) time: i64,
    pub(super) value: Value,
}

/// What is known after some operations.
pub(crate) struct Passed<S> {
    /// By position; as many as operations are under way.
    open: BTreeMap<u64, Started>,
    keys: BTreeMap<Option<Key>, S>,
    /// Operations by type.
    kinds: [u64; 4],
    /// Completions that complete something.
    paired: u64,
}

impl<S> Default for Passed<S> {
    fn default() -> Passed<S> {
        Passed {
            open: BTreeMap::new(),
            keys: BTreeMap::new(),
            kinds: [0; 4],
            paired: 0,
        }
    }
}

impl<S: Default> Passed<S> {
    fn take<J: Judge<State = S>>(
        &mut self,
        judge: &J,
        position: u64,
        invocation: Option<u64>,
        op: &Op,
    ) {
        if !op.process.is_client() {
            return;
        }
        self.kinds[op.kind as usize] += 1;
        self.paired += u64::from(invocation.is_some());
        if !J::FUNCTIONS.iter().any(|f| op.f == *f) {
            return;
        }
        let (key, value) = match &op.value {
            Value::Keyed(key, value) => (Some(key.clone()), &**value),
            value => (None, value),
        };
        let started = invocation.and_then(|position| self.open.remove(&position));
        let event = Event {
            index: op.index,
            time: op.time,
            kind: op.kind,
            process: op.process,
            f: op.f,
            value,
            extra: &op.extra,
            invocation: started.as_ref(),
        };
        judge.take(self.keys.entry(key).or_default(), &event);
        if op.is_invoke() {
            let started = Started {
                index: op.index,
                time: op.time,
                value: value.clone(),
            };
            self.open.insert(position, started);
        }
    }

    fn verdict<J: Judge<State = S>>(self, judge: &J) -> Verdict {
        let [invoked, ok, fail, info] = self.kinds;
        let mut outcome = Outcome::default();
        for (name, count) in [
            ("ok", ok),
            ("fail", fail),
            ("info", info + invoked.saturating_sub(self.paired)),
            ("keys", self.keys.keys().flatten().count() as u64),
        ] {
            outcome.count(name, count);
        }
        if self.keys.is_empty() {
            let functions = J::FUNCTIONS.join(", ");
            outcome.unknown(format!(
                "the history has none of the operations {functions}"
            ));
        }
        for (key, state) in self.keys {
            outcome.of_key(key);
            judge.finish(state, &mut outcome);
        }
        let mut verdict = outcome.verdict(J::NAME);
        verdict.model = judge.model().map(str::to_owned);
        verdict
    }
}

/// A judge over chunks, one after the other.
pub(crate) struct Folded<J>(pub(crate) J);

impl<J: Judge> Fold for Folded<J> {
    type Accumulator = Passed<J::State>;
    type Output = Verdict;

    fn name(&self) -> String {
        J::NAME.into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Passed<J::State> {
        Passed::default()
    }

    fn reduce(&self, passed: &mut Passed<J::State>, chunk: &Chunk) -> ControlFlow<()> {
        for (place, op) in chunk.ops().enumerate() {
            let position = chunk.first_position() + place as u64;
            passed.take(&self.0, position, chunk.invocation(place), &op);
        }
        ControlFlow::Continue(())
    }

    /// Never called: one accumulator sees all chunks.
    fn combine(&self, _: &mut Passed<J::State>, _: Passed<J::State>) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, passed: Passed<J::State>) -> Verdict {
        passed.verdict(&self.0)
    }
}
