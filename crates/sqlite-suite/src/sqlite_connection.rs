//! A connection of SQLite in a node: its settings, its statements, and whether it waits for a lock.

use crate::sqlite_waiting::Waiting;
use crate::sqlite_wire::{SqliteReply, SqliteRequest, of_json};
use crate::{CACHE, CACHES, ISOLATION, JOURNAL, JOURNALS, LEVELS, SYNCHRONOUS, SYNCHRONOUS_VALUES};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use seatrial_suite::{OptionValues, SqlValue};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The settings of all connections of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SqliteSettings {
    pub(crate) journal: &'static str,
    pub(crate) synchronous: &'static str,
    /// Do the connections of a process share a cache?
    pub(crate) is_shared: bool,
    /// Do they read what others have not committed?
    pub(crate) is_uncommitted: bool,
}

impl SqliteSettings {
    /// The settings that the options ask for. Uncommitted data are seen in a shared cache only.
    pub(crate) fn read(options: &OptionValues) -> Result<SqliteSettings, String> {
        let is_uncommitted = options.one_of(ISOLATION, LEVELS)? == "read-uncommitted";
        Ok(SqliteSettings {
            journal: options.one_of(JOURNAL, JOURNALS)?,
            synchronous: options.one_of(SYNCHRONOUS, SYNCHRONOUS_VALUES)?,
            is_shared: is_uncommitted || options.one_of(CACHE, CACHES)? == "shared",
            is_uncommitted,
        })
    }
}

/// How long a statement waits for a lock, in milliseconds, unless its client says so (`seatrial_lock_wait`). SQLite refuses it at
/// once where waiting could not help.
const LOCK_WAIT_MS: u64 = 1_000;
/// The same of a connection that begins. Shorter than a client waits for a node.
const OPEN_WAIT_MS: u64 = 2_000;
/// Pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// What a connection shares with its handler of locks.
#[derive(Debug)]
struct LockWait {
    /// Its number in the node.
    number: u64,
    waiting: Waiting,
    limit_ms: AtomicU64,
}

impl LockWait {
    fn is_over(&self, began: Instant) -> bool {
        began.elapsed() > Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    /// Waits for a moment.
    fn pause(&self) {
        self.waiting.begin(self.number);
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// One connection. A statement that cannot have a lock waits for a while; a commit that is refused is rolled back, because SQLite
/// would keep the transaction open.
pub(crate) struct SqliteConnection {
    inner: Connection,
    lock_wait: Arc<LockWait>,
}

impl Drop for SqliteConnection {
    fn drop(&mut self) {
        self.lock_wait.waiting.remove(self.lock_wait.number);
    }
}

impl SqliteConnection {
    /// Opens the file, which is made if it is missing. `number` is that of the connection in its node.
    pub(crate) fn open(
        file: &Path,
        settings: SqliteSettings,
        number: u64,
        waiting: &Waiting,
    ) -> Result<SqliteConnection, Error> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        flags |= OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if settings.is_shared {
            flags |= OpenFlags::SQLITE_OPEN_SHARED_CACHE;
        }
        let mut inner = Connection::open_with_flags(file, flags)?;
        let lock_wait = Arc::new(LockWait {
            number,
            waiting: waiting.clone(),
            limit_ms: AtomicU64::new(OPEN_WAIT_MS),
        });
        wait_for_locks(&mut inner, Arc::clone(&lock_wait))?;
        add_functions(&inner, &lock_wait)?;
        let connection = SqliteConnection { inner, lock_wait };
        let pragmas = [
            format!("pragma journal_mode = {}", settings.journal),
            format!("pragma synchronous = {}", settings.synchronous),
            format!("pragma read_uncommitted = {}", settings.is_uncommitted),
        ];
        for pragma in pragmas {
            connection.patiently(&pragma, &[])?;
        }
        let limit = &connection.lock_wait.limit_ms;
        limit.store(LOCK_WAIT_MS, Ordering::Relaxed);
        Ok(connection)
    }

    /// Executes a request.
    pub(crate) fn execute(&self, request: &SqliteRequest) -> SqliteReply {
        let sql = request.sql.as_str();
        // SQLite ends some failed transactions itself.
        if sql == "rollback" && self.inner.is_autocommit() {
            return SqliteReply::Rows(Vec::new(), 0);
        }
        match self.patiently(sql, &request.parameters) {
            Ok((rows, affected)) => SqliteReply::Rows(rows, affected),
            Err(error) => {
                if sql == "commit" && !self.inner.is_autocommit() {
                    // The rollback of a transaction that did not commit cannot fail.
                    let _ = self.once("rollback", &[]);
                }
                SqliteReply::Error(error.to_string(), is_definite(&error))
            }
        }
    }

    /// Executes a statement, again where SQLite refuses it at once without asking the handler of locks: while a connection of the
    /// same process has a table locked, and, outside of a transaction, while another process changes the journal.
    fn patiently(&self, sql: &str, parameters: &[Json]) -> Result<(Vec<Vec<Json>>, u64), Error> {
        let began = Instant::now();
        loop {
            let found = self.once(sql, parameters);
            let code = found.as_ref().err().and_then(Error::sqlite_error_code);
            let is_locked = match code {
                Some(ErrorCode::DatabaseLocked) => true,
                // Within a transaction waiting would not help.
                Some(ErrorCode::DatabaseBusy) => self.inner.is_autocommit(),
                _ => false,
            };
            let LockWait {
                number, waiting, ..
            } = &*self.lock_wait;
            let is_over = self.lock_wait.is_over(began) || waiting.is_deadlock(*number);
            if !is_locked || is_over {
                waiting.end(*number, !self.inner.is_autocommit());
                return found;
            }
            self.lock_wait.pause();
        }
    }

    fn once(&self, sql: &str, parameters: &[Json]) -> Result<(Vec<Vec<Json>>, u64), Error> {
        let mut statement = self.inner.prepare_cached(sql)?;
        for (number, parameter) in (1..).zip(parameters) {
            if let Some(index) = statement.parameter_index(&format!("${number}"))? {
                statement.raw_bind_parameter(index, value(parameter))?;
            }
        }
        let columns = statement.column_count();
        let changes_before = self.inner.total_changes();
        let mut found = Vec::new();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| Ok(json_of(row.get_ref(column)?)));
            found.push(values.collect::<Result<Vec<Json>, Error>>()?);
        }
        drop(rows);
        let affected = match columns {
            0 => self.inner.total_changes() - changes_before,
            _ => found.len() as u64,
        };
        Ok((found, affected))
    }

