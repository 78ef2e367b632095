//! The transactions of a history, numbered.

use super::dense::Keys;
use super::explain::Told;
use super::graph::Edges;
use seatrial_history::{History, Mop, Op, OpType, Process};

/// No such position.
pub(super) const NONE: u32 = u32::MAX;

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    /// Position of its invocation; [`NONE`] when it was not recorded.
    pub(super) invocation: u32,
    /// Position of its completion; [`NONE`] when it never completed.
    pub(super) completion: u32,
    /// How it ended; without completion, `Info`.
    pub(super) outcome: OpType,
    /// Where its keys begin in [`Transactions::mop_keys`].
    first_mop: u32,
}

impl Transaction {
    /// Did it take place?
    pub(super) fn is_ok(&self) -> bool {
        self.outcome == OpType::Ok
    }

    /// Did it certainly not take place?
    pub(super) fn is_fail(&self) -> bool {
        self.outcome == OpType::Fail
    }
}

/// All transactions of clients in the order of their invocations, with the keys of their micro-operations numbered.
/// The micro-operations themselves stay in the history.
pub(super) struct Transactions<'a> {
    pub(super) history: &'a History,
    pub(super) all: Vec<Transaction>,
    pub(super) keys: Keys<'a>,
    /// The key of each micro-operation of each transaction.
    mop_keys: Vec<u32>,
}

impl<'a> Transactions<'a> {
    /// The transactions of `history`. Micro-operations come from the completion of a successful transaction (they have
    /// the results of reads) and from the invocation of every other. The error says what is not a transaction.
    pub(super) fn new(history: &'a History) -> Result<Transactions<'a>, String> {
        let mut transactions = Transactions {
            history,
            all: Vec::with_capacity(history.len() / 2),
            keys: Keys::default(),
            mop_keys: Vec::new(),
        };
        for (position, op) in history.iter().enumerate() {
            if !op.process.is_client() {
                continue;
            }
            let pair = history.pair(position);
            let (invocation, completion) = match (op.is_invoke(), pair) {
                (true, pair) => (position as u32, pair.map_or(NONE, |pair| pair as u32)),
                (false, None) if op.is_ok() => (NONE, position as u32),
                _ => continue,
            };
            transactions.push(invocation, completion)?;
        }
        Ok(transactions)
    }

    fn push(&mut self, invocation: u32, completion: u32) -> Result<(), String> {
        let transaction = Transaction {
            invocation,
            completion,
            outcome: match completion {
                NONE => OpType::Info,
                position => self.history.ops()[position as usize].kind,
            },
            first_mop: u32::try_from(self.mop_keys.len())
                .map_err(|_| "more than 2^32 micro-operations")?,
        };
        let op = self.source(transaction);
        let Some(mops) = op.value.as_txn() else {
            return Err(format!("op {}: its value is not a transaction", op.index));
        };
        self.all.push(transaction);
        for mop in mops {
            let key = self.keys.number(mop.key());
            self.mop_keys.push(key);
        }
        Ok(())
    }

    /// The operation that has the transaction's micro-operations.
    fn source(&self, transaction: Transaction) -> &'a Op {
        let position = if transaction.is_ok() {
            transaction.completion
        } else {
            transaction.invocation
        };
        &self.history.ops()[position as usize]
    }

    /// How many transactions there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The micro-operations of a transaction.
    pub(super) fn mops(&self, number: u32) -> &'a [Mop] {
        let op = self.source(self.all[number as usize]);
        op.value.as_txn().unwrap_or_default()
    }

    /// The numbers of the keys of a transaction's micro-operations, in the same order.
    pub(super) fn mop_keys(&self, number: u32) -> &[u32] {
        let first = self.all[number as usize].first_mop as usize;
        let next = self.all.get(number as usize + 1);
        let end = next.map_or(self.mop_keys.len(), |next| next.first_mop as usize);
        &self.mop_keys[first..end]
    }

    /// A transaction's micro-operations with the numbers of their keys.
    pub(super) fn keyed_mops(&self, number: u32) -> impl Iterator<Item = (u32, &'a Mop)> {
        let keys = self.mop_keys(number).iter().copied();
        keys.zip(self.mops(number))
    }

    /// The operation to show for a transaction: its completion, or its invocation when it never completed.
    pub(super) fn op(&self, number: u32) -> &'a Op {
        let Transaction {
            invocation,
            completion,
            ..
        } = self.all[number as usize];
        let position = if completion == NONE {
            invocation
        } else {
            completion
        };
        &self.history.ops()[position as usize]
    }

    /// The index of [`Transactions::op`].
    pub(super) fn index(&self, number: u32) -> u64 {
        self.op(number).index
    }

    /// Who ran a transaction.
    pub(super) fn process(&self, number: u32) -> Process {
        self.op(number).process
    }

    /// How many transactions ended so.
    pub(super) fn count(&self, outcome: OpType) -> usize {
        let ended = |one: &&Transaction| one.outcome == outcome;
        self.all.iter().filter(ended).count()
    }

    /// Links the order of each process's transactions, those of `is_node`.
    pub(super) fn link_processes(&self, is_node: &[bool], edges: &mut Edges) {
        let nodes = (0..self.len() as u32).filter(|&number| is_node[number as usize]);
        edges.link_processes(nodes.map(|number| {
            let is_ok = self.all[number as usize].is_ok();
            (self.process(number), number, is_ok)
        }));
    }

    /// Links the real time of the transactions of `is_node`.
    pub(super) fn link_realtime(&self, is_node: &[bool], edges: &mut Edges) {
        let nodes = (0..self.len() as u32).filter(|&number| is_node[number as usize]);
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for number in nodes {
            let transaction = &self.all[number as usize];
            if transaction.invocation != NONE {
                begun.push((transaction.invocation, number));
            }
            if transaction.is_ok() {
                ended.push((transaction.completion, number));
            }
        }
        ended.sort_unstable();
        edges.link_realtime(begun.into_iter(), ended.into_iter());
    }
}

impl Told for Transactions<'_> {
    fn invocation(&self, number: u32) -> Option<&Op> {
        self.history
            .ops()
            .get(self.all[number as usize].invocation as usize)
    }

    fn completion(&self, number: u32) -> Option<&Op> {
        self.history
            .ops()
            .get(self.all[number as usize].completion as usize)
    }
}
