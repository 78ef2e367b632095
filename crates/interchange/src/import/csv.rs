//! Operations in CSV.

use super::edn::{Form, SyntaxFault};
use super::json::JsonReader;
use super::operation_builder::{OperationDraft, kind, value};
use super::timed_rows::{RowHalf, RowSpan, RowTimes, half_kind};
use seatrial_history::{Extra, Key, Op, OpType, Process, Symbol, Value};
use std::borrow::Cow;

/// Columns of a header, at most.
const COLUMNS_MAX: usize = 256;

/// A column that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CsvColumn {
    Process,
    Type,
    F,
    Key,
    Value,
    Result,
    Time,
    Index,
    Start,
    End,
    /// An extra field of this name.
    Field(Symbol),
}

/// The first line: what each column is.
///
/// With the columns `start` and `end` each row is a whole operation, otherwise an invocation or a completion.
#[derive(Debug, Default)]
pub(super) struct CsvHeader {
    columns: Vec<CsvColumn>,
    /// Offset of the first row.
    rows_at: usize,
    has_intervals: bool,
}

/// The cells of a row by their meaning.
#[derive(Default)]
pub(super) struct CsvRow<'a> {
    process: Option<Process>,
    /// Which half it is, or how the operation ended.
    of: Option<OpType>,
    f: Option<Symbol>,
    key: Option<Key>,
    argument: Cow<'a, str>,
    result: Cow<'a, str>,
    time: Option<i64>,
    start: Option<i64>,
    end: Option<i64>,
    index: Option<u64>,
    extra: Vec<(Symbol, Value)>,
}

impl CsvHeader {
    /// Reads the header.
    pub(super) fn read(text: &str) -> Result<CsvHeader, SyntaxFault> {
        let mut header = CsvHeader::default();
        let mut cells = Cells::new(text, 0);
        while let Some((at, cell)) = cells.next()? {
            let name = cell.trim();
            let column = match name {
                "process" => CsvColumn::Process,
                "type" => CsvColumn::Type,
                "f" => CsvColumn::F,
                "key" => CsvColumn::Key,
                "value" => CsvColumn::Value,
                "result" => CsvColumn::Result,
                "time" => CsvColumn::Time,
                "index" => CsvColumn::Index,
                "start" => CsvColumn::Start,
                "end" => CsvColumn::End,
                "" => return Err(SyntaxFault::new(at, "a column has no name")),
                name => CsvColumn::Field(Symbol::intern(name).ok_or_else(|| {
                    SyntaxFault::new(at, "a name too long, or too many distinct names")
                })?),
            };
            if header.columns.contains(&column) {
                let problem = format!("two columns are named `{name}`");
                return Err(SyntaxFault::new(at, problem));
            }
            header.columns.push(column);
            if header.columns.len() > COLUMNS_MAX {
                return Err(SyntaxFault::new(at, "more than 256 columns"));
            }
        }
        header.rows_at = cells.at;
        header.check()?;
        Ok(header)
    }

    fn has(&self, column: CsvColumn) -> bool {
        self.columns.contains(&column)
    }

    fn check(&mut self) -> Result<(), SyntaxFault> {
        let refuse = |problem: &str| Err(SyntaxFault::new(0, problem));
        self.has_intervals = self.has(CsvColumn::Start) || self.has(CsvColumn::End);
        if !self.has(CsvColumn::F) {
            return refuse("the header has no column `f`");
        }
        if self.has_intervals {
            if !self.has(CsvColumn::Start) || !self.has(CsvColumn::End) {
                return refuse("the columns `start` and `end` come together");
            }
            if self.has(CsvColumn::Time) || self.has(CsvColumn::Index) {
                return refuse("rows with `start` and `end` have neither `time` nor `index`");
            }
        } else if self.has(CsvColumn::Result) {
            return refuse("the column `result` needs `start` and `end`");
        } else if !self.has(CsvColumn::Type) {
            return refuse("the header has neither `type` nor `start` and `end`");
        }
        Ok(())
    }

