//! The workload `counter`: additions to counters, and reads.

use super::rotating_keys::{KeyOptions, RotatingKeys, keyed};
use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// Maximum amount of one addition.
const AMOUNT_MAX: u64 = 5;

/// Endless `add`s of 1 to 5 and, half of the time, `read`s.
pub fn counters(mut rng: Rng, options: KeyOptions) -> impl Generator {
    let mut keys = RotatingKeys::new(options);
    function(move || {
        let is_read = rng.below(2) == 0;
        let written = if is_read {
            Err(keys.read(&mut rng))
        } else {
            keys.write_or_retire(&mut rng)
        };
        Some(match written {
            Ok((key, _)) => {
                let amount = 1 + rng.below(AMOUNT_MAX).cast_signed();
                operation("add", keyed(key, Value::Int(amount)))
            }
            Err(key) => operation("read", keyed(key, Value::Nil)),
        })
    })
}
