use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use seatrial_history::{History, Key, Mop, Observed, OpType, Process, Value};
use seatrial_interchange::export;
use seatrial_machine::Rng;
use std::fmt::Write as _;
use std::io::Cursor;

/// Writes and reads back with the reader of the same library; all batches and the attributes.
fn round(ops: &[Op], target: Target) -> (Vec<RecordBatch>, String) {
    let mut file = Vec::new();
    let mut writer = ColumnWriter::new(&mut file, target, "{\"suite\":\"kv\"}").unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), ops.len() as u64);
    let (schema, batches) = match target {
        Target::Arrow => {
            let reader = FileReader::try_new(Cursor::new(file), None).unwrap();
            (reader.schema(), reader.map(Result::unwrap).collect())
        }
        Target::Parquet => {
            let builder = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file));
            let builder = builder.unwrap();
            let schema = builder.schema().clone();
            let batches = builder.build().unwrap().map(Result::unwrap);
            (schema, batches.collect::<Vec<_>>())
        }
    };
    let attributes = schema.metadata()["seatrial.attributes"].clone();
    (batches, attributes)
}

/// A row as text, each column by the plainest means.
fn row(batch: &RecordBatch, row: usize) -> String {
    let mut text = String::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if column.is_valid(row) {
            let _ = write!(text, "{}={} ", field.name(), cell(column, row));
        }
    }
    text
}

fn cell(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "-".to_owned();
    }
    if let Some(text) = column.as_string_opt::<i32>() {
        return format!("{:?}", text.value(row));
    }
    if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        return numbers.value(row).to_string();
    }
    let cells = |items: &dyn Array| -> Vec<String> {
        (0..items.len()).map(|row| cell(items, row)).collect()
    };
    if let Some(list) = column.as_list_opt::<i32>() {
        return format!("[{}]", cells(&list.value(row)).join(" "));
    }
    if let Some(map) = column.as_map_opt() {
        return format!("{{{}}}", cells(&map.value(row)).join(" "));
    }
    let parts = column.as_struct();
    let parts: Vec<_> = parts.columns().iter().map(|part| cell(part, row)).collect();
    format!("({})", parts.join(" "))
}

/// What the row of an operation says, made from the history in memory.
fn expected(history: &History, position: usize) -> String {
    let op = &history.ops()[position];
    let mut text = format!("index={} ", op.index);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, "{name}={value} ");
        }
    };
    let known = |time: i64| (time >= 0).then_some(time);
    let quoted = |text: &str| format!("{text:?}");
    add("time", known(op.time).map(|time| time.to_string()));
    add("type", Some(quoted(op.kind.name())));
    match op.process {
        Process::Client(number) => add("process", Some(number.to_string())),
        Process::Named(name) => add("process_name", Some(quoted(name.as_str()))),
    }
    add("f", Some(quoted(op.f.as_str())));
    let key = |key: &Key| quoted(key.to_string().trim_matches('"').trim_start_matches(':'));
    let (name, value) = match &op.value {
        Value::Keyed(name, value) => (Some(key(name)), (**value).clone()),
        value => (None, value.clone()),
    };
    add("key", name);
    let json = |value: &Value| export::value(value).to_string();
    let other = !matches!(value, Value::Nil | Value::Txn(_));
    add("value", other.then(|| quoted(&json(&value))));
    add("value_int", value.as_int().map(|number| number.to_string()));
    let mop = |mop: &Mop| {
        let key = key(mop.key());
        match mop {
            Mop::Append { element, .. } => format!("(\"append\" {key} {element} -)"),
            Mop::Write { value, .. } => format!("(\"w\" {key} {value} -)"),
            Mop::Read { observed, .. } => match observed {
                Observed::Nil => format!("(\"r\" {key} - -)"),
                Observed::Register(value) => format!("(\"r\" {key} {value} -)"),
                Observed::List(list) => {
                    let list: Vec<_> = list.iter().map(i64::to_string).collect();
                    format!("(\"r\" {key} - [{}])", list.join(" "))
                }
            },
        }
    };
    let mops = value.as_txn();
    let mops = mops.map(|mops| mops.iter().map(mop).collect::<Vec<_>>().join(" "));
    add("txn", mops.map(|mops| format!("[{mops}]")));
    let plain = |value: &Value| match value {
        Value::Text(text) => quoted(text),
        value => quoted(&json(value)),
    };
    add("error", op.extra.get("error").map(plain));
    add("node", op.extra.get("node").map(plain));
    let entries = op.extra.iter().filter(|(name, _)| *name == "debug");
    let entries: Vec<_> = entries
        .map(|(_, value)| format!("(\"debug\" {})", quoted(&json(value))))
        .collect();
    add(
        "extra",
        (!entries.is_empty()).then(|| format!("{{{}}}", entries.join(" "))),
    );
    let begins =
        op.is_invoke() || (!op.process.is_client() && history.pair(position) > Some(position));
    let invocation = history.pair(position).filter(|_| !begins);
    let invocation = invocation.map(|pair| &history.ops()[pair]);
    add("invocation", invocation.map(|op| op.index.to_string()));
    let latency = invocation.and_then(|begun| Some(known(op.time)? - known(begun.time)?));
    add("latency_ns", latency.map(|latency| latency.to_string()));
    text
}

