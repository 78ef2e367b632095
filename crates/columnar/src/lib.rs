//! Histories as tables, in Arrow IPC and Parquet, for notebooks and query engines. One row an operation:
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `index` | int64 | position in the whole history |
//! | `time` | int64 | nanoseconds since the test began; null when not known |
//! | `type` | text | `invoke`, `ok`, `fail`, `info` |
//! | `process` | int64 | the client; null for the nemesis and other named processes |
//! | `process_name` | text | `nemesis`; null for clients |
//! | `f` | text | what was done |
//! | `key` | text | the independent key, if there is one |
//! | `value` | text | the value as JSON; null for nothing and for transactions |
//! | `value_int` | int64 | the same when it is an integer |
//! | `txn` | list of {`f`, `key`, `value`, `read`} | the micro-operations of a transaction |
//! | `error`, `node` | text | the fields of these names; a text as it is, anything else as JSON |
//! | `extra` | map of text to text | the other fields, as JSON |
//! | `invocation` | int64 | of a completion: the index of its invocation |
//! | `latency_ns` | int64 | of a completion: nanoseconds since its invocation |
//!
//! A micro-operation's `f` is `append`, `w` or `r`; its `value` is what is appended, written, or seen in a register, its `read`
//! the list that was seen. The attributes of the test stand in the file's metadata as `seatrial.attributes`, in JSON.
//!
#![cfg_attr(feature = "arrow", doc = "```")]
#![cfg_attr(not(feature = "arrow"), doc = "```ignore")]
//! use seatrial_columnar::{ColumnWriter, Target};
//! use seatrial_history::{Op, Process, Value};
//!
//! let mut file = Vec::new();
//! let mut writer = ColumnWriter::new(&mut file, Target::Parquet, "{}")?;
//! writer.push(&Op::invoke(Process::Client(0), "read", Value::Nil))?;
//! assert_eq!(writer.finish()?, 1);
//! assert!(file.starts_with(b"PAR1"));
//! # Ok::<(), seatrial_columnar::ColumnError>(())
//! ```

#![cfg(feature = "arrow")]

mod rows;

use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use rows::Rows;
use seatrial_history::{Op, OpenInvocations};
use std::collections::BTreeMap;
use std::io::Write;

/// Bytes of a Parquet row group that may gather in memory.
const ROW_GROUP_BYTES_MAX: usize = 64 << 20;
/// Operations of a Parquet row group.
const ROW_GROUP_LENGTH: usize = 1 << 20;

/// Which file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An Arrow IPC file (Feather version 2), its buffers compressed with Zstandard.
    Arrow,
    /// A Parquet file, compressed with Zstandard.
    Parquet,
}

/// Why a table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ColumnError {
    /// An error of Arrow or of its output.
    #[error("Arrow")]
    Arrow(#[from] ArrowError),
    /// An error of Parquet or of its output.
    #[error("Parquet")]
    Parquet(#[from] ParquetError),
    /// Tables have signed indices.
    #[error("operation {index}: its index does not fit in 63 bits")]
    Index {
        /// The index.
        index: u64,
    },
}

enum TableSink<W: Write + Send> {
    Arrow(Box<FileWriter<W>>),
    Parquet(Box<ArrowWriter<W>>),
}

/// Writes operations as a table, in constant memory: rows gather to a batch of some ten thousand, batches of Parquet to a
/// row group of at most 64 MiB.
///
/// Its downside: a row knows nothing of what follows, so an invocation does not name its completion; the completion
/// names the invocation.
pub struct ColumnWriter<W: Write + Send> {
    sink: TableSink<W>,
    schema: SchemaRef,
    rows: Rows,
    open: OpenInvocations,
    /// Index and time of the open invocations, by position.
    running: BTreeMap<u64, (i64, i64)>,
    /// Operations so far.
    position: u64,
}

impl<W: Write + Send> ColumnWriter<W> {
    /// Begins a table of a test with these attributes.
    pub fn new(out: W, target: Target, attributes: &str) -> Result<ColumnWriter<W>, ColumnError> {
        let schema = rows::schema(attributes);
        let sink = match target {
            Target::Arrow => {
                let options = IpcWriteOptions::default();
                let options = options.try_with_compression(Some(CompressionType::ZSTD))?;
                let writer = FileWriter::try_new_with_options(out, &schema, options)?;
                TableSink::Arrow(Box::new(writer))
            }
            Target::Parquet => {
                let level = ZstdLevel::try_new(1)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    .set_max_row_group_row_count(Some(ROW_GROUP_LENGTH))
                    // Again, for readers that do not know Arrow's schema.
                    .set_key_value_metadata(Some(vec![KeyValue::new(
                        rows::ATTRIBUTES.to_owned(),
                        attributes.to_owned(),
                    )]))
                    .build();
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties))?;
                TableSink::Parquet(Box::new(writer))
            }
        };
        Ok(ColumnWriter {
            sink,
            schema,
            rows: Rows::default(),
            open: OpenInvocations::default(),
            running: BTreeMap::new(),
            position: 0,
        })
    }

    /// Adds one operation.
    pub fn push(&mut self, op: &Op) -> Result<(), ColumnError> {
        let index = i64::try_from(op.index).map_err(|_| ColumnError::Index { index: op.index })?;
        let running = self.open.running(op);
        let invocation = self.open.follow(self.position, op);
        // What this operation completes or takes the place of is over.
        let begun = running.and_then(|running| self.running.remove(&running));
        let begun = begun.filter(|_| invocation.is_some());
        if self.open.running(op) == Some(self.position) {
            self.running.insert(self.position, (index, op.time));
        }
        self.position += 1;
        self.rows.push(index, op, begun);
        if self.rows.is_full() {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ColumnError> {
        let batch = self.rows.take(&self.schema)?;
        match &mut self.sink {
            TableSink::Arrow(writer) => writer.write(&batch)?,
            TableSink::Parquet(writer) => {
                writer.write(&batch)?;
                if writer.in_progress_size() >= ROW_GROUP_BYTES_MAX {
                    writer.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Writes the rest and the end of the file; how many operations there were.
    pub fn finish(mut self) -> Result<u64, ColumnError> {
        if !self.rows.is_empty() {
            self.write()?;
        }
        match self.sink {
            TableSink::Arrow(mut writer) => writer.finish()?,
            TableSink::Parquet(writer) => {
                writer.close()?;
            }
        }
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests;
