//! Folds over views.

use super::base::{BaseStorage, ROWS_LENGTH, ViewBase};
use super::layers::{Layers, Made};
use super::mask::Mask;
use super::matches::within;
use super::view_op::Stand;
use super::{View, ViewError};
use crate::{Each, Items, Ops, Query, Question};
use seatrial_history::chunk::{CHUNK_BYTES_MAX, ChunkAddress, Encoder, measure};
use seatrial_history::fold_concurrent;
use seatrial_history::{
    Chunk, ChunkBuffer, Chunks, Fold, FoldError, Folder, HistoryError, Op, OpView, Order,
    fold_linear,
};
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Items of a view: operations, borrowed ([`Ops`]) or owned ([`Each`] of [`Op`]).
pub trait ViewItems: Items + Sized + 'static {
    /// Calls `step` with the items of a view in one chunk, until it breaks.
    #[doc(hidden)]
    fn visit(
        sight: &ViewScope,
        chunk: &Chunk,
        step: impl FnMut(Self::Item<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ViewError>;

    /// The same for a whole history in memory; false if the items are borrowed from chunks.
    #[doc(hidden)]
    fn visit_rows(
        _sight: &ViewScope,
        _ops: &[Op],
        _step: impl FnMut(Self::Item<'_>) -> ControlFlow<()>,
    ) -> bool {
        false
    }
}

/// The range and layers of a view, without its base.
#[derive(Clone, Debug)]
pub struct ViewScope {
    layers: Layers,
    span: Range<u64>,
}

impl ViewScope {
    /// The places of a chunk that are in the view's range and pass all filters before the first map.
    fn leading(&self, first_position: u64, stand: Stand<'_>) -> Mask {
        let mut mask = within(&self.span, first_position, stand.len());
        self.layers.retain_leading(stand, &mut mask);
        mask
    }

    /// The operations of a chunk in the view.
    fn each_owned(
        &self,
        first_position: u64,
        stand: Stand<'_>,
        mut step: impl FnMut(usize, Op) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mask = self.leading(first_position, stand);
        let mut next = mask.next(0);
        while let Some(place) = next {
            let op = stand.at(place);
            if let Some(Made(built)) = self.layers.finish(op) {
                let built = built.map(|built| *built);
                step(place, built.unwrap_or_else(|| op.op().into_owned()))?;
            }
            next = mask.next(place + 1);
        }
        ControlFlow::Continue(())
    }
}

impl ViewItems for Each<Op> {
    fn visit(
        sight: &ViewScope,
        chunk: &Chunk,
        mut step: impl FnMut(Op) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ViewError> {
        let stand = Stand::Columns(chunk);
        Ok(sight.each_owned(chunk.first_position(), stand, |_, op| step(op)))
    }

    fn visit_rows(
        sight: &ViewScope,
        ops: &[Op],
        mut step: impl FnMut(Op) -> ControlFlow<()>,
    ) -> bool {
        let stretches = ops.chunks(ROWS_LENGTH as usize).enumerate();
        for (number, ops) in stretches {
            let first = number as u64 * ROWS_LENGTH;
            let flow = sight.each_owned(first, Stand::Rows(ops), |_, op| step(op));
            if flow.is_break() {
                break;
            }
        }
        true
    }
}

impl ViewItems for Ops {
    fn visit(
        sight: &ViewScope,
        chunk: &Chunk,
        mut step: impl FnMut(OpView<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ViewError> {
        if sight.layers.maps() {
            return visit_mapped(sight, chunk, step);
        }
        let mask = sight.leading(chunk.first_position(), Stand::Columns(chunk));
        let mut next = mask.next(0);
        while let Some(place) = next {
            if step(chunk.view(place)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            next = mask.next(place + 1);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Encodes mapped operations into a new chunk, in which each keeps its position.
#[derive(Default)]
struct Rebuilt {
    encoder: Encoder,
    places: Vec<usize>,
    bytes: Vec<u8>,
    chunk: Chunk,
}

/// Encodes mapped operations into columns, so that they can be borrowed like those of the base.
fn visit_mapped(
    sight: &ViewScope,
    chunk: &Chunk,
    mut step: impl FnMut(OpView<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ViewError> {
    let mut made = Vec::new();
    let stand = Stand::Columns(chunk);
    let _ = sight.each_owned(chunk.first_position(), stand, |place, op| {
        made.push((place, op));
        ControlFlow::Continue(())
    });
    let mut rebuilt = Rebuilt::default();
    let mut first = 0;
    for (place, op) in made {
        let index = op.index;
        let reason = measure(&op).map_err(|reason| HistoryError::Unstorable { index, reason });
        reason?;
        if rebuilt.places.is_empty() {
            first = place;
        }
        // Operations that are not in the view are replaced by placeholders, to keep the positions.
        for gap in first + rebuilt.encoder.len()..place {
            let gap = nothing(chunk, gap);
            rebuilt.encoder.push(&gap, 0);
        }
        rebuilt.places.push(place - first);
        let distance = chunk.pairs()[place].max(0);
        rebuilt.encoder.push(&op, distance.cast_unsigned());
        if rebuilt.encoder.bytes() >= CHUNK_BYTES_MAX
            && rebuilt.give(chunk, first, &mut step).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(rebuilt.give(chunk, first, &mut step))
}

/// Placeholder of an operation that is not in the view.
fn nothing(chunk: &Chunk, place: usize) -> Op {
    Op {
        index: chunk.index(place),
        time: chunk.times()[place],
        kind: chunk.kinds()[place],
        process: chunk.process(place),
        f: chunk.f(place),
        value: seatrial_history::Value::Nil,
        extra: seatrial_history::Extra::NONE,
    }
}

impl Rebuilt {
    /// Calls `step` with the gathered operations, and begins a new chunk.
    fn give(
        &mut self,
        chunk: &Chunk,
        first: usize,
        step: &mut impl FnMut(OpView<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.places.is_empty() {
            return ControlFlow::Continue(());
        }
        self.bytes.clear();
        let position = chunk.first_position() + first as u64;
        self.encoder.write(position, &mut self.bytes);
        self.encoder.clear();
        let read = self.chunk.read(&self.bytes);
        read.expect("what was measured and written is read");
        for place in self.places.drain(..) {
            step(self.chunk.view(place))?;
        }
        ControlFlow::Continue(())
    }
}

/// A question about a view as a fold over the whole history, which can share a pass with any other. Its answer is an error
/// if the result of a map cannot be stored in a chunk.
#[derive(Debug)]
pub struct ViewFold<I, Q> {
    sight: ViewScope,
    question: Question<I, Q>,
}

/// The accumulator, or the first error.
type Known<A> = Result<A, ViewError>;

impl<I: ViewItems, Q: Query<I>> ViewFold<I, Q> {
    /// The answer for a history in memory; `None` if the items are borrowed from chunks.
    fn over(&self, ops: &[Op]) -> Option<Q::Output> {
        let mut accumulator = Query::start(&self.question);
        let step = |item: I::Item<'_>| self.question.step(&mut accumulator, item);
        let was_taken = I::visit_rows(&self.sight, ops, step);
        was_taken.then(|| Query::finish(&self.question, accumulator))
    }

    fn take(&self, known: &mut Known<Q::Accumulator>, chunk: &Chunk) -> ControlFlow<()> {
        let Ok(accumulator) = known else {
            return ControlFlow::Break(());
        };
        let step = |item: I::Item<'_>| self.question.step(accumulator, item);
        match I::visit(&self.sight, chunk, step) {
            Ok(flow) => flow,
            Err(error) => {
                *known = Err(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl<I: ViewItems, Q: Query<I>> Fold for ViewFold<I, Q> {
    type Accumulator = Known<Q::Accumulator>;
    type Output = Known<Q::Output>;

    fn name(&self) -> String {
        self.question.name.clone().into_owned()
    }

    fn order(&self) -> Order {
        Query::order(&self.question)
    }

    fn asap(&self) -> bool {
        self.question.asap
    }

    fn start(&self) -> Self::Accumulator {
        Ok(Query::start(&self.question))
    }

    fn reduce(&self, known: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()> {
        self.take(known, chunk)
    }

    fn combine(&self, known: &mut Self::Accumulator, later: Self::Accumulator) -> ControlFlow<()> {
        match (&mut *known, later) {
            (Ok(accumulator), Ok(later)) => Query::combine(&self.question, accumulator, later),
            (Ok(_), Err(error)) => {
                *known = Err(error);
                ControlFlow::Break(())
            }
            (Err(_), _) => ControlFlow::Break(()),
        }
    }

    fn finish(&self, known: Self::Accumulator) -> Self::Output {
        known.map(|accumulator| Query::finish(&self.question, accumulator))
    }
}

/// Some chunks of a base.
struct Narrowed<'a> {
    base: &'a ViewBase,
    numbers: Vec<u64>,
}

impl Chunks for Narrowed<'_> {
    type Error = ViewError;

    fn chunk_count(&self) -> u64 {
        self.numbers.len() as u64
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, ViewError> {
        match usize::try_from(number).map(|at| self.numbers.get(at)) {
            Ok(Some(&number)) => self.base.read_chunk(number, buffer),
            _ => Ok(None),
        }
    }
}

/// Threads of a pass.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Folds over these chunks of a base on separate threads, so that the caller may hold a lock.
pub(super) fn fold_chunks<F: Fold>(
    base: &ViewBase,
    numbers: Vec<u64>,
    fold: &F,
) -> Result<F::Output, ViewError> {
    let chunks = Narrowed { base, numbers };
    if fold.order() == Order::Linear || chunks.numbers.len() <= 1 {
        return fold_linear(&chunks, fold);
    }
    fold_concurrent(&chunks, fold, threads())
}

impl View {
    /// Answers a question about the operations of this view in one pass over its base, shared with questions that are asked
    /// at the same time about any view of that base. Filters and maps are applied inside the pass. If the directory excludes more
    /// than half of the chunks, only the others are read, in a separate pass.
    ///
    /// ```
    /// use seatrial_history::{History, Op, OpType, Process, Value};
    /// use seatrial_query::View;
    /// use seatrial_query as query;
    ///
    /// let read = Op::invoke(Process::Client(0), "read", Value::Nil);
    /// let ok = read.complete(OpType::Ok, Value::Int(3));
    /// let view = View::of(History::from_unindexed(vec![read, ok]));
    /// assert_eq!(view.oks().fold(query::ops().map(|op| op.index()).max())?, Some(1));
    /// # Ok::<(), seatrial_query::ViewError>(())
    /// ```
    pub fn fold<I, Q>(&self, question: Question<I, Q>) -> Result<Q::Output, ViewError>
    where
        I: ViewItems,
        Q: Query<I> + 'static,
    {
        let fold = self.as_fold(question);
        let own_pass = || match self.base.kind() {
            BaseStorage::Rows(history) => Ok(fold.over(history.ops())),
            BaseStorage::Chunks(_) => match self.few_chunks()? {
                Some(numbers) => fold_chunks(&self.base, numbers, &fold)?.map(Some),
                None => Ok(None),
            },
        };
        let answer = catch_unwind(AssertUnwindSafe(own_pass));
        let answer = answer.map_err(|_| ViewError::Fold(format!("fold {} panicked", fold.name())));
        if let Some(answer) = answer?? {
            return Ok(answer);
        }
        match self.folder().fold(fold) {
            Ok(answer) => answer,
            Err(FoldError::Chunk { source, .. }) => Err((*source).clone()),
            Err(error) => Err(ViewError::Fold(error.to_string())),
        }
    }

    /// The folder of the base, shared by all its views. Its threads start on first use.
    pub fn folder(&self) -> &Folder<ViewBase> {
        let new = || Folder::new(self.base.clone(), threads());
        self.folder.get_or_init(new)
    }

    /// The question as a fold over the whole base, for callers with their own pass.
    pub fn as_fold<I: ViewItems, Q: Query<I>>(&self, question: Question<I, Q>) -> ViewFold<I, Q> {
        let sight = ViewScope {
            layers: self.layers.clone(),
            span: self.span.clone(),
        };
        ViewFold { sight, question }
    }

    /// The chunks that may contain operations of this view, if these are less than half of all.
    fn few_chunks(&self) -> Result<Option<Vec<u64>>, ViewError> {
        let BaseStorage::Chunks(_) = self.base.kind() else {
            return Ok(None);
        };
        let count = self.base.chunk_count();
        let mut numbers = Vec::new();
        if self.span.is_empty() {
            return Ok(Some(numbers));
        }
        let mut place = ChunkAddress::Position(self.span.start);
        while let Some(spot) = self.base.spot(place)? {
            if spot.first_position >= self.span.end {
                break;
            }
            place = ChunkAddress::Chunk(spot.number + 1);
            let passing = spot.summary.and_then(|summary| self.layers.count(&summary));
            if passing != Some(0) {
                numbers.push(spot.number);
            }
            if numbers.len() as u64 > count / 2 {
                return Ok(None);
            }
        }
        Ok(Some(numbers))
    }
}
