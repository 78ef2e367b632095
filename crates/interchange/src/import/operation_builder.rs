//! From EDN maps to operations.

use super::edn::{EdnReader, Form, SyntaxFault};
use super::text_operations::Parsed;
use seatrial_history::{Extra, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};

/// A parser of operations in EDN: a vector or list of maps, or one map after another.
pub(super) struct EdnOperations {
    builder: OperationBuilder,
    container: Container,
}

/// The bracket around a whole history, if there is one.
#[derive(Clone, Copy, Default)]
pub(super) struct Container {
    /// Was the beginning of the history passed?
    started: bool,
    /// Its closing bracket; a newline after that was read.
    close: Option<u8>,
    /// Where it opened.
    opened: usize,
}

/// Builds operations from their fields.
pub(super) struct OperationBuilder {
    keys: KeyPlace,
    /// Names seen so far; few, so searched in order.
    names: Vec<Symbol>,
}

/// Where an operation has the key of its independent object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// Nowhere: values are plain.
    None,
    /// In the value: `[key value]`.
    Tuple,
    /// In a field `:key` of its own.
    Field,
}

/// Names cached for comparison; further ones are looked up in the global table.
const NAMES_MAX: usize = 32;

/// An operation as written, before it is numbered and has a process.
pub(super) struct OperationDraft {
    /// The operation; its index is 0 when none was written.
    pub(super) op: Op,
    /// Was an index written?
    pub(super) indexed: bool,
    /// Was a process written? If not, `op.process` is meaningless.
    pub(super) has_process: bool,
    /// Byte offset of its start.
    pub(super) at: usize,
}

/// The fields of an operation's map, as they are found.
#[derive(Default)]
pub(super) struct OperationFields<'a> {
    index: Option<i64>,
    time: Option<i64>,
    kind: Option<OpType>,
    process: Option<Process>,
    f: Option<Symbol>,
    value: Option<Form<'a>>,
    key: Option<Form<'a>>,
    extra: Vec<(Symbol, Value)>,
}

/// What follows the blanks between two operations.
pub(super) enum AfterBlank {
    /// An operation.
    Operation,
    /// Nothing more in this text.
    End,
    /// The end of the text, inside the history's bracket.
    Unclosed,
}

impl Container {
    /// Where it opened.
    pub(super) fn opened(self) -> usize {
        self.opened
    }

    /// May operations follow?
    pub(super) fn is_open(self) -> bool {
        self.started && self.close != Some(b'\n')
    }

    /// Skips blanks and brackets, and returns what follows. `brackets` are those that may enclose a history.
    pub(super) fn next(
        &mut self,
        reader: &mut EdnReader<'_>,
        brackets: &[(u8, u8)],
    ) -> Result<AfterBlank, SyntaxFault> {
        reader.skip_blank()?;
        if !self.started {
            let bracket = reader.peek();
            self.started = bracket.is_some();
            let pair = brackets.iter().find(|(open, _)| Some(*open) == bracket);
            if let Some((_, close)) = pair {
                self.close = Some(*close);
                self.opened = reader.at();
                reader.bump();
                reader.skip_blank()?;
            }
        }
        match (reader.peek(), self.close) {
            (None, None | Some(b'\n')) => Ok(AfterBlank::End),
            (None, Some(_)) => Ok(AfterBlank::Unclosed),
            (Some(_), Some(b'\n')) => Err(SyntaxFault::new(
                reader.at(),
                "something follows the history's closing bracket",
            )),
            (Some(byte), Some(close)) if byte == close => {
                reader.bump();
                // From here on only blanks may follow.
                self.close = Some(b'\n');
                self.next(reader, brackets)
            }
            _ => Ok(AfterBlank::Operation),
        }
    }
}

/// The brackets around a history in EDN.
const BRACKETS: [(u8, u8); 2] = [(b'[', b']'), (b'(', b')')];

impl EdnOperations {
    pub(super) fn new(keys: KeyPlace) -> EdnOperations {
        EdnOperations {
            builder: OperationBuilder::new(keys),
            container: Container::default(),
        }
    }

    /// Where the history's bracket opened.
    pub(super) fn opened(&self) -> usize {
        self.container.opened()
    }

    /// May operations follow whose values are plain?
    pub(super) fn is_plain(&self) -> bool {
        self.container.is_open() && self.builder.is_plain()
    }

    /// The next operation in `text` from `at` on. Nothing changes unless there is one.
    pub(super) fn next(&mut self, text: &str, at: usize) -> Result<Parsed, SyntaxFault> {
        let mut reader = EdnReader::starting(text, at);
        let mut container = self.container;
        match container.next(&mut reader, &BRACKETS)? {
            AfterBlank::End => return Ok(Parsed::End),
            AfterBlank::Unclosed => return Ok(Parsed::Unclosed(container.opened)),
            AfterBlank::Operation => {}
        }
        let draft = self.builder.edn(&mut reader)?;
        self.container = container;
        Ok(Parsed::Operation(draft, reader.at()))
    }
}

