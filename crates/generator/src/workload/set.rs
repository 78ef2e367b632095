//! The workload `set`: additions to sets, and reads of whole sets.

use super::rotating_keys::{KeyOptions, RotatingKeys, keyed};
use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// Endless `add`s of new elements (1, 2, 3, … for each key) and, a third of the time, `read`s.
pub fn sets(mut rng: Rng, options: KeyOptions) -> impl Generator {
    let mut keys = RotatingKeys::new(options);
    function(move || {
        let is_read = rng.below(3) == 0;
        let written = if is_read {
            Err(keys.read(&mut rng))
        } else {
            keys.write_or_retire(&mut rng)
        };
        Some(match written {
            Ok((key, element)) => operation("add", keyed(key, Value::Int(element.into()))),
            Err(key) => operation("read", keyed(key, Value::Nil)),
        })
    })
}
