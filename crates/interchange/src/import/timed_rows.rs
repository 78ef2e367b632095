//! Histories whose rows stand in any order of time: CSV, and Porcupine's operations and events in JSON.

use super::csv::{CsvHeader, CsvRow};
use super::edn::SyntaxFault;
use super::operation_builder::OperationDraft;
use super::porcupine_json;
use super::sequence::ProcessSequence;
use super::text_operations::error_at;
use super::{Format, ImportError};
use seatrial_history::{FixedMap, Op, OpType, Process};
use std::io::Read;

/// What a row says of the times of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowTimes {
    /// It is an invocation or a completion, at this place in the order of rows.
    Event,
    /// It is a whole operation: when it began and ended. Without an end its outcome is unknown.
    Operation { start: i64, end: Option<i64> },
}

/// Which half of a row's operation is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowHalf {
    /// The row as it is: an invocation or a completion.
    Event,
    Invocation,
    Completion,
}

/// A row as it is found in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowSpan {
    /// Offset of its first byte.
    pub(super) at: usize,
    pub(super) times: RowTimes,
    /// The client that it names.
    pub(super) client: Option<u64>,
    /// The number that joins an invocation and its completion (Porcupine's `Id`).
    pub(super) id: Option<i64>,
}

/// An invocation or completion, to be parsed when its turn comes.
#[derive(Clone, Copy, Debug)]
struct RowEvent {
    time: i64,
    half: RowHalf,
    row: u32,
}

/// The rows of a text in the order of time.
///
/// The first call reads the whole text and notes the place and the times of each row; rows of whole operations are sorted by
/// time, invocations before completions of the same moment, since a time says no more than that both happened then. Later calls
/// parse one row each. Memory: the text, 56 bytes for each row and 24 for each event.
pub(super) struct RowOperations<R> {
    name: String,
    format: Format,
    input: R,
    is_loaded: bool,
    text: String,
    header: CsvHeader,
    rows: Vec<RowSpan>,
    events: Vec<RowEvent>,
    next: usize,
    /// Does each operation have a client of its own, because clients are not distinguished?
    is_anonymous: bool,
    /// Calls without their returns so far, by `Id`.
    open: FixedMap<i64, Op>,
    sequence: ProcessSequence,
    previous: Option<u64>,
}

impl<R: Read> RowOperations<R> {
    pub(super) fn open(name: &str, input: R, format: Format) -> RowOperations<R> {
        RowOperations {
            name: name.to_owned(),
            format,
            input,
            is_loaded: false,
            text: String::new(),
            header: CsvHeader::default(),
            rows: Vec::new(),
            events: Vec::new(),
            next: 0,
            is_anonymous: false,
            open: FixedMap::default(),
            sequence: ProcessSequence::default(),
            previous: None,
        }
    }

    /// Bytes consumed so far: the share of the rows that were returned.
    pub(super) fn bytes(&self) -> u64 {
        let share = self.next as f64 / self.events.len().max(1) as f64;
        (self.text.len() as f64 * share) as u64
    }

    /// An error at the row that was returned last.
    pub(super) fn error(&self, problem: impl Into<String>) -> ImportError {
        let last = self
            .next
            .checked_sub(1)
            .and_then(|last| self.events.get(last));
        let at = last.map_or(0, |event| self.rows[event.row as usize].at);
        self.located(&SyntaxFault::new(at, problem))
    }

    fn located(&self, fault: &SyntaxFault) -> ImportError {
        let before = &self.text[..self.text.floor_char_boundary(fault.at)];
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default();
        let column = 1 + column.chars().count();
        error_at(
            &self.name,
            (line as u64, column as u64),
            fault.problem.clone(),
        )
    }

