//! By when pending removals must have taken values: what later operations require.

use super::NEVER;
use super::value_table::ValueTable;

/// For each value without known removal the latest position at which a removal must have taken it; else [`NEVER`].
pub(super) type Deadlines = Vec<u32>;

/// What a data type knows of deadlines.
pub(super) enum KnownDeadlines {
    /// Besides observations of an empty collection, these suffice.
    Exact(Deadlines),
    /// These must be met; to meet one of `likely` often suffices.
    Necessary {
        deadlines: Deadlines,
        likely: Vec<Deadlines>,
    },
}

/// An operation that needs values to be gone: those with a greater key.
#[derive(Clone, Copy)]
pub(super) struct Requirement {
    /// Less than the keys of the values; 0: of all.
    pub(super) key: u32,
    pub(super) call: u32,
    pub(super) ret: u32,
}

/// Least numbers of suffixes: a Fenwick tree from the right.
struct SuffixMinima {
    nodes: Vec<u32>,
}

impl SuffixMinima {
    fn lower(&mut self, at: u32, number: u32) {
        let mut node = at as usize + 1;
        while node > 0 {
            self.nodes[node] = self.nodes[node].min(number);
            node &= node - 1;
        }
    }

    /// The least number at positions after this one.
    fn after(&self, position: u32) -> u32 {
        let mut node = position as usize + 2;
        let mut least = NEVER;
        while node < self.nodes.len() {
            least = least.min(self.nodes[node]);
            node += node & node.wrapping_neg();
        }
        least
    }
}

/// The deadlines that requirements, and observations of an empty collection, set: an operation that needs a value to be gone,
/// and is called after the first return of the value's operations, finds it there unless it was taken by the operation's
/// return. Second: earlier deadlines, the calls of these operations. O(n log n).
pub(super) fn deadlines_of(
    table: &ValueTable,
    mut requirements: Vec<Requirement>,
    key: &dyn Fn(u32) -> u32,
) -> (Deadlines, Deadlines) {
    requirements.extend(table.empties.iter().map(|empty| Requirement {
        key: 0,
        call: empty.call,
        ret: empty.ret,
    }));
    requirements.sort_unstable_by_key(|requirement| requirement.key);
    let mut values: Vec<(u32, u32)> = table.unremoved().map(|value| (key(value), value)).collect();
    values.sort_unstable();
    let minima = || SuffixMinima {
        nodes: vec![NEVER; table.positions as usize + 2],
    };
    let (mut returns, mut calls) = (minima(), minima());
    let mut deadlines = vec![NEVER; table.spans.len()];
    let mut earlier = deadlines.clone();
    let mut requirements = requirements.into_iter().peekable();
    for (key, value) in values {
        while let Some(one) = requirements.next_if(|one| one.key == 0 || one.key < key) {
            returns.lower(one.call, one.ret);
            calls.lower(one.call, one.call);
        }
        let span = &table.spans[value as usize];
        if span.first_ret != NEVER {
            deadlines[value as usize] = returns.after(span.first_ret);
            earlier[value as usize] = calls.after(span.first_ret);
        }
    }
    (deadlines, earlier)
}
