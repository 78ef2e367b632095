//! Readers of histories in the formats of other tools.
//!
//! ```
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//!
//! let text = b"{:process 0, :type :invoke, :f :read, :value nil}
//!              {:process 0, :type :ok, :f :read, :value 3}";
//! assert_eq!(import::detect("run.edn", text), Some(Format::Edn));
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! assert_eq!(history.ops()[1].value.as_int(), Some(3));
//! # Ok::<(), import::ImportError>(())
//! ```

mod chunks;
mod csv;
mod edn;
mod fressian;
mod jepsen;
mod json;
mod known;
mod operation_builder;
mod operations;
mod porcupine;
mod porcupine_json;
pub mod registers;
mod sequence;
mod text_operations;
mod timed_rows;
mod transaction_row;

pub use chunks::{ChunkReadError, TextChunks};
pub use jepsen::{JepsenError, JepsenFile, JepsenOperations, is_jepsen};
pub use operations::FileOperations;

use edn::EdnReader;
use operation_builder::KeyPlace;
use seatrial_history::{History, Op};
use std::fmt;
use std::io::Read;

/// A format that holds a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Jepsen's and Elle's EDN: operation maps, in a vector or one after another; records (`#jepsen.history.Op{…}`),
    /// comments and missing `:index` and `:time` are understood.
    Edn,
    /// The same in JSON: one object after another (JSON lines), or an array of them, as elle-cli reads; keywords are
    /// strings.
    Json,
    /// Porcupine's test data: log lines of a Jepsen run (`INFO  jepsen.util - 3 :invoke :read nil`), or EDN maps with a
    /// `:key` beside the value, which becomes a keyed value.
    Porcupine,
    /// Rows with columns by name: invocations and completions (`process,type,f,value,…`), or whole operations
    /// (`process,f,value,result,start,end,…`).
    Csv,
    /// Porcupine's operations (`ClientId`, `Input`, `Call`, `Output`, `Return`) or events (`Kind`, `Value`, `Id`) as Go
    /// writes them in JSON: an array, or one after another.
    PorcupineJson,
    /// Plume's and PolySI's text: a line `r(KEY,VALUE,SESSION,TRANSACTION)` or `w(…)` for each operation. Transaction -1
    /// was aborted, value 0 is the initial state.
    Plume,
    /// The text of AWDIT's tests: `r KEY VALUE` and `w KEY VALUE`, a line of `-` after a transaction, of `=` after a
    /// session; no initial state is implied.
    Awdit,
    /// VeriStrong's text of list-append histories.
    VeriStrong,
    /// dbcop's binary histories of 2019 (bincode), which PolySI, VeriStrong and AWDIT read; value 0 is the initial
    /// state.
    Dbcop,
    /// The JSON of dbcop's main branch; `null` is the initial state.
    DbcopJson,
    /// TimeKiller's JSON of transactions with the database's timestamps.
    TimeKiller,
    /// Cobra's binary logs, one for each session ([`FileOperations::of_sessions`]).
    Cobra,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 12] = [
        Format::Edn,
        Format::Json,
        Format::Porcupine,
        Format::Csv,
        Format::PorcupineJson,
        Format::Plume,
        Format::Awdit,
        Format::VeriStrong,
        Format::Dbcop,
        Format::DbcopJson,
        Format::TimeKiller,
        Format::Cobra,
    ];

    /// The name in `--format`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Edn => "edn",
            Format::Json => "json",
            Format::Porcupine => "porcupine",
            Format::Csv => "csv",
            Format::PorcupineJson => "porcupine-json",
            Format::Plume => "plume",
            Format::Awdit => "awdit",
            Format::VeriStrong => "veristrong",
            Format::Dbcop => "dbcop",
            Format::DbcopJson => "dbcop-json",
            Format::TimeKiller => "timekiller",
            Format::Cobra => "cobra",
        }
    }

    /// Does the format record the real-time order of invocations and completions? If not, the order in the file means nothing,
    /// except within a process.
    pub const fn has_times(self) -> bool {
        matches!(
            self,
            Format::Edn | Format::Json | Format::Porcupine | Format::Csv | Format::PorcupineJson
        )
    }

    /// The format of this name.
    pub fn by_name(name: &str) -> Option<Format> {
        match name {
            "edn" | "jepsen-edn" | "elle" => Some(Format::Edn),
            "json" | "jsonl" | "json-lines" => Some(Format::Json),
            "porcupine" | "porcupine-etcd-log" | "porcupine-kv-log" => Some(Format::Porcupine),
            "csv" => Some(Format::Csv),
            "porcupine-json" => Some(Format::PorcupineJson),
            "plume" | "polysi" => Some(Format::Plume),
            "awdit" | "awdit-text" => Some(Format::Awdit),
            "veristrong" | "elle-list-append" => Some(Format::VeriStrong),
            "dbcop" | "bincode" | "dbcop-bincode" => Some(Format::Dbcop),
            "dbcop-json" => Some(Format::DbcopJson),
            "timekiller" | "chronos" => Some(Format::TimeKiller),
            "cobra" => Some(Format::Cobra),
            _ => None,
        }
    }
}

