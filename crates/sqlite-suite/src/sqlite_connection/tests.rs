//! Connections over one file: locks, snapshots, refused commits.

use super::*;

fn settings(words: &[(&'static str, &str)]) -> SqliteSettings {
    let mut options = OptionValues::default();
    for (name, value) in words {
        options.insert(name, (*value).into());
    }
    SqliteSettings::read(&options).unwrap()
}

struct File {
    folder: tempfile::TempDir,
    settings: SqliteSettings,
    waiting: Waiting,
}

impl File {
    fn new(words: &[(&'static str, &str)]) -> File {
        File {
            folder: tempfile::tempdir().unwrap(),
            settings: settings(words),
            waiting: Waiting::default(),
        }
    }

    fn open(&self, number: u64) -> SqliteConnection {
        let file = self.folder.path().join("sqlite.db");
        SqliteConnection::open(&file, self.settings, number, &self.waiting).unwrap()
    }
}

fn run(connection: &SqliteConnection, sql: &str) -> SqliteReply {
    connection.execute(&SqliteRequest::new(sql, &[]))
}

fn rows(connection: &SqliteConnection, sql: &str) -> String {
    match run(connection, sql) {
        SqliteReply::Rows(rows, _) => format!("{rows:?}").replace("Number", ""),
        SqliteReply::Error(reason, _) => reason,
    }
}

#[test]
fn parameters_are_named_by_numbers_and_changes_are_counted() {
    let file = File::new(&[]);
    let one = file.open(1);
    rows(&one, "create table t (k text primary key, v integer)");
    let request =
        |sql: &str| SqliteRequest::new(sql, &[SqlValue::Text("a".into()), SqlValue::Integer(7)]);
    let added = one
        .execute(&request("insert into t values ($1, $2)"))
        .result();
    assert_eq!(added.unwrap().affected, 1);
    let changed = one.execute(&request("update t set v = v - $2 where k = $1 and v >= $2"));
    assert_eq!(changed.result().unwrap().affected, 1);
    let changed = one.execute(&request("update t set v = v - $2 where k = $1 and v >= $2"));
    assert_eq!(changed.result().unwrap().affected, 0);
    let error = one
        .execute(&request("insert into t values ($1, $2)"))
        .result();
    let error = error.unwrap_err();
    assert!(error.is_definite && error.leaves_usable, "{error:?}");
    assert_eq!(one.damage(), None);
}

#[test]
fn a_snapshot_that_is_behind_cannot_write() {
    let file = File::new(&[]);
    let (one, two) = (file.open(1), file.open(2));
    rows(&one, "create table t (v integer)");
    rows(&two, "begin");
    assert_eq!(rows(&two, "select count(*) from t"), "[[(0)]]");
    rows(&one, "insert into t values (1)");
    assert_eq!(rows(&two, "select count(*) from t"), "[[(0)]]");
    // At once: waiting would not help.
    assert_eq!(rows(&two, "insert into t values (2)"), "database is locked");
    assert_eq!(rows(&two, "rollback"), "[]");
    assert_eq!(rows(&two, "rollback"), "[]", "it is no error");
    assert_eq!(rows(&two, "select count(*) from t"), "[[(1)]]");
}

#[test]
fn a_waiting_connection_says_so_and_a_refused_commit_is_rolled_back() {
    let file = File::new(&[(JOURNAL, "delete")]);
    let (one, two) = (file.open(1), file.open(2));
    rows(&one, "create table t (v integer)");
    rows(&two, "begin");
    rows(&two, "select * from t");
    rows(&one, "begin");
    rows(&one, "insert into t values (1)");
    let commit = std::thread::spawn(move || {
        let result = run(&one, "commit").result();
        (one, result)
    });
    let began = Instant::now();
    while rows(&two, "select seatrial_waits(1)") != "[[(1)]]" {
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_millis(LOCK_WAIT_MS),
            "it never waited"
        );
    }
    let (one, result) = commit.join().unwrap();
    let error = result.unwrap_err();
    assert!(error.is_definite && error.leaves_usable, "{error:?}");
    assert_eq!(rows(&two, "select seatrial_waits(1)"), "[[(0)]]");
    rows(&two, "commit");
    assert_eq!(rows(&one, "select count(*) from t"), "[[(0)]]");
}

#[test]
fn a_shared_cache_shows_what_is_not_committed_only_if_asked_to() {
    for (level, seen) in [
        ("read-uncommitted", "[[(1)]]"),
        ("serializable", "database table is locked: t"),
    ] {
        let file = File::new(&[(ISOLATION, level), (CACHE, "shared")]);
        let (one, two) = (file.open(1), file.open(2));
        rows(&one, "create table t (v integer)");
        rows(&one, "begin");
        rows(&one, "insert into t values (1)");
        assert_eq!(rows(&two, "select * from t"), seen, "{level}");
        rows(&one, "rollback");
        assert_eq!(rows(&two, "select * from t"), "[]");
    }
}

/// Both have read the table and want to write it: the second is refused at once, the first continues.
#[test]
fn connections_of_a_shared_cache_do_not_wait_for_each_other() {
    let file = File::new(&[(CACHE, "shared")]);
    let (one, two) = (file.open(1), file.open(2));
    rows(&one, "create table t (v integer)");
    for connection in [&one, &two] {
        rows(connection, "begin");
        rows(connection, "select * from t");
    }
    let began = Instant::now();
    let first = std::thread::spawn(move || rows(&one, "insert into t values (1)"));
    while rows(&file.open(3), "select seatrial_waits(1)") != "[[(1)]]" {
        assert!(began.elapsed() < Duration::from_millis(LOCK_WAIT_MS));
    }
    let refused = rows(&two, "insert into t values (2)");
    assert!(refused.contains("locked"), "{refused}");
    rows(&two, "rollback");
    assert_eq!(first.join().unwrap(), "[]");
    assert!(began.elapsed() < Duration::from_millis(LOCK_WAIT_MS));
}

#[test]
fn damage_is_found() {
    let file = File::new(&[(JOURNAL, "delete")]);
    rows(&file.open(1), "create table t (v integer)");
    let path = file.folder.path().join("sqlite.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_200..8_000].fill(0xA5);
    bytes[4_096] = 0x77;
    std::fs::write(&path, bytes).unwrap();
    assert!(file.open(2).damage().is_some());
}

/// Each changes the journal of a file that others are opening: SQLite refuses some of them at once.
#[test]
fn processes_that_begin_together_wait_for_each_other() {
    for round in 0..200 {
        let file = File::new(&[(JOURNAL, "wal")]);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let file = &file;
                scope.spawn(move || assert_eq!(file.open(number).damage(), None, "{round}"));
            }
        });
    }
}
