//! Accounts between which money moves.

use super::element::Element;
use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Anomaly, Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::collections::BTreeMap;

/// Every `read` of all accounts sees the same total: Jepsen's `bank`. Transfers move money and make none.
///
/// Anomalies, at most one per read, the first that applies: `unexpected-account`, `nil-balance`, `wrong-total`,
/// `negative-balance` (unless those are allowed). Told neither accounts nor total, it takes those that most reads saw:
/// then a bank that is wrong from the first read on passes for one that was opened so.
#[derive(Clone, Debug, Default)]
pub struct Bank {
    accounts: Option<Vec<Element>>,
    total: Option<i128>,
    negative: bool,
}

impl Bank {
    /// A bank whose accounts and total the reads tell, without negative balances.
    pub fn new() -> Bank {
        Bank::default()
    }

    /// The same, which has these accounts and no other.
    #[must_use]
    pub fn accounts(self, accounts: impl IntoIterator<Item = i64>) -> Bank {
        let accounts = accounts.into_iter().map(Element::Int).collect();
        Bank {
            accounts: Some(accounts),
            ..self
        }
    }

    /// The same, whose balances have this sum.
    #[must_use]
    pub fn total(self, total: i64) -> Bank {
        Bank {
            total: Some(total.into()),
            ..self
        }
    }

    /// The same, but balances may be negative.
    #[must_use]
    pub fn negative_balances(self) -> Bank {
        Bank {
            negative: true,
            ..self
        }
    }
}

/// What reads have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sight {
    /// Sorted.
    accounts: Vec<Element>,
    nil: bool,
    total: i128,
    negative: bool,
}

/// Reads that saw the same.
#[derive(Debug, Default)]
struct Readers {
    count: u64,
    /// The first of them.
    kept: Vec<(u64, Value)>,
}

/// Reads that are kept of the same sight.
const KEPT_MAX: usize = 8;

/// What is known of one bank.
#[derive(Default)]
pub(crate) struct State {
    reads: u64,
    transfers: u64,
    sights: BTreeMap<Sight, Readers>,
    /// A read of something else than balances.
    refused: Option<u64>,
}

/// The balances in a map from accounts to them.
fn sight(value: &Value) -> Option<Sight> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let mut sight = Sight {
        accounts: pairs.iter().map(|(account, _)| account.into()).collect(),
        nil: false,
        total: 0,
        negative: false,
    };
    sight.accounts.sort_unstable();
    for (_, balance) in pairs.iter() {
        match balance {
            Value::Nil => sight.nil = true,
            Value::Int(balance) => {
                sight.total += i128::from(*balance);
                sight.negative |= *balance < 0;
            }
            _ => return None,
        }
    }
    Some(sight)
}

/// What most reads saw; among equals, what sorts first.
fn most<'a, T: Ord>(sights: impl Iterator<Item = (T, &'a Readers)>) -> Option<T> {
    let mut counts: BTreeMap<T, u64> = BTreeMap::new();
    for (seen, readers) in sights {
        *counts.entry(seen).or_default() += readers.count;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(seen, _)| seen)
}

/// What a sight is compared with.
struct Expected {
    accounts: Vec<Element>,
    total: i128,
    negative: bool,
}

impl Expected {
    /// What is wrong, and why.
    fn judge(&self, sight: &Sight) -> Option<(Anomaly, String)> {
        let unknown = sight
            .accounts
            .iter()
            .find(|one| !self.accounts.contains(one));
        if let Some(account) = unknown {
            return Some((
                "unexpected-account",
                format!("there is no account {account}"),
            ));
        }
        if sight.nil {
            return Some(("nil-balance", "an account has no balance".into()));
        }
        if sight.total != self.total {
            let reason = format!(
                "the balances add up to {}, not to {}",
                sight.total, self.total
            );
            return Some(("wrong-total", reason));
        }
        let is_wrong = sight.negative && !self.negative;
        is_wrong.then(|| ("negative-balance", "a balance is negative".into()))
    }
}

impl Judge for Bank {
    type State = State;
    const NAME: &'static str = "bank";
    const FUNCTIONS: &'static [&'static str] = &["read", "transfer"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
        if event.f == "transfer" {
            state.transfers += u64::from(event.kind == OpType::Ok);
            return;
        }
        if event.kind != OpType::Ok {
            return;
        }
        state.reads += 1;
        match sight(event.value) {
            None => state.refused = state.refused.or(Some(event.index)),
            Some(sight) => {
                let readers = state.sights.entry(sight).or_default();
                readers.count += 1;
                if readers.kept.len() < KEPT_MAX {
                    readers.kept.push((event.index, event.value.clone()));
                }
            }
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        outcome.count("reads", state.reads);
        outcome.count("transfers", state.transfers);
        if let Some(index) = state.refused {
            outcome.unknown(format!("op {index}: the read saw no balances"));
        }
        let sights = || state.sights.iter().filter(|(sight, _)| !sight.nil);
        let accounts = self
            .accounts
            .clone()
            .or_else(|| most(sights().map(|(sight, readers)| (&sight.accounts, readers))).cloned());
        let total = self
            .total
            .or_else(|| most(sights().map(|(sight, readers)| (sight.total, readers))));
        let (Some(accounts), Some(total)) = (accounts, total) else {
            return outcome.silent("the accounts were never read");
        };
        outcome.figure("accounts", json!(accounts.len()));
        outcome.figure("total", total.to_string().into());
        outcome.figure("is_total_told", self.total.is_some().into());
        let expected = Expected {
            accounts,
            total,
            negative: self.negative,
        };
        let wrong = state.sights.iter().filter_map(|(sight, readers)| {
            let (anomaly, reason) = expected.judge(sight)?;
            Some((sight, readers, anomaly, reason))
        });
        // In the order of the history, as far as it is kept.
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_by_key(|(_, readers, ..)| readers.kept.first().map(|(index, _)| *index));
        let off = wrong
            .iter()
            .map(|(sight, ..)| (sight.total - total).unsigned_abs());
        if let Some(worst) = off.max() {
            outcome.figure("worst_difference", worst.to_string().into());
        }
        for (_, readers, anomaly, reason) in wrong {
            outcome.count("wrong_reads", readers.count);
            let mut kept = readers.kept.iter();
            for _ in 0..readers.count {
                let read = kept.next().or(readers.kept.last());
                outcome.anomaly(anomaly, || match read {
                    Some((index, value)) => {
                        (vec![*index], format!("Op {index} read {value}: {reason}."))
                    }
                    None => (Vec::new(), reason.clone()),
                });
            }
        }
    }
}

impl Checker for Bank {
    fn name(&self) -> &'static str {
        Bank::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
