//! The table of transactions: process, invocation, completion and status in columns.

use seatrial_cycles::{Position, Txn, dense_id};
use seatrial_history::OpType;

dense_id! {
    /// A client process of a table, numbered in the order in which processes first occurred; a session.
    pub ProcessNumber
}

/// What all transactions have, one entry a column for each: 13 bytes a transaction, 5 without times.
///
/// ```text
///   transaction    0        1       2        numbered in the order of their invocations
///   process        0        1       0        within a process, the order of numbers is the program order
///   invocation     0        1       4        positions in the history, where known
///   completion     3        2
///   status         ok       fail    info     info: unknown, or not completed so far
/// ```
///
/// A transaction is opened at its invocation ([`TransactionColumns::open`]) and completed once at most
/// ([`TransactionColumns::complete`]). Checkers that decide a history window by window drop transactions and renumber the
/// others ([`TransactionColumns::keep`]).
#[derive(Clone, Debug, Default)]
pub struct TransactionColumns {
    processes: Vec<ProcessNumber>,
    invocations: Vec<Option<Position>>,
    completions: Vec<Option<Position>>,
    outcomes: Vec<OpType>,
}

impl TransactionColumns {
    /// Number of transactions, of any status.
    #[inline]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Are there no transactions?
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Adds a transaction without a completion, invoked at this position, if that was recorded.
    #[inline]
    pub fn open(&mut self, process: ProcessNumber, invocation: Option<Position>) -> Txn {
        let number = Txn::new(self.len() as u32);
        self.processes.push(process);
        self.invocations.push(invocation);
        self.completions.push(None);
        self.outcomes.push(OpType::Info);
        number
    }

    /// Sets the status of a transaction, and the position of its completion if there is one.
    #[inline]
    pub fn complete(&mut self, number: Txn, outcome: OpType, completion: Option<Position>) {
        debug_assert!(
            outcome != OpType::Invoke,
            "a transaction that completes is no longer invoked"
        );
        debug_assert!(
            self.completions[number.index()].is_none(),
            "a transaction completes once"
        );
        self.outcomes[number.index()] = outcome;
        self.completions[number.index()] = completion;
    }

    /// By transaction: its process.
    pub fn processes(&self) -> &[ProcessNumber] {
        &self.processes
    }

    /// By transaction: the position of its invocation, if that was recorded.
    pub fn invocations(&self) -> &[Option<Position>] {
        &self.invocations
    }

    /// By transaction: the position of its completion, if there is one.
    pub fn completions(&self) -> &[Option<Position>] {
        &self.completions
    }

    /// By transaction: `ok`, `fail` or `info`.
    pub fn outcomes(&self) -> &[OpType] {
        &self.outcomes
    }

    /// The process of a transaction.
    #[inline]
    pub fn process(&self, number: Txn) -> ProcessNumber {
        self.processes[number.index()]
    }

    /// The position of a transaction's invocation, if that was recorded.
    #[inline]
    pub fn invocation(&self, number: Txn) -> Option<Position> {
        self.invocations[number.index()]
    }

    /// The position of a transaction's completion, if there is one.
    #[inline]
    pub fn completion(&self, number: Txn) -> Option<Position> {
        self.completions[number.index()]
    }

    /// `ok`, `fail` or `info`.
    #[inline]
    pub fn outcome(&self, number: Txn) -> OpType {
        self.outcomes[number.index()]
    }

    /// Did it succeed?
    #[inline]
    pub fn is_ok(&self, number: Txn) -> bool {
        self.outcomes[number.index()] == OpType::Ok
    }

    /// Did it fail, so that it had no effect?
    #[inline]
    pub fn is_failed(&self, number: Txn) -> bool {
        self.outcomes[number.index()] == OpType::Fail
    }

    /// The place of a transaction in a certificate: the position of its invocation, of its completion if only that was
    /// recorded.
    pub fn recorded(&self, number: Txn) -> Position {
        let position = self.invocation(number).or(self.completion(number));
        position.expect("a transaction has an invocation or a completion")
    }

    /// Keeps the transactions that have a new number, in their order.
    pub fn keep(&mut self, numbers: &[Option<Txn>]) {
        assert_eq!(numbers.len(), self.len(), "each one stays or is freed");
        keep(&mut self.processes, numbers);
        keep(&mut self.invocations, numbers);
        keep(&mut self.completions, numbers);
        keep(&mut self.outcomes, numbers);
        assert_eq!(
            numbers.iter().flatten().count(),
            self.len(),
            "a transaction has a number if and only if it stays"
        );
        self.assert_complete();
    }

    /// The numbers of the processes without those that have no transaction left; `None` for these.
    pub fn keep_processes(&mut self) -> Vec<Option<ProcessNumber>> {
        let highest = self.processes.iter().max();
        let mut numbers = vec![None; highest.map_or(0, |highest| highest.index() + 1)];
        for &process in &self.processes {
            numbers[process.index()] = Some(process);
        }
        for (next, number) in (0..).zip(numbers.iter_mut().flatten()) {
            *number = ProcessNumber::new(next);
        }
        for process in &mut self.processes {
            let number = numbers[process.index()];
            *process = number.expect("a process with a transaction stays");
        }
        numbers
    }

    /// Asserts that all columns have the same length.
    pub fn assert_complete(&self) {
        let lengths = [
            self.processes.len(),
            self.invocations.len(),
            self.completions.len(),
        ];
        assert_eq!(lengths, [self.len(); 3], "an entry for each transaction");
        debug_assert!(
            !self.outcomes.contains(&OpType::Invoke),
            "a transaction has the status of an invocation"
        );
    }
}

/// Keeps the entries of a column that have a number.
fn keep<T>(column: &mut Vec<T>, numbers: &[Option<Txn>]) {
    let mut stays = numbers.iter().map(Option::is_some);
    column.retain(|_| stays.next().unwrap_or(false));
}
