//! Parts of an object that no operation connects: objects of their own.

use crate::history_model::{HistoryModel, ModelCall};
use seatrial_history::FixedMap;

/// Calls by component: `calls[starts[n]..starts[n + 1]]` are those of component `n`, by their numbers.
pub(crate) struct CallComponents {
    starts: Vec<u32>,
    calls: Vec<u32>,
}

impl CallComponents {
    /// The components of an object; `None` if it has one only: an operation accesses all of the state, or the operations connect
    /// its parts. O(n) but for the look-up of each part.
    pub(crate) fn new<M: HistoryModel>(
        model: &M,
        calls: &[ModelCall<M::Operation>],
    ) -> Option<CallComponents> {
        let mut numbers: FixedMap<u64, u32> = FixedMap::default();
        let mut parents: Vec<u32> = Vec::new();
        let mut of_call = Vec::with_capacity(calls.len());
        let mut parts = Vec::new();
        for call in calls {
            parts.clear();
            model.accesses(&call.operation, &mut parts);
            let mut first = None;
            for part in &parts {
                let fresh = parents.len() as u32;
                let number = *numbers.entry(*part).or_insert(fresh);
                if number == fresh {
                    parents.push(fresh);
                }
                match first {
                    None => first = Some(number),
                    Some(first) => connect(&mut parents, first, number),
                }
            }
            of_call.push(first?);
        }
        // Components are numbered by their first call.
        let mut component_of_root: Vec<u32> = vec![u32::MAX; parents.len()];
        let mut counts: Vec<u32> = Vec::new();
        for part in &mut of_call {
            let root = root(&mut parents, *part) as usize;
            if component_of_root[root] == u32::MAX {
                component_of_root[root] = counts.len() as u32;
                counts.push(0);
            }
            *part = component_of_root[root];
            counts[*part as usize] += 1;
        }
        if counts.len() < 2 {
            return None;
        }
        Some(CallComponents::sorted(&of_call, &counts))
    }

    /// Sorts calls by component; `counts` has the number of each component's.
    fn sorted(of_call: &[u32], counts: &[u32]) -> CallComponents {
        let mut starts = Vec::with_capacity(counts.len() + 1);
        let mut end = 0;
        starts.push(0);
        for count in counts {
            end += count;
            starts.push(end);
        }
        let mut places: Vec<u32> = starts[..counts.len()].to_vec();
        let mut calls = vec![0; of_call.len()];
        for (number, &component) in (0..).zip(of_call) {
            let place = &mut places[component as usize];
            calls[*place as usize] = number;
            *place += 1;
        }
        assert!(end as usize == of_call.len(), "each call is in a component");
        CallComponents { starts, calls }
    }

    /// The numbers of each component's calls, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let ranges = self.starts.windows(2);
        ranges.map(|range| &self.calls[range[0] as usize..range[1] as usize])
    }
}

/// The root of a part's tree; halves the path to it.
fn root(parents: &mut [u32], mut part: u32) -> u32 {
    while parents[part as usize] != part {
        let above = parents[part as usize];
        parents[part as usize] = parents[above as usize];
        part = above;
    }
    part
}

/// Connects two parts; the lower root stays one.
fn connect(parents: &mut [u32], a: u32, b: u32) {
    let (a, b) = (root(parents, a), root(parents, b));
    parents[a.max(b) as usize] = a.min(b);
}
