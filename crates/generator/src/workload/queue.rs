//! A queue.

use crate::{Generator, function, operation};
use seatrial_history::Value;
use seatrial_machine::Rng;

/// Endless `enqueue`s of new elements (1, 2, 3, …) and, half of the time, `dequeue`s.
pub fn queues(mut rng: Rng) -> impl Generator {
    let mut element = 0;
    function(move || {
        if rng.below(2) == 0 {
            return Some(operation("dequeue", Value::Nil));
        }
        element += 1;
        Some(operation("enqueue", Value::Int(element)))
    })
}

/// One client takes all that is left, once nothing else is under way, and tries again until that succeeds.
pub fn drain() -> impl Generator {
    let drains = operation("drain", Value::Nil).repeat().until_ok();
    drains.clients().synchronize()
}
