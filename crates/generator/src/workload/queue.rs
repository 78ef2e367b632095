//! The workloads `queue` and `total-queue`: one queue of unique elements.

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
