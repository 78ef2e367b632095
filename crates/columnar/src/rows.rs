//! Gathers operations in columns.

use arrow_array::builder::{ArrayBuilder, Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{ArrayRef, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use seatrial_history::{Extra, Key, Mop, Observed, Op, Process, Value};
use seatrial_interchange::export;
use std::sync::Arc;

/// The name of the test's attributes in the file's metadata.
pub(crate) const ATTRIBUTES: &str = "seatrial.attributes";
/// Rows of a full batch.
const ROWS_MAX: usize = 65_536;
/// Elements of lists in a full batch.
const ELEMENTS_MAX: usize = 4 << 20;
/// Bytes of text in a full batch.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// The table, with the attributes of the test.
pub(crate) fn schema(attributes: &str) -> SchemaRef {
    let field = |name: &str, kind| Field::new(name, kind, true);
    let text = |name| field(name, DataType::Utf8);
    let number = |name| field(name, DataType::Int64);
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        text("value"),
    ]);
    let entries = Field::new("entries", DataType::Struct(entries), false);
    let mops = Field::new_list_field(DataType::Struct(mop_fields()), false);
    let fields = vec![
        Field::new("index", DataType::Int64, false),
        number("time"),
        Field::new("type", DataType::Utf8, false),
        number("process"),
        text("process_name"),
        Field::new("f", DataType::Utf8, false),
        text("key"),
        text("value"),
        number("value_int"),
        field("txn", DataType::List(Arc::new(mops))),
        text("error"),
        text("node"),
        field("extra", DataType::Map(Arc::new(entries), false)),
        number("invocation"),
        number("latency_ns"),
    ];
    let metadata = [(ATTRIBUTES.to_owned(), attributes.to_owned())];
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// The fields of a micro-operation.
fn mop_fields() -> Fields {
    let element = Field::new_list_field(DataType::Int64, true);
    Fields::from(vec![
        Field::new("f", DataType::Utf8, false),
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
        Field::new("read", DataType::List(Arc::new(element)), true),
    ])
}

/// The column of transactions.
struct Transactions {
    /// Where each begins among the micro-operations, and where the last ends.
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
    f: StringBuilder,
    key: StringBuilder,
    value: Int64Builder,
    read: ListBuilder<Int64Builder>,
}

impl Default for Transactions {
    fn default() -> Transactions {
        Transactions {
            offsets: vec![0],
            valid: NullBufferBuilder::new(0),
            f: StringBuilder::new(),
            key: StringBuilder::new(),
            value: Int64Builder::new(),
            read: ListBuilder::new(Int64Builder::new()),
        }
    }
}

impl Transactions {
    fn push(&mut self, mops: Option<&[Mop]>) {
        for mop in mops.unwrap_or_default() {
            let (f, value, read) = match mop {
                Mop::Append { element, .. } => ("append", Some(*element), None),
                Mop::Write { value, .. } => ("w", Some(*value), None),
                Mop::Read { observed, .. } => match observed {
                    Observed::Nil => ("r", None, None),
                    Observed::Register(value) => ("r", Some(*value), None),
                    Observed::List(elements) => ("r", None, Some(&elements[..])),
                },
            };
            self.f.append_value(f);
            self.key.append_value(key(mop.key()));
            self.value.append_option(value);
            self.read.values().append_slice(read.unwrap_or_default());
            self.read.append(read.is_some());
        }
        self.offsets.push(self.f.len() as i32);
        self.valid.append(mops.is_some());
    }

    /// Elements of the lists that were read, and micro-operations.
    fn elements(&mut self) -> usize {
        self.f.len() + self.read.values().len()
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.f.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.read.finish()),
        ];
        let mops = StructArray::try_new(mop_fields(), columns, None)?;
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let field = Field::new_list_field(DataType::Struct(mop_fields()), false);
        let list = ListArray::try_new(
            Arc::new(field),
            OffsetBuffer::new(offsets.into()),
            Arc::new(mops),
            self.valid.finish(),
        )?;
        Ok(Arc::new(list))
    }
}

