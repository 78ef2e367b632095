//! Which checker a history is for, when neither a person nor the file says so.

use crate::registry::entry;
use seatrial_history::chunk::{MopView, Mops, ValueView, mop_tag};
use seatrial_history::{Chunk, History, Mop, Observed, Op, OpType, OpView, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A kind of value that checkers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Nil,
    Int,
    /// Text, a keyword, a truth value, a number with a fraction.
    Scalar,
    /// Two integers of a compare-and-set.
    Pair,
    List,
    Set,
    Map,
    Txn,
}

impl Shape {
    fn of(value: &Value) -> Shape {
        match value {
            Value::Nil => Shape::Nil,
            Value::Int(_) => Shape::Int,
            Value::Cas(..) => Shape::Pair,
            Value::List(_) => Shape::List,
            Value::Set(_) => Shape::Set,
            Value::Map(_) => Shape::Map,
            Value::Txn(_) => Shape::Txn,
            Value::Keyed(_, value) => Shape::of(value),
            _ => Shape::Scalar,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Shape::Nil => "nothing",
            Shape::Int => "an integer",
            Shape::Scalar => "a single value",
            Shape::Pair => "a pair",
            Shape::List => "a list",
            Shape::Set => "a set",
            Shape::Map => "a map",
            Shape::Txn => "a transaction",
        }
    }
}

/// What the operations of one function carry: by shape, the index of the first one.
#[derive(Clone, Debug, Default)]
struct Uses {
    invoked: BTreeMap<Shape, u64>,
    returned: BTreeMap<Shape, u64>,
}

/// The client operations of a history, summarised for the choice of a checker: functions and shapes of values, of the whole
/// history. Cost: some words for each function.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    functions: BTreeMap<&'static str, Uses>,
    /// By kind of micro-operation, the index of the first operation that has one.
    appends: Option<u64>,
    writes: Option<u64>,
    list_reads: Option<u64>,
    register_reads: Option<u64>,
    /// Operations whose values have no key.
    unkeyed: Option<u64>,
    groups: Groups,
}

/// How many keys transactions named `:read` read at a time.
#[derive(Clone, Copy, Debug, Default)]
enum Groups {
    /// There is none so far.
    #[default]
    None,
    /// All read as many, each once.
    Of(usize),
    /// They differ.
    Mixed,
}

/// A kind of micro-operation that says something; a read of nothing does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MopKind {
    Append,
    Write,
    ListRead,
    RegisterRead,
}

/// What the operations of a history look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guess {
    /// One checker fits all of them.
    Checker {
        /// Its name.
        name: &'static str,
        /// What was seen, for people: `:append micro-operations`.
        because: &'static str,
    },
    /// None fits, or several do.
    Unclear {
        /// Why, naming an operation.
        reason: String,
        /// Checkers that a person may have in mind.
        options: Vec<&'static str>,
    },
}

/// A checker that operations may be for.
struct Candidate {
    name: &'static str,
    /// Any of these functions says so.
    evidence: &'static [&'static str],
    because: &'static str,
    /// All functions that it knows, with the shapes that their invocations and their results may have.
    functions: &'static [(&'static str, &'static [Shape], &'static [Shape])],
}

const ANY: &[Shape] = &[
    Shape::Nil,
    Shape::Int,
    Shape::Scalar,
    Shape::Pair,
    Shape::List,
    Shape::Set,
    Shape::Map,
];
const ELEMENT: &[Shape] = &[Shape::Nil, Shape::Int, Shape::Scalar];
const ELEMENTS: &[Shape] = &[Shape::Nil, Shape::List, Shape::Set];
const TESTED: &[Shape] = &[Shape::Scalar, Shape::List];

