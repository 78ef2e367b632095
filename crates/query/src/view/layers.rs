//! Layers of a view: its filters and maps in order.

use super::mask::Mask;
use super::view_op::Stand;
use super::{OpRef, ViewFilter};
use seatrial_history::Op;
use seatrial_history::chunk::ChunkSummary;
use std::fmt;
use std::sync::Arc;

/// A predicate that is code.
pub(super) type Predicate = dyn Fn(OpRef<'_>) -> bool + Send + Sync;
/// The function of a map.
pub(super) type Mapping = dyn Fn(Op) -> Op + Send + Sync;

/// A filter or map.
#[derive(Clone)]
enum Layer {
    Select(ViewFilter),
    Filter(Arc<Predicate>),
    Map(Arc<Mapping>),
}

/// An operation as changed by maps; `None` without maps.
pub(super) struct Made(pub(super) Option<Box<Op>>);

/// All layers, from the base outwards. Filters before the first map are decided chunk by chunk on columns or borrowed
/// operations; later layers operation by operation, for those that passed so far.
#[derive(Clone, Default)]
pub(super) struct Layers {
    steps: Vec<Layer>,
    /// Number of layers before the first map.
    leading: usize,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.steps.iter().map(|layer| match layer {
            Layer::Select(filter) => format!("{filter:?}"),
            Layer::Filter(_) => "filter".to_owned(),
            Layer::Map(_) => "map".to_owned(),
        });
        f.debug_list().entries(names).finish()
    }
}

impl Layers {
    pub(super) fn select(&self, filter: &ViewFilter) -> Layers {
        let mut layers = self.clone();
        if let Some(Layer::Select(last)) = layers.steps.last_mut() {
            *last = last.clone().and(filter);
            return layers;
        }
        layers.push(Layer::Select(filter.clone()));
        layers
    }

    pub(super) fn filter(&self, predicate: Arc<Predicate>) -> Layers {
        let mut layers = self.clone();
        layers.push(Layer::Filter(predicate));
        layers
    }

    pub(super) fn map(&self, mapping: Arc<Mapping>) -> Layers {
        let mut layers = self.clone();
        layers.push(Layer::Map(mapping));
        layers
    }

    fn push(&mut self, layer: Layer) {
        if self.leading == self.steps.len() && !matches!(layer, Layer::Map(_)) {
            self.leading += 1;
        }
        self.steps.push(layer);
    }

    /// Is there a map?
    pub(super) fn maps(&self) -> bool {
        self.leading < self.steps.len()
    }

    /// Is there a filter after a map?
    fn filters_built(&self) -> bool {
        let built = &self.steps[self.leading..];
        built.iter().any(|layer| !matches!(layer, Layer::Map(_)))
    }

    /// The number of operations of a chunk that pass, if its summary decides it. 0 decides even if further filters follow.
    pub(super) fn count(&self, chunk: &ChunkSummary) -> Option<u64> {
        let leading = self.steps[..self.leading].iter();
        let counts = leading.map(|layer| match layer {
            Layer::Select(filter) => filter.count(chunk),
            Layer::Filter(_) | Layer::Map(_) => None,
        });
        let mut all = Some(chunk.operations);
        for count in counts {
            match count {
                Some(0) => return Some(0),
                Some(count) if count == chunk.operations => {}
                // Two filters that each pass some: the summary does not decide how many pass both.
                Some(count) if all == Some(chunk.operations) => all = Some(count),
                _ => all = None,
            }
        }
        all.filter(|_| !self.filters_built())
    }

    /// Keeps the places that pass all filters before the first map.
    pub(super) fn retain_leading(&self, stand: Stand<'_>, mask: &mut Mask) {
        for layer in &self.steps[..self.leading] {
            if mask.is_empty() {
                return;
            }
            match (layer, stand) {
                (Layer::Select(filter), Stand::Columns(chunk)) => filter.retain(chunk, mask),
                (Layer::Select(filter), Stand::Rows(ops)) => filter.retain_ops(ops, mask),
                (Layer::Filter(predicate), _) => mask.retain(|place| predicate(stand.at(place))),
                (Layer::Map(_), _) => {}
            }
        }
    }

    /// Keeps the places that pass all filters.
    pub(super) fn retain(&self, stand: Stand<'_>, mask: &mut Mask) {
        self.retain_leading(stand, mask);
        if self.filters_built() {
            mask.retain(|place| self.run(stand.at(place).op().into_owned(), true).is_some());
        }
    }

    /// Applies all layers to one operation; `None` if a filter drops it.
    pub(super) fn admit(&self, op: OpRef<'_>) -> Option<Made> {
        let passes = self.steps[..self.leading].iter().all(|layer| match layer {
            Layer::Select(filter) => filter.admits(op),
            Layer::Filter(predicate) => predicate(op),
            Layer::Map(_) => true,
        });
        if !passes {
            return None;
        }
        self.finish(op)
    }

    /// The same for an operation that passed all filters before the first map.
    pub(super) fn finish(&self, op: OpRef<'_>) -> Option<Made> {
        if self.maps() {
            return self
                .run(op.op().into_owned(), true)
                .map(|op| Made(Some(Box::new(op))));
        }
        Some(Made(None))
    }

    /// Applies the maps to an operation that passed all filters; `None` if there are no maps.
    pub(super) fn build(&self, op: OpRef<'_>) -> Option<Box<Op>> {
        if self.maps() {
            return self.run(op.op().into_owned(), false).map(Box::new);
        }
        None
    }

    /// The layers from the first map on. The index is kept.
    fn run(&self, mut op: Op, filters: bool) -> Option<Op> {
        let index = op.index;
        for layer in &self.steps[self.leading..] {
            let passes = match layer {
                Layer::Map(mapping) => {
                    op = mapping(op);
                    op.index = index;
                    true
                }
                _ if !filters => true,
                Layer::Select(filter) => filter.admits(OpRef::Built(&op)),
                Layer::Filter(predicate) => predicate(OpRef::Built(&op)),
            };
            if !passes {
                return None;
            }
        }
        Some(op)
    }
}
