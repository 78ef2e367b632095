//! Validation of the operations of a generator, and the failure that stops a test with an invalid generator.

use seatrial_history::{Op, OpType};
use std::fmt;

use crate::generator::{is_special, time_of};
use crate::{Context, Generator, Next, Thread, Tree};

/// The failure of an invalid generator: the problem, the operation, and the generator that returned it.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorFailure {
    /// The problem as text.
    pub problem: String,
    /// The invalid operation, if there is one.
    pub op: Option<Op>,
    /// The generator that failed.
    pub tree: Tree,
}

impl GeneratorFailure {
    /// A failure without an operation.
    pub fn new(problem: impl Into<String>, tree: Tree) -> GeneratorFailure {
        GeneratorFailure {
            problem: problem.into(),
            op: None,
            tree,
        }
    }
}

impl fmt::Display for GeneratorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid generator: {}", self.problem)?;
        if let Some(op) = &self.op {
            write!(f, "\noperation: {op}")?;
        }
        write!(f, "\ngenerator:\n{}", self.tree)
    }
}

impl std::error::Error for GeneratorFailure {}

/// Why an operation is invalid in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidOp {
    Type,
    NoProcess,
    NotRunning(Thread),
    Foreign(Thread),
    Busy(Thread),
    Past,
}

impl InvalidOp {
    fn message(self, op: &Op, context: &Context) -> String {
        match self {
            InvalidOp::Type => {
                let (worker, begins) = if op.process.is_client() {
                    ("client", OpType::Invoke)
                } else {
                    ("nemesis", OpType::Info)
                };
                let (expected, found) = (begins.name(), op.kind.name());
                format!("a {worker} operation must begin as {expected}, found {found}")
            }
            InvalidOp::NoProcess => format!("unknown process {}", op.process),
            InvalidOp::NotRunning(thread) => format!(
                "process {} is not running: thread {thread} runs process {}",
                op.process,
                context.process_of(thread)
            ),
            InvalidOp::Foreign(thread) => {
                format!("thread {thread} does not belong to this generator")
            }
            InvalidOp::Busy(thread) => format!("thread {thread} is busy"),
            InvalidOp::Past => format!(
                "time goes back: the operation is at {} ns, now is {} ns",
                op.time,
                context.time().nanoseconds()
            ),
        }
    }
}

/// The thread that will carry out `op`, or why `op` is invalid.
pub(crate) fn check(op: &Op, context: &Context) -> Result<Thread, InvalidOp> {
    let thread = context.thread_of(op.process).ok_or(InvalidOp::NoProcess)?;
    if context.process_of(thread) != op.process {
        return Err(InvalidOp::NotRunning(thread));
    }
    if !context.is_free(thread) {
        let is_own = context.contains(thread);
        return Err(if is_own {
            InvalidOp::Busy(thread)
        } else {
            InvalidOp::Foreign(thread)
        });
    }
    let begins = if thread.is_client() {
        OpType::Invoke
    } else {
        OpType::Info
    };
    if op.kind != begins && !is_special(op) {
        return Err(InvalidOp::Type);
    }
    if op.time < 0 || time_of(op) < context.time() {
        return Err(InvalidOp::Past);
    }
    Ok(thread)
}

/// The failure that reports an invalid operation.
pub(crate) fn failure(
    problem: InvalidOp,
    op: Op,
    context: &Context,
    generator: &(impl Generator + ?Sized),
) -> Box<GeneratorFailure> {
    let problem = problem.message(&op, context);
    Box::new(GeneratorFailure {
        problem,
        op: Some(op),
        tree: generator.tree(),
    })
}

/// See [`Generator::validate`].
#[derive(Debug)]
pub struct Validate<G> {
    generator: G,
}

impl<G: Generator> Validate<G> {
    pub(crate) fn new(generator: G) -> Validate<G> {
        Validate { generator }
    }
}

impl<G: Generator> Generator for Validate<G> {
    fn next(&mut self, context: &Context) -> Next {
        match self.generator.next(context) {
            Next::Op(op) => match check(&op, context) {
                Ok(_) => Next::Op(op),
                Err(problem) => Next::Failed(failure(problem, op, context, &self.generator)),
            },
            other => other,
        }
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around("validate", &self.generator)
    }
}
