//! Stops a generator that makes a mistake.

use seatrial_history::{Op, OpType};
use std::fmt;

use crate::generator::{is_special, time_of};
use crate::{Context, Generator, Next, Thread, Tree};

/// A generator's mistake: what is wrong, the operation, and the generator that answered it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What is wrong, in words.
    pub problem: String,
    /// The wrong operation, if there is one.
    pub op: Option<Op>,
    /// The generator that made the mistake.
    pub tree: Tree,
}

impl Failure {
    /// A mistake without an operation.
    pub fn new(problem: impl Into<String>, tree: Tree) -> Failure {
        Failure {
            problem: problem.into(),
            op: None,
            tree,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the generator made a mistake: {}", self.problem)?;
        if let Some(op) = &self.op {
            write!(f, "\noperation: {op}")?;
        }
        write!(f, "\ngenerator:\n{}", self.tree)
    }
}

impl std::error::Error for Failure {}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Kind,
    NoProcess,
    NotRunning(Thread),
    Foreign(Thread),
    Busy(Thread),
    Past,
}

impl Problem {
    fn words(self, op: &Op, context: &Context) -> String {
        match self {
            Problem::Kind => {
                let (who, begins) = if op.process.is_client() {
                    ("a client's", OpType::Invoke)
                } else {
                    ("the nemesis's", OpType::Info)
                };
                let (wanted, found) = (begins.name(), op.kind.name());
                format!("{who} operation begins as {wanted}, not as {found}")
            }
            Problem::NoProcess => format!("there is no process {}", op.process),
            Problem::NotRunning(thread) => format!(
                "process {} does not run: thread {thread} runs process {}",
                op.process,
                context.process_of(thread)
            ),
            Problem::Foreign(thread) => format!("thread {thread} is not for this generator"),
            Problem::Busy(thread) => format!("thread {thread} is still busy"),
            Problem::Past => format!(
                "time goes back: the operation is at {} ns, now is {} ns",
                op.time,
                context.time().nanoseconds()
            ),
        }
    }
}

/// The thread that is to carry out `op`, if nothing is wrong with it.
pub(crate) fn check(op: &Op, context: &Context) -> Result<Thread, Problem> {
    let thread = context.thread_of(op.process).ok_or(Problem::NoProcess)?;
    if context.process_of(thread) != op.process {
        return Err(Problem::NotRunning(thread));
    }
    if !context.is_free(thread) {
        let mine = context.contains(thread);
        return Err(if mine {
            Problem::Busy(thread)
        } else {
            Problem::Foreign(thread)
        });
    }
    let begins = if thread.is_client() {
        OpType::Invoke
    } else {
        OpType::Info
    };
    if op.kind != begins && !is_special(op) {
        return Err(Problem::Kind);
    }
    if op.time < 0 || time_of(op) < context.time() {
        return Err(Problem::Past);
    }
    Ok(thread)
}

/// The failure that says so.
pub(crate) fn failure(
    problem: Problem,
    op: Op,
    context: &Context,
    generator: &(impl Generator + ?Sized),
) -> Box<Failure> {
    let problem = problem.words(&op, context);
    Box::new(Failure {
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
