//! Histories in the text formats of other tools.
//!
//! ```
//! use seatrial_history::import::{self, Format, Options};
//!
//! let text = b"{:process 0, :type :invoke, :f :read, :value nil}
//!              {:process 0, :type :ok, :f :read, :value 3}";
//! assert_eq!(import::detect("run.edn", text), Some(Format::Edn));
//! let history = import::read("run.edn", text, Format::Edn, Options::default())?;
//! assert_eq!(history.ops()[1].value.as_int(), Some(3));
//! # Ok::<(), import::ImportError>(())
//! ```

mod edn;
mod operation;
mod porcupine;

use crate::{History, Op};
use edn::{Fault, Reader};
use operation::{Draft, Keys};

/// A text format that holds a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Jepsen's and Elle's EDN: operation maps, in a vector or one after another; records (`#jepsen.history.Op{…}`),
    /// comments and missing `:index` and `:time` are understood.
    Edn,
    /// Porcupine's test data: log lines of a Jepsen run (`INFO  jepsen.util - 3 :invoke :read nil`), or EDN maps with a
    /// `:key` beside the value, which becomes a keyed value.
    Porcupine,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 2] = [Format::Edn, Format::Porcupine];

    /// The name in `--format`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Edn => "edn",
            Format::Porcupine => "porcupine",
        }
    }

    /// The format of this name; `jepsen` means EDN.
    pub fn by_name(name: &str) -> Option<Format> {
        match name {
            "edn" | "jepsen" | "jepsen-edn" | "elle" => Some(Format::Edn),
            "porcupine" | "porcupine-etcd-log" | "porcupine-kv-log" => Some(Format::Porcupine),
            _ => None,
        }
    }
}

/// What the text does not say about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Client values `[key value]` are tuples of one independent key (`jepsen.independent`), not plain lists.
    pub keyed: bool,
}

/// Why a file is not a history. Printed as `file:line:column: reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct ImportError {
    /// The file's name, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: String,
}

/// Bytes at a file's start that are looked at to tell its format.
const DETECTION_LENGTH: usize = 4_096;

/// Tells a file's format from its first bytes (some thousand suffice) and its name; `None` when it is none of these.
pub fn detect(name: &str, first: &[u8]) -> Option<Format> {
    let first = &first[..first.len().min(DETECTION_LENGTH)];
    let text = String::from_utf8_lossy(first);
    if text
        .lines()
        .take(100)
        .any(|line| line.contains(porcupine::MARK))
    {
        return Some(Format::Porcupine);
    }
    let mut reader = Reader::new(&text);
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
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    (tagged || (extension == Some("edn") && reader.peek() != Some(b'"'))).then_some(Format::Edn)
}

/// The history in `bytes`. Operations without an index are numbered by position, unknown times are -1.
///
/// One operation at a time is held besides the result, which takes two to four times the size of the text.
pub fn read(
    name: &str,
    bytes: &[u8],
    format: Format,
    options: Options,
) -> Result<History, ImportError> {
    let mut ops = Vec::new();
    for_each(name, bytes, format, options, |op| ops.push(op))?;
    Ok(History::from_ops(ops))
}

/// Hands every operation in `bytes` to `take`, in order and with its index, and returns how many there were. For
/// files that should not be in memory twice. When it fails, the operations before the fault have been handed over.
pub fn for_each(
    name: &str,
    bytes: &[u8],
    format: Format,
    options: Options,
    take: impl FnMut(Op),
) -> Result<u64, ImportError> {
    let error = |fault: Fault| locate(name, bytes, fault);
    let text = std::str::from_utf8(bytes)
        .map_err(|wrong| error(Fault::new(wrong.valid_up_to(), "not UTF-8 text")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let skipped = bytes.len() - text.len();
    let keys = match format {
        Format::Porcupine => Keys::Field,
        Format::Edn if options.keyed => Keys::Tuple,
        Format::Edn => Keys::None,
    };
    let result = if format == Format::Porcupine && text.contains(porcupine::MARK) {
        let mut operations = porcupine::Operations::new(text);
        number(|| operations.next(), take)
    } else {
        let mut operations = operation::Operations::new(text, keys);
        number(|| operations.next(), take)
    };
    result.map_err(|fault| error(Fault::new(skipped + fault.at, fault.problem)))
}

/// Passes operations on, numbered by position unless they carry indices, which must rise.
fn number(
    mut next: impl FnMut() -> Result<Option<Draft>, Fault>,
    mut take: impl FnMut(Op),
) -> Result<u64, Fault> {
    let mut count = 0;
    let mut previous: Option<u64> = None;
    let mut indexed = false;
    while let Some(Draft {
        mut op,
        indexed: has_index,
        at,
    }) = next()?
    {
        if count == 0 {
            indexed = has_index;
        } else if indexed != has_index {
            let problem = if has_index {
                "this operation has an :index, those before it have none"
            } else {
                "this operation has no :index, those before it have one"
            };
            return Err(Fault::new(at, problem));
        }
        if !indexed {
            op.index = count;
        } else if let Some(previous) = previous
            && op.index <= previous
        {
            let problem = format!("index {} follows index {previous}", op.index);
            return Err(Fault::new(at, problem));
        }
        previous = Some(op.index);
        count += 1;
        if count >= u64::from(u32::MAX) {
            return Err(Fault::new(at, "more operations than fit in memory"));
        }
        take(op);
    }
    if count == 0 {
        return Err(Fault::new(0, "no operation found"));
    }
    Ok(count)
}

/// The fault with its line and column.
fn locate(name: &str, bytes: &[u8], fault: Fault) -> ImportError {
    let before = &bytes[..fault.at.min(bytes.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n');
    let line = &before[line_start.map_or(0, |newline| newline + 1)..];
    ImportError {
        file: name.to_owned(),
        line: 1 + before.split(|&byte| byte == b'\n').skip(1).count(),
        column: 1 + String::from_utf8_lossy(line).chars().count(),
        problem: fault.problem,
    }
}

#[cfg(test)]
mod tests;