/// The candidates but transactions; of those with evidence, the first is meant.
const CANDIDATES: [Candidate; 13] = [
    Candidate {
        name: "cas-register",
        evidence: &["cas"],
        because: "reads, writes and compare-and-sets of single values",
        functions: &[
            ("read", ELEMENT, ELEMENT),
            ("write", ELEMENT, ELEMENT),
            (
                "cas",
                &[Shape::Pair, Shape::List],
                &[Shape::Nil, Shape::Pair, Shape::List, Shape::Scalar],
            ),
        ],
    },
    Candidate {
        name: "mutex",
        evidence: &["acquire", "release"],
        because: "acquire and release",
        functions: &[("acquire", ANY, ANY), ("release", ANY, ANY)],
    },
    Candidate {
        name: "kv-map",
        evidence: &["get", "put", "append"],
        because: "get, put and append of keys",
        functions: &[
            ("get", ELEMENT, ELEMENT),
            ("put", ELEMENT, ELEMENT),
            ("append", ELEMENT, ELEMENT),
        ],
    },
    Candidate {
        name: "total-queue",
        evidence: &["enqueue", "dequeue", "drain"],
        because: "enqueue and dequeue",
        functions: &[
            ("enqueue", ANY, ANY),
            ("dequeue", ANY, ANY),
            ("drain", ANY, ELEMENTS),
        ],
    },
    Candidate {
        name: "stack",
        evidence: &["push", "pop"],
        because: "push and pop",
        functions: &[
            ("push", ELEMENT, ELEMENT),
            ("pop", ELEMENT, ELEMENT),
            ("peek", ELEMENT, ELEMENT),
            ("top", ELEMENT, ELEMENT),
        ],
    },
    Candidate {
        name: "deque",
        evidence: &["push-front", "push-back", "pop-front", "pop-back"],
        because: "push and pop at two ends",
        functions: &[
            ("push-front", ELEMENT, ELEMENT),
            ("push-back", ELEMENT, ELEMENT),
            ("pop-front", ELEMENT, ELEMENT),
            ("pop-back", ELEMENT, ELEMENT),
            ("peek-front", ELEMENT, ELEMENT),
            ("peek-back", ELEMENT, ELEMENT),
        ],
    },
    Candidate {
        name: "priority-queue",
        evidence: &["insert"],
        because: "insert and poll",
        functions: &[
            ("insert", ELEMENT, ELEMENT),
            ("poll", ELEMENT, ELEMENT),
            ("peek", ELEMENT, ELEMENT),
        ],
    },
    Candidate {
        name: "unique-ids",
        evidence: &["generate"],
        because: "generate",
        functions: &[("generate", ANY, ANY)],
    },
    Candidate {
        name: "bank",
        evidence: &["transfer"],
        because: "transfers, and reads of all balances",
        functions: &[
            ("transfer", &[Shape::Map], ANY),
            ("read", &[Shape::Nil, Shape::Map], &[Shape::Nil, Shape::Map]),
        ],
    },
    Candidate {
        name: "log",
        evidence: &["send", "poll", "assign", "subscribe"],
        because: "send and poll",
        functions: &[
            ("send", &[Shape::List], &[Shape::List]),
            ("poll", &[Shape::List], &[Shape::List]),
            ("txn", &[Shape::List], &[Shape::List]),
            ("assign", ANY, ANY),
            ("subscribe", ANY, ANY),
        ],
    },
    // The values of reads distinguish a set from a counter.
    Candidate {
        name: "counter",
        evidence: &[],
        because: "add, and reads of one number",
        functions: &[
            ("add", &[Shape::Int], &[Shape::Nil, Shape::Int]),
            ("read", ELEMENT, &[Shape::Nil, Shape::Int]),
        ],
    },
    Candidate {
        name: "set-full",
        evidence: &[],
        because: "add, and reads of all elements",
        functions: &[("add", ANY, ANY), ("read", ANY, ELEMENTS)],
    },
    Candidate {
        name: "cas-register",
        evidence: &["read", "write"],
        because: "reads and writes of single values",
        functions: &[("read", ELEMENT, ELEMENT), ("write", ELEMENT, ELEMENT)],
    },
];

