//! The client of one worker: requests as statements and transactions.

use crate::SqlDialect;
use crate::sql_dialect::{
    ADD_TO_SET, CREDIT, ENQUEUE, READ_ACCOUNTS, READ_COUNTER, READ_LIST, READ_REGISTER, READ_SET,
};
use crate::take_error::TakeError;
use seatrial_history::{Key, Mop, Observed, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client};
use seatrial_suite::{
    DataRequest, DataStore, Setup, SqlFailure, SqlRows, SqlSession, SqlValue, StoreAnswer,
    StoreClient, StoreRefusal, SuiteOption, Transfer, Verb,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session and the node that it is connected to.
pub struct SqlNode {
    /// The node.
    pub node: NodeId,
    /// The session.
    pub session: Box<dyn SqlSession>,
}

/// Where a client sends what changes data.
pub enum SqlWriter {
    /// To its own node.
    Own,
    /// To another node.
    Other(SqlNode),
    /// To another node that could not be reached when the client was opened.
    Missing,
}

/// What clients of a test do alike.
#[derive(Clone, Copy, Debug)]
pub struct SqlStoreOptions {
    /// The workload; empty if the operations come from a plan. It decides what is under a key.
    pub workload: &'static str,
    /// Are transactions that only read, or write once, one statement?
    pub is_short: bool,
    /// Time limit of a drain.
    pub patience: Duration,
    /// The statements in which databases differ.
    pub dialect: &'static SqlDialect,
}

/// How transactions are sent: an option of every suite of such a database.
pub const TRANSACTIONS: SuiteOption = SuiteOption {
    name: "transactions",
    value_name: "HOW",
    about: "How transactions are sent: interactive (BEGIN, statements, COMMIT), or short (one statement if they only read or write once)",
    default: Some("interactive"),
    verbs: &[Verb::Test],
};

impl SqlStoreOptions {
    /// What a test's set-up says.
    pub fn of(setup: &Setup<'_>, dialect: &'static SqlDialect) -> Result<SqlStoreOptions, String> {
        Ok(SqlStoreOptions {
            workload: setup.workload.unwrap_or_default(),
            is_short: setup
                .options
                .one_of(TRANSACTIONS.name, &["interactive", "short"])?
                == "short",
            patience: setup.timeout,
            dialect,
        })
    }
}

/// The model to check of a workload, where transactions have this one: of other workloads the checker decides.
pub fn model_of_transactions(workload: &str, model: &'static str) -> Option<&'static str> {
    matches!(workload, "list-append" | "rw-register").then_some(model)
}

/// The client of one worker. What only reads goes to its own node, all else to the node that takes writes.
///
/// A refused statement inside a transaction is a definite failure: the transaction is rolled back, or its connection is given
/// up, which ends it too. What a commit, or a statement that is a transaction of its own, says is decided by the session
/// ([`SqlFailure::is_definite`]).
pub struct SqlStore {
    own: SqlNode,
    writer: SqlWriter,
    options: SqlStoreOptions,
    is_broken: bool,
}

/// Elements that a drain takes at once.
const TAKEN_AT_ONCE: i64 = 100;

impl DataStore for SqlStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            if matches!(self.writer, SqlWriter::Missing) && !request.is_read() {
                self.is_broken = true;
                return Err(StoreRefusal::failed("no connection to the primary"));
            }
            self.answer(request).await
        })
    }

    fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

impl SqlStore {
    /// A client over these sessions.
    pub fn new(own: SqlNode, writer: SqlWriter, options: SqlStoreOptions) -> SqlStore {
        SqlStore {
            own,
            writer,
            options,
            is_broken: false,
        }
    }