/// A batch that is being filled.
pub(crate) struct Rows {
    index: Int64Builder,
    time: Int64Builder,
    kind: StringBuilder,
    process: Int64Builder,
    process_name: StringBuilder,
    f: StringBuilder,
    key: StringBuilder,
    value: StringBuilder,
    value_int: Int64Builder,
    txn: Transactions,
    error: StringBuilder,
    node: StringBuilder,
    extra: MapBuilder<StringBuilder, StringBuilder>,
    invocation: Int64Builder,
    latency: Int64Builder,
    /// Bytes of values and fields.
    text_bytes: usize,
    count: usize,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            index: Int64Builder::new(),
            time: Int64Builder::new(),
            kind: StringBuilder::new(),
            process: Int64Builder::new(),
            process_name: StringBuilder::new(),
            f: StringBuilder::new(),
            key: StringBuilder::new(),
            value: StringBuilder::new(),
            value_int: Int64Builder::new(),
            txn: Transactions::default(),
            error: StringBuilder::new(),
            node: StringBuilder::new(),
            extra: MapBuilder::new(None, StringBuilder::new(), StringBuilder::new()),
            invocation: Int64Builder::new(),
            latency: Int64Builder::new(),
            text_bytes: 0,
            count: 0,
        }
    }
}

impl Rows {
    /// Is there nothing?
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Is it time to write?
    pub(crate) fn is_full(&mut self) -> bool {
        self.count >= ROWS_MAX
            || self.text_bytes >= TEXT_BYTES_MAX
            || self.txn.elements() >= ELEMENTS_MAX
    }

    /// Adds an operation that completes what began with this index at this time.
    pub(crate) fn push(&mut self, index: i64, op: &Op, begun: Option<(i64, i64)>) {
        self.count += 1;
        self.index.append_value(index);
        let known = |time: i64| (time >= 0).then_some(time);
        self.time.append_option(known(op.time));
        self.kind.append_value(op.kind.name());
        let (number, name) = match op.process {
            Process::Client(number) => (i64::try_from(number).ok(), None),
            Process::Named(name) => (None, Some(name.as_str())),
        };
        self.process.append_option(number);
        self.process_name.append_option(name);
        self.f.append_value(op.f.as_str());
        self.value(&op.value);
        self.extra(&op.extra);
        self.invocation.append_option(begun.map(|(index, _)| index));
        let latency = begun.and_then(|(_, time)| Some(known(op.time)? - known(time)?));
        self.latency.append_option(latency);
    }

    fn value(&mut self, value: &Value) {
        let (name, value) = match value {
            Value::Keyed(name, value) => (Some(key(name)), &**value),
            value => (None, value),
        };
        self.key.append_option(name);
        self.value_int.append_option(value.as_int());
        self.txn.push(value.as_txn());
        match value {
            Value::Nil | Value::Txn(_) => self.value.append_null(),
            Value::Int(number) => self.value.append_value(number.to_string()),
            value => {
                let text = export::value(value).to_string();
                self.text_bytes += text.len();
                self.value.append_value(text);
            }
        }
    }

    fn extra(&mut self, extra: &Extra) {
        self.error.append_option(extra.get("error").map(plain));
        self.node.append_option(extra.get("node").map(plain));
        let mut others = false;
        for (name, value) in extra.iter() {
            if *name == "error" || *name == "node" {
                continue;
            }
            others = true;
            let text = export::value(value).to_string();
            self.text_bytes += text.len();
            self.extra.keys().append_value(name.as_str());
            self.extra.values().append_value(text);
        }
        // The map's keys and values are of equal length: one each in every round above.
        let appended = self.extra.append(others);
        debug_assert!(appended.is_ok());
    }

    /// The rows so far; begins anew.
    pub(crate) fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.index.finish()),
            Arc::new(self.time.finish()),
            Arc::new(self.kind.finish()),
            Arc::new(self.process.finish()),
            Arc::new(self.process_name.finish()),
            Arc::new(self.f.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.value_int.finish()),
            self.txn.take()?,
            Arc::new(self.error.finish()),
            Arc::new(self.node.finish()),
            Arc::new(self.extra.finish()),
            Arc::new(self.invocation.finish()),
            Arc::new(self.latency.finish()),
        ];
        self.count = 0;
        self.text_bytes = 0;
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// A key as text.
fn key(name: &Key) -> String {
    match name {
        Key::Int(number) => number.to_string(),
        Key::Word(word) => word.as_str().to_owned(),
        Key::Text(text) => text.as_ref().to_owned(),
    }
}

/// A text as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.as_ref().to_owned(),
        Value::Word(word) => word.as_str().to_owned(),
        value => export::value(value).to_string(),
    }
}
