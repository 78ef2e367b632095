//! Transaction sinks: take transactions event by event, without building operations.

use crate::{Extra, OpType, Symbol, Value};

/// A point of a database's hybrid logical clock; the physical part comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Ticks of the database's clock, of whatever length.
    pub physical: i64,
    /// What orders points of the same tick.
    pub logical: i64,
}

/// When a transaction took its snapshot and when it was committed, as the database says. Nobody has checked that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The snapshot.
    pub start: Stamp,
    /// The commit, not before the start.
    pub commit: Stamp,
}

impl Stamps {
    /// The field of a completion that says when the database took the snapshot: `[physical logical]`.
    const START: Symbol = Symbol::new("start-stamp");
    /// The field that says when it committed.
    const COMMIT: Symbol = Symbol::new("commit-stamp");

    /// What a completion with these stamps carries.
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

    /// The stamps that a completion with these fields has, if it has any.
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

/// Takes transactions one after another. Of one session they come in the order in which it ran them; the order between
/// sessions is the file's and says nothing.
pub trait TransactionSink {
    /// A transaction begins, after all of the same session before it.
    fn begin(&mut self, session: u64, stamps: Option<Stamps>);
    /// It read a register; `None`: the initial state, which nobody wrote.
    fn read(&mut self, key: i64, value: Option<i64>);
    /// It wrote a register.
    fn write(&mut self, key: i64, value: i64);
    /// It appended to a list.
    fn append(&mut self, key: i64, element: i64);
    /// It read a list, oldest element first; empty: the initial state.
    fn read_list(&mut self, key: i64, elements: &[i64]);
    /// It ended: [`OpType::Ok`] committed, [`OpType::Fail`] aborted, [`OpType::Info`] nobody knows. An error (a bound
    /// of the sink) ends the reading and is told with the place of the transaction.
    fn end(&mut self, outcome: OpType) -> Result<(), String>;
}
