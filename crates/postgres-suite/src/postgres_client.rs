//! The clients of a test: requests as statements and transactions.

use crate::postgres_nodes::PRIMARY;
use crate::postgres_session::{NoResult, PostgresSession};
use seatrial_history::{Key, Mop, Observed, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{DataRequest, DataStore, StoreAnswer, StoreClient, StoreRefusal, Transfer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

/// Opens clients.
pub(crate) struct PostgresClients {
    pub(crate) isolation: &'static str,
    /// Time limit of connecting, and of each statement.
    pub(crate) timeout: Duration,
    /// Do transactions that only read go to the client's own node?
    pub(crate) reads_anywhere: bool,
    /// The workload; empty if the operations come from a plan. It decides what is under a key.
    pub(crate) workload: &'static str,
    /// Are transactions that only read, or write once, one statement?
    pub(crate) is_short: bool,
}

impl Clients for PostgresClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let node = if self.reads_anywhere {
                slot.node
            } else {
                PRIMARY
            };
            Ok(StoreClient::boxed(PostgresStore {
                own: self.session(slot, node).await?,
                primary: if node == PRIMARY {
                    None
                } else {
                    self.session(slot, PRIMARY).await.ok()
                },
                workload: self.workload,
                is_short: self.is_short,
                patience: self.timeout,
                is_broken: false,
            }))
        })
    }
}

impl PostgresClients {
    async fn session(
        &self,
        slot: &ClientSlot,
        node: NodeId,
    ) -> Result<PostgresSession, ClientError> {
        // A standby has no serializable transactions.
        let isolation = match (node == PRIMARY, self.isolation) {
            (false, "serializable") => "repeatable-read",
            (_, level) => level,
        };
        PostgresSession::open(node, slot.address_of(node)?, Some(isolation), self.timeout).await
    }
}

/// The client of one worker: what only reads goes to its own node, all else to the primary.
struct PostgresStore {
    own: PostgresSession,
    /// The primary; `None` if it is the own node, or could not be reached when the client was opened.
    primary: Option<PostgresSession>,
    workload: &'static str,
    is_short: bool,
    /// Time limit of a drain.
    patience: Duration,
    is_broken: bool,
}

