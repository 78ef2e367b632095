//! Passes over a history, wherever it is.

use seatrial_history::{Chunk, Chunks, Fold, FoldError, Folder, fold_linear};
use std::ops::ControlFlow;

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

/// A history that can be gone through from its beginning any number of times, chunk by chunk in order.
pub trait Rounds {
    /// Why it cannot.
    type Error;

    /// Hands over all chunks, or those until `take` breaks.
    fn round(&self, take: &mut dyn FnMut(&Chunk) -> ControlFlow<()>) -> Result<(), Self::Error>;
}

/// Folds as the chunks come by.
pub(super) struct InRounds<'a, R>(pub(super) &'a R);

impl<R: Rounds> Passes for InRounds<'_, R> {
    type Error = R::Error;
    fn pass<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, R::Error> {
        let mut accumulator = fold.start();
        self.0
            .round(&mut |chunk| fold.reduce(&mut accumulator, chunk))?;
        Ok(fold.finish(accumulator))
    }
}
