//! The workload `bank`: transfers between accounts, and reads of all balances.

use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// Accounts and amounts of the bank.
#[derive(Clone, Copy, Debug)]
pub struct BankOptions {
    /// Number of accounts, numbered from 0; at least two.
    pub accounts: u64,
    /// Maximum amount of one transfer.
    pub amount_max: u64,
}

/// Jepsen's defaults: eight accounts, transfers of up to five. (Its accounts hold 100 in total.)
impl Default for BankOptions {
    fn default() -> BankOptions {
        BankOptions {
            accounts: 8,
            amount_max: 5,
        }
    }
}

/// Endless `transfer`s between two different accounts and, half of the time, `read`s of all accounts.
pub fn banks(mut rng: Rng, options: BankOptions) -> impl Generator {
    let accounts = options.accounts.max(2);
    function(move || {
        if rng.below(2) == 0 {
            return Some(operation("read", Value::Nil));
        }
        let from = rng.below(accounts);
        // Any account but `from`, uniformly.
        let to = (from + 1 + rng.below(accounts - 1)) % accounts;
        let amount = 1 + rng.below(options.amount_max.max(1));
        let [from, to, amount] = [from, to, amount].map(u64::cast_signed);
        Some(operation("transfer", Value::transfer(from, to, amount)))
    })
}