/// Candidates for operations that fit none of [`CANDIDATES`]: of those that fit, the first is meant.
const LATER_CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "linearizable-set",
        evidence: &["contains", "remove"],
        because: "add, remove and contains of elements",
        functions: &[
            ("add", ELEMENT, ELEMENT),
            ("remove", ELEMENT, ELEMENT),
            ("contains", ELEMENT, TESTED),
            ("read", &[Shape::Nil], ELEMENTS),
        ],
    },
    Candidate {
        name: "append-log",
        evidence: &["append"],
        because: "append, and reads of offsets or of all values",
        functions: &[
            (
                "append",
                ELEMENT,
                &[Shape::Nil, Shape::List, Shape::Int, Shape::Scalar],
            ),
            (
                "read",
                &[Shape::Nil, Shape::Int],
                &[Shape::Nil, Shape::List],
            ),
        ],
    },
    Candidate {
        name: "disk",
        evidence: &["flush"],
        because: "reads, writes and flushes of blocks",
        functions: &[
            (
                "read",
                &[Shape::List, Shape::Pair],
                &[Shape::List, Shape::Pair],
            ),
            (
                "write",
                &[Shape::List, Shape::Pair],
                &[Shape::Nil, Shape::List, Shape::Pair],
            ),
            ("trim", &[Shape::List, Shape::Pair], ANY),
            ("flush", ANY, ANY),
        ],
    },
    Candidate {
        name: "block-device",
        evidence: &["read", "trim"],
        because: "reads and writes of ranges of blocks",
        functions: &[
            ("read", &[Shape::List], &[Shape::List]),
            ("write", &[Shape::List], &[Shape::Nil, Shape::List]),
            ("trim", &[Shape::List], ANY),
        ],
    },
];

/// Names that test suites of Jepsen give to workloads, and the checkers for them.
const WORKLOADS: &[(&str, &str)] = &[
    ("append", "list-append"),
    ("list-append", "list-append"),
    ("txn-list-append", "list-append"),
    ("wr", "rw-register"),
    ("rw", "rw-register"),
    ("wr-register", "rw-register"),
    ("rw-register", "rw-register"),
    ("txn-rw-register", "rw-register"),
    ("register", "cas-register"),
    ("cas-register", "cas-register"),
    ("linearizable-register", "cas-register"),
    ("single-key-acid", "cas-register"),
    ("bank", "bank"),
    ("set", "set-full"),
    ("sets", "set-full"),
    ("set-full", "set-full"),
    ("counter", "counter"),
    ("pn-counter", "counter"),
    ("queue", "total-queue"),
    ("unique-ids", "unique-ids"),
    ("mutex", "mutex"),
    ("lock", "mutex"),
    ("kafka", "log"),
    ("monotonic", "monotonic"),
    ("causal", "causal"),
    ("causal-reverse", "causal-reverse"),
    ("comments", "comments"),
    ("sequential", "sequential"),
    ("adya", "adya-g2"),
    ("adya-g2", "adya-g2"),
    ("g2", "adya-g2"),
];

/// The checker for a workload as Jepsen's test suites name them; `None` for other names.
pub fn of_workload(name: &str) -> Option<&'static str> {
    let known = WORKLOADS.iter().find(|(workload, _)| *workload == name);
    let checker = known.map(|(_, checker)| *checker);
    assert!(
        checker.is_none_or(|name| entry(name).is_some()),
        "a workload has a checker that does not exist"
    );
    checker
}

impl Shapes {
    /// Those of all operations of a history.
    pub fn of(history: &History) -> Shapes {
        let mut shapes = Shapes::default();
        for op in history {
            shapes.take(op);
        }
        shapes
    }

    /// Takes the operations of a chunk into account. Transactions, of which there are most, are looked at in place.
    pub fn take_chunk(&mut self, chunk: &Chunk) {
        let has_new = self.has_new_mops(chunk);
        for view in chunk.views() {
            if !view.process().is_client() {
                continue;
            }
            match view.value() {
                ValueView::Txn(mops) if view.key().is_none() && view.f() != "read" => {
                    self.take_transaction(view);
                    if has_new {
                        self.take_mops(view.index(), mops);
                    }
                }
                _ => self.take(&view.op()),
            }
        }
    }

