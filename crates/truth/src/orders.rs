//! Models that an order of transactions explains: serializability, snapshot isolation, prefix consistency.
//!
//! Definitions: Papadimitriou 1979 (serializability, view equivalence with unique writes), Herlihy and Wing 1990 (real time),
//! Berenson and others 1995 and Elnikety and others 2005 (generalized snapshot isolation), Daudjee and Salem 2006 (strong
//! and session variants), Burckhardt and others 2015 (prefix consistency).

use crate::case::{Case, KEYS_MAX, Set, State, TRANSACTIONS_MAX, Txn, members_of};

/// Which order explains a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Each transaction takes place at one instant.
    Serializable,
    /// Each reads from a snapshot and commits later, and no other one commits a write to its written keys in between.
    Snapshot,
    /// Each reads from a snapshot and commits later.
    Prefix,
}

/// What the order agrees with besides: what was committed before must be in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Follows {
    /// Nothing.
    Nothing,
    /// The order of each process.
    Sessions,
    /// That, and real time.
    Time,
}

impl Follows {
    /// Must the one be committed when the other begins?
    pub(crate) fn holds(self, one: &Txn, other: &Txn) -> bool {
        match self {
            Follows::Nothing => false,
            Follows::Sessions => one.is_run_before(other),
            Follows::Time => one.is_run_before(other) || one.is_before(other),
        }
    }
}

/// Does a transaction see what it saw when it reads from this state? Of an unknown outcome the reads are unknown.
pub(crate) fn sees(case: &Case, txn: &Txn, snapshot: &State) -> bool {
    let mut state = *snapshot;
    txn.micros.iter().all(|micro| {
        let value = &mut state[usize::from(micro.key)];
        if micro.is_write {
            *value = case.kind.write(*value, micro.value);
        }
        micro.is_write || !txn.is_ok() || *value == micro.value
    })
}

/// Carries its writes out.
fn apply(case: &Case, txn: &Txn, state: &mut State) {
    for (key, value) in txn.writes() {
        let held = &mut state[usize::from(key)];
        *held = case.kind.write(*held, value);
    }
}

/// Is there an order that explains the history?
///
/// All orders of commits are tried, and for each commit all snapshots before it, numbered by commits.
pub(crate) fn is_explained(case: &Case, rule: Rule, follows: Follows) -> bool {
    let members = case.members();
    let mut search = OrderSearch {
        case,
        rule,
        members,
        before: [0; TRANSACTIONS_MAX],
        states: [[0; KEYS_MAX]; TRANSACTIONS_MAX + 1],
        place: [0; TRANSACTIONS_MAX],
    };
    for number in members_of(members) {
        for other in members_of(members) {
            let must = follows.holds(&case.txns[other], &case.txns[number]);
            search.before[number] |= u8::from(must) << other;
        }
    }
    search.extend(0, 0, [0; KEYS_MAX])
}

struct OrderSearch<'a> {
    case: &'a Case,
    rule: Rule,
    members: Set,
    /// By transaction: the set of transactions committed before it begins.
    before: [Set; TRANSACTIONS_MAX],
    /// States by number of commits.
    states: [State; TRANSACTIONS_MAX + 1],
    /// By transaction that is committed: how many were before.
    place: [usize; TRANSACTIONS_MAX],
}

impl OrderSearch<'_> {
    /// Can the rest be committed after these? `written`: by key, after how many commits it was last written.
    fn extend(&mut self, committed: Set, count: usize, written: [usize; KEYS_MAX]) -> bool {
        if committed == self.members {
            return true;
        }
        for number in members_of(self.members & !committed) {
            if self.before[number] & !committed != 0 || !self.can_commit(number, count, &written) {
                continue;
            }
            let txn = &self.case.txns[number];
            self.place[number] = count;
            self.states[count + 1] = self.states[count];
            apply(self.case, txn, &mut self.states[count + 1]);
            let mut written = written;
            for (key, _) in txn.writes() {
                written[usize::from(key)] = count + 1;
            }
            if self.extend(committed | 1 << number, count + 1, written) {
                return true;
            }
        }
        false
    }

    /// Is there a snapshot from which it may commit after the first `count` others?
    fn can_commit(&self, number: usize, count: usize, written: &[usize; KEYS_MAX]) -> bool {
        let txn = &self.case.txns[number];
        let mut first = members_of(self.before[number])
            .map(|other| self.place[other] + 1)
            .max()
            .unwrap_or(0);
        match self.rule {
            Rule::Serializable => first = count,
            Rule::Snapshot => {
                let written = txn.writes().map(|(key, _)| written[usize::from(key)]);
                first = first.max(written.max().unwrap_or(0));
            }
            Rule::Prefix => {}
        }
        (first..=count).any(|place| sees(self.case, txn, &self.states[place]))
    }
}

/// Does this very order explain the history? Each transaction that took place stands there once (`Serializable`) or twice:
/// where it begins and where it commits.
pub(crate) fn explains(case: &Case, rule: Rule, follows: Follows, order: &[usize]) -> bool {
    let times = if rule == Rule::Serializable { 1 } else { 2 };
    let count = |number| order.iter().filter(|&&other| other == number).count();
    for (number, txn) in case.txns.iter().enumerate() {
        let found = count(number);
        let is_fine = match txn.outcome {
            crate::case::CaseOutcome::Ok => found == times,
            crate::case::CaseOutcome::Fail => found == 0,
            crate::case::CaseOutcome::Info => found == times || found == 0,
        };
        if !is_fine {
            return false;
        }
    }
    let begin = |number| order.iter().position(|&other| other == number);
    let end = |number| order.iter().rposition(|&other| other == number);
    for &one in order {
        for &other in order {
            // Both stand there.
            let must = follows.holds(&case.txns[one], &case.txns[other]);
            if must && end(one) >= begin(other) {
                return false;
            }
        }
    }
    let mut state = State::default();
    let mut begun = [None; TRANSACTIONS_MAX];
    let mut written = [0; KEYS_MAX];
    for (place, &number) in order.iter().enumerate() {
        let txn = &case.txns[number];
        if begun[number].is_none() {
            if !sees(case, txn, &state) {
                return false;
            }
            begun[number] = Some(place);
            if rule != Rule::Serializable {
                continue;
            }
        }
        let since = begun[number].unwrap_or_default();
        let mut keys = txn.writes().map(|(key, _)| usize::from(key));
        if rule == Rule::Snapshot && keys.any(|key| written[key] > since) {
            return false;
        }
        apply(case, txn, &mut state);
        for (key, _) in txn.writes() {
            written[usize::from(key)] = place;
        }
    }
    true
}