    /// Where all rows begin, and their times.
    pub(super) fn spans(&self, text: &str) -> Result<Vec<RowSpan>, SyntaxFault> {
        let mut spans = Vec::new();
        let mut at = self.rows_at;
        while at < text.len() {
            let blank = text[at..].bytes();
            let blank = blank
                .take_while(|byte| matches!(byte, b'\n' | b'\r'))
                .count();
            if blank > 0 {
                at += blank;
                continue;
            }
            let mut cells = Cells::new(text, at);
            let (mut start, mut end, mut client, mut count) = (None, None, None, 0);
            while let Some((cell_at, cell)) = cells.next()? {
                let Some(column) = self.columns.get(count) else {
                    let count = self.columns.len();
                    let problem = format!("the header has {count} columns, this row has more");
                    return Err(SyntaxFault::new(cell_at, problem));
                };
                count += 1;
                match column {
                    CsvColumn::Start => start = Some(time(cell_at, &cell)?),
                    CsvColumn::End => end = Some(time(cell_at, &cell)?),
                    CsvColumn::Process => client = cell.trim().parse().ok(),
                    _ => {}
                }
            }
            if count < self.columns.len() {
                let problem = format!(
                    "the header has {} columns, this row {count}",
                    self.columns.len()
                );
                return Err(SyntaxFault::new(at, problem));
            }
            let times = match (start, end) {
                (Some(Some(start)), Some(end)) => {
                    if end.is_some_and(|end| end < start) {
                        return Err(SyntaxFault::new(at, "the operation ends before it starts"));
                    }
                    RowTimes::Operation { start, end }
                }
                (Some(None), _) => {
                    return Err(SyntaxFault::new(at, "the operation has no `start`"));
                }
                _ => RowTimes::Event,
            };
            spans.push(RowSpan {
                at,
                times,
                client,
                id: None,
            });
            at = cells.at;
        }
        Ok(spans)
    }
}

/// A time in nanoseconds; `None` when the cell is empty.
fn time(at: usize, cell: &str) -> Result<Option<i64>, SyntaxFault> {
    let cell = cell.trim();
    if cell.is_empty() {
        return Ok(None);
    }
    let time = cell.parse().ok();
    let problem = || SyntaxFault::new(at, format!("`{cell}` is no time: nanoseconds are expected"));
    time.map(Some).ok_or_else(problem)
}

/// The cells of one row: each with the offset of its first byte.
struct Cells<'a> {
    text: &'a str,
    at: usize,
    is_done: bool,
}

impl<'a> Cells<'a> {
    fn new(text: &'a str, at: usize) -> Cells<'a> {
        Cells {
            text,
            at,
            is_done: false,
        }
    }

    /// The next cell; `None` after the last. Then `at` is the beginning of the next row.
    fn next(&mut self) -> Result<Option<(usize, Cow<'a, str>)>, SyntaxFault> {
        if self.is_done {
            return Ok(None);
        }
        let begin = self.at;
        let rest = &self.text[begin..];
        if let Some(inside) = rest.strip_prefix('"') {
            return self.quoted(begin, inside).map(Some);
        }
        let end = rest.bytes().position(|byte| matches!(byte, b',' | b'\n'));
        let length = end.unwrap_or(rest.len());
        let cell = rest[..length].strip_suffix('\r').unwrap_or(&rest[..length]);
        self.at += length;
        self.separator(begin)?;
        Ok(Some((begin, Cow::Borrowed(cell))))
    }

    /// A cell in quotes, of which `inside` begins after the first.
    fn quoted(
        &mut self,
        begin: usize,
        inside: &'a str,
    ) -> Result<(usize, Cow<'a, str>), SyntaxFault> {
        let bytes = inside.as_bytes();
        let mut end = 0;
        let mut is_plain = true;
        loop {
            match (bytes.get(end), bytes.get(end + 1)) {
                (Some(b'"'), Some(b'"')) => {
                    is_plain = false;
                    end += 2;
                }
                (Some(b'"'), _) => break,
                (Some(_), _) => end += 1,
                (None, _) => {
                    return Err(SyntaxFault::new(begin, "this quote is never closed"));
                }
            }
        }
        self.at = begin + 1 + end + 1;
        if self.text[self.at..].starts_with('\r') {
            self.at += 1;
        }
        self.separator(self.at)?;
        let cell = &inside[..end];
        let cell = if is_plain {
            Cow::Borrowed(cell)
        } else {
            Cow::Owned(cell.replace("\"\"", "\""))
        };
        Ok((begin, cell))
    }

    /// Passes what ends a cell.
    fn separator(&mut self, at: usize) -> Result<(), SyntaxFault> {
        match self.text.as_bytes().get(self.at) {
            Some(b',') => self.at += 1,
            Some(b'\n') => {
                self.at += 1;
                self.is_done = true;
            }
            None => self.is_done = true,
            Some(_) => {
                return Err(SyntaxFault::new(
                    at,
                    "`,` or the end of the line is expected",
                ));
            }
        }
        Ok(())
    }
}

/// A value: nothing, JSON, or else the text as it stands.
fn form(cell: &str) -> Form<'_> {
    let cell = cell.trim();
    if cell.is_empty() {
        return Form::Nil;
    }
    JsonReader::whole(cell).unwrap_or(Form::Text(Cow::Borrowed(cell)))
}

