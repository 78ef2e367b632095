//! Sets whose elements are added once: each element decided alone, without a search.

use super::set_model::{SetAction, SetOperation};
use seatrial_linear::{ModelCall, MonitorDecision, Refutation, ValueNumbers};

/// The completion of an operation of unknown outcome.
const PENDING: u32 = ModelCall::NEVER;

/// Removals without result of one element that are tried in turn.
const DISCARDS_MAX: usize = 8;

/// What is known of one element; all its operations but removals that may have found it absent.
#[derive(Clone, Copy)]
struct ElementSpan {
    /// Additions that may have found it absent.
    additions: u32,
    /// Invocation of the addition.
    add_call: u32,
    /// Least completion of the operations that need the element: its addition takes effect by then.
    first_ret: u32,
    /// Greatest invocation of the operations that need it: its removal takes effect no earlier.
    last_call: u32,
    /// Is it seen, by an operation other than its addition?
    is_needed: bool,
    /// Removals that found it; the completion of the last.
    removals: u32,
    remove_ret: u32,
}

const UNSEEN: ElementSpan = ElementSpan {
    additions: 0,
    add_call: PENDING,
    first_ret: PENDING,
    last_call: 0,
    is_needed: false,
    removals: 0,
    remove_ret: PENDING,
};

/// Decides a set of which no operation reads all elements. Exact; O(n), if no element is added twice. Calls need not be on many
/// elements: those of one are decided as well.
///
/// Of one element: its addition takes effect by the least completion of the operations that find it, `m`; its removal no earlier
/// than their greatest invocation, `M`. With the addition at `m` and the removal at `M` it is there for the shortest time (for an
/// instant, if `M <= m`), so an operation that finds it absent fits iff it can take effect up to `m` or from `M` on. An element
/// without addition is always absent. Of the removals without result at most one removes it, and all others find it absent;
/// which one it is, is tried. (The set monitor of `monitors` is the same without these.)
pub(super) fn decide_elements(
    calls: &[ModelCall<SetOperation>],
    values: &ValueNumbers,
) -> MonitorDecision<SetOperation> {
    // Dense numbers: of a small part of a history, those of its own.
    let mut own: Vec<u32> = Vec::new();
    let is_small = calls.len() < values.count() / 8;
    if is_small {
        own.extend(calls.iter().filter_map(element));
        own.sort_unstable();
        own.dedup();
    }
    let count = if is_small { own.len() } else { values.count() };
    let number = |call: &ModelCall<SetOperation>| {
        let element = element(call)?;
        if is_small {
            own.binary_search(&element).ok()
        } else {
            Some(element as usize)
        }
    };
    let mut spans = vec![UNSEEN; count];
    // Operations that may have found their element absent, by element.
    let mut absences: Vec<(u32, u32)> = Vec::new();
    for (place, call) in (0..).zip(calls) {
        let (Some(at), SetOperation::One(action, element)) = (number(call), &call.operation) else {
            return MonitorDecision::Search("the set is read as a whole".into());
        };
        if spans[at].take(*action, call) {
            absences.push((at as u32, place));
        }
        if spans[at].additions > 1 {
            let element = values.value(*element);
            return MonitorDecision::Search(format!("{element} is added more than once"));
        }
    }
    absences.sort_unstable();
    let mut rest = &absences[..];
    for (at, span) in (0..).zip(&spans) {
        let own = rest.partition_point(|&(of, _)| of == at);
        let (own, others) = rest.split_at(own);
        rest = others;
        let Some(fits) = span.fits(own, calls) else {
            return MonitorDecision::Search(format!(
                "more than {DISCARDS_MAX} removals of one element have no result"
            ));
        };
        if !fits {
            let of_element = calls
                .iter()
                .filter(|call| number(call) == Some(at as usize));
            return MonitorDecision::Refuted(Refutation {
                calls: of_element.cloned().collect(),
                reason: None,
            });
        }
    }
    assert!(rest.is_empty(), "each absence is of an element");
    MonitorDecision::Linearizable
}

fn element(call: &ModelCall<SetOperation>) -> Option<u32> {
    match call.operation {
        SetOperation::One(_, element) => Some(element),
        SetOperation::Read(_) => None,
    }
}

impl ElementSpan {
    /// Takes an operation; true if it found the element absent, or may have.
    fn take(&mut self, action: SetAction, call: &ModelCall<SetOperation>) -> bool {
        match action {
            // Of unknown outcome and with a result: such an operation constrains nothing.
            SetAction::Present | SetAction::Absent if !call.is_certain() => return false,
            SetAction::Absent | SetAction::Discard => return true,
            SetAction::Add | SetAction::Put => {
                self.additions += 1;
                self.add_call = call.call;
            }
            SetAction::Remove => {
                self.removals += 1;
                self.remove_ret = call.ret;
                self.is_needed = true;
            }
            SetAction::Present => self.is_needed = true,
        }
        self.first_ret = self.first_ret.min(call.ret);
        self.last_call = self.last_call.max(call.call);
        false
    }

    /// Is there an order? `None`: there are too many removals without result.
    fn fits(&self, absences: &[(u32, u32)], calls: &[ModelCall<SetOperation>]) -> Option<bool> {
        if self.additions == 0 {
            return Some(!self.is_needed);
        }
        // An addition of unknown outcome that is not seen need not take effect.
        if self.first_ret == PENDING && !self.is_needed {
            return Some(true);
        }
        if self.removals > 1 || self.add_call > self.first_ret {
            return Some(false);
        }
        let all = || absences.iter().map(|&(_, place)| &calls[place as usize]);
        if self.removals == 1 {
            return Some(self.fits_removal(None, all()));
        }
        let is_discard = |call: &&ModelCall<SetOperation>| {
            matches!(call.operation, SetOperation::One(SetAction::Discard, _))
        };
        let certain = all().filter(|call| is_discard(call) && call.is_certain());
        if certain.clone().count() > DISCARDS_MAX {
            return None;
        }
        // Of those of unknown outcome the first allows the most.
        let pending = all().find(|call| is_discard(call) && !call.is_certain());
        let removals = certain.chain(pending).map(Some);
        let mut choices = removals.chain([None]);
        Some(choices.any(|removal| self.fits_removal(removal, all())))
    }

    /// Is there an order in which this removal without result, of those which may, removes the element?
    fn fits_removal<'c>(
        &self,
        removal: Option<&ModelCall<SetOperation>>,
        mut absences: impl Iterator<Item = &'c ModelCall<SetOperation>>,
    ) -> bool {
        let mut span = *self;
        if let Some(call) = removal {
            span.take(SetAction::Remove, call);
        }
        let is_removed = span.removals > 0;
        if span.add_call > span.first_ret || is_removed && span.last_call > span.remove_ret {
            return false;
        }
        absences.all(|call| {
            removal.is_some_and(|removal| std::ptr::eq(removal, call))
                || call.call <= span.first_ret
                || is_removed && call.ret >= span.last_call
        })
    }
}
