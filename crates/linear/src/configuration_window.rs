//! The window of an object of any model: its possible states, and the operations whose outcomes are awaited.

use crate::explanation::{ObjectWords, ViolationExcerpt};
use crate::history_model::{HistoryModel, ValueNumbers};
use crate::linearization_search::Counterexample;
use crate::object::{NEVER, ObjectOperation};
use crate::object_window::{
    ObjectWindow, WindowCounts, WindowEvent, WindowRefutation, WindowedType,
};
use crate::online_verdict::OnlineMethod;
use crate::possible_states::{CONFIGURATIONS_MAX, OpenCall, PossibleStates, RefutedCall};
use crate::values::StateId;
use seatrial_checker::Checker;
use seatrial_history::{FixedMap, Key, Op};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The objects of a model, in windows of possible states.
pub(crate) struct ConfigurationWindows<M, C> {
    pub(crate) model: Arc<M>,
    pub(crate) checker: C,
}

impl<M, C> WindowedType for ConfigurationWindows<M, C>
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
    C: Checker,
{
    type Window = ConfigurationWindow<M>;

    fn checker(&self) -> &dyn Checker {
        &self.checker
    }

    fn window(&self, key: Option<&Key>) -> ConfigurationWindow<M> {
        ConfigurationWindow {
            model: Arc::clone(&self.model),
            key: key.cloned(),
            values: ValueNumbers::new(),
            parts: BTreeMap::new(),
            events: VecDeque::new(),
            first: 0,
            open: BTreeMap::new(),
            figures: WindowCounts::default(),
            is_refuted: false,
        }
    }

    fn consistency_model(&self) -> String {
        self.model.consistency_model()
    }

    fn method(&self) -> OnlineMethod {
        OnlineMethod {
            monitor: None,
            configurations_max: CONFIGURATIONS_MAX as u64,
        }
    }
}

/// One object while it is recorded.
///
/// Its events wait in a queue until the outcomes of all operations that began before are known: one that failed must not be taken
/// for one that took effect. Then they enter the [`PossibleStates`] of the part of the object that they are about, of the only
/// one where the model has no independent parts. A part that is as at first is freed; when all are, so are the numbers of values.
pub(crate) struct ConfigurationWindow<M: HistoryModel> {
    model: Arc<M>,
    key: Option<Key>,
    values: ValueNumbers,
    parts: BTreeMap<u64, PossibleStates<M>>,
    events: VecDeque<WindowedEvent<M::Operation>>,
    /// The number of the first event of the queue.
    first: u64,
    /// The number of the invocation's event of each operation under way, by its position.
    open: BTreeMap<u64, u64>,
    figures: WindowCounts,
    is_refuted: bool,
}

/// An event of an object.
enum WindowedEvent<O> {
    /// An invocation whose outcome is not known yet.
    Awaited,
    /// An invocation without effect.
    Ineffective,
    /// An invocation that succeeds.
    Certain(OpenCall<O>, u64),
    /// One of unknown outcome: positions, operation, part.
    Unknown((u64, Option<u64>), O, u64),
    /// The completion of the operation with this invocation, in this part.
    End(u64, u64),
}

impl<M: HistoryModel> ConfigurationWindow<M> {
    /// Sets the outcome of an operation under way. Returns its part if it certainly took effect.
    fn resolve(
        &mut self,
        (call, invocation): (u64, &Op),
        completed: Option<(u64, &Op)>,
    ) -> Result<Option<u64>, String> {
        let number = self
            .open
            .remove(&call)
            .expect("an operation that completes is open");
        let completion = completed.map(|(_, op)| op);
        let operation = self
            .model
            .operation(invocation, completion, &mut self.values);
        let operation = operation.map_err(|unfit| unfit.to_string())?;
        let is_certain = completion.is_some_and(Op::is_ok);
        let (mut certain_part, mut event) = (None, WindowedEvent::Ineffective);
        if let Some(operation) = operation {
            self.figures.operations += 1;
            self.figures.unknown += u64::from(!is_certain);
            let end = completed.map(|(end, _)| end);
            let part = self.part(invocation, &operation)?;
            event = match end.filter(|_| is_certain) {
                Some(end) => {
                    certain_part = Some(part);
                    let open = OpenCall {
                        call,
                        end,
                        operation,
                    };
                    WindowedEvent::Certain(open, part)
                }
                None => WindowedEvent::Unknown((call, end), operation, part),
            };
        }
        if self.is_refuted {
            return Ok(None);
        }
        let place = (number - self.first) as usize;
        assert!(
            matches!(self.events[place], WindowedEvent::Awaited),
            "an outcome is known once"
        );
        self.events[place] = event;
        Ok(certain_part)
    }

    /// The part of the object that an operation is about.
    fn part(&self, invocation: &Op, operation: &M::Operation) -> Result<u64, String> {
        if !self.model.has_independent_parts() {
            return Ok(0);
        }
        let mut parts = Vec::new();
        self.model.accesses(operation, &mut parts);
        match parts[..] {
            [part] => Ok(part),
            _ => Err(format!(
                "op {}: `{}` of all at once",
                invocation.index, invocation.f
            )),
        }
    }

