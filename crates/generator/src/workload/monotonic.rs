//! The workload `monotonic`: rows with ascending numbers and the system's timestamps.

use super::rotating_keys::{KeyOptions, RotatingKeys, keyed};
use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// Endless `add`s and, one time in eight, `read`s of all rows by timestamp. An `add` inserts a row with the successor of
/// the largest number and the system's timestamp; its `ok` has the value `{:val number, :sts timestamp}`.
pub fn monotonics(mut rng: Rng, options: KeyOptions) -> impl Generator {
    let mut keys = RotatingKeys::new(options);
    function(move || {
        let is_read = rng.below(8) == 0;
        let written = if is_read {
            Err(keys.read(&mut rng))
        } else {
            keys.write_or_retire(&mut rng)
        };
        Some(match written {
            Ok((key, _)) => operation("add", keyed(key, Value::Nil)),
            Err(key) => operation("read", keyed(key, Value::Nil)),
        })
    })
}
