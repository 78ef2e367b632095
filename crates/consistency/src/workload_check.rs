//! What the checkers of Jepsen's workloads share: states by key, and a verdict with Jepsen's result fields.

use seatrial_checker::{
    Aims, Anomaly, Checker, DataTypeFigures, DataTypeKeys, Details, FINDINGS_MAX, Figures,
    Findings, FoldChecker, KeyResult, OnlineChecker, Validity, Verdict, check_source,
};
use seatrial_history::{
    Chunk, Extra, FixedMap, Fold, History, Key, Op, OpType, Order, Symbol, Value,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// An invocation or completion of a client, without its key.
pub(crate) struct WorkloadEvent<'a> {
    pub(crate) index: u64,
    pub(crate) kind: OpType,
    pub(crate) f: Symbol,
    pub(crate) value: &'a Value,
    pub(crate) extra: &'a Extra,
    /// The value of the invocation of a completion, if it is known.
    pub(crate) invoked: Option<&'a Value>,
}

impl WorkloadEvent<'_> {
    /// The value; the invocation's for a completion that does not repeat it.
    pub(crate) fn argument(&self) -> &Value {
        match (self.value, self.invoked) {
            (Value::Nil, Some(invoked)) => invoked,
            (value, _) => value,
        }
    }
}

/// A workload of Jepsen's that one pass over the history checks, with one state for each independent key.
pub(crate) trait WorkloadCheck: Checker + Clone + 'static {
    /// The state of one key.
    type State: Default + Send;

    /// The checker's name.
    const NAME: &'static str;

    /// The functions of its operations; all others are ignored.
    const FUNCTIONS: &'static [&'static str];

    /// Applies an invocation or completion of a client to the state of its key.
    fn apply(&self, state: &mut Self::State, event: &WorkloadEvent<'_>);

    /// Reports the anomalies and figures of one key.
    fn finish(&self, state: Self::State, tally: &mut WorkloadTally);

    /// Starts to check one history, chunk by chunk.
    fn online(&self) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new(Self::NAME, WorkloadFold(self.clone())))
    }

    /// The verdict on a history in memory.
    fn check_history(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(Self::NAME).unknown(error.to_string()),
        }
    }
}

/// Findings and figures of all keys so far.
#[derive(Default)]
pub(crate) struct WorkloadTally {
    key: Option<Key>,
    findings: Findings,
    counts: BTreeMap<&'static str, u64>,
    lists: BTreeMap<&'static str, Vec<String>>,
    /// Anomalies of the current key.
    anomalies: BTreeSet<Anomaly>,
    results: BTreeMap<String, KeyResult>,
    keys_invalid: u64,
    unknown: Option<String>,
    has_evidence: bool,
}

/// Elements of a list in the details; keys that the details name.
const LISTED_MAX: usize = 64;

impl WorkloadTally {
    /// The current key.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Adds to the figure called `name`.
    pub(crate) fn count(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// Adds a line to the list called `name`, which is kept if it is one of the first.
    pub(crate) fn list(&mut self, name: &'static str, line: impl FnOnce() -> String) {
        let lines = self.lists.entry(name).or_default();
        if lines.len() < LISTED_MAX {
            lines.push(line());
        }
    }

    /// There is something that could have contradicted the workload.
    pub(crate) fn note_evidence(&mut self) {
        self.has_evidence = true;
    }

    /// Makes the verdict unknown for this reason, unless there is an anomaly.
    pub(crate) fn unknown(&mut self, reason: &str) {
        let prefix = self.prefix();
        self.unknown
            .get_or_insert_with(|| format!("{prefix}{reason}"));
    }

    /// Adds an anomaly. `explain` returns its operations and its description; it is called for the first few only.
    pub(crate) fn anomaly(
        &mut self,
        anomaly: Anomaly,
        explain: impl FnOnce() -> (Vec<u64>, String),
    ) {
        let prefix = self.prefix();
        self.anomalies.insert(anomaly);
        self.findings.explain(anomaly, || {
            let (operations, summary) = explain();
            (operations, format!("{prefix}{summary}"))
        });
    }

    /// Counts anomalies that are not explained.
    pub(crate) fn count_more(&mut self, anomaly: Anomaly, count: u64) {
        if count > 0 {
            self.findings.count(anomaly, count);
        }
    }

    fn prefix(&self) -> String {
        let key = self.key.as_ref();
        key.map_or_else(String::new, |key| format!("Key {key}: "))
    }

    fn close_key(&mut self) {
        let anomalies = std::mem::take(&mut self.anomalies);
        let Some(key) = self.key.take().filter(|_| !anomalies.is_empty()) else {
            return;
        };
        self.keys_invalid += 1;
        if self.results.len() < LISTED_MAX {
            self.results
                .insert(key.to_string(), KeyResult::Invalid(anomalies));
        }
    }

    fn build(self, checker: &'static str, has_keys: bool, silence: &str) -> Verdict {
        let mut verdict = Verdict::valid(checker);
        (verdict.anomalies, verdict.findings) = self.findings.into_parts();
        verdict.details = Details::of(Figures::DataType(DataTypeFigures {
            counts: self.counts,
            findings_max: FINDINGS_MAX,
            silent_keys: 0,
            by_key: has_keys.then_some(DataTypeKeys {
                keys_invalid: self.keys_invalid,
                keys_unknown: 0,
                results: self.results,
            }),
            lists: self.lists,
            others: BTreeMap::new(),
        }));
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            return verdict;
        }
        match self.unknown {
            Some(reason) => verdict.unknown(reason),
            None if self.has_evidence => verdict,
            None => verdict.unknown(silence),
        }
    }
}