    /// Applies the events before the first awaited outcome.
    fn advance(&mut self) -> WindowEvent {
        while let Some(event) = self.events.pop_front() {
            if matches!(event, WindowedEvent::Awaited) {
                self.events.push_front(event);
                break;
            }
            self.first += 1;
            let model = &*self.model;
            let fresh = || PossibleStates::new(model);
            let result = match event {
                WindowedEvent::Awaited | WindowedEvent::Ineffective => Ok(None),
                WindowedEvent::Certain(open, part) => {
                    let part = self.parts.entry(part).or_insert_with(fresh);
                    part.begin(open).map(|()| None)
                }
                WindowedEvent::Unknown(positions, operation, part) => {
                    let part = self.parts.entry(part).or_insert_with(fresh);
                    part.begin_unknown(positions, operation).map(|()| None)
                }
                WindowedEvent::End(call, part) => self.end_call(call, part),
            };
            match result {
                Ok(None) => {}
                Ok(Some(refuted)) => {
                    let refutation = self.refutation(&refuted);
                    self.forget();
                    self.is_refuted = true;
                    return WindowEvent::Refuted(Box::new(refutation));
                }
                Err(reason) => return WindowEvent::Whole(reason),
            }
        }
        if self.parts.is_empty() && self.events.is_empty() {
            self.values = ValueNumbers::new();
        }
        WindowEvent::Nothing
    }

    fn end_call(&mut self, call: u64, number: u64) -> Result<Option<RefutedCall<M>>, String> {
        let part = self.parts.get_mut(&number).expect("a part of its call");
        let before = part.visited;
        let result = part.end(&self.model, call);
        self.figures.configurations += part.visited - before;
        if part.is_initial(&self.model) {
            self.parts.remove(&number);
        }
        result
    }

    fn forget(&mut self) {
        self.parts.clear();
        self.events.clear();
    }

    /// The refutation in words.
    fn refutation(&self, refuted: &RefutedCall<M>) -> WindowRefutation {
        let known = std::iter::once(&refuted.failed).chain(&refuted.concurrent);
        let known = known.map(|one| (one.call, Some(one.end), true, &one.operation));
        let unknown = refuted.unknown.iter();
        let unknown = unknown.map(|(call, end, operation)| (*call, *end, false, operation));
        let all: Vec<_> = known.chain(unknown).collect();
        let positions = all.iter().flat_map(|&(call, end, ..)| [Some(call), end]);
        let mut positions: Vec<u64> = positions.flatten().collect();
        positions.sort_unstable();
        let rank = |at: u64| positions.partition_point(|&other| other < at) as u32;
        let mut indeterminate = FixedMap::default();
        let mut entries = Vec::new();
        for (action, &(call, end, is_certain, _)) in (0..).zip(&all) {
            let (call, end) = (rank(call), end.map(rank));
            if let Some(end) = end.filter(|_| !is_certain) {
                indeterminate.insert(call, end);
            }
            let ret = end.filter(|_| is_certain).unwrap_or(NEVER);
            entries.push(ObjectOperation { action, call, ret });
        }
        let counterexample = Counterexample {
            entry: 0,
            states: (0..refuted.states.len() as StateId).collect(),
            concurrent: (1..entries.len()).collect(),
            ..Counterexample::default()
        };
        let words = RefutedWords {
            model: &*self.model,
            values: &self.values,
            operations: all.iter().map(|&(.., operation)| operation).collect(),
            states: &refuted.states,
        };
        let part = (self.key.as_ref(), &entries[..]);
        let excerpt = ViolationExcerpt::new(part, &counterexample, &words, &indeterminate);
        WindowRefutation { positions, excerpt }
    }
}

/// The words of a refutation: actions and states are numbers of its operations and states.
struct RefutedWords<'a, M: HistoryModel> {
    model: &'a M,
    values: &'a ValueNumbers,
    operations: Vec<&'a M::Operation>,
    states: &'a [M::State],
}

impl<M: HistoryModel> ObjectWords<u32> for RefutedWords<'_, M> {
    fn argument(&self, action: u32) -> String {
        let operation = self.operations[action as usize];
        self.model.argument(operation, self.values)
    }

    fn state(&self, state: StateId) -> String {
        let state = &self.states[state as usize];
        self.model.describe_state(state, self.values)
    }
}

impl<M> ObjectWindow for ConfigurationWindow<M>
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    fn begin(&mut self, position: u64, _: &Op) -> WindowEvent {
        let number = self.first + self.events.len() as u64;
        self.open.insert(position, number);
        if !self.is_refuted {
            self.events.push_back(WindowedEvent::Awaited);
        }
        WindowEvent::Nothing
    }

    fn fail(&mut self, call: u64) -> WindowEvent {
        let number = self
            .open
            .remove(&call)
            .expect("an operation that fails is open");
        if self.is_refuted {
            return WindowEvent::Nothing;
        }
        self.events[(number - self.first) as usize] = WindowedEvent::Ineffective;
        self.advance()
    }

    fn complete(
        &mut self,
        (call, invocation): (u64, &Op),
        (end, completion): (u64, &Op),
    ) -> WindowEvent {
        match self.resolve((call, invocation), Some((end, completion))) {
            Err(reason) => return WindowEvent::Whole(reason),
            Ok(Some(part)) => self.events.push_back(WindowedEvent::End(call, part)),
            Ok(None) => {}
        }
        self.advance()
    }

    fn is_due(&self) -> bool {
        false
    }

    /// The events that are not awaited are decided at once; so there is nothing to do before the end of the history.
    fn check(&mut self, _: u64) -> WindowEvent {
        WindowEvent::Nothing
    }

    fn finish(&mut self, _: u64, under_way: &[(u64, Op)]) -> WindowEvent {
        for (call, op) in under_way {
            if let Err(reason) = self.resolve((*call, op), None) {
                return WindowEvent::Whole(reason);
            }
        }
        self.advance()
    }

    fn held(&self) -> u64 {
        let parts: u64 = self.parts.values().map(PossibleStates::held).sum();
        self.events.len() as u64 + parts
    }

    fn figures(&self) -> WindowCounts {
        self.figures
    }
}
