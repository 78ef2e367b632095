//! Passes over a history, wherever it is.

use seatrial_history::{Chunks, Fold, FoldError, Folder, fold_linear};

/// Whoever carries out one fold after another over a history.
pub(super) trait Passes {
    type Error;
    fn pass<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, Self::Error>;
}

impl<C: Chunks + 'static> Passes for Folder<C> {
    type Error = FoldError<C::Error>;
    fn pass<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, Self::Error> {
        self.fold(fold)
    }
}

/// Folds chunk after chunk in the caller's thread.
pub(super) struct InTurn<'a, C>(pub(super) &'a C);

impl<C: Chunks> Passes for InTurn<'_, C> {
    type Error = C::Error;
    fn pass<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, C::Error> {
        fold_linear(self.0, &fold)
    }
}