/// Properties of a history that its text does not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Client values `[key value]` are tuples of one independent key (`jepsen.independent`), not plain lists.
    pub keyed: bool,
    /// The initial value of registers, in formats of transactions; `None`: the format's default (0, or no value).
    pub initial: Option<i64>,
}

impl ImportOptions {
    fn keys(self) -> KeyPlace {
        if self.keyed {
            KeyPlace::Tuple
        } else {
            KeyPlace::None
        }
    }
}

/// Why a file is not a history. Printed as `file:line:column: problem`, of a binary file `file: byte n: problem`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {problem}")]
pub struct ImportError {
    /// The file's name, as given.
    pub file: String,
    /// The place of the problem.
    pub place: SourcePosition,
    /// The problem.
    pub problem: String,
}

/// A position in an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePosition {
    /// Position in a text.
    Text {
        /// Line, from 1.
        line: usize,
        /// Character within the line, from 1.
        column: usize,
    },
    /// Byte offset in a binary file.
    Byte(u64),
}

impl SourcePosition {
    /// The first character of a text.
    const START: SourcePosition = SourcePosition::line(1);

    /// The beginning of a line.
    const fn line(line: u64) -> SourcePosition {
        SourcePosition::Text {
            line: line as usize,
            column: 1,
        }
    }
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourcePosition::Text { line, column } => write!(f, ":{line}:{column}"),
            SourcePosition::Byte(offset) => write!(f, ": byte {offset}"),
        }
    }
}

/// Bytes at a file's start from which its format is detected.
const DETECTION_LENGTH: usize = 4_096;

/// Detects a file's format from its first 4,096 bytes and its name; `None` for an unknown format.
pub fn detect(name: &str, first: &[u8]) -> Option<Format> {
    let first = &first[..first.len().min(DETECTION_LENGTH)];
    if let Some(format) = registers::detect(first) {
        return Some(format);
    }
    let text = String::from_utf8_lossy(first);
    if text
        .lines()
        .take(100)
        .any(|line| line.contains(porcupine::MARK))
    {
        return Some(Format::Porcupine);
    }
    if porcupine::is_table(&text) {
        return Some(Format::Porcupine);
    }
    if csv::is_header(&text) {
        return Some(Format::Csv);
    }
    let mut reader = EdnReader::new(&text);
    reader.skip_blank().ok()?;
    if matches!(reader.peek(), Some(b'[' | b'(')) {
        reader.bump();
        reader.skip_blank().ok()?;
    }
    let tagged = reader.peek() == Some(b'#') && reader.tag().is_ok();
    let map = reader.peek() == Some(b'{');
    if map {
        reader.bump();
        reader.skip_blank().ok()?;
        if reader.peek() == Some(b':') {
            let keyed = [":get", ":put", ":append"];
            let map = text[reader.at()..].split('}').next().unwrap_or("");
            let keyed = map.contains(":key ") && keyed.iter().any(|f| map.contains(f));
            return Some(if keyed {
                Format::Porcupine
            } else {
                Format::Edn
            });
        }
        if reader.peek() == Some(b'"') {
            let named = reader.form().is_ok() && reader.skip_blank().is_ok();
            return match reader.peek() {
                Some(b':') if named && porcupine_json::is_porcupine(&text) => {
                    Some(Format::PorcupineJson)
                }
                Some(b':') if named => Some(Format::Json),
                _ => None,
            };
        }
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    (tagged || (extension == Some("edn") && reader.peek() != Some(b'"'))).then_some(Format::Edn)
}

/// The history in `bytes`. Operations without an index are numbered by position, unknown times are -1.
///
/// Memory: the result, two to four times the size of the text, and one operation. [`FileOperations`] reads histories that do
/// not fit in memory.
pub fn read(
    name: &str,
    bytes: &[u8],
    format: Format,
    options: ImportOptions,
) -> Result<History, ImportError> {
    collect(&mut FileOperations::open(
        name,
        bytes,
        Some(format),
        options,
    )?)
}

/// All operations as a history in memory; at most 2³² - 2, more are an error.
pub fn collect(operations: &mut FileOperations<impl Read>) -> Result<History, ImportError> {
    let mut ops: Vec<Op> = Vec::new();
    while let Some(op) = operations.next().transpose()? {
        if ops.len() == u32::MAX as usize - 1 {
            return Err(operations.error("more operations than a history in memory can have"));
        }
        ops.push(op);
    }
    Ok(History::from_ops(ops))
}

#[cfg(test)]
mod round;
#[cfg(test)]
mod tests;