impl DataStore for PostgresStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            if self.own.node != PRIMARY && self.primary.is_none() && !request.is_read() {
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

/// Elements that a drain takes at once.
const TAKEN_AT_ONCE: i64 = 100;

impl PostgresStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => {
                let sql = "insert into registers values ($1, $2) on conflict (k) do update set v = excluded.v";
                self.change(sql, key, &[value]).await
            }
            DataRequest::CompareAndSet(key, old, new) => {
                let sql = "update registers set v = $3 where k = $1 and v = $2 returning 1";
                let rows = self.statement(false, sql, key, &[old, new]).await?;
                match rows.len() {
                    1 => Ok(self.done()),
                    _ => Err(StoreRefusal::failed("the register has another value")),
                }
            }
            DataRequest::Add(key, value) if self.workload == "set" => {
                self.change("insert into elements values ($1, $2)", key, &[value])
                    .await
            }
            DataRequest::Add(key, by) => {
                let sql = "insert into counters values ($1, $2) on conflict (k) do update set v = counters.v + excluded.v";
                self.change(sql, key, &[by]).await
            }
            DataRequest::Transaction(mops) => self.transaction(mops).await,
            DataRequest::Balances => self.balances().await,
            DataRequest::Transfer(transfer) => self.transfer(transfer).await,
            DataRequest::Enqueue(element) => {
                let parameter = (&element as _, Type::INT8);
                let done = self
                    .writer()
                    .run("insert into queue (v) values ($1)", &[parameter])
                    .await;
                self.at_commit(done)?;
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
                let rows = self.writer().run("select nextval('ids')", &[]).await;
                let rows = self.at_commit(rows)?;
                Ok(self.answered(Value::Int(only(&rows)?)))
            }
            DataRequest::Acquire(_) | DataRequest::Release(_) => {
                Err(StoreRefusal::failed("this suite has no locks"))
            }
        }
    }

    /// The session for what changes data.
    fn writer(&self) -> &PostgresSession {
        self.primary.as_ref().unwrap_or(&self.own)
    }

    fn session(&self, is_read: bool) -> &PostgresSession {
        if is_read { &self.own } else { self.writer() }
    }

    fn done(&self) -> StoreAnswer {
        StoreAnswer::done().from(self.writer().node)
    }

    fn answered(&self, value: Value) -> StoreAnswer {
        StoreAnswer::value(value).from(self.writer().node)
    }

    /// The result of a commit, or of a statement that is a transaction of its own.
    fn at_commit<T>(&mut self, result: Result<T, NoResult>) -> Result<T, StoreRefusal> {
        result.map_err(|error| {
            self.is_broken |= !error.leaves_usable();
            error.at_commit()
        })
    }

    /// The result of a statement inside a transaction.
    async fn inside<T>(
        &mut self,
        is_read: bool,
        result: Result<T, NoResult>,
    ) -> Result<T, StoreRefusal> {
        match result {
            Ok(found) => Ok(found),
            Err(error) => {
                self.roll_back(is_read, error.leaves_usable()).await;
                Err(error.before_commit())
            }
        }
    }

    /// Ends a transaction that is not to be committed; a connection that does not is given up, which ends it too.
    async fn roll_back(&mut self, is_read: bool, is_usable: bool) {
        if !is_usable || self.session(is_read).batch("rollback").await.is_err() {
            self.is_broken = true;
        }
    }

    /// A statement with a key and numbers that is a transaction of its own.
    async fn statement(
        &mut self,
        is_read: bool,
        sql: &str,
        key: &Key,
        numbers: &[i64],
    ) -> Result<Vec<Row>, StoreRefusal> {
        let key = key.to_string();
        let mut parameters = vec![(&key as _, Type::TEXT)];
        parameters.extend(numbers.iter().map(|number| (number as _, Type::INT8)));
        let rows = self.session(is_read).run(sql, &parameters).await;
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

    /// The value under a key: of a set, a counter, or a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let sql = match self.workload {
            "set" => "select v from elements where k = $1",
            "counter" => "select v from counters where k = $1",
            _ => "select v from registers where k = $1",
        };
        let rows = self.statement(true, sql, key, &[]).await?;
        let numbers = rows
            .iter()
            .map(column)
            .collect::<Result<Vec<i64>, StoreRefusal>>()?;
        let value = match (self.workload, numbers.first()) {
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
            _ if self.is_short && is_read => return self.read_at_once(mops).await,
            [mop] if self.is_short => return self.write_at_once(mop).await,
            _ => {}
        }
        let begun = self.session(is_read).batch("begin").await;
        self.inside(is_read, begun).await?;
        let mut seen = Vec::with_capacity(mops.len());
        for mop in mops {
            let result = micro_operation(self.session(is_read), self.workload, mop).await;
            let rows = self.inside(is_read, result).await?;
            match observed(mop, &rows) {
                Ok(mop) => seen.push(mop),
                Err(error) => {
                    self.roll_back(is_read, true).await;
                    return Err(error);
                }
            }
        }
        let committed = self.session(is_read).batch("commit").await;
        self.at_commit(committed)?;
        let node = self.session(is_read).node;
        Ok(StoreAnswer::value(Value::Txn(Arc::from(seen))).from(node))
    }

    /// A transaction that only reads, as one statement: one round trip and one snapshot at every isolation level.
    async fn read_at_once(&mut self, mops: &[Mop]) -> Result<StoreAnswer, StoreRefusal> {
        let sql = match self.workload {
            "rw-register" | "long-fork" => "select array[v], k from registers where k = any($1)",
            _ => "select v, k from lists where k = any($1)",
        };
        let keys: Vec<String> = mops.iter().map(|mop| mop.key().to_string()).collect();
        let rows = self.own.run(sql, &[(&keys as _, Type::TEXT_ARRAY)]).await;
        let rows = self.at_commit(rows)?;
        let row_of = |key: &String| {
            let mut rows = rows.iter();
            rows.find(|row| row.try_get::<_, &str>(1).is_ok_and(|found| found == key))
        };
        let pairs = mops.iter().zip(&keys);
        let seen =
            pairs.map(|(mop, key)| observed(mop, row_of(key).map_or(&[], std::slice::from_ref)));
        let seen = seen.collect::<Result<Vec<Mop>, StoreRefusal>>()?;
        Ok(StoreAnswer::value(Value::Txn(Arc::from(seen))).from(self.own.node))
    }

    /// A transaction of one write, as one statement.
    async fn write_at_once(&mut self, mop: &Mop) -> Result<StoreAnswer, StoreRefusal> {
        let done = micro_operation(self.writer(), self.workload, mop).await;
        self.at_commit(done)?;
        let seen = Value::Txn(Arc::from([mop.clone()]));
        Ok(StoreAnswer::value(seen).from(self.writer().node))
    }

    async fn balances(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let rows = self
            .own
            .run("select id, balance from accounts order by id", &[])
            .await;
        let rows = self.at_commit(rows)?;
        let account = |row: &Row| Ok((column(row)?, row.try_get(1).map_err(StoreRefusal::failed)?));
        let accounts = rows
            .iter()
            .map(account)
            .collect::<Result<Vec<(i64, i64)>, StoreRefusal>>()?;
        Ok(StoreAnswer::value(Value::balances(&accounts)).from(self.own.node))
    }

    async fn transfer(&mut self, transfer: Transfer) -> Result<StoreAnswer, StoreRefusal> {
        let begun = self.writer().batch("begin").await;
        self.inside(false, begun).await?;
        let Transfer { from, to, amount } = transfer;
        let parameters = [(&from as _, Type::INT8), (&amount as _, Type::INT8)];
        let sql = "update accounts set balance = balance - $2 where id = $1 and balance >= $2 returning 1";
        let debited = self.writer().run(sql, &parameters).await;
        if self.inside(false, debited).await?.is_empty() {
            self.roll_back(false, true).await;
            return Err(StoreRefusal::failed("insufficient funds"));
        }
        let parameters = [(&to as _, Type::INT8), (&amount as _, Type::INT8)];
        let sql = "update accounts set balance = balance + $2 where id = $1";
        let credited = self.writer().run(sql, &parameters).await;
        self.inside(false, credited).await?;
        let committed = self.writer().batch("commit").await;
        self.at_commit(committed)?;
        Ok(self.done())
    }

    /// Takes the first elements of the queue, at most `count`. If it is unknown whether they are gone, the refusal has them.
    async fn take(&mut self, count: i64) -> Result<Vec<i64>, TakeError> {
        let begun = self.writer().batch("begin").await;
        self.inside(false, begun).await?;
        let sql = "delete from queue where id in (select id from queue order by id limit $1 for update) returning v";
        let rows = self.writer().run(sql, &[(&count as _, Type::INT8)]).await;
        let rows = self.inside(false, rows).await?;
        let elements = rows
            .iter()
            .map(column)
            .collect::<Result<Vec<i64>, StoreRefusal>>()?;
        let committed = self.writer().batch("commit").await;
        match self.at_commit(committed) {
            Ok(()) => Ok(elements),
            Err(StoreRefusal::Unknown(reason)) => Err(TakeError::Perhaps(elements, reason)),
            Err(other) => Err(TakeError::Refused(other)),
        }
    }

    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while began.elapsed() < self.patience {
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

/// Why elements of the queue were not taken.
enum TakeError {
    /// They were not.
    Refused(StoreRefusal),
    /// They may have been.
    Perhaps(Vec<i64>, String),
}

impl From<StoreRefusal> for TakeError {
    fn from(refusal: StoreRefusal) -> TakeError {
        TakeError::Refused(refusal)
    }
}

impl TakeError {
    fn with(self, value: impl FnOnce(&[i64]) -> Value) -> StoreRefusal {
        match self {
            TakeError::Refused(refusal) => refusal,
            TakeError::Perhaps(elements, reason) => StoreRefusal::Perhaps(value(&elements), reason),
        }
    }

    /// The refusal of an operation that took these elements before.
    fn after(self, mut taken: Vec<i64>) -> StoreRefusal {
        match self {
            TakeError::Refused(refusal) if taken.is_empty() => refusal,
            TakeError::Refused(
                StoreRefusal::Failed(reason)
                | StoreRefusal::Unknown(reason)
                | StoreRefusal::Perhaps(_, reason),
            ) => StoreRefusal::Perhaps(Value::integers(&taken), reason),
            TakeError::Perhaps(elements, reason) => {
                taken.extend(elements);
                StoreRefusal::Perhaps(Value::integers(&taken), reason)
            }
        }
    }
}

/// The element of a dequeue, or nothing if there was none.
fn one(elements: &[i64]) -> Value {
    elements
        .first()
        .map_or(Value::Nil, |element| Value::Int(*element))
}

/// Executes one micro-operation. Lists and registers are in tables of their own, between which the workload decides for reads.
async fn micro_operation(
    session: &PostgresSession,
    workload: &str,
    mop: &Mop,
) -> Result<Vec<Row>, NoResult> {
    let key = mop.key().to_string();
    let key = (&key as _, Type::TEXT);
    match mop {
        Mop::Read { .. } => {
            let sql = match workload {
                "rw-register" | "long-fork" => "select array[v] from registers where k = $1",
                _ => "select v from lists where k = $1",
            };
            session.run(sql, &[key]).await
        }
        Mop::Append { element, .. } => {
            let sql = "insert into lists values ($1, array[$2]) on conflict (k) do update set v = lists.v || excluded.v";
            session.run(sql, &[key, (element as _, Type::INT8)]).await
        }
        Mop::Write { value, .. } => {
            let sql = "insert into registers values ($1, $2) on conflict (k) do update set v = excluded.v";
            session.run(sql, &[key, (value as _, Type::INT8)]).await
        }
    }
}

/// A micro-operation with what its rows say.
fn observed(mop: &Mop, rows: &[Row]) -> Result<Mop, StoreRefusal> {
    let Mop::Read { key, .. } = mop else {
        return Ok(mop.clone());
    };
    let observed = match rows.first() {
        None => Observed::Nil,
        Some(row) => {
            let is_register = row.columns()[0].name() == "array";
            let numbers: Vec<i64> = column(row)?;
            match (is_register, &numbers[..]) {
                (true, [number]) => Observed::Register(*number),
                _ => Observed::List(numbers.into()),
            }
        }
    };
    Ok(Mop::Read {
        key: key.clone(),
        observed,
    })
}

/// The first column of a row.
fn column<'a, T: FromSql<'a>>(row: &'a Row) -> Result<T, StoreRefusal> {
    row.try_get(0).map_err(StoreRefusal::unknown)
}

/// The number in the only row.
fn only(rows: &[Row]) -> Result<i64, StoreRefusal> {
    column(
        rows.first()
            .ok_or_else(|| StoreRefusal::unknown("no row"))?,
    )
}