    /// Is the file damaged? The first line of what SQLite says of it; nothing if it is in order or cannot be read now.
    pub(crate) fn damage(&self) -> Option<String> {
        let found = self.patiently("pragma quick_check(1)", &[]);
        match found {
            Ok((rows, _)) => {
                let first = rows.first().and_then(|row| row.first());
                let text = first.and_then(Json::as_str).unwrap_or("ok");
                (text != "ok").then(|| text.to_owned())
            }
            Err(error) => is_damage(&error).then(|| error.to_string()),
        }
    }
}

/// Waits while another connection has the file locked.
fn wait_for_locks(connection: &mut Connection, lock_wait: Arc<LockWait>) -> Result<(), Error> {
    let mut began = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            began = Instant::now();
        }
        lock_wait.pause();
        !lock_wait.is_over(began)
    }))
}

/// `seatrial_connection()` is the number of the connection, `seatrial_waits(N)` says whether connection N waits for a lock, and
/// `seatrial_lock_wait(MS)` sets how long this one waits.
fn add_functions(connection: &Connection, lock_wait: &Arc<LockWait>) -> Result<(), Error> {
    let flags = FunctionFlags::SQLITE_UTF8;
    let number = lock_wait.number;
    connection.create_scalar_function("seatrial_connection", 0, flags, move |_| {
        Ok(number.cast_signed())
    })?;
    let waiting = lock_wait.waiting.clone();
    connection.create_scalar_function("seatrial_waits", 1, flags, move |context| {
        let other: i64 = context.get(0)?;
        Ok(i64::from(waiting.of(other.cast_unsigned())))
    })?;
    let lock_wait = Arc::clone(lock_wait);
    connection.create_scalar_function("seatrial_lock_wait", 1, flags, move |context| {
        let limit: u32 = context.get(0)?;
        lock_wait.limit_ms.store(limit.into(), Ordering::Relaxed);
        Ok(i64::from(limit))
    })
}

/// Does this error say for certain that the statement, or the transaction that it was to commit, has no effect?
fn is_definite(error: &Error) -> bool {
    let Some(code) = error.sqlite_error_code() else {
        // The statement was not executed: its parameters do not fit it, it is none.
        return true;
    };
    matches!(
        code,
        ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::ConstraintViolation
            | ErrorCode::SchemaChanged
            | ErrorCode::ReadOnly
            | ErrorCode::OperationAborted
            | ErrorCode::TypeMismatch
            | ErrorCode::Unknown
    )
}

/// Does it say that the file is damaged?
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

fn value(parameter: &Json) -> Value {
    match of_json(parameter.clone()) {
        SqlValue::Integer(number) => Value::Integer(number),
        SqlValue::Text(text) => Value::Text(text),
        SqlValue::Null | SqlValue::Integers(_) => Value::Null,
    }
}

fn json_of(value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => json!(String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests;
