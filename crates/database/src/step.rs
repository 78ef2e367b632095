//! How far an operation got, and how long things take.

use seatrial_history::OpType;
use seatrial_machine::Rng;

/// What will become of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The client learns how it ended.
    Answer,
    /// It is aborted.
    Abort,
    /// The request never arrives.
    LoseRequest,
    /// The reply never arrives.
    LoseReply,
}

/// What one step of a client's operation led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do, after so many nanoseconds.
    Again(u64),
    /// It ended like this.
    Done(OpType),
}

/// Nanoseconds with about this mean, distributed almost exponentially: a geometric number of halvings, uniform within
/// each. In integers, so that it is the same on every machine.
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
