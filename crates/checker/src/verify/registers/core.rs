//! Transactions on registers of which there is no order.

use super::{Facts, Read};
use crate::verify::table::{NONE, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Transactions of a core that are tried, and cases that are told apart.
const CORE_MAX: usize = 60;
const CASES_MAX: u32 = 200_000;

/// Is there no way to put the versions of these transactions in order? Tries both orders of any two versions, and what follows
/// from each by cycles.
pub(super) fn core(
    facts: &Facts<'_>,
    axiom: &str,
    relation: &str,
    places: &[u64],
) -> Result<(), String> {
    let members: BTreeSet<u32> = facts.at_all(places)?.into_iter().collect();
    if members.len() > CORE_MAX {
        return Err(format!(
            "more than {CORE_MAX} transactions are not replayed"
        ));
    }
    let members: Vec<u32> = members.into_iter().collect();
    let mut trial = Trial::new(facts, axiom, relation, &members);
    let reach = trial.reach.clone();
    match trial.is_impossible(&reach, &[]) {
        Some(true) => Ok(()),
        Some(false) => Err("there is an order that explains these transactions".into()),
        None => Err(format!("not settled after {CASES_MAX} cases")),
    }
}

/// Two versions of a key in order, by places among the members: the writers, and who read the first.
struct Pair {
    first: Option<usize>,
    second: usize,
    readers: Vec<usize>,
}

/// What is tried. Events of member m: m takes its snapshot (2 m) and commits (2 m + 1).
struct Trial<'a> {
    axiom: &'a str,
    /// By event: events that come later.
    reach: Vec<u128>,
    /// Pairs of versions of which one order holds: the two orders of each.
    open: Vec<[Pair; 2]>,
    /// Initial states, which come first.
    first: Vec<Pair>,
    cases: u32,
}

impl<'a> Trial<'a> {
    fn new(facts: &Facts<'_>, axiom: &'a str, relation: &str, members: &[u32]) -> Trial<'a> {
        let mut trial = Trial {
            axiom,
            reach: vec![0; 2 * members.len()],
            open: Vec::new(),
            first: Vec::new(),
            cases: 0,
        };
        let mut writers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (m, &number) in members.iter().enumerate() {
            trial.link(2 * m, 2 * m + 1);
            for (other, &earlier) in members.iter().enumerate() {
                let reads = facts
                    .reads(number)
                    .iter()
                    .any(|read| read.source == earlier);
                if reads || other != m && follows(facts.table, relation, earlier, number) {
                    trial.link(2 * other + 1, 2 * m);
                }
            }
            for &key in facts.writes(number) {
                writers.entry(key).or_default().push(m);
            }
        }
        let readers = |key: u32, version: Option<usize>| -> Vec<usize> {
            let source = version.map_or(NONE, |m| members[m]);
            let read = Read { key, source };
            let is_reader = |&m: &usize| facts.reads(members[m]).contains(&read);
            (0..members.len()).filter(is_reader).collect()
        };
        for (key, writers) in writers {
            let pair = |first: Option<usize>, second: usize| Pair {
                first,
                second,
                readers: readers(key, first),
            };
            for (at, &one) in writers.iter().enumerate() {
                trial.first.push(pair(None, one));
                for &other in &writers[at + 1..] {
                    trial
                        .open
                        .push([pair(Some(one), other), pair(Some(other), one)]);
                }
            }
        }
        trial
    }

    fn link(&mut self, from: usize, to: usize) {
        link(&mut self.reach, from, to);
    }

    /// Is nothing possible with these orders of pairs (numbers, and which)?
    fn is_impossible(&mut self, reach: &[u128], chosen: &[(usize, usize)]) -> Option<bool> {
        self.cases += 1;
        if self.cases > CASES_MAX {
            return None;
        }
        let mut reach = reach.to_vec();
        let mut chosen = chosen.to_vec();
        loop {
            if self.contradicts(&mut reach, &chosen, None) {
                return Some(true);
            }
            let decided: BTreeSet<usize> = chosen.iter().map(|choice| choice.0).collect();
            let open: Vec<usize> = (0..self.open.len())
                .filter(|pair| !decided.contains(pair))
                .collect();
            let forced = open.iter().find_map(|&pair| {
                let fails =
                    |which| self.contradicts(&mut reach.clone(), &chosen, Some((pair, which)));
                match (fails(0), fails(1)) {
                    (true, _) => Some((pair, 1)),
                    (_, true) => Some((pair, 0)),
                    _ => None,
                }
            });
            if let Some(choice) = forced {
                chosen.push(choice);
                continue;
            }
            let Some(&pair) = open.first() else {
                return Some(false);
            };
            for which in [0, 1] {
                let mut chosen = chosen.clone();
                chosen.push((pair, which));
                match self.is_impossible(&reach, &chosen) {
                    Some(true) => {}
                    other => return other,
                }
            }
            return Some(true);
        }
    }

    /// Puts the chosen orders in, and one more. Is there a cycle, or an overwrite that a reader sees?
    fn contradicts(
        &self,
        reach: &mut [u128],
        chosen: &[(usize, usize)],
        more: Option<(usize, usize)>,
    ) -> bool {
        let chosen = chosen.iter().copied().chain(more);
        let chosen: Vec<&Pair> = chosen
            .map(|(pair, which)| &self.open[pair][which])
            .chain(&self.first)
            .collect();
        let is_parallel = self.axiom == "parallel-snapshot-isolation";
        for pair in &chosen {
            if let Some(first) = pair.first {
                let to = if self.axiom == "prefix" {
                    2 * pair.second + 1
                } else {
                    2 * pair.second
                };
                link(reach, 2 * first + 1, to);
            }
            let others = pair.readers.iter().filter(|&&reader| reader != pair.second);
            for &reader in others.filter(|_| !is_parallel) {
                let (from, to) = match self.axiom {
                    "serializable" => (2 * reader + 1, 2 * pair.second),
                    _ => (2 * reader, 2 * pair.second + 1),
                };
                link(reach, from, to);
            }
        }
        let reaches = |from: usize, to: usize| reach[from] >> to & 1 == 1;
        let sees = |pair: &Pair| {
            let mut others = pair.readers.iter().filter(|&&reader| reader != pair.second);
            others.any(|&reader| reaches(2 * pair.second + 1, 2 * reader))
        };
        (0..reach.len()).any(|event| reaches(event, event))
            || is_parallel && chosen.into_iter().any(sees)
    }
}

/// One more edge; what reaches what follows.
fn link(reach: &mut [u128], from: usize, to: usize) {
    let later = reach[to] | 1 << to;
    for (event, after) in reach.iter_mut().enumerate() {
        if event == from || *after >> from & 1 == 1 {
            *after |= later;
        }
    }
}

/// Must `one` have committed before `other` begins?
fn follows(table: &Table, relation: &str, one: u32, other: u32) -> bool {
    let (one, other) = (&table.all[one as usize], &table.all[other as usize]);
    !relation.is_empty() && one.is_run_before(other)
        || relation == "realtime" && one.is_over_before(other)
}