    /// The client of a database of one node.
    pub fn client(
        node: NodeId,
        session: impl SqlSession + 'static,
        options: SqlStoreOptions,
    ) -> Box<dyn Client> {
        let session = Box::new(session);
        let own = SqlNode { node, session };
        StoreClient::boxed(SqlStore::new(own, SqlWriter::Own, options))
    }

    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        let dialect = self.options.dialect;
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => self.change(dialect.write, key, &[value]).await,
            DataRequest::CompareAndSet(key, old, new) => {
                let sql = dialect.compare_and_set;
                match self.statement(false, sql, key, &[old, new]).await?.affected {
                    1 => Ok(self.done()),
                    _ => Err(StoreRefusal::failed("the register has another value")),
                }
            }
            DataRequest::Add(key, value) if self.options.workload == "set" => {
                self.change(ADD_TO_SET, key, &[value]).await
            }
            DataRequest::Add(key, by) => self.change(dialect.add_to_counter, key, &[by]).await,
            DataRequest::Transaction(mops) => self.transaction(mops).await,
            DataRequest::Balances => self.balances().await,
            DataRequest::Transfer(transfer) => self.transfer(transfer).await,
            DataRequest::Enqueue(element) => {
                self.alone(ENQUEUE, &[SqlValue::Integer(element)]).await?;
                Ok(self.done())
            }
            DataRequest::Dequeue => {
                match self.take(1).await.map_err(|error| error.with(one))?[..] {
                    [element] => Ok(self.answered(Value::Int(element))),
                    _ => Err(StoreRefusal::failed("empty")),
                }
            }
            DataRequest::Drain => self.drain().await,
            DataRequest::Generate => {
                let rows = self.alone(dialect.next_id, &[]).await?;
                let number = numbers(&rows)?.first().copied();
                let number = number.ok_or_else(|| StoreRefusal::unknown("no row"))?;
                Ok(self.answered(Value::Int(number)))
            }
            DataRequest::Acquire(_) | DataRequest::Release(_) => {
                Err(StoreRefusal::failed("this suite has no locks"))
            }
        }
    }

    /// The node for what only reads, or for what changes data.
    fn node(&mut self, is_read: bool) -> &mut SqlNode {
        match &mut self.writer {
            SqlWriter::Other(writer) if !is_read => writer,
            _ => &mut self.own,
        }
    }

    async fn run(
        &mut self,
        is_read: bool,
        sql: &str,
        parameters: &[SqlValue],
    ) -> Result<SqlRows, SqlFailure> {
        self.node(is_read).session.run(sql, parameters).await
    }

    fn done(&mut self) -> StoreAnswer {
        StoreAnswer::done().from(self.node(false).node)
    }

    fn answered(&mut self, value: Value) -> StoreAnswer {
        StoreAnswer::value(value).from(self.node(false).node)
    }

    async fn begin(&mut self, is_read: bool) -> Result<(), StoreRefusal> {
        let session = &mut self.node(is_read).session;
        let begun = session.run(session.begin(), &[]).await;
        self.inside(is_read, begun).await?;
        Ok(())
    }

    async fn commit(&mut self, is_read: bool) -> Result<(), StoreRefusal> {
        let committed = self.run(is_read, "commit", &[]).await;
        self.at_commit(committed).map(drop)
    }

    /// The result of a commit, or of a statement that is a transaction of its own.
    fn at_commit<T>(&mut self, result: Result<T, SqlFailure>) -> Result<T, StoreRefusal> {
        result.map_err(|error| {
            self.is_broken |= !error.leaves_usable;
            error.at_commit()
        })
    }

    /// The result of a statement inside a transaction.
    async fn inside<T>(
        &mut self,
        is_read: bool,
        result: Result<T, SqlFailure>,
    ) -> Result<T, StoreRefusal> {
        match result {
            Ok(found) => Ok(found),
            Err(error) => {
                self.roll_back(is_read, error.leaves_usable).await;
                Err(error.before_commit())
            }
        }
    }

    /// Ends a transaction that is not to be committed; a connection that does not is given up, which ends it too.
    async fn roll_back(&mut self, is_read: bool, is_usable: bool) {
        if !is_usable || self.run(is_read, "rollback", &[]).await.is_err() {
            self.is_broken = true;
        }
    }

    /// A statement that changes data and is a transaction of its own.
    async fn alone(&mut self, sql: &str, parameters: &[SqlValue]) -> Result<SqlRows, StoreRefusal> {
        let rows = self.run(false, sql, parameters).await;
        self.at_commit(rows)
    }

    /// A statement with a key and numbers that is a transaction of its own.
    async fn statement(
        &mut self,
        is_read: bool,
        sql: &str,
        key: &Key,
        numbers: &[i64],
    ) -> Result<SqlRows, StoreRefusal> {
        let mut parameters = vec![SqlValue::Text(key.to_string())];
        parameters.extend(numbers.iter().map(|number| SqlValue::Integer(*number)));
        let rows = self.run(is_read, sql, &parameters).await;
        self.at_commit(rows)
    }

    async fn change(
        &mut self,
        sql: &str,
        key: &Key,
        numbers: &[i64],
    ) -> Result<StoreAnswer, StoreRefusal> {
        self.statement(false, sql, key, numbers).await?;
        Ok(self.done())
    }

    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let sql = match self.options.workload {
            "set" => READ_SET,
            "counter" => READ_COUNTER,
            _ => READ_REGISTER,
        };
        let rows = self.statement(true, sql, key, &[]).await?;
        let numbers = numbers(&rows)?;
        let value = match (self.options.workload, numbers.first()) {
            ("set", _) => Value::integer_set(&numbers),
            (_, Some(number)) => Value::Int(*number),
            ("counter", None) => Value::Int(0),
            (_, None) => Value::Nil,
        };
        Ok(StoreAnswer::value(value).from(self.own.node))
    }

    async fn transaction(&mut self, mops: &[Mop]) -> Result<StoreAnswer, StoreRefusal> {
        let is_read = DataRequest::Transaction(mops).is_read();
        match mops {
            _ if self.options.is_short && is_read => return self.read_at_once(mops).await,
            [mop] if self.options.is_short => return self.write_at_once(mop).await,
            _ => {}
        }
        self.begin(is_read).await?;
        let mut seen = Vec::with_capacity(mops.len());
        for mop in mops {
            let result = self.micro_operation(is_read, mop).await;
            let rows = self.inside(is_read, result).await?;
            match self.observed(mop, rows.value()) {
                Ok(mop) => seen.push(mop),
                Err(error) => {
                    self.roll_back(is_read, true).await;
                    return Err(error);
                }
            }
        }
        self.commit(is_read).await?;
        let node = self.node(is_read).node;
        Ok(StoreAnswer::value(Value::Txn(Arc::from(seen))).from(node))
    }

    /// Executes one micro-operation. Lists and registers are in tables of their own, between which the workload decides for
    /// reads.
    async fn micro_operation(&mut self, is_read: bool, mop: &Mop) -> Result<SqlRows, SqlFailure> {
        let mut parameters = vec![SqlValue::Text(mop.key().to_string())];
        let dialect = self.options.dialect;
        let sql = match mop {
            Mop::Read { .. } if self.has_registers() => READ_REGISTER,
            Mop::Read { .. } => READ_LIST,
            Mop::Append { element, .. } => {
                parameters.push(SqlValue::Integer(*element));
                dialect.append
            }
            Mop::Write { value, .. } => {
                parameters.push(SqlValue::Integer(*value));
                dialect.write
            }
        };
        self.run(is_read, sql, &parameters).await
    }

    /// Do transactions read registers?
    fn has_registers(&self) -> bool {
        matches!(self.options.workload, "rw-register" | "long-fork")
    }

    /// A micro-operation with the value that its row has.
    fn observed(&self, mop: &Mop, value: Option<&SqlValue>) -> Result<Mop, StoreRefusal> {
        let Mop::Read { key, .. } = mop else {
            return Ok(mop.clone());
        };
        let observed = match value {
            None => Observed::Nil,
            Some(value) if self.has_registers() => Observed::Register(integer(value)?),
            Some(value) => {
                let elements = value.integers().ok_or_else(|| unexpected(value))?;
                Observed::List(elements.into())
            }
        };
        Ok(Mop::Read {
            key: key.clone(),
            observed,
        })
    }

    /// A transaction that only reads, as one statement: one round trip and one snapshot at every isolation level.
    async fn read_at_once(&mut self, mops: &[Mop]) -> Result<StoreAnswer, StoreRefusal> {
        let table = if self.has_registers() {
            "registers"
        } else {
            "lists"
        };
        let keys: Vec<String> = mops.iter().map(|mop| mop.key().to_string()).collect();
        let marks: Vec<String> = (1..=keys.len())
            .map(|number| format!("${number}"))
            .collect();
        let sql = format!("select k, v from {table} where k in ({})", marks.join(", "));
        let parameters: Vec<SqlValue> = keys.iter().cloned().map(SqlValue::Text).collect();
        let found = self.run(true, &sql, &parameters).await;
        let found = self.at_commit(found)?;
        let value_of = |key: &String| {
            let mut rows = found.rows.iter();
            let is_of_key = |row: &&Vec<SqlValue>| {
                row.first()
                    .is_some_and(|found| *found == SqlValue::Text(key.clone()))
            };
            rows.find(is_of_key).and_then(|row| row.get(1))
        };
        let pairs = mops.iter().zip(&keys);
        let seen = pairs.map(|(mop, key)| self.observed(mop, value_of(key)));
        let seen = seen.collect::<Result<Vec<Mop>, StoreRefusal>>()?;
        Ok(StoreAnswer::value(Value::Txn(Arc::from(seen))).from(self.own.node))
    }

    /// A transaction of one write, as one statement.
    async fn write_at_once(&mut self, mop: &Mop) -> Result<StoreAnswer, StoreRefusal> {
        let done = self.micro_operation(false, mop).await;
        self.at_commit(done)?;
        Ok(self.answered(Value::Txn(Arc::from([mop.clone()]))))
    }

    async fn balances(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let rows = self.run(true, READ_ACCOUNTS, &[]).await;
        let rows = self.at_commit(rows)?;
        let account = |row: &Vec<SqlValue>| match &row[..] {
            [id, balance] => Ok((integer(id)?, integer(balance)?)),
            _ => Err(StoreRefusal::unknown("an account has two columns")),
        };
        let accounts = rows.rows.iter().map(account);
        let accounts = accounts.collect::<Result<Vec<(i64, i64)>, StoreRefusal>>()?;
        Ok(StoreAnswer::value(Value::balances(&accounts)).from(self.own.node))
    }

    async fn transfer(&mut self, transfer: Transfer) -> Result<StoreAnswer, StoreRefusal> {
        let Transfer { from, to, amount } = transfer;
        let parameters = |account| [SqlValue::Integer(account), SqlValue::Integer(amount)];
        self.begin(false).await?;
        let debit = self.options.dialect.debit;
        let debited = self.run(false, debit, &parameters(from)).await;
        if self.inside(false, debited).await?.affected == 0 {
            self.roll_back(false, true).await;
            return Err(StoreRefusal::failed("insufficient funds"));
        }
        let credited = self.run(false, CREDIT, &parameters(to)).await;
        self.inside(false, credited).await?;
        self.commit(false).await?;
        Ok(self.done())
    }

    /// Takes the first elements of the queue, at most `count`. If it is unknown whether they are gone, the refusal has them.
    async fn take(&mut self, count: i64) -> Result<Vec<i64>, TakeError> {
        self.begin(false).await?;
        let sql = self.options.dialect.take;
        let rows = self.run(false, sql, &[SqlValue::Integer(count)]).await;
        let rows = self.inside(false, rows).await?;
        let elements = match numbers(&rows) {
            Ok(elements) => elements,
            Err(error) => {
                self.roll_back(false, true).await;
                return Err(error.into());
            }
        };
        match self.commit(false).await {
            Ok(()) => Ok(elements),
            Err(StoreRefusal::Unknown(reason)) => Err(TakeError::Perhaps(elements, reason)),
            Err(other) => Err(TakeError::Refused(other)),
        }
    }

    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while began.elapsed() < self.options.patience {
            match self.take(TAKEN_AT_ONCE).await {
                Ok(elements) if elements.is_empty() => {
                    return Ok(self.answered(Value::integers(&taken)));
                }
                Ok(elements) => taken.extend(elements),
                // What was taken before is gone for certain, so the whole drain has not failed.
                Err(error) => return Err(error.after(taken)),
            }
        }
        Err(StoreRefusal::Perhaps(
            Value::integers(&taken),
            "the queue was not empty in time".into(),
        ))
    }
}

/// The element of a dequeue, or nothing if there was none.
fn one(elements: &[i64]) -> Value {
    elements
        .first()
        .map_or(Value::Nil, |element| Value::Int(*element))
}

/// The numbers of the first column.
fn numbers(rows: &SqlRows) -> Result<Vec<i64>, StoreRefusal> {
    let first = rows.rows.iter().map(|row| match row.first() {
        Some(value) => integer(value),
        None => Err(StoreRefusal::unknown("a row without columns")),
    });
    first.collect()
}

fn integer(value: &SqlValue) -> Result<i64, StoreRefusal> {
    value.integer().ok_or_else(|| unexpected(value))
}

fn unexpected(value: &SqlValue) -> StoreRefusal {
    StoreRefusal::unknown(format!("no whole number: {value}"))
}