    /// The next operation; `None` at the end.
    pub(super) fn read(&mut self) -> Result<Option<Op>, ImportError> {
        if !self.is_loaded {
            self.load()?;
        }
        let Some(event) = self.events.get(self.next).copied() else {
            return Ok(None);
        };
        self.next += 1;
        let row = self.rows[event.row as usize];
        let draft = if self.format == Format::Csv {
            CsvRow::parse(&self.text, row.at, &self.header, event.half)
        } else {
            let invoked = row.id.and_then(|id| self.open.remove(&id));
            porcupine_json::operation(&self.text, row.at, event.half, invoked.as_ref())
        };
        let draft = draft.map_err(|fault| self.located(&fault))?;
        let OperationDraft {
            mut op,
            indexed,
            has_process,
            ..
        } = draft;
        let position = self.next as u64 - 1;
        if !indexed {
            op.index = position;
        } else if self.previous.is_some_and(|previous| op.index <= previous) {
            let previous = self.previous.unwrap_or_default();
            return Err(self.error(format!("index {} follows index {previous}", op.index)));
        }
        self.sequence
            .index(self.previous.replace(op.index), op.index);
        let number = row.id.map_or(u64::from(event.row), i64::cast_unsigned);
        let mut has_process = has_process;
        if self.is_anonymous || (!has_process && event.half != RowHalf::Event) {
            op.process = Process::Client(number);
            has_process = true;
        }
        let taken = self.sequence.take(&mut op, has_process);
        taken.map_err(|problem| self.error(problem))?;
        if let Some(id) = row.id.filter(|_| op.is_invoke()) {
            self.open.insert(id, op.clone());
        }
        Ok(Some(op))
    }

    /// Reads the text and sorts its rows.
    fn load(&mut self) -> Result<(), ImportError> {
        self.is_loaded = true;
        let mut bytes = Vec::new();
        if let Err(error) = self.input.read_to_end(&mut bytes) {
            let problem = format!("cannot be read: {error}");
            return Err(error_at(&self.name, (1, 1), problem));
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        match String::from_utf8(bytes) {
            Ok(text) => self.text = text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let mut bytes = error.into_bytes();
                bytes.truncate(valid);
                self.text = String::from_utf8(bytes).unwrap_or_default();
                return Err(self.located(&SyntaxFault::new(valid, "not UTF-8 text")));
            }
        }
        let spans = match self.format {
            Format::Csv => CsvHeader::read(&self.text).and_then(|header| {
                let spans = header.spans(&self.text);
                self.header = header;
                spans
            }),
            _ => porcupine_json::spans(&self.text),
        };
        self.rows = spans.map_err(|fault| self.located(&fault))?;
        if self.rows.is_empty() {
            return Err(error_at(
                &self.name,
                (1, 1),
                "no operation found".to_owned(),
            ));
        }
        if u32::try_from(self.rows.len()).is_err() {
            return Err(error_at(
                &self.name,
                (1, 1),
                "more than 2^32 rows".to_owned(),
            ));
        }
        self.order();
        self.is_anonymous = self.format == Format::PorcupineJson && self.overlaps();
        Ok(())
    }

    /// Makes the events of all rows, by time.
    fn order(&mut self) {
        for (row, number) in self.rows.iter().zip(0_u32..) {
            let event = |time, half| RowEvent {
                time,
                half,
                row: number,
            };
            match row.times {
                RowTimes::Event => self.events.push(event(i64::from(number), RowHalf::Event)),
                RowTimes::Operation { start, end } => {
                    self.events.push(event(start, RowHalf::Invocation));
                    let end = end.map(|end| event(end, RowHalf::Completion));
                    self.events.extend(end);
                }
            }
        }
        // Stable: of one moment, in the order of the rows.
        self.events
            .sort_by_key(|event| (event.time, event.half == RowHalf::Completion));
    }

    /// Do operations of one client overlap, as where it was left out and is 0 everywhere?
    fn overlaps(&self) -> bool {
        let mut open: FixedMap<Option<u64>, (u32, Option<i64>)> = FixedMap::default();
        self.events.iter().any(|event| {
            let row = self.rows[event.row as usize];
            let is_same = |one: &(u32, Option<i64>)| match row.id {
                Some(_) => one.1 == row.id,
                None => one.0 == event.row,
            };
            match open.get(&row.client) {
                Some(one) if is_same(one) => _ = open.remove(&row.client),
                Some(_) => return true,
                None => _ = open.insert(row.client, (event.row, row.id)),
            }
            false
        })
    }
}

/// The type of a half.
pub(super) fn half_kind(half: RowHalf, completed: OpType) -> OpType {
    match half {
        RowHalf::Invocation => OpType::Invoke,
        RowHalf::Completion | RowHalf::Event => completed,
    }
}