impl OperationBuilder {
    pub(super) fn new(keys: KeyPlace) -> OperationBuilder {
        OperationBuilder {
            keys,
            names: Vec::new(),
        }
    }

    /// Are values plain?
    pub(super) fn is_plain(&self) -> bool {
        self.keys == KeyPlace::None
    }

    /// One operation: a map, with or without a record's tag.
    fn edn(&mut self, reader: &mut EdnReader<'_>) -> Result<OperationDraft, SyntaxFault> {
        let at = reader.at();
        if reader.peek() == Some(b'#') {
            reader.tag()?;
            reader.skip_blank()?;
        }
        if reader.peek() != Some(b'{') {
            let problem = "an operation (a map) is expected";
            return Err(SyntaxFault::new(reader.at(), problem));
        }
        let opened = reader.at();
        reader.bump();
        let mut fields = OperationFields::default();
        while reader.more(b'}', opened)? {
            let key_at = reader.at();
            let name = reader.form()?;
            let Some(name) = name.name() else {
                return Err(SyntaxFault::new(
                    key_at,
                    "an operation's fields are keywords",
                ));
            };
            if !reader.more(b'}', opened)? {
                return Err(SyntaxFault::new(key_at, format!(":{name} has no value")));
            }
            let value_at = reader.at();
            let value = reader.form()?;
            self.field(&mut fields, name, value)
                .map_err(|problem| SyntaxFault::new(value_at, problem))?;
        }
        self.finish(fields, at)
    }

    /// Takes one field of an operation.
    pub(super) fn field<'a>(
        &mut self,
        fields: &mut OperationFields<'a>,
        name: &str,
        value: Form<'a>,
    ) -> Result<(), String> {
        match name {
            "type" => fields.kind = Some(kind(&value)?),
            "process" => fields.process = self.process(&value)?,
            "f" => fields.f = self.function(&value)?,
            "value" => fields.value = Some(value),
            "key" if self.keys == KeyPlace::Field => fields.key = Some(value),
            "index" => match value {
                Form::Int(index) if index >= 0 => fields.index = Some(index),
                // Jepsen marks an operation outside of a history so.
                Form::Nil | Form::Int(-1) => {}
                _ => return Err(":index is not a whole number".into()),
            },
            "time" => match value {
                Form::Int(time) => fields.time = Some(time),
                Form::Float(time) => fields.time = Some(time as i64),
                Form::Nil => {}
                _ => return Err(":time is not a number".into()),
            },
            _ => {
                let name = self.symbol(name)?;
                fields.extra.push((name, value.into_value()));
            }
        }
        Ok(())
    }

    fn symbol(&mut self, name: &str) -> Result<Symbol, String> {
        if let Some(symbol) = self.names.iter().find(|known| **known == name) {
            return Ok(*symbol);
        }
        let symbol = intern(name)?;
        if self.names.len() < NAMES_MAX {
            self.names.push(symbol);
        }
        Ok(symbol)
    }

    /// The process that a form names; `None` when it names none (`nil`).
    fn process(&mut self, form: &Form<'_>) -> Result<Option<Process>, String> {
        let process = match form {
            Form::Nil => return Ok(None),
            Form::Int(number) => u64::try_from(*number)
                .map(Process::Client)
                .map_err(|_| format!("process {number} is negative"))?,
            Form::Keyword(name) | Form::Symbol(name) => Process::Named(self.symbol(name)?),
            Form::Text(name) => match name.parse() {
                Ok(number) => Process::Client(number),
                Err(_) => Process::Named(self.symbol(name)?),
            },
            _ => return Err(":process is neither a number nor a name".into()),
        };
        Ok(Some(process))
    }

    /// The function that a form names; `None` when it names none (`nil`).
    fn function(&mut self, form: &Form<'_>) -> Result<Option<Symbol>, String> {
        match form {
            Form::Keyword(name) | Form::Symbol(name) => self.symbol(name).map(Some),
            Form::Text(name) => self.symbol(name).map(Some),
            Form::Nil => Ok(None),
            _ => Err(":f is not a name".into()),
        }
    }

    /// The operation of these fields, which begins at `at`.
    pub(super) fn finish(
        &self,
        fields: OperationFields<'_>,
        at: usize,
    ) -> Result<OperationDraft, SyntaxFault> {
        let missing = |name: &str| SyntaxFault::new(at, format!("this operation has no :{name}"));
        let kind = fields.kind.ok_or_else(|| missing("type"))?;
        let has_process = fields.process.is_some();
        let process = fields.process.unwrap_or(Process::Client(0));
        let client = process.is_client();
        let form = fields.value.unwrap_or(Form::Nil);
        let f = match fields.f {
            Some(f) => f,
            None if !client => Symbol::new("nil"),
            // Elle's own histories leave it out: they have nothing but transactions.
            None if form == Form::Nil || transaction(&form).is_some() => Symbol::new("txn"),
            None => return Err(missing("f")),
        };
        let value = match fields.key {
            Some(key) => {
                let key = key_of(&key).ok_or_else(|| SyntaxFault::new(at, ":key is not a key"))?;
                Value::Keyed(key, value(form, f).into())
            }
            None if client && self.keys == KeyPlace::Tuple => keyed(form, f),
            None if client => value(form, f),
            None => form.into_value(),
        };
        let op = Op {
            index: fields.index.unwrap_or(0).cast_unsigned(),
            time: fields.time.unwrap_or(-1),
            kind,
            process,
            f,
            value,
            extra: Extra::new(&fields.extra),
        };
        let indexed = fields.index.is_some();
        Ok(OperationDraft {
            op,
            indexed,
            has_process,
            at,
        })
    }
}

