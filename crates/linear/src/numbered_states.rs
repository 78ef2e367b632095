//! States of a model, numbered, and the steps between them.

use crate::values::StateId;
use seatrial_history::FixedMap;
use std::hash::Hash;

/// The states of an object, numbered in order of appearance, and the steps that were tried: equal states have one number, and no
/// step is computed twice.
///
/// Cost: each state twice, and 20 bytes and a look-up for each step.
pub(crate) struct NumberedStates<S, A> {
    states: Vec<S>,
    numbers: FixedMap<S, StateId>,
    steps: FixedMap<(StateId, A), Option<StateId>>,
}

impl<S: Clone + Eq + Hash, A: Copy + Eq + Hash> NumberedStates<S, A> {
    /// Only the initial state, which is 0.
    pub(crate) fn new(initial: S) -> NumberedStates<S, A> {
        let mut numbers = FixedMap::default();
        numbers.insert(initial.clone(), 0);
        NumberedStates {
            states: vec![initial],
            numbers,
            steps: FixedMap::default(),
        }
    }

    /// The state of this number.
    pub(crate) fn get(&self, state: StateId) -> &S {
        &self.states[state as usize]
    }

    /// Number of states.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The state after `action`, which `apply` computes if this step is new; `None` if it is impossible.
    pub(crate) fn step(
        &mut self,
        state: StateId,
        action: A,
        apply: impl FnOnce(&S) -> Option<S>,
    ) -> Option<StateId> {
        if let Some(&known) = self.steps.get(&(state, action)) {
            return known;
        }
        let next = apply(self.get(state)).map(|next| {
            let fresh = self.states.len() as StateId;
            let number = *self.numbers.entry(next.clone()).or_insert(fresh);
            if number == fresh {
                self.states.push(next);
            }
            number
        });
        debug_assert!(self.states.len() == self.numbers.len(), "a number each");
        self.steps.insert((state, action), next);
        next
    }

    /// Bytes held, without what states point to.
    pub(crate) fn bytes(&self) -> usize {
        let steps = self.steps.len() * size_of::<((StateId, A), Option<StateId>)>();
        self.states.len() * 2 * size_of::<(S, StateId)>() + steps
    }
}
