//! Transaction sinks: take transactions event by event, without building operations.

use crate::{Extra, OpType, Symbol, Value};

/// A timestamp of a database's hybrid logical clock, ordered by its physical part first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Ticks of the database's clock; their length is up to the database.
    pub physical: i64,
    /// Orders timestamps of the same tick.
    pub logical: i64,
}

/// Snapshot and commit timestamp of a transaction, as the database reports them; not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The snapshot.
    pub start: Stamp,
    /// The commit, not before the start.
    pub commit: Stamp,
}

impl Stamps {
    /// Field of a completion: the snapshot's timestamp, `[physical logical]`.
    const START: Symbol = Symbol::new("start-stamp");
    /// Field of a completion: the commit's timestamp, `[physical logical]`.
    const COMMIT: Symbol = Symbol::new("commit-stamp");

    /// The extra fields of a completion with these timestamps.
    pub fn fields(self) -> Extra {
        let field = |stamp: Stamp| {
            let parts = [stamp.physical, stamp.logical].map(Value::Int);
            Value::List(parts.into())
        };
        Extra::new(&[
            (Stamps::START, field(self.start)),
            (Stamps::COMMIT, field(self.commit)),
        ])
    }

    /// Reads the timestamps from the fields of a completion; `None` if one is absent or malformed.
    pub fn of(fields: &Extra) -> Option<Stamps> {
        let stamp = |name: Symbol| match fields.get(name.as_str())? {
            Value::List(parts) => match parts[..] {
                [Value::Int(physical), Value::Int(logical)] => Some(Stamp { physical, logical }),
                _ => None,
            },
            _ => None,
        };
        Some(Stamps {
            start: stamp(Stamps::START)?,
            commit: stamp(Stamps::COMMIT)?,
        })
    }
}

/// Receives transactions one after another. Transactions of one session arrive in the order in which it ran them; the order
/// between sessions is that of the file and has no meaning.
pub trait TransactionSink {
    /// Begins a transaction of `session`.
    fn begin(&mut self, session: u64, stamps: Option<Stamps>);
    /// The transaction read a register; `None` is the initial state.
    fn read(&mut self, key: i64, value: Option<i64>);
    /// The transaction wrote a register.
    fn write(&mut self, key: i64, value: i64);
    /// The transaction appended to a list.
    fn append(&mut self, key: i64, element: i64);
    /// The transaction read a list, oldest element first; empty is the initial state.
    fn read_list(&mut self, key: i64, elements: &[i64]);
    /// Ends the transaction: [`OpType::Ok`] committed, [`OpType::Fail`] aborted, [`OpType::Info`] unknown. An error (a bound
    /// of the sink) ends the reading; the reader reports it with the position of the transaction.
    fn end(&mut self, outcome: OpType) -> Result<(), String>;
}