    /// Does the chunk have a kind of micro-operation that was not seen so far? After the first chunk hardly any has, and a scan
    /// of the tags costs less than a look at each micro-operation.
    fn has_new_mops(&self, chunk: &Chunk) -> bool {
        let is_new = |tag: &u8| match *tag {
            mop_tag::APPEND => self.appends.is_none(),
            mop_tag::WRITE => self.writes.is_none(),
            mop_tag::READ_PREFIX | mop_tag::READ_BRANCH => self.list_reads.is_none(),
            mop_tag::READ_REGISTER => self.register_reads.is_none(),
            _ => false,
        };
        chunk.mop_tags().iter().any(is_new)
    }

    /// A micro-operation of the transaction that was invoked as the operation with this index.
    pub(crate) fn add_mop(&mut self, index: u64, kind: MopKind) {
        let first = match kind {
            MopKind::Append => &mut self.appends,
            MopKind::Write => &mut self.writes,
            MopKind::ListRead => &mut self.list_reads,
            MopKind::RegisterRead => &mut self.register_reads,
        };
        first.get_or_insert(index);
    }

    /// A transaction that was invoked as the operation with this index and completed next.
    pub(crate) fn add_transaction(&mut self, index: u64, outcome: OpType) {
        let uses = self.functions.entry("txn").or_default();
        uses.invoked.entry(Shape::Txn).or_insert(index);
        if outcome == OpType::Ok {
            uses.returned.entry(Shape::Txn).or_insert(index + 1);
        }
    }

    fn take_transaction(&mut self, view: OpView<'_>) {
        let index = view.index();
        let uses = match self.functions.get_mut(view.f().as_str()) {
            Some(uses) => uses,
            None => self.functions.entry(view.f().as_str()).or_default(),
        };
        match view.kind() {
            OpType::Invoke => _ = uses.invoked.entry(Shape::Txn).or_insert(index),
            OpType::Ok => _ = uses.returned.entry(Shape::Txn).or_insert(index),
            OpType::Fail | OpType::Info => {}
        }
    }

    fn take_mops(&mut self, index: u64, mops: Mops<'_>) {
        for mop in mops.iter() {
            let first = match mop {
                MopView::Append { .. } => &mut self.appends,
                MopView::Write { .. } => &mut self.writes,
                MopView::ReadNil { .. } => continue,
                MopView::ReadList { .. } => &mut self.list_reads,
                MopView::ReadRegister { .. } => &mut self.register_reads,
            };
            first.get_or_insert(index);
        }
    }

    /// Takes one more operation into account.
    pub fn take(&mut self, op: &Op) {
        if !op.process.is_client() {
            return;
        }
        let uses = self.functions.entry(op.f.as_str()).or_default();
        let shape = Shape::of(&op.value);
        match op.kind {
            OpType::Invoke => _ = uses.invoked.entry(shape).or_insert(op.index),
            OpType::Ok => _ = uses.returned.entry(shape).or_insert(op.index),
            // What a failed operation says is its own matter.
            OpType::Fail | OpType::Info => {}
        }
        match &op.value {
            Value::Txn(mops) => {
                self.mops(op.index, mops);
                if op.f.as_str() == "read" {
                    self.group(mops);
                }
            }
            Value::Keyed(..) => {}
            _ => _ = self.unkeyed.get_or_insert(op.index),
        }
    }

    fn mops(&mut self, index: u64, mops: &[Mop]) {
        for mop in mops {
            let first = match mop {
                Mop::Append { .. } => &mut self.appends,
                Mop::Write { .. } => &mut self.writes,
                Mop::Read { observed, .. } => match observed {
                    Observed::Nil => continue,
                    Observed::List(_) => &mut self.list_reads,
                    Observed::Register(_) => &mut self.register_reads,
                },
            };
            first.get_or_insert(index);
        }
    }

    fn group(&mut self, mops: &[Mop]) {
        let keys: BTreeSet<_> = mops.iter().map(Mop::key).collect();
        let size = keys.len();
        self.groups = match self.groups {
            _ if size < mops.len() => Groups::Mixed,
            Groups::None => Groups::Of(size),
            Groups::Of(other) if other == size => Groups::Of(size),
            Groups::Of(_) | Groups::Mixed => Groups::Mixed,
        };
    }

