//! Histories in the formats of other tools: [`import`] reads them, [`export`] writes them.
//!
//! # Formats
//!
//! Operations of any kind, with outcomes ok, fail and info:
//!
//! | format | times of clients | keys | an error is at | written |
//! | --- | --- | --- | --- | --- |
//! | `edn` (Jepsen, Elle) | yes, when `:time` is there | `[k v]`, with [`import::ImportOptions::keyed`] | line, column | yes |
//! | `json` (lines or an array) | as EDN | as EDN | line, column | yes |
//! | `porcupine` (logs of Jepsen, `history.txt`, EDN with `:key`) | their order | member `:key` | line, column | no |
//! | `test.jepsen` ([`import::JepsenFile`]) | yes | tuples of `jepsen.independent` | byte | no |
//!
//! Transactions only; none has times of clients, keys are those of micro-operations:
//!
//! | format | data | outcomes | an error is at | written |
//! | --- | --- | --- | --- | --- |
//! | `plume` (also PolySI) | registers | committed, aborted | line, column | yes |
//! | `awdit` | registers | committed | line, column | no |
//! | `veristrong` | lists | committed | line, column | no |
//! | `dbcop` (bincode) | registers | committed, aborted | byte | yes |
//! | `dbcop-json` | registers | committed, aborted | line, column | no |
//! | `timekiller` (Chronos, Aion) | registers and lists, with the database's timestamps | committed | line, column | yes |
//! | `cobra` (a log per session) | registers | committed, unknown | byte | no |
//!
//! What a history lacks is its [`Provenance`](seatrial_history::Provenance), which a checker respects: without times of clients
//! no order in real time is concluded, except within a process. EDN carries provenance in a comment before the first operation,
//! JSON lines in an object (`header.rs`); a JSON array carries none. The formats of transactions have no times, so
//! their provenance is `timeless`. `docs/formats/interchange.md` specifies each format.
//!
//! # Reading
//!
//! ```text
//!  Read ─► Replay ─┬─► TextOperations ─► Draft ─► Sequence ─► Op ─┬─► Iterator<Op>
//!          format, │   edn, json, porcupine                     └─► Assembly ─► Chunk
//!          header  └─► TransactionReader ─► TransactionSink: a history, or a checker's columns
//!                      all others
//! ```
//!
//! [`import::FileOperations`] owns the input and a window of it. A parser is asked for the next operation in the window; when it
//! finds none and the input is not at its end, the window grows and the parser tries again. So an error is reported only
//! once no further byte can turn it into an operation, memory is bounded by the longest operation (64 MiB in text), and
//! the same bytes yield the same operations and errors for any length of reads. `Sequence` numbers operations, gives
//! processes to those without, and rejects what one process cannot have done. A transaction in its usual spelling goes from
//! bytes to columns without becoming an operation (`import/transaction_row.rs`); tests compare this path with the general one.
//!
//! Every error is an [`import::ImportError`]: the file's name, a [`import::SourcePosition`] (line and column from 1, or a byte
//! offset from 0), and the problem. After an error an iterator ends: operations before it were correct.
//!
//! ```
//! use seatrial_interchange::export::{Layout, TextWriter};
//! use seatrial_interchange::import::{FileOperations, ImportOptions};
//!
//! // Any `std::io::Read`: a file, a pipe, a decompressor. The format comes from the first bytes.
//! let text = "{:process 0, :type :invoke, :f :read, :value nil}
//! {:process 0, :type :ok, :f :read, :value 3}
//! {:process 0, :type :maybe, :f :read, :value 3}";
//! let mut operations = FileOperations::open("run.edn", text.as_bytes(), None, ImportOptions::default())?;
//! assert_eq!(operations.format().name(), "edn");
//!
//! let mut writer = TextWriter::new(Vec::new(), Layout::Edn);
//! let error = loop {
//!     match operations.next() {
//!         Some(Ok(op)) => writer.push(&op)?,
//!         Some(Err(error)) => break error,
//!         None => unreachable!("line 3 has no type"),
//!     }
//! };
//! assert!(error.to_string().starts_with("run.edn:3:"));
//! let edn = String::from_utf8(writer.finish()?)?;
//! let last = edn.lines().next_back().unwrap_or_default();
//! assert!(last.contains(":index 1") && last.contains(":type :ok"), "{last}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What this crate does not do
//!
//! - It opens no file and starts no thread; it has no clock and no socket. Callers pass readers and writers.
//! - It holds no whole input: a window of a text, one block of `test.jepsen`, the open transactions of a log
//!   (at most 65,536 operations). Exception: writing `dbcop` holds 18 bytes for each operation.
//! - It allocates nothing because an input claims a length, and nests no deeper than 64 levels.
//! - It repairs nothing silently. Only `test.jepsen` is read past damage, and [`import::JepsenFile::warnings`] says so.
//! - It decides nothing about consistency.
//!
//! # Files in reading order
//!
//! - `import.rs`, `import/operations.rs`: formats, detection, errors; the iterator over any format
//! - `import/text_operations.rs`: the window over a text and its loop
//! - `import/edn.rs`, `import/json.rs`, `import/porcupine.rs`: parsers; `import/operation_builder.rs`: from EDN maps to
//!   operations
//! - `import/sequence.rs`: indices and processes; `import/chunks.rs`: chunks instead of operations
//! - `import/transaction_row.rs`, `import/known.rs`: the fast path for transactions
//! - `import/registers.rs`, then its folder: formats of transactions, all with `advance(input, sink, place)`
//! - `import/fressian.rs`, `import/jepsen.rs`: Jepsen's binary files
//! - `header.rs`: provenance in texts; `export.rs`, `export/registers.rs`: writers

pub mod export;
mod header;
pub mod import;
