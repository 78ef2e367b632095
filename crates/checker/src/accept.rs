//! Checkers that take an open question for an answer.

use crate::{Certificate, Checker, Verdict};
use seatrial_history::History;

/// Checks like another checker; a verdict without anomalies is valid even when questions stayed open, as in Jepsen
/// ([`Verdict::accept_undecided`]). The questions stay in the verdict.
pub struct AcceptUndecided(Box<dyn Checker>);

impl AcceptUndecided {
    /// The same checkers with that meaning.
    pub fn all(checkers: Vec<Box<dyn Checker>>) -> Vec<Box<dyn Checker>> {
        let accepting = checkers.into_iter();
        let accepting = accepting.map(|one| -> Box<dyn Checker> { Box::new(AcceptUndecided(one)) });
        accepting.collect()
    }
}

impl Checker for AcceptUndecided {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = self.0.check(history);
        verdict.accept_undecided();
        verdict
    }

    fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
        let (mut verdict, certificate) = self.0.certify(history)?;
        verdict.accept_undecided();
        Some((verdict, certificate))
    }

    fn conclude(&self, known: Verdict, history: &History) -> Verdict {
        let mut verdict = self.0.conclude(known, history);
        verdict.accept_undecided();
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validity;

    /// Finds nothing, and leaves a question open.
    struct Doubtful;

    impl Checker for Doubtful {
        fn name(&self) -> &'static str {
            "doubtful"
        }
        fn check(&self, _: &History) -> Verdict {
            Verdict::valid("doubtful").no_anomaly_found(vec!["the order of versions".into()])
        }
        fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
            Some((self.check(history), None))
        }
    }

    #[test]
    fn an_open_question_is_accepted_and_stays_in_the_verdict() {
        let history = History::default();
        let plain = Doubtful.check(&history);
        assert!(matches!(plain.valid, Validity::Unknown(_)));
        let checkers = AcceptUndecided::all(vec![Box::new(Doubtful)]);
        let accepted = [
            checkers[0].check(&history),
            checkers[0].conclude(plain, &history),
            checkers[0].certify(&history).unwrap().0,
        ];
        for verdict in accepted {
            assert_eq!(verdict.valid, Validity::Valid);
            assert_eq!(verdict.undecided, ["the order of versions"]);
            assert!(verdict.proof.is_none() && verdict.reason.is_none());
        }
    }
}