fn random_key(rng: &mut Rng) -> Key {
    match rng.below(3) {
        0 => Key::Int(rng.below(9) as i64 - 4),
        1 => Key::Word("x".into()),
        _ => Key::Text("y z".into()),
    }
}

fn random_mop(rng: &mut Rng) -> Mop {
    let key = random_key(rng);
    let observed = match rng.below(5) {
        0 => {
            let element = rng.below(99) as i64;
            return Mop::Append { key, element };
        }
        1 => return Mop::Write { key, value: -7 },
        2 => Observed::Nil,
        3 => Observed::Register(3),
        _ => Observed::List((0..rng.below(5) as i64).collect()),
    };
    Mop::Read { key, observed }
}

fn random_value(workload: u64, rng: &mut Rng) -> Value {
    match workload {
        0 => Value::Txn((0..rng.below(4)).map(|_| random_mop(rng)).collect()),
        1 => Value::Int(rng.word().cast_signed()),
        2 => Value::Cas(1, 2),
        3 => Value::Keyed(random_key(rng), Value::Int(4).into()),
        _ => Value::Set([Value::Int(1), Value::Float(0.5)].into()),
    }
}

/// A history of one of the common workloads, with crashes, faults and extra fields.
fn random_history(rng: &mut Rng, length: usize) -> History {
    let workload = rng.below(5);
    let mut ops: Vec<Op> = Vec::new();
    let mut running: Vec<Option<Op>> = vec![None; 4];
    for index in 0..length as u64 {
        let process = rng.index(4);
        let mut op = if process == 3 {
            let value = Value::Map([(Value::Word("n1".into()), Value::text("killed"))].into());
            let kill = Op::invoke(Process::NEMESIS, "kill", value);
            Op {
                kind: OpType::Info,
                ..kill
            }
        } else if let Some(invocation) = running[process].take() {
            let kinds = [OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info];
            let mut op = invocation.complete(*rng.pick(&kinds), invocation.value.clone());
            if rng.chance(0.2) {
                op = op.with("error", Value::text("no \"answer\""));
                op = op.with("debug", Value::List([Value::Int(1), Value::Nil].into()));
                op = op.with("node", Value::text("n2"));
            }
            op
        } else {
            let value = random_value(workload, rng);
            let op = Op::invoke(Process::Client(process as u64), "f", value);
            running[process] = Some(op.clone());
            op
        };
        op.index = index * 2;
        op.time = if rng.chance(0.1) {
            -1
        } else {
            index as i64 * 1_000
        };
        ops.push(op);
    }
    History::from_ops(ops)
}

#[test]
fn written_histories_are_read_back() {
    let mut rng = Rng::from_seed(12);
    for number in 0..60 {
        let length = rng.index(200);
        let history = random_history(&mut rng, length);
        for target in [Target::Arrow, Target::Parquet] {
            let (batches, attributes) = round(history.ops(), target);
            assert_eq!(attributes, "{\"suite\":\"kv\"}");
            let rows = batches.iter().flat_map(|batch| {
                let rows = 0..batch.num_rows();
                rows.map(|number| row(batch, number))
            });
            let expected = (0..history.len()).map(|position| expected(&history, position));
            let (rows, expected): (Vec<_>, Vec<_>) = (rows.collect(), expected.collect());
            assert_eq!(rows, expected, "history {number}, {target:?}");
        }
    }
}

#[test]
fn many_operations_are_several_batches() {
    let read = Op::invoke(Process::Client(0), "read", Value::Nil);
    let ops: Vec<Op> = (0..150_000)
        .map(|index| Op {
            index,
            ..read.clone()
        })
        .collect();
    for target in [Target::Arrow, Target::Parquet] {
        let (batches, _) = round(&ops, target);
        assert!(batches.len() > 2);
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, ops.len());
    }
}

#[test]
fn an_invocation_that_is_replaced_is_forgotten() {
    let read = Op::invoke(Process::Client(0), "read", Value::Nil);
    let mut writer = ColumnWriter::new(Vec::new(), Target::Arrow, "").unwrap();
    for index in 0..1_000 {
        writer
            .push(&Op {
                index,
                ..read.clone()
            })
            .unwrap();
    }
    assert_eq!(writer.running.len(), 1);
    let far = Op {
        index: u64::MAX,
        ..read
    };
    let error = writer.push(&far).unwrap_err();
    assert!(error.to_string().contains("63 bits"), "{error}");
}
