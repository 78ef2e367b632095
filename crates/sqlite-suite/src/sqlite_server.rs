//! A node: a process that opens the database file and a connection for each client.

use crate::sqlite_connection::{SqliteConnection, SqliteSettings};
use crate::sqlite_waiting::Waiting;
use crate::sqlite_wire::{SqliteReply, SqliteRequest};
use seatrial_host::terminated;
use seatrial_suite::SuiteError;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Begins the line of a log that says how the file is damaged.
pub(crate) const DAMAGE: &str = "damaged database: ";
/// Longest request.
const REQUEST_BYTES: u64 = 1 << 20;
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What the threads of a node share.
struct SqliteNode {
    file: PathBuf,
    settings: SqliteSettings,
    waiting: Waiting,
}

/// Serves until SIGTERM or Ctrl-C: a thread for each client.
pub(crate) fn run(
    listen: SocketAddr,
    file: &Path,
    settings: SqliteSettings,
) -> Result<(), SuiteError> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let node = Arc::new(SqliteNode {
        file: file.to_owned(),
        settings,
        waiting: Waiting::default(),
    });
    // What a killed process left is recovered now, and looked at.
    let first = node.open(0)?;
    if let Some(damage) = first.damage() {
        eprintln!("{DAMAGE}{damage}");
    }
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    std::thread::spawn(move || accept(&listener, &node));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(terminated());
    drop(first);
    Ok(())
}

fn accept(listener: &TcpListener, node: &Arc<SqliteNode>) {
    for number in 1.. {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let node = Arc::clone(node);
        std::thread::spawn(move || {
            // The client sees that the connection ends.
            let _ = node.serve(&stream, number);
        });
    }
}

impl SqliteNode {
    fn open(&self, number: u64) -> Result<SqliteConnection, SuiteError> {
        let opened = SqliteConnection::open(&self.file, self.settings, number, &self.waiting);
        Ok(opened.map_err(|error| format!("{}: {error}", self.file.display()))?)
    }

    /// Answers the requests of one client, until it ends the connection; its transaction ends with it.
    fn serve(&self, stream: &TcpStream, number: u64) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let connection = match self.open(number) {
            Ok(connection) => connection,
            Err(error) => return send(stream, &SqliteReply::Error(error.to_string(), true)),
        };
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            reader
                .by_ref()
                .take(REQUEST_BYTES)
                .read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            let reply = match serde_json::from_slice::<SqliteRequest>(&line) {
                Ok(request) => connection.execute(&request),
                Err(error) => SqliteReply::Error(format!("no request: {error}"), true),
            };
            if let SqliteReply::Error(reason, false) = &reply {
                eprintln!("{DAMAGE}{reason}");
            }
            send(stream, &reply)?;
        }
    }
}

fn send(mut stream: &TcpStream, reply: &SqliteReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