    /// The checker that these operations are for, if that is clear.
    pub fn guess(&self) -> Guess {
        let guess = match self.guess_by_functions() {
            unclear @ Guess::Unclear { .. } => self.guess_later().unwrap_or(unclear),
            guess => guess,
        };
        if let Guess::Checker { name, .. } = guess {
            assert!(entry(name).is_some(), "a guess that does not exist");
        }
        guess
    }

    fn guess_by_functions(&self) -> Guess {
        if self.functions.is_empty() {
            return unclear("the history has no operations of clients", &[]);
        }
        if self.has(|shape| shape == Shape::Txn) {
            return self.guess_transactions();
        }
        let candidate = if self.functions.contains_key("add") {
            match self.added() {
                Ok(name) => CANDIDATES.iter().find(|one| one.name == name),
                Err(guess) => return guess,
            }
        } else {
            let is_meant = |one: &&Candidate| {
                let mut evidence = one.evidence.iter();
                evidence.any(|f| self.functions.contains_key(f))
            };
            CANDIDATES.iter().find(is_meant)
        };
        let Some(candidate) = candidate else {
            let names: Vec<_> = self.functions.keys().map(|f| format!(":{f}")).collect();
            let reason = format!("no checker is known for {}", names.join(", "));
            return unclear(&reason, &[]);
        };
        match self.misfit(candidate) {
            None => Guess::Checker {
                name: candidate.name,
                because: candidate.because,
            },
            Some(reason) => Guess::Unclear {
                options: self.options(candidate.name),
                reason,
            },
        }
    }

    /// The first of the later candidates that fits.
    fn guess_later(&self) -> Option<Guess> {
        let fits = |one: &&Candidate| {
            let mut evidence = one.evidence.iter();
            evidence.any(|f| self.functions.contains_key(f)) && self.misfit(one).is_none()
        };
        let candidate = LATER_CANDIDATES.iter().find(fits)?;
        Some(Guess::Checker {
            name: candidate.name,
            because: candidate.because,
        })
    }

    /// Why the operations cannot be for the checker of this name; `None` when they can, or the checker says so itself.
    pub fn refusal(&self, name: &str) -> Option<String> {
        let mut of_name = CANDIDATES.iter().filter(|one| one.name == name).peekable();
        if of_name.peek().is_none() {
            let is_of_transactions = matches!(name, "list-append" | "rw-register");
            return match self.guess() {
                Guess::Checker { name: other, .. } if is_of_transactions && other != name => {
                    Some(format!("the operations look like {other}"))
                }
                _ => None,
            };
        }
        let mut refusal = None;
        for candidate in of_name {
            refusal = Some(self.misfit(candidate)?);
        }
        refusal
    }

    fn has(&self, wanted: impl Fn(Shape) -> bool) -> bool {
        let all = self.functions.values();
        let mut shapes = all.flat_map(|uses| uses.invoked.keys().chain(uses.returned.keys()));
        shapes.any(|shape| wanted(*shape))
    }

    /// Is there a transaction among them?
    pub fn has_transactions(&self) -> bool {
        self.has(|shape| shape == Shape::Txn)
    }

    fn guess_transactions(&self) -> Guess {
        for (f, uses) in &self.functions {
            let mut all = uses.invoked.iter().chain(&uses.returned);
            let odd = all.find(|(shape, _)| !matches!(shape, Shape::Txn | Shape::Nil));
            if let Some((shape, index)) = odd {
                let reason = format!(
                    "op {index} (:{f}) has {}, other operations have transactions of :append, :w and :r",
                    shape.name()
                );
                return unclear(&reason, &["list-append", "rw-register"]);
            }
        }
        let lists = self.appends.or(self.list_reads);
        let registers = self.writes.or(self.register_reads);
        match (lists, registers) {
            (Some(list), Some(register)) => {
                let reason = format!("op {list} is about lists, op {register} about registers");
                unclear(&reason, &["list-append", "rw-register"])
            }
            (Some(_), None) if self.appends.is_some() => Guess::Checker {
                name: "list-append",
                because: ":append micro-operations",
            },
            (Some(_), None) => Guess::Checker {
                name: "list-append",
                because: "reads of lists",
            },
            (None, Some(_)) if self.writes.is_some() => Guess::Checker {
                name: "rw-register",
                because: ":w micro-operations",
            },
            // Without the writes, which need not be recorded, this is all that can be checked of such reads.
            (None, Some(_))
                if matches!(self.groups, Groups::Of(2..))
                    && self.functions.keys().all(|f| *f == "read") =>
            {
                Guess::Checker {
                    name: "long-fork",
                    because: "reads of groups of keys, and nothing is written",
                }
            }
            (None, Some(index)) => {
                let reason = format!("op {index} reads a register, and nothing is written");
                unclear(&reason, &["rw-register", "long-fork"])
            }
            (None, None) => unclear(
                "transactions that write nothing and read nothing",
                &["list-append", "rw-register"],
            ),
        }
    }

