//! Operations of a view, borrowed or owned.

use seatrial_history::{Chunk, Extra, History, Op, OpType, OpView, Process, Symbol, Value};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// An operation as a predicate sees it: borrowed from its chunk, or built if a map comes before. Reading a field reads one
/// column; only [`OpRef::value`], [`OpRef::extra`] and [`OpRef::op`] allocate.
#[derive(Clone, Copy, Debug)]
pub enum OpRef<'a> {
    /// Where it stands in a chunk.
    Stored(OpView<'a>),
    /// In memory, or made by a map.
    Built(&'a Op),
}

impl<'a> OpRef<'a> {
    /// The number that it carries.
    pub fn index(self) -> u64 {
        match self {
            OpRef::Stored(view) => view.index(),
            OpRef::Built(op) => op.index,
        }
    }

    /// Nanoseconds since the test began; -1 when not known.
    pub fn time(self) -> i64 {
        match self {
            OpRef::Stored(view) => view.time(),
            OpRef::Built(op) => op.time,
        }
    }

    /// Invocation, or which completion.
    pub fn kind(self) -> OpType {
        match self {
            OpRef::Stored(view) => view.kind(),
            OpRef::Built(op) => op.kind,
        }
    }

    /// Who does it.
    pub fn process(self) -> Process {
        match self {
            OpRef::Stored(view) => view.process(),
            OpRef::Built(op) => op.process,
        }
    }

    /// What it does.
    pub fn f(self) -> Symbol {
        match self {
            OpRef::Stored(view) => view.f(),
            OpRef::Built(op) => op.f,
        }
    }

    /// Does an operation begin here?
    pub fn is_invoke(self) -> bool {
        self.kind() == OpType::Invoke
    }

    /// Did it take place?
    pub fn is_ok(self) -> bool {
        self.kind() == OpType::Ok
    }

    /// Did it certainly not take place?
    pub fn is_fail(self) -> bool {
        self.kind() == OpType::Fail
    }

    /// Is the outcome unknown?
    pub fn is_info(self) -> bool {
        self.kind() == OpType::Info
    }

    /// The argument or result, including the key of an independent operation.
    pub fn value(self) -> Cow<'a, Value> {
        match self {
            OpRef::Stored(view) => Cow::Owned(view.op().value),
            OpRef::Built(op) => Cow::Borrowed(&op.value),
        }
    }

    /// Further fields.
    pub fn extra(self) -> Cow<'a, Extra> {
        match self {
            OpRef::Stored(view) => Cow::Owned(view.op().extra),
            OpRef::Built(op) => Cow::Borrowed(&op.extra),
        }
    }

    /// All of it.
    pub fn op(self) -> Cow<'a, Op> {
        match self {
            OpRef::Stored(view) => Cow::Owned(view.op()),
            OpRef::Built(op) => Cow::Borrowed(op),
        }
    }
}

/// Operations that stand together, borrowed.
#[derive(Clone, Copy)]
pub(super) enum Stand<'a> {
    Columns(&'a Chunk),
    Rows(&'a [Op]),
}

impl<'a> Stand<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            Stand::Columns(chunk) => chunk.len(),
            Stand::Rows(ops) => ops.len(),
        }
    }

    pub(super) fn at(self, place: usize) -> OpRef<'a> {
        match self {
            Stand::Columns(chunk) => OpRef::Stored(chunk.view(place)),
            Stand::Rows(ops) => OpRef::Built(&ops[place]),
        }
    }
}

/// Operations that stand together: a decoded chunk, or a stretch of a history in memory.
#[derive(Clone)]
pub(super) enum ViewPart {
    Columns(Arc<Chunk>),
    Rows {
        history: Arc<History>,
        first: usize,
        length: usize,
    },
}

impl ViewPart {
    pub(super) fn first_position(&self) -> u64 {
        match self {
            ViewPart::Columns(chunk) => chunk.first_position(),
            ViewPart::Rows { first, .. } => *first as u64,
        }
    }

    pub(super) fn stand(&self) -> Stand<'_> {
        match self {
            ViewPart::Columns(chunk) => Stand::Columns(chunk),
            ViewPart::Rows {
                history,
                first,
                length,
            } => Stand::Rows(&history.ops()[*first..first + length]),
        }
    }

    pub(super) fn at(&self, place: usize) -> OpRef<'_> {
        self.stand().at(place)
    }
}

/// An operation of a view. It owns a reference to its chunk, so it can be stored and sent between threads; to keep many for
/// long, convert them by [`ViewOp::into_op`].
#[derive(Clone)]
pub struct ViewOp {
    pub(super) part: ViewPart,
    pub(super) place: usize,
    /// The operation as changed by maps.
    pub(super) built: Option<Box<Op>>,
}

impl fmt::Debug for ViewOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen().op().fmt(f)
    }
}

/// Prints as Jepsen does: an EDN map on one line.
impl fmt::Display for ViewOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen().op().fmt(f)
    }
}

impl ViewOp {
    /// The operation, to look at.
    pub fn seen(&self) -> OpRef<'_> {
        match &self.built {
            Some(op) => OpRef::Built(op),
            None => self.part.at(self.place),
        }
    }

    /// Its position in the whole history, not in the view.
    pub fn base_position(&self) -> u64 {
        self.part.first_position() + self.place as u64
    }

    /// The position in the whole history of the invocation that it completes.
    pub(super) fn invocation_at_base(&self) -> Option<u64> {
        match &self.part {
            ViewPart::Columns(chunk) => chunk.invocation(self.place),
            ViewPart::Rows { history, first, .. } => {
                let position = first + self.place;
                let pair = history.pair(position);
                pair.filter(|&other| other < position)
                    .map(|other| other as u64)
            }
        }
    }

    /// The number that it carries.
    pub fn index(&self) -> u64 {
        self.seen().index()
    }

    /// Nanoseconds since the test began; -1 when not known.
    pub fn time(&self) -> i64 {
        self.seen().time()
    }

    /// Invocation, or which completion.
    pub fn kind(&self) -> OpType {
        self.seen().kind()
    }

    /// Who does it.
    pub fn process(&self) -> Process {
        self.seen().process()
    }

    /// What it does.
    pub fn f(&self) -> Symbol {
        self.seen().f()
    }

    /// With what, or what came out.
    pub fn value(&self) -> Cow<'_, Value> {
        self.seen().value()
    }

    /// All of it.
    pub fn op(&self) -> Cow<'_, Op> {
        self.seen().op()
    }

    /// All of it, in a value of its own.
    pub fn into_op(self) -> Op {
        match self.built {
            Some(op) => *op,
            None => self.part.at(self.place).op().into_owned(),
        }
    }
}
