//! Several checkers on one history.

use crate::{Checker, Validity, Verdict};
use seatrial_history::History;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What several checkers say together.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Invalid when one says so, else unknown when one says so, else valid.
    pub valid: Validity,
    /// The verdicts, in the order of the checkers.
    pub verdicts: Vec<Verdict>,
}

/// Lets every checker judge `history`. A checker that panics gives an unknown verdict with the panic's message, so a
/// bug in a checker never costs a run its history or the other verdicts.
pub fn compose(checkers: &[Box<dyn Checker>], history: &History) -> Judgement {
    let verdicts: Vec<_> = checkers
        .iter()
        .map(|checker| check_safe(checker.as_ref(), history))
        .collect();
    let valid = Validity::of(&verdicts);
    Judgement { valid, verdicts }
}

/// The checker's verdict, or an unknown one that says how it panicked.
pub fn check_safe(checker: &dyn Checker, history: &History) -> Verdict {
    conclude_safe(checker, None, history)
}

/// The same, with the verdict that was reached while the history was written, if there is one ([`Checker::conclude`]).
pub fn conclude_safe(checker: &dyn Checker, known: Option<Verdict>, history: &History) -> Verdict {
    let judge = || match known {
        Some(known) => checker.conclude(known, history),
        None => checker.check(history),
    };
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let first = message.lines().next().unwrap_or_default();
        Verdict::valid(checker.name()).unknown(format!("the checker panicked: {first}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Validity);

    impl Checker for Fixed {
        fn name(&self) -> &'static str {
            "fixed"
        }
        fn check(&self, _history: &History) -> Verdict {
            let mut verdict = Verdict::valid("fixed");
            verdict.valid = self.0.clone();
            verdict
        }
    }

    struct Panics;

    impl Checker for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn check(&self, _history: &History) -> Verdict {
            panic!("index {} out of bounds", 7)
        }
    }

    #[test]
    fn the_worst_wins_and_a_panic_is_unknown() {
        let fixed = |valid| -> Box<dyn Checker> { Box::new(Fixed(valid)) };
        let judge = |checkers: &[Box<dyn Checker>]| compose(checkers, &History::default());
        assert_eq!(judge(&[]).valid, Validity::Valid);
        let one = judge(&[fixed(Validity::Valid), Box::new(Panics)]);
        let reason = "the checker panicked: index 7 out of bounds";
        assert_eq!(one.valid, Validity::Unknown(reason.into()));
        assert_eq!(one.verdicts[1].checker, "panics");
        let two = judge(&[Box::new(Panics), fixed(Validity::Invalid)]);
        assert_eq!(two.valid, Validity::Invalid);
        assert_eq!(two.verdicts.len(), 2);
    }
}
