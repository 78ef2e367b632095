//! What verdicts are worth, given the history that they are about.

use crate::MinimumLoad;
use seatrial_checker::{MissingPart, Overview, Validity, Verdict, without_attributes, without_ok};

/// What limits the verdicts on a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ground<'a> {
    /// Parts of the history that are missing.
    pub missing: &'a [MissingPart],
    /// Is a verdict without anomalies valid although questions stayed open, as in Jepsen?
    pub accept_undecided: bool,
    /// Are the attributes of the test lost, and checkers and models guessed?
    pub is_guessed: bool,
    /// Operations that must have completed `ok`.
    pub minimum: MinimumLoad,
}

impl Ground<'_> {
    /// Takes back what the verdicts cannot know. The same for every source and every checker, after all checkers have ended.
    pub fn settle(&self, verdicts: &mut [Verdict], overview: &Overview) {
        if self.accept_undecided {
            verdicts.iter_mut().for_each(Verdict::accept_undecided);
        }
        for missing in self.missing {
            missing.apply(verdicts);
        }
        if self.is_guessed {
            without_attributes(verdicts);
        }
        self.minimum.apply(verdicts, overview);
        if overview.counts().0.ok == 0 {
            without_ok(verdicts);
            assert!(
                verdicts.iter().all(|one| one.valid != Validity::Valid),
                "a history without an ok operation is valid"
            );
        }
    }
}
