//! Bank accounts.

use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// The bank.
#[derive(Clone, Copy, Debug)]
pub struct BankOptions {
    /// Accounts, numbered from 0; at least two.
    pub accounts: u64,
    /// The most that is transferred at once.
    pub amount_max: u64,
}

/// Jepsen's: eight accounts, transfers of up to five. (It opens them with 100 altogether.)
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
        let to = (from + 1 + rng.below(accounts - 1)) % accounts;
        let amount = 1 + rng.below(options.amount_max.max(1));
        let [from, to, amount] = [from, to, amount].map(u64::cast_signed);
        Some(operation("transfer", Value::transfer(from, to, amount)))
    })
}