    /// A set or a counter, of a history that adds.
    fn added(&self) -> Result<&'static str, Guess> {
        let options = ["counter", "set-full", "set"];
        let Some(read) = self.functions.get("read") else {
            return Err(unclear(
                "nothing was read, so :add may be that of a counter or of a set",
                &options,
            ));
        };
        let first = |wanted: &[Shape]| {
            let found = read.returned.iter();
            found
                .filter(|(shape, _)| wanted.contains(shape))
                .map(|(_, index)| *index)
                .min()
        };
        match (first(&[Shape::Int]), first(&[Shape::List, Shape::Set])) {
            (Some(_), None) => Ok("counter"),
            (None, Some(_)) => Ok("set-full"),
            (Some(number), Some(set)) => {
                let reason = format!("op {number} read a number, op {set} a set");
                Err(unclear(&reason, &options))
            }
            (None, None) => Err(unclear(
                "no read says whether :add is that of a counter or of a set",
                &options,
            )),
        }
    }

    /// The first operation that the candidate cannot mean.
    fn misfit(&self, candidate: &Candidate) -> Option<String> {
        if candidate.name == "kv-map"
            && let Some(index) = self.unkeyed
        {
            return Some(format!("op {index} names no key"));
        }
        // A register may hold anything, but it was written then.
        let written = self.functions.get("write");
        let holds = |shape: &Shape| {
            let is_register = candidate.name == "cas-register";
            is_register && written.is_some_and(|uses| uses.invoked.contains_key(shape))
        };
        let mut misfits = Vec::new();
        for (f, uses) in &self.functions {
            let known = candidate.functions.iter().find(|(name, ..)| name == f);
            let Some((_, invoked, returned)) = known else {
                let all = uses.invoked.values().chain(uses.returned.values());
                let index = all.min().copied().unwrap_or_default();
                misfits.push((
                    index,
                    format!("op {index} is :{f}, which {} does not know", candidate.name),
                ));
                continue;
            };
            for (shape, index) in &uses.invoked {
                if !invoked.contains(shape) && (*f == "read" || candidate.name != "cas-register") {
                    misfits.push((
                        *index,
                        format!("op {index} invokes :{f} with {}", shape.name()),
                    ));
                }
            }
            for (shape, index) in &uses.returned {
                if !returned.contains(shape) && !holds(shape) {
                    misfits.push((
                        *index,
                        format!(
                            "op {index}: :{f} returned {}, which {} cannot mean",
                            shape.name(),
                            candidate.name
                        ),
                    ));
                }
            }
        }
        misfits.into_iter().min().map(|(_, reason)| reason)
    }

    /// Checkers that a person may have in mind when the guess does not fit.
    fn options(&self, guessed: &'static str) -> Vec<&'static str> {
        let read = self.functions.get("read");
        let reads = |wanted: Shape| read.is_some_and(|uses| uses.returned.contains_key(&wanted));
        let mut options = Vec::new();
        if reads(Shape::Map) {
            options.push("bank");
        }
        if reads(Shape::Set) || reads(Shape::List) {
            options.extend(["set-full", "set"]);
        }
        options.push(guessed);
        options.dedup();
        options
    }
}

fn unclear(reason: &str, options: &[&'static str]) -> Guess {
    Guess::Unclear {
        reason: reason.to_owned(),
        options: options.to_vec(),
    }
}

#[cfg(test)]
mod tests;
