//! The operation that no order can pass, found by searches of beginnings.

use crate::linearization_search::{Counterexample, OrderResult, Transitions};
use crate::object::{NEVER, ObjectOperation};
use crate::values::ObjectStates;

/// Why an object without linearization has none: the first completion up to which there is none, found by bisection. With fewer
/// completions there are more orders. `search` returns an order of a beginning, in which operations that complete later are of
/// unknown outcome.
///
/// The counterexample has an order of what completes before, and no other states. At a bound it has no order, and all operations
/// as concurrent. Cost: O(log n) searches.
pub(crate) fn bisected_counterexample(
    entries: &[ObjectOperation],
    states: &mut ObjectStates<'_>,
    search: impl Fn(&[ObjectOperation]) -> OrderResult,
) -> Counterexample {
    let rets = entries.iter().map(|entry| entry.ret);
    let mut rets: Vec<u32> = rets.filter(|&ret| ret != NEVER).collect();
    rets.sort_unstable();
    let bare = || Counterexample {
        concurrent: (1..entries.len()).collect(),
        ..Counterexample::default()
    };
    // There is an order up to `low` completions, none up to `high`.
    let (mut low, mut high) = (0, rets.len());
    let mut order = Vec::new();
    while high - low > 1 {
        let middle = low.midpoint(high);
        let (numbers, part) = beginning(entries, rets[middle - 1]);
        match search(&part) {
            OrderResult::Linearizable(found) => {
                order = found.into_iter().map(|entry| numbers[entry]).collect();
                low = middle;
            }
            OrderResult::NotLinearizable => high = middle,
            OrderResult::Exhausted(..) => return bare(),
        }
    }
    let Some(&until) = high.checked_sub(1).and_then(|last| rets.get(last)) else {
        return bare();
    };
    let mut state = 0;
    let mut prefix = Vec::with_capacity(order.len());
    for entry in order {
        state = match states.step(state, entries[entry].action) {
            Some(state) => state,
            None => return bare(),
        };
        prefix.push((entry, state));
    }
    let concurrent = entries.iter().enumerate();
    let concurrent = concurrent.filter(|(_, entry)| entry.call <= until && entry.ret > until);
    let failed = entries.iter().position(|entry| entry.ret == until);
    Counterexample {
        entry: failed.unwrap_or(0),
        prefix: Some(prefix),
        states: Vec::new(),
        concurrent: concurrent.map(|(number, _)| number).collect(),
        is_unfounded: false,
        out_of: None,
    }
}

/// The operations that are invoked up to a position, those that complete later as of unknown outcome; and their numbers.
fn beginning(entries: &[ObjectOperation], until: u32) -> (Vec<usize>, Vec<ObjectOperation>) {
    let numbered = entries.iter().enumerate();
    numbered
        .take_while(|(_, entry)| entry.call <= until)
        .map(|(number, entry)| {
            let ret = if entry.ret <= until { entry.ret } else { NEVER };
            (number, ObjectOperation { ret, ..*entry })
        })
        .unzip()
}
