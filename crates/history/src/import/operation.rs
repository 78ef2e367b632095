//! From EDN maps to operations.

use super::edn::{Fault, Form, Reader};
use crate::{Extra, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};

/// Reads operations from EDN: a vector or list of maps, or one map after another. Holds one operation at a time.
pub(super) struct Operations<'a> {
    reader: Reader<'a>,
    keys: Keys,
    /// The bracket around the whole history: where it opened, and what closes it.
    container: Option<(usize, u8)>,
    started: bool,
    /// Names seen so far with their symbols; few, so searched in order.
    names: Vec<(&'a str, Symbol)>,
}

/// Where the key of an independent object stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Nowhere: values are plain.
    None,
    /// In the value: `[key value]`.
    Tuple,
    /// In a field `:key` of its own.
    Field,
}

/// Names kept at hand; past that, the global table is asked.
const NAMES_MAX: usize = 32;

/// An operation as written, with what tells its place in the history.
pub(super) struct Draft {
    /// The operation; its index is 0 when none was written.
    pub(super) op: Op,
    /// Was an index written?
    pub(super) indexed: bool,
    /// Where it begins, in bytes.
    pub(super) at: usize,
}

/// The fields of an operation's map, as they are found.
#[derive(Default)]
struct Fields<'a> {
    index: Option<i64>,
    time: Option<i64>,
    kind: Option<OpType>,
    process: Option<Process>,
    f: Option<Symbol>,
    value: Option<Form<'a>>,
    key: Option<Form<'a>>,
    extra: Vec<(Symbol, Value)>,
}

impl<'a> Operations<'a> {
    pub(super) fn new(text: &'a str, keys: Keys) -> Operations<'a> {
        Operations {
            reader: Reader::new(text),
            keys,
            container: None,
            started: false,
            names: Vec::new(),
        }
    }

    /// The next operation; `None` at the end of the history.
    pub(super) fn next(&mut self) -> Result<Option<Draft>, Fault> {
        self.reader.skip_blank()?;
        if !self.started {
            self.started = true;
            let close = match self.reader.peek() {
                Some(b'[') => Some(b']'),
                Some(b'(') => Some(b')'),
                _ => None,
            };
            if let Some(close) = close {
                self.container = Some((self.reader.at(), close));
                self.reader.bump();
            }
        }
        match self.container {
            Some((opened, close)) => {
                if self.reader.more(close, opened)? {
                    return self.operation().map(Some);
                }
                self.reader.skip_blank()?;
                match self.reader.peek() {
                    None => Ok(None),
                    Some(_) => Err(self.fault("something follows the history's closing bracket")),
                }
            }
            None if self.reader.peek().is_none() => Ok(None),
            None => self.operation().map(Some),
        }
    }

    fn fault(&self, problem: impl Into<String>) -> Fault {
        Fault::new(self.reader.at(), problem)
    }

    /// One operation: a map, with or without a record's tag.
    fn operation(&mut self) -> Result<Draft, Fault> {
        let at = self.reader.at();
        if self.reader.peek() == Some(b'#') {
            self.reader.tag()?;
            self.reader.skip_blank()?;
        }
        if self.reader.peek() != Some(b'{') {
            return Err(self.fault("an operation (a map) is expected"));
        }
        let opened = self.reader.at();
        self.reader.bump();
        let mut fields = Fields::default();
        while self.reader.more(b'}', opened)? {
            let key_at = self.reader.at();
            let Form::Keyword(name) = self.reader.form()? else {
                return Err(Fault::new(key_at, "an operation's fields are keywords"));
            };
            if !self.reader.more(b'}', opened)? {
                return Err(Fault::new(key_at, format!(":{name} has no value")));
            }
            let value_at = self.reader.at();
            let value = self.reader.form()?;
            self.field(&mut fields, name, value)
                .map_err(|problem| Fault::new(value_at, problem))?;
        }
        self.finish(fields, at)
    }

    fn field(
        &mut self,
        fields: &mut Fields<'a>,
        name: &'a str,
        value: Form<'a>,
    ) -> Result<(), String> {
        match name {
            "type" => fields.kind = Some(kind(&value)?),
            "process" => fields.process = Some(self.process(&value)?),
            "f" => fields.f = Some(self.function(&value)?),
            "value" => fields.value = Some(value),
            "key" if self.keys == Keys::Field => fields.key = Some(value),
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

    fn symbol(&mut self, name: &'a str) -> Result<Symbol, String> {
        if let Some((_, symbol)) = self.names.iter().find(|(known, _)| *known == name) {
            return Ok(*symbol);
        }
        let symbol = intern(name)?;
        if self.names.len() < NAMES_MAX {
            self.names.push((name, symbol));
        }
        Ok(symbol)
    }

    fn process(&mut self, form: &Form<'a>) -> Result<Process, String> {
        match form {
            Form::Int(number) => u64::try_from(*number)
                .map(Process::Client)
                .map_err(|_| format!("process {number} is negative")),
            Form::Keyword(name) | Form::Symbol(name) => self.symbol(name).map(Process::Named),
            Form::Text(name) => intern(name).map(Process::Named),
            _ => Err(":process is neither a number nor a name".into()),
        }
    }

    fn function(&mut self, form: &Form<'a>) -> Result<Symbol, String> {
        match form {
            Form::Keyword(name) | Form::Symbol(name) => self.symbol(name),
            Form::Text(name) => intern(name),
            Form::Nil => Ok(Symbol::new("nil")),
            _ => Err(":f is not a name".into()),
        }
    }

    fn finish(&mut self, fields: Fields<'a>, at: usize) -> Result<Draft, Fault> {
        let missing = |name: &str| Fault::new(at, format!("this operation has no :{name}"));
        let kind = fields.kind.ok_or_else(|| missing("type"))?;
        let process = fields.process.ok_or_else(|| missing("process"))?;
        let f = fields.f.ok_or_else(|| missing("f"))?;
        let form = fields.value.unwrap_or(Form::Nil);
        let client = process.is_client();
        let value = match fields.key {
            Some(key) => {
                let key = key_of(&key).ok_or_else(|| Fault::new(at, ":key is not a key"))?;
                Value::Keyed(key, value(form, f).into())
            }
            None if client && self.keys == Keys::Tuple => keyed(form, f),
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
        Ok(Draft { op, indexed, at })
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

/// A key, when the form can be one.
fn key_of(form: &Form<'_>) -> Option<Key> {
    match form {
        Form::Int(number) => Some(Key::Int(*number)),
        Form::Keyword(name) | Form::Symbol(name) => Symbol::intern(name).map(Key::Word),
        Form::Text(text) => Some(Key::Text(text.as_ref().into())),
        _ => None,
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

/// `[:append k v]`, `[:w k v]` or `[:r k v]`.
fn micro_operation(form: &Form<'_>) -> Option<Mop> {
    let Form::List(parts) = form else {
        return None;
    };
    let [f, key, value] = &parts[..] else {
        return None;
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