#[cfg(test)]
mod tests {
    use crate::import::{self, Format, ImportOptions};
    use seatrial_history::{History, Key, OpType, Process, Value};
    use seatrial_machine::Rng;

    fn read(name: &str, text: &str) -> Result<History, String> {
        let format = import::detect(name, text.as_bytes()).ok_or("no format")?;
        let history = import::read(name, text.as_bytes(), format, ImportOptions::default());
        history.map_err(|error| error.to_string())
    }

    fn lines(history: &History) -> Vec<String> {
        history.iter().map(ToString::to_string).collect()
    }

    const EVENTS: &str = "process,type,f,value,time,node\n\
        0,invoke,txn,\"[[\"\"append\"\",1,2],[\"\"r\"\",1,null]]\",5,\n\
        nemesis,info,kill,n1,6,\n\
        1,invoke,cas,\"[1,2]\",7,\r\n\
        \n\
        0,ok,txn,\"[[\"\"append\"\",1,2],[\"\"r\"\",1,[2]]]\",9,n1\n\
        1,fail,cas,\"[1,2]\",11,n2";

    #[test]
    fn rows_of_events_are_what_they_are_in_edn() {
        let edn = "{:process 0 :type :invoke :f :txn :value [[:append 1 2] [:r 1 nil]] :time 5}
            {:process :nemesis :type :info :f :kill :value \"n1\" :time 6}
            {:process 1 :type :invoke :f :cas :value [1 2] :time 7}
            {:process 0 :type :ok :f :txn :value [[:append 1 2] [:r 1 [2]]] :time 9 :node \"n1\"}
            {:process 1 :type :fail :f :cas :value [1 2] :time 11 :node \"n2\"}";
        let from_csv = read("h.csv", EVENTS).unwrap();
        assert_eq!(lines(&from_csv), lines(&read("h.edn", edn).unwrap()));
    }

    #[test]
    fn rows_of_operations_are_sorted_by_time() {
        let text = "f,value,key,start,end,result,type,process\n\
            read,,x,40,50,1,,3\n\
            write,1,x,10,40,,ok,0\n\
            write,2,x,20,,,,1\n\
            write,3,x,30,60,,fail,2\n";
        let history = read("h.csv", text).unwrap();
        let found: Vec<(i64, OpType, Process)> = history
            .iter()
            .map(|op| (op.time, op.kind, op.process))
            .collect();
        let expected = [
            (10, OpType::Invoke, 0),
            (20, OpType::Invoke, 1),
            (30, OpType::Invoke, 2),
            // Both happened at 40: they may have overlapped.
            (40, OpType::Invoke, 3),
            (40, OpType::Ok, 0),
            (50, OpType::Ok, 3),
            (60, OpType::Fail, 2),
        ];
        let expected = expected.map(|(time, kind, one)| (time, kind, Process::Client(one)));
        assert_eq!(found, expected);
        let value = Value::Keyed(Key::Text("x".into()), Value::Int(1).into());
        assert_eq!(history.ops()[5].value, value);
        assert_eq!(history.completion(1), None);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said_with_its_place() {
        for (text, error) in [
            ("type,value\n", "h.csv:1:1: the header has no column `f`"),
            ("f,type,f\n", "h.csv:1:8: two columns are named `f`"),
            (
                "f,start\n",
                "h.csv:1:1: the columns `start` and `end` come together",
            ),
            ("f,type\n", "h.csv:1:1: no operation found"),
            (
                "f,type\nread\n",
                "h.csv:2:1: the header has 2 columns, this row 1",
            ),
            (
                "f,type\nread,ok,3\n",
                "h.csv:2:9: the header has 2 columns, this row has more",
            ),
            (
                "f,type\nread,done\n",
                "h.csv:2:6: :type is none of :invoke, :ok, :fail, :info",
            ),
            (
                "f,type\n\"read,ok\n",
                "h.csv:2:1: this quote is never closed",
            ),
            (
                "f,type\n\"read\"x,ok\n",
                "h.csv:2:7: `,` or the end of the line is expected",
            ),
            (
                "f,start,end\nread,x,1\n",
                "h.csv:2:6: `x` is no time: nanoseconds are expected",
            ),
            (
                "f,start,end\nread,2,1\n",
                "h.csv:2:1: the operation ends before it starts",
            ),
            (
                "f,type,process\nread,invoke,0\nread,invoke,0\n",
                "h.csv:3:1: operation 1: process 0 invokes while its operation 0 is running",
            ),
            (
                "f,type,index\nread,invoke,1\nread,ok,1\n",
                "h.csv:3:1: index 1 follows index 1",
            ),
        ] {
            let read = import::read(
                "h.csv",
                text.as_bytes(),
                Format::Csv,
                ImportOptions::default(),
            );
            assert_eq!(read.unwrap_err().to_string(), error);
        }
    }

    const OPERATIONS: &str = r#"[
        {"ClientId":1,"Input":{"Op":0,"Key":"x","Value":""},"Call":20,"Output":{"Value":"a"},"Return":40},
        {"ClientId":0,"Input":{"Op":2,"Key":"x","Value":"a"},"Call":10,"Output":{"Value":""},"Return":30,"Metadata":null}]"#;
    const PORCUPINE_EVENTS: &str = r#"{"ClientId":0,"Kind":false,"Value":{"op":false,"value":7},"Id":0}
        {"ClientId":0,"Kind":false,"Value":{"op":true,"value":0},"Id":1}
        {"ClientId":0,"Kind":true,"Value":7,"Id":1}
        {"ClientId":0,"Kind":true,"Value":0,"Id":0}"#;

    #[test]
    fn operations_and_events_of_porcupine() {
        let history = read("h.json", OPERATIONS).unwrap();
        let key = |text: &str| Value::Keyed(Key::Text("x".into()), Value::text(text).into());
        let names: Vec<(&str, OpType, i64)> = history
            .iter()
            .map(|op| (op.f.as_str(), op.kind, op.time))
            .collect();
        let expected = [
            ("append", OpType::Invoke, 10),
            ("get", OpType::Invoke, 20),
            ("append", OpType::Ok, 30),
            ("get", OpType::Ok, 40),
        ];
        assert_eq!(names, expected);
        assert_eq!(history.ops()[2].value, key("a"));
        assert_eq!(history.ops()[3].value, key("a"));
        // Client 0 everywhere: each operation has a client of its own.
        let history = read("h.json", PORCUPINE_EVENTS).unwrap();
        let found: Vec<(&str, u64, Value)> = history
            .iter()
            .map(|op| match op.process {
                Process::Client(client) => (op.f.as_str(), client, op.value.clone()),
                Process::Named(_) => panic!("no client"),
            })
            .collect();
        let expected = [
            ("write", 0, Value::Int(7)),
            ("read", 1, Value::Nil),
            ("read", 1, Value::Int(7)),
            ("write", 0, Value::Int(7)),
        ];
        assert_eq!(found, expected);
        let bad = PORCUPINE_EVENTS.replace(
            "\"Id\":1}\n        {\"ClientId\":0,\"Kind\":true,\"Value\":0",
            "\"Id\":9}\n        {\"ClientId\":0,\"Kind\":true,\"Value\":0",
        );
        let error = read("h.json", &bad).unwrap_err();
        assert!(
            error.contains("no event before it is the call with this Id"),
            "{error}"
        );
    }

    #[test]
    fn damaged_rows_are_an_error_or_another_history() {
        let intervals = "f,value,start,end\nwrite,\"a\nb\",1,2\nread,[1],3,9\n";
        for seed in 0..20_000 {
            let mut rng = Rng::from_seed(seed);
            let samples = [EVENTS, intervals, OPERATIONS, PORCUPINE_EVENTS];
            let which = rng.index(samples.len());
            let mut bytes = samples[which].as_bytes().to_vec();
            for _ in 0..=rng.below(4) {
                let at = rng.index(bytes.len());
                match rng.below(4) {
                    0 => bytes[at] = rng.below(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    2 => bytes.insert(at, *rng.pick(b"\",\n{}[]:0-")),
                    _ => _ = bytes.remove(at.min(bytes.len() - 1)),
                }
                if bytes.is_empty() {
                    bytes.push(b'f');
                }
            }
            let format = [Format::Csv, Format::PorcupineJson][which / 2];
            let _ = import::read("h", &bytes, format, ImportOptions::default());
        }
    }
}
