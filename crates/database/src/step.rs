//! The fate of an operation, the result of one step of it, and random durations.

use seatrial_history::OpType;
use seatrial_machine::Rng;

/// The fate of an operation, drawn when it is invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationFate {
    /// The client receives the outcome.
    Complete,
    /// The store aborts it.
    Abort,
    /// The request is lost: it does not take place, and times out.
    LoseRequest,
    /// The reply is lost: it takes place, and times out.
    LoseReply,
}

/// The result of one step of a client's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// The operation continues after this many nanoseconds.
    Again(u64),
    /// The operation ended with this type.
    Done(OpType),
}

/// A random duration in nanoseconds with about this mean, almost exponentially distributed: a geometric number of halvings,
/// uniform within each. In integers, so that it is the same on every machine.
pub(super) fn exponential(rng: &mut Rng, mean: u64) -> u64 {
    let word = rng.word();
    let halvings = u64::from(word.leading_zeros()).min(16);
    let part = word & 0xffff;
    // ln 2 = 45,426 / 65,536; a geometric number and a uniform one have a mean of 1.5.
    mean * ((halvings << 16) + part) / 98_304
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_mean_and_a_tail() {
        let mut rng = Rng::from_seed(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| exponential(&mut rng, 1_000)).collect();
        let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
        assert!((980..1_020).contains(&mean), "{mean}");
        let long = drawn.iter().filter(|&&time| time > 4_000).count();
        // e^-4 = 1.8 %; halvings make it a little less.
        assert!((1_000..2_500).contains(&long), "{long}");
    }
}