/// The states of all keys after the operations so far, and the values of operations under way.
pub(crate) struct WorkloadStates<S> {
    open: FixedMap<u64, Value>,
    keys: BTreeMap<Option<Key>, S>,
    /// Completions: ok, fail, info.
    outcomes: [u64; 3],
}

/// The fold of a workload over chunks, in order.
struct WorkloadFold<W>(W);

impl<W: WorkloadCheck> WorkloadFold<W> {
    fn apply(
        &self,
        states: &mut WorkloadStates<W::State>,
        position: u64,
        invocation: Option<u64>,
        op: &Op,
    ) {
        if op.kind != OpType::Invoke {
            states.outcomes[op.kind as usize - 1] += 1;
        }
        if !W::FUNCTIONS.iter().any(|f| op.f == *f) {
            return;
        }
        let (key, value) = match &op.value {
            Value::Keyed(key, value) => (Some(key.clone()), &**value),
            value => (None, value),
        };
        let invoked = invocation.and_then(|position| states.open.remove(&position));
        let event = WorkloadEvent {
            index: op.index,
            kind: op.kind,
            f: op.f,
            value,
            extra: &op.extra,
            invoked: invoked.as_ref(),
        };
        self.0.apply(states.keys.entry(key).or_default(), &event);
        if op.is_invoke() {
            states.open.insert(position, value.clone());
        }
    }
}

impl<W: WorkloadCheck> Fold for WorkloadFold<W> {
    type Accumulator = WorkloadStates<W::State>;
    type Output = Verdict;

    fn name(&self) -> String {
        W::NAME.into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> WorkloadStates<W::State> {
        WorkloadStates {
            open: FixedMap::default(),
            keys: BTreeMap::new(),
            outcomes: [0; 3],
        }
    }

    fn reduce(&self, states: &mut WorkloadStates<W::State>, chunk: &Chunk) -> ControlFlow<()> {
        for (place, op) in chunk.ops().enumerate() {
            if op.process.is_client() {
                let position = chunk.first_position() + place as u64;
                self.apply(states, position, chunk.invocation(place), &op);
            }
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(
        &self,
        _: &mut WorkloadStates<W::State>,
        _: WorkloadStates<W::State>,
    ) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, states: WorkloadStates<W::State>) -> Verdict {
        let mut tally = WorkloadTally::default();
        let [ok, fail, info] = states.outcomes;
        let keys = states.keys.keys().flatten().count() as u64;
        for (name, count) in [
            ("ok", ok),
            ("fail", fail),
            ("info", info + states.open.len() as u64),
            ("keys", keys),
        ] {
            tally.count(name, count);
        }
        let silence = if states.keys.is_empty() {
            let functions = W::FUNCTIONS.join(", ");
            format!("the history has none of the operations {functions}")
        } else {
            "no operation completed ok that could contradict the workload".to_owned()
        };
        for (key, state) in states.keys {
            tally.key = key;
            self.0.finish(state, &mut tally);
            tally.close_key();
        }
        tally.build(W::NAME, keys > 0, &silence)
    }
}

/// A key and a value that are a tuple in a history that was not read as keyed.
pub(crate) fn tuple(value: &Value) -> Option<(&Value, &Value)> {
    match value {
        Value::List(items) => match &items[..] {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

/// Implements [`Checker`] for a workload.
macro_rules! workload_checker {
    ($check:ty, $robustness:expr) => {
        impl seatrial_checker::Checker for $check {
            fn name(&self) -> &'static str {
                <$check as $crate::workload_check::WorkloadCheck>::NAME
            }

            fn robustness(&self) -> seatrial_checker::Robustness {
                $robustness
            }

            fn check(&self, history: &seatrial_history::History) -> seatrial_checker::Verdict {
                $crate::workload_check::WorkloadCheck::check_history(self, history)
            }

            fn start(
                &self,
                _: &seatrial_checker::Aims,
            ) -> Box<dyn seatrial_checker::OnlineChecker> {
                $crate::workload_check::WorkloadCheck::online(self)
            }
        }
    };
}

pub(crate) use workload_checker;
