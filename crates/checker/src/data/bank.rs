//! Accounts between which money moves.

use super::data_type::{DataType, OperationEvent};
use super::element::Element;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Anomaly, Checker, OnlineChecker, Verdict};
use seatrial_history::{History, OpType, Value};
use serde_json::json;
use std::collections::BTreeMap;

/// Every `read` of all accounts returns the same total: Jepsen's `bank`. Transfers move money and create none.
///
/// Anomalies, at most one per read, the first that applies: `unexpected-account`, `nil-balance`, `wrong-total`,
/// `negative-balance` (unless those are allowed). Accounts and total that are not given are those of most reads: then a bank
/// that is wrong from the first read on passes for one that was opened with that total.
#[derive(Clone, Debug, Default)]
pub struct Bank {
    accounts: Option<Vec<Element>>,
    total: Option<i128>,
    negative: bool,
}

impl Bank {
    /// A bank whose accounts and total are taken from the reads, without negative balances.
    pub fn new() -> Bank {
        Bank::default()
    }

    /// With these accounts and no others.
    #[must_use]
    pub fn accounts(self, accounts: impl IntoIterator<Item = i64>) -> Bank {
        let accounts = accounts.into_iter().map(Element::Int).collect();
        Bank {
            accounts: Some(accounts),
            ..self
        }
    }

    /// With this sum of all balances.
    #[must_use]
    pub fn total(self, total: i64) -> Bank {
        Bank {
            total: Some(total.into()),
            ..self
        }
    }

    /// With balances that may be negative.
    #[must_use]
    pub fn negative_balances(self) -> Bank {
        Bank {
            negative: true,
            ..self
        }
    }
}

/// What the checker compares of a read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BalanceSummary {
    /// Sorted.
    accounts: Vec<Element>,
    nil: bool,
    total: i128,
    negative: bool,
}

/// Reads with equal balances, as far as the checker compares them.
#[derive(Debug, Default)]
struct EqualReads {
    count: u64,
    /// The first of them.
    kept: Vec<(u64, Value)>,
}

/// Reads of one [`BalanceSummary`] that are kept.
const KEPT_MAX: usize = 8;

/// The state of one bank.
#[derive(Default)]
pub(crate) struct BankState {
    reads: u64,
    transfers: u64,
    sights: BTreeMap<BalanceSummary, EqualReads>,
    /// The first read of something other than balances.
    refused: Option<u64>,
}

/// Summarizes a map from accounts to balances; `None` for another value.
fn sight(value: &Value) -> Option<BalanceSummary> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let mut sight = BalanceSummary {
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

/// The value of most reads; among equals, the least.
fn most<'a, T: Ord>(sights: impl Iterator<Item = (T, &'a EqualReads)>) -> Option<T> {
    let mut counts: BTreeMap<T, u64> = BTreeMap::new();
    for (seen, readers) in sights {
        *counts.entry(seen).or_default() += readers.count;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(seen, _)| seen)
}

/// Accounts and total that every read must have.
struct Expected {
    accounts: Vec<Element>,
    total: i128,
    negative: bool,
}

impl Expected {
    /// The first anomaly of a read, with its reason.
    fn anomaly_of(&self, sight: &BalanceSummary) -> Option<(Anomaly, String)> {
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

impl DataType for Bank {
    type State = BankState;
    const NAME: &'static str = "bank";
    const FUNCTIONS: &'static [&'static str] = &["read", "transfer"];
    // Lists of integers are no balances: nothing needs them.
    const INTEGER_READS: &'static [&'static str] = &["read"];

    fn apply(&self, state: &mut BankState, event: &OperationEvent<'_>) {
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

    fn finish(&self, state: BankState, builder: &mut VerdictBuilder) {
        builder.count("reads", state.reads);
        builder.count("transfers", state.transfers);
        if let Some(index) = state.refused {
            builder.unknown(format!("op {index}: the read saw no balances"));
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
            return builder.no_evidence("the accounts were never read");
        };
        builder.figure("accounts", json!(accounts.len()));
        builder.figure("total", total.to_string().into());
        builder.figure("is_total_told", self.total.is_some().into());
        let expected = Expected {
            accounts,
            total,
            negative: self.negative,
        };
        let wrong = state.sights.iter().filter_map(|(sight, readers)| {
            let (anomaly, reason) = expected.anomaly_of(sight)?;
            Some((sight, readers, anomaly, reason))
        });
        // In the order of the first kept read, so that findings follow the history.
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_by_key(|(_, readers, ..)| readers.kept.first().map(|(index, _)| *index));
        let off = wrong
            .iter()
            .map(|(sight, ..)| (sight.total - total).unsigned_abs());
        if let Some(worst) = off.max() {
            builder.figure("worst_difference", worst.to_string().into());
        }
        for (_, readers, anomaly, reason) in wrong {
            builder.count("wrong_reads", readers.count);
            let mut kept = readers.kept.iter();
            for _ in 0..readers.count {
                let read = kept.next().or(readers.kept.last());
                builder.anomaly(anomaly, || match read {
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
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