fn key(cell: &str) -> Option<Key> {
    let cell = cell.trim();
    match cell.parse() {
        _ if cell.is_empty() => None,
        Ok(number) => Some(Key::Int(number)),
        Err(_) => Some(Key::Text(cell.into())),
    }
}

impl<'a> CsvRow<'a> {
    /// The half of the row at this offset.
    pub(super) fn parse(
        text: &str,
        at: usize,
        header: &CsvHeader,
        half: RowHalf,
    ) -> Result<OperationDraft, SyntaxFault> {
        let mut cells = Cells::new(text, at);
        let mut row = CsvRow::default();
        for column in &header.columns {
            if let Some((cell_at, cell)) = cells.next()? {
                row.take(*column, cell_at, cell)?;
            }
        }
        row.operation(at, half)
    }

    /// Takes one cell.
    fn take(
        &mut self,
        column: CsvColumn,
        cell_at: usize,
        cell: Cow<'a, str>,
    ) -> Result<(), SyntaxFault> {
        let word = cell.trim();
        let refuse = |problem: String| SyntaxFault::new(cell_at, problem);
        match column {
            // An empty cell is no value.
            CsvColumn::Process | CsvColumn::Type | CsvColumn::Index | CsvColumn::Field(_)
                if word.is_empty() => {}
            CsvColumn::Process => self.process = Some(named(word).map_err(refuse)?),
            CsvColumn::Type => self.of = Some(kind(&Form::Symbol(word)).map_err(refuse)?),
            CsvColumn::F => {
                let symbol = Symbol::intern(word).filter(|_| !word.is_empty());
                self.f = Some(symbol.ok_or_else(|| refuse("`f` is no name".to_owned()))?);
            }
            CsvColumn::Key => self.key = key(&cell),
            CsvColumn::Value => self.argument = cell,
            CsvColumn::Result => self.result = cell,
            CsvColumn::Time => self.time = time(cell_at, &cell)?,
            CsvColumn::Start => self.start = time(cell_at, &cell)?,
            CsvColumn::End => self.end = time(cell_at, &cell)?,
            CsvColumn::Index => {
                let number = word.parse::<u64>().ok();
                let problem = || refuse(format!("`{word}` is no index"));
                self.index = Some(number.ok_or_else(problem)?);
            }
            CsvColumn::Field(name) => self.extra.push((name, form(&cell).into_value())),
        }
        Ok(())
    }

    /// The half of the operation, which begins at `at`.
    fn operation(&self, at: usize, half: RowHalf) -> Result<OperationDraft, SyntaxFault> {
        let missing = |name: &str| SyntaxFault::new(at, format!("this operation has no `{name}`"));
        let f = self.f.ok_or_else(|| missing("f"))?;
        let of = match half {
            RowHalf::Event => self.of.ok_or_else(|| missing("type"))?,
            _ => self.of.unwrap_or(OpType::Ok),
        };
        if half != RowHalf::Event && of == OpType::Invoke {
            return Err(SyntaxFault::new(
                at,
                "`type` is the outcome: ok, fail or info",
            ));
        }
        // A completion has its result; where there is none, it repeats the argument.
        let has_result = half == RowHalf::Completion && !self.result.trim().is_empty();
        let cell = if has_result {
            &self.result
        } else {
            &self.argument
        };
        let found = value(form(cell), f);
        let time = match half {
            RowHalf::Event => self.time,
            RowHalf::Invocation => self.start,
            RowHalf::Completion => self.end,
        };
        let is_invocation = half == RowHalf::Invocation;
        let op = Op {
            index: self.index.unwrap_or(0),
            time: time.unwrap_or(-1),
            kind: half_kind(half, of),
            process: self.process.unwrap_or(Process::Client(0)),
            f,
            value: match &self.key {
                Some(key) => Value::Keyed(key.clone(), found.into()),
                None => found,
            },
            extra: Extra::new(if is_invocation { &[] } else { &self.extra }),
        };
        Ok(OperationDraft {
            op,
            indexed: self.index.is_some(),
            has_process: self.process.is_some(),
            at,
        })
    }
}

fn named(word: &str) -> Result<Process, String> {
    if let Ok(number) = word.parse() {
        return Ok(Process::Client(number));
    }
    if word.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Err(format!("`{word}` is no process"));
    }
    let symbol = Symbol::intern(word);
    symbol
        .map(Process::Named)
        .ok_or_else(|| "a name too long, or too many distinct names".to_owned())
}

/// Does a text begin with the header of such a table?
pub(super) fn is_header(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let mut names = line.split(',').map(|name| name.trim().trim_matches('"'));
    let has = |wanted: &str| {
        line.split(',')
            .any(|name| name.trim().trim_matches('"') == wanted)
    };
    names.next().is_some() && has("f") && (has("type") || (has("start") && has("end")))
}
