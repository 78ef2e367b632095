//! Iterates over the operations of a view.

use super::layers::Made;
use super::mask::Mask;
use super::matches::within;
use super::view_op::ViewPart;
use super::{View, ViewError, ViewOp};
use seatrial_history::chunk::ChunkAddress;

/// Iterates over the operations of a view in order. It uses cached chunks, and decodes others for itself alone, so that a full
/// pass does not evict the chunks of other readers. Ends after an error.
#[derive(Debug)]
pub struct ViewIter {
    view: View,
    /// The chunk that comes next; `None` at the end.
    next: Option<ChunkAddress>,
    now: Option<Now>,
}

/// The chunk that is being gone through.
struct Now {
    part: ViewPart,
    mask: Mask,
    /// The next place to look at.
    place: usize,
}

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Now")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl ViewIter {
    pub(super) fn new(view: View) -> ViewIter {
        ViewIter {
            next: (!view.span.is_empty()).then_some(ChunkAddress::Position(view.span.start)),
            view,
            now: None,
        }
    }

    /// Advances to the next chunk with operations of the view; false at the end.
    fn turn(&mut self) -> Result<bool, ViewError> {
        self.now = None;
        while let Some(place) = self.next.take() {
            let spot = self.view.base.spot(place)?;
            let Some(spot) = spot.filter(|spot| spot.first_position < self.view.span.end) else {
                return Ok(false);
            };
            self.next = Some(ChunkAddress::Chunk(spot.number + 1));
            let count = spot
                .summary
                .and_then(|summary| self.view.layers.count(&summary));
            if count == Some(0) {
                continue;
            }
            let part = self.view.base.passing_part(&spot)?;
            let mut mask = within(&self.view.span, spot.first_position, part.stand().len());
            self.view.layers.retain_leading(part.stand(), &mut mask);
            if let Some(place) = mask.next(0) {
                self.now = Some(Now { part, mask, place });
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<Option<ViewOp>, ViewError> {
        loop {
            let Some(now) = &mut self.now else {
                if self.turn()? {
                    continue;
                }
                return Ok(None);
            };
            let Some(place) = now.mask.next(now.place) else {
                self.now = None;
                continue;
            };
            now.place = place + 1;
            if let Some(Made(built)) = self.view.layers.finish(now.part.at(place)) {
                return Ok(Some(ViewOp {
                    part: now.part.clone(),
                    place,
                    built,
                }));
            }
        }
    }
}

impl Iterator for ViewIter {
    type Item = Result<ViewOp, ViewError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.next = None;
            self.now = None;
        }
        step.transpose()
    }
}