fn intern(name: &str) -> Result<Symbol, String> {
    Symbol::intern(name).ok_or_else(|| "a name too long, or too many distinct names".into())
}

/// Which half of an operation this is.
pub(super) fn kind(form: &Form<'_>) -> Result<OpType, String> {
    match form.name() {
        Some("invoke") => Ok(OpType::Invoke),
        Some("ok") => Ok(OpType::Ok),
        Some("fail") => Ok(OpType::Fail),
        Some("info") => Ok(OpType::Info),
        _ => Err(":type is none of :invoke, :ok, :fail, :info".into()),
    }
}

/// A key, when the form can be one. Keys of other types (`[1 2]`, `1.5`, `true`) are known by their text.
fn key_of(form: &Form<'_>) -> Option<Key> {
    match form {
        Form::Int(number) => Some(Key::Int(*number)),
        Form::Keyword(name) | Form::Symbol(name) => Symbol::intern(name).map(Key::Word),
        Form::Text(text) => Some(Key::Text(text.as_ref().into())),
        Form::Nil => Some(Key::Word(Symbol::new("nil"))),
        other => Some(Key::Text(other.clone().into_value().to_string().into())),
    }
}

/// A client's value: transactions and compare-and-set pairs are recognised, everything else stands as it is.
pub(super) fn value(form: Form<'_>, f: Symbol) -> Value {
    if f == "cas" {
        if let Form::Ints(pair) = &form
            && let [from, to] = pair[..]
        {
            return Value::Cas(from, to);
        }
    } else if let Some(mops) = transaction(&form)
        && (f == "txn" || !mops.is_empty())
    {
        return Value::Txn(mops.into());
    }
    form.into_value()
}

/// A tuple `[key value]` of one independent key; whatever is not of that shape stands as it is.
fn keyed(form: Form<'_>, f: Symbol) -> Value {
    match form {
        Form::Ints(pair) if pair.len() == 2 => {
            Value::Keyed(Key::Int(pair[0]), Value::Int(pair[1]).into())
        }
        Form::List(mut pair) if pair.len() == 2 => match key_of(&pair[0]) {
            Some(key) => Value::Keyed(key, value(pair.swap_remove(1), f).into()),
            None => Form::List(pair).into_value(),
        },
        other => other.into_value(),
    }
}

/// The micro-operations, when the form is a list of nothing else.
fn transaction(form: &Form<'_>) -> Option<Vec<Mop>> {
    match form {
        Form::List(mops) => mops.iter().map(micro_operation).collect(),
        _ => None,
    }
}

/// `[:append k v]`, `[:w k v]`, `[:r k v]` or `[:r k]`.
fn micro_operation(form: &Form<'_>) -> Option<Mop> {
    let Form::List(parts) = form else {
        return None;
    };
    let (f, key, value) = match &parts[..] {
        [f, key, value] => (f, key, value),
        [f, key] => (f, key, &Form::Nil),
        _ => return None,
    };
    let key = key_of(key)?;
    match (f.name()?, value) {
        ("append", Form::Int(element)) => Some(Mop::Append {
            key,
            element: *element,
        }),
        ("w", Form::Int(value)) => Some(Mop::Write { key, value: *value }),
        ("r", value) => {
            let observed = match value {
                Form::Nil => Observed::Nil,
                Form::Int(value) => Observed::Register(*value),
                Form::Ints(elements) => Observed::List(elements[..].into()),
                Form::List(empty) if empty.is_empty() => Observed::List([].into()),
                _ => return None,
            };
            Some(Mop::Read { key, observed })
        }
        _ => None,
    }
}
