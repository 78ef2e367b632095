//! The system under test: numbered registers behind a line protocol, kept in a log that is synced before each reply.
//!
//! | request | reply |
//! | --- | --- |
//! | `read KEY` | `nil` or the value |
//! | `write KEY VALUE` | `ok` |
//! | `cas KEY OLD NEW` | `ok` or `no` |
//! | `state` | the number of changes since the first one, and a hash of all registers |

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The registers and their log.
struct Registers {
    values: BTreeMap<i64, i64>,
    log: File,
    /// The planted bug: lines that are not in the log yet, since the time of the first.
    delayed: Option<(Vec<u8>, Instant)>,
    is_lazy: bool,
    /// Number of changes, also of earlier processes.
    changes: u64,
}

/// With the planted bug, changes reach the log after this long, although they were acknowledged.
const LAZY_DELAY: Duration = Duration::from_millis(300);

/// Serves registers until the process is killed. `is_lazy` plants the bug.
pub fn serve(address: SocketAddr, folder: &Path, is_lazy: bool) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let registers = Arc::new(Mutex::new(Registers::open(&folder.join("log"), is_lazy)?));
    let listener = TcpListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let registers = Arc::clone(&registers);
        std::thread::spawn(move || {
            // A client that goes away ends its connection.
            let _ = stream.and_then(|stream| talk(stream, &registers));
        });
    }
    Ok(())
}

fn talk(stream: TcpStream, registers: &Mutex<Registers>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut registers = registers.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = registers.answer(&line)?;
        drop(registers);
        out.write_all(format!("{reply}\n").as_bytes())?;
    }
    Ok(())
}

impl Registers {
    /// The registers of a log. A last line without its end was never acknowledged, and is cut off.
    fn open(path: &Path, is_lazy: bool) -> io::Result<Registers> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut values = BTreeMap::new();
        let changes = text[..whole].lines().count() as u64;
        for line in text[..whole].lines() {
            if let [key, value] = numbers(line)[..] {
                values.insert(key, value);
            }
        }
        let log = OpenOptions::new().create(true).append(true).open(path)?;
        log.set_len(whole as u64)?;
        Ok(Registers {
            values,
            log,
            delayed: None,
            is_lazy,
            changes,
        })
    }

    fn answer(&mut self, request: &str) -> io::Result<String> {
        let verb = request.split(' ').next().unwrap_or_default();
        let numbers = numbers(request);
        Ok(match (verb, &numbers[..]) {
            ("read", [key]) => match self.values.get(key) {
                Some(value) => value.to_string(),
                None => "nil".into(),
            },
            ("write", [key, value]) => {
                self.set(*key, *value)?;
                "ok".into()
            }
            ("cas", [key, old, new]) if self.values.get(key) == Some(old) => {
                self.set(*key, *new)?;
                "ok".into()
            }
            ("cas", [_, _, _]) => "no".into(),
            ("state", []) => format!("{} {:x}", self.changes, self.hash()),
            _ => "what?".into(),
        })
    }

    /// Changes a register; durable when it returns.
    fn set(&mut self, key: i64, value: i64) -> io::Result<()> {
        let line = format!("{key} {value}\n").into_bytes();
        if self.is_lazy {
            let (lines, since) = self.delayed.get_or_insert((Vec::new(), Instant::now()));
            lines.extend(line);
            if since.elapsed() >= LAZY_DELAY {
                self.log.write_all(lines)?;
                self.delayed = None;
            }
        } else {
            self.log.write_all(&line)?;
            self.log.sync_data()?;
        }
        self.values.insert(key, value);
        self.changes += 1;
        Ok(())
    }

    /// A hash of all registers (FNV-1a).
    fn hash(&self) -> u64 {
        let numbers = self.values.iter().flat_map(|(key, value)| [*key, *value]);
        let bytes = numbers.flat_map(i64::to_le_bytes);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// The numbers in a line.
fn numbers(line: &str) -> Vec<i64> {
    let words = line.split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}
