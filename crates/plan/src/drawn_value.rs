//! Values of operations: fixed values, and values that are drawn for each operation.

use super::build::Builder;
use super::document::PlanValue;
use super::fields::{Field, Result};
use seatrial_generator::KeyDistribution;
use seatrial_generator::{Places, Skew};
use seatrial_history::{Key, Mop, Observed, Symbol, Value};
use seatrial_machine::Rng;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Maximum number of keys of a distribution, whose table of weights is kept in memory.
pub(super) const KEYS_MAX: i64 = 1_000_000;

/// Maximum number of micro-operations of a transaction.
pub(super) const TXN_LENGTH_MAX: i64 = 1_000;

/// The keys of drawn values.
pub(super) const DRAW_KEYS: [&str; 10] = [
    "int",
    "choice",
    "counter",
    "uniform",
    "zipf",
    "exponential",
    "cas",
    "txn",
    "word",
    "nil",
];

/// How a value is drawn.
#[derive(Clone, Debug)]
pub(super) enum Draw {
    /// A constant.
    Fixed(Value),
    /// A whole number from the first to the second, inclusive, uniformly.
    Int(i64, i64),
    /// One of several, uniformly.
    Choice(Vec<Draw>),
    /// 1, 2, 3, …: a counter of this template, or the counter of the plan with this name.
    Counter(Option<String>),
    /// A number from 0 to below the count, from a distribution.
    Ranked(KeyDistribution, usize),
    /// A list with a drawn value for each item.
    List(Vec<Draw>),
    /// A compare-and-set from one number to another.
    Cas(Box<[Draw; 2]>),
    /// A transaction.
    Txn(TxnDraw),
}

/// How a transaction is drawn.
#[derive(Clone, Debug)]
pub(super) struct TxnDraw {
    mops: Vec<MopDraw>,
    /// Number of micro-operations to draw; `None`: all of them, in order.
    length: Option<(u64, u64)>,
}

/// How a micro-operation is drawn.
#[derive(Clone, Debug)]
enum MopDraw {
    Read(Draw),
    Append(Draw, Draw),
    Write(Draw, Draw),
}

/// The required type of a drawn value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Any,
    /// A whole number or text.
    Key,
    Int,
}

impl Draw {
    pub(super) fn decode(field: &Field<'_>, kind: ValueType) -> Result<Draw> {
        let draw = match &field.entry.value {
            PlanValue::Bool(flag) => Draw::Fixed(Value::Bool(*flag)),
            PlanValue::Int(number) => Draw::Fixed(Value::Int(*number)),
            PlanValue::Float(number) => Draw::Fixed(Value::Float(*number)),
            PlanValue::Text(text) => Draw::Fixed(Value::text(text.as_str())),
            PlanValue::List(_) => Draw::List(draws(field, ValueType::Any)?),
            PlanValue::Table(_) => Draw::table(field, kind)?,
        };
        if draw.is(kind) {
            return Ok(draw);
        }
        Err(field.wrong(match kind {
            ValueType::Int => "a whole number, or a table that draws one: int, choice, counter, uniform, zipf, exponential",
            _ => "a key: a whole number, text, or a table that draws one: int, choice, counter, uniform, zipf, exponential",
        }))
    }

    /// The value, if it is the same each time.
    pub(super) fn constant(&self) -> Option<Value> {
        match self {
            Draw::Fixed(value) => Some(value.clone()),
            Draw::Int(low, high) => (low == high).then_some(Value::Int(*low)),
            Draw::List(draws) => {
                let values: Option<Vec<Value>> = draws.iter().map(Draw::constant).collect();
                Some(Value::List(values?.into()))
            }
            Draw::Cas(both) => {
                let number = |draw: &Draw| draw.constant()?.as_int();
                Some(Value::Cas(number(&both[0])?, number(&both[1])?))
            }
            _ => None,
        }
    }

    /// Does it draw only values of this type?
    fn is(&self, kind: ValueType) -> bool {
        match (kind, self) {
            (ValueType::Any, _)
            | (
                _,
                Draw::Fixed(Value::Int(_)) | Draw::Int(..) | Draw::Counter(..) | Draw::Ranked(..),
            )
            | (ValueType::Key, Draw::Fixed(Value::Text(_))) => true,
            (kind, Draw::Choice(draws)) => draws.iter().all(|draw| draw.is(kind)),
            _ => false,
        }
    }

    fn table(field: &Field<'_>, kind: ValueType) -> Result<Draw> {
        let mut fields = field.table("a value")?;
        let mut found: Option<(&'static str, Draw)> = None;
        for key in DRAW_KEYS {
            let Some(inner) = fields.take(key) else {
                continue;
            };
            // An optional second key.
            let extra = match key {
                "txn" => fields.take("length"),
                "zipf" => fields.take("skew"),
                _ => None,
            };
            let draw = Draw::with_key(key, &inner, extra.as_ref(), kind)?;
            if let Some((other, _)) = found.replace((key, draw)) {
                return Err(field.problem(format!(
                    "both `{other}` and `{key}`: a value has one of them"
                )));
            }
        }
        fields.finish()?;
        match found {
            Some((_, draw)) => Ok(draw),
            None => Err(field.problem(format!(
                "the table has no kind of value; it must have one of the keys {}",
                DRAW_KEYS.join(", ")
            ))),
        }
    }

    fn with_key(
        key: &str,
        field: &Field<'_>,
        extra: Option<&Field<'_>>,
        kind: ValueType,
    ) -> Result<Draw> {
        const COUNTER: &str = "true (a counter of this operation), or the name of a shared counter";
        Ok(match key {
            "int" => {
                let (low, high) = range(field, i64::MIN..=i64::MAX)?;
                Draw::Int(low, high)
            }
            "choice" => {
                let draws = draws(field, kind)?;
                if draws.is_empty() {
                    return Err(field.wrong("a list of at least one value"));
                }
                Draw::Choice(draws)
            }
            "counter" => match &field.entry.value {
                PlanValue::Text(name) => Draw::Counter(Some(name.clone())),
                PlanValue::Bool(true) => Draw::Counter(None),
                _ => return Err(field.wrong(COUNTER)),
            },
            "cas" => {
                let [from, to] = &field.items("a list of two whole numbers")?[..] else {
                    return Err(field.wrong("a list of two whole numbers"));
                };
                Draw::Cas(Box::new([
                    Draw::decode(from, ValueType::Int)?,
                    Draw::decode(to, ValueType::Int)?,
                ]))
            }
            "txn" => Draw::Txn(TxnDraw::decode(field, extra)?),
            "word" => Draw::Fixed(Value::Word(symbol(field)?)),
            "nil" => {
                if !field.flag()? {
                    return Err(field.wrong("true"));
                }
                Draw::Fixed(Value::Nil)
            }
            distribution => {
                let count = field.whole(1..=KEYS_MAX)? as usize;
                let drawn = match distribution {
                    "zipf" => KeyDistribution::Zipf(extra.map_or(Ok(Skew::ONE), skew)?),
                    "exponential" => KeyDistribution::Exponential,
                    _ => KeyDistribution::Uniform,
                };
                Draw::Ranked(drawn, count)
            }
        })
    }

    /// The keys of all zipf distributions in here.
    pub(super) fn zipf_keys(&self) -> u64 {
        let all = |draws: &[Draw]| draws.iter().map(Draw::zipf_keys).sum();
        match self {
            Draw::Ranked(KeyDistribution::Zipf(_), count) => *count as u64,
            Draw::Choice(draws) | Draw::List(draws) => all(draws),
            Draw::Cas(both) => all(&both[..]),
            Draw::Txn(txn) => {
                let parts = txn.mops.iter().map(|mop| match mop {
                    MopDraw::Read(key) => key.zipf_keys(),
                    MopDraw::Append(key, value) | MopDraw::Write(key, value) => {
                        key.zipf_keys() + value.zipf_keys()
                    }
                });
                parts.sum()
            }
            Draw::Fixed(_) | Draw::Int(..) | Draw::Counter(..) | Draw::Ranked(..) => 0,
        }
    }

    /// The drawer: this with its counters and tables.
    pub(super) fn drawer(&self, builder: &Builder) -> Drawer {
        let all = |draws: &[Draw]| draws.iter().map(|draw| draw.drawer(builder)).collect();
        match self {
            Draw::Fixed(value) => Drawer::Fixed(value.clone()),
            Draw::Int(low, high) => Drawer::Int(*low, *high),
            Draw::Choice(draws) => Drawer::Choice(all(draws)),
            Draw::Counter(None) => Drawer::Counter(Arc::new(AtomicI64::new(1))),
            Draw::Counter(Some(name)) => Drawer::Counter(builder.counter(name)),
            Draw::Ranked(distribution, count) => {
                Drawer::Ranked(builder.places(*distribution, *count))
            }
            Draw::List(draws) => Drawer::List(all(draws)),
            Draw::Cas(both) => {
                Drawer::Cas(Box::new([both[0].drawer(builder), both[1].drawer(builder)]))
            }
            Draw::Txn(txn) => {
                let mops = txn.mops.iter().map(|mop| match mop {
                    MopDraw::Read(key) => MopDrawer::Read(key.drawer(builder)),
                    MopDraw::Append(key, value) => {
                        MopDrawer::Append(key.drawer(builder), value.drawer(builder))
                    }
                    MopDraw::Write(key, value) => {
                        MopDrawer::Write(key.drawer(builder), value.drawer(builder))
                    }
                });
                Drawer::Txn(mops.collect(), txn.length)
            }
        }
    }
}

/// The exponent of a zipf distribution.
fn skew(field: &Field<'_>) -> Result<Skew> {
    const EXPECTED: &str = "a number from 0.01 to 10";
    let number = field.positive(10.0).map_err(|_| field.wrong(EXPECTED))?;
    Skew::from_hundredths((number * 100.0).round() as u16).ok_or_else(|| field.wrong(EXPECTED))
}

/// The items of a list.
fn draws(field: &Field<'_>, kind: ValueType) -> Result<Vec<Draw>> {
    let items = field.items("a list of values")?;
    items.iter().map(|item| Draw::decode(item, kind)).collect()
}

/// `[low, high]`, or one number that is both.
pub(super) fn range(
    field: &Field<'_>,
    bounds: std::ops::RangeInclusive<i64>,
) -> Result<(i64, i64)> {
    const EXPECTED: &str = "a list of two whole numbers, the smaller first";
    if let PlanValue::Int(_) = field.entry.value {
        let number = field.whole(bounds)?;
        return Ok((number, number));
    }
    let [low, high] = &field.items(EXPECTED)?[..] else {
        return Err(field.wrong(EXPECTED));
    };
    let (low, most) = (low.whole(bounds.clone())?, high.whole(bounds)?);
    if low > most {
        return Err(field.problem(format!("must be {EXPECTED}, not [{low}, {most}]")));
    }
    Ok((low, most))
}

/// A name of an operation or of a field of operations.
pub(super) fn symbol(field: &Field<'_>) -> Result<Symbol> {
    const EXPECTED: &str = "a name of 1 to 256 bytes that does not begin with @";
    let text = field.text(EXPECTED)?;
    named(text).ok_or_else(|| field.wrong(EXPECTED))
}

/// The symbol of a name, if plans may use it.
pub(super) fn named(text: &str) -> Option<Symbol> {
    let is_valid = !text.is_empty() && !text.starts_with('@') && !text.contains(char::is_control);
    is_valid.then(|| Symbol::intern(text)).flatten()
}

impl TxnDraw {
    fn decode(field: &Field<'_>, length: Option<&Field<'_>>) -> Result<TxnDraw> {
        const EXPECTED: &str = "a list of micro-operations: [\"r\", key], [\"append\", key, value], [\"w\", key, value]";
        let mops = field.items(EXPECTED)?;
        let mops: Vec<MopDraw> = mops.iter().map(MopDraw::decode).collect::<Result<_>>()?;
        let Some(length) = length else {
            return Ok(TxnDraw { mops, length: None });
        };
        if mops.is_empty() {
            return Err(
                field.wrong("a list of at least one micro-operation when a length is given")
            );
        }
        let (low, high) = range(length, 0..=TXN_LENGTH_MAX)?;
        let length = Some((low.cast_unsigned(), high.cast_unsigned()));
        Ok(TxnDraw { mops, length })
    }
}

impl MopDraw {
    fn decode(field: &Field<'_>) -> Result<MopDraw> {
        const EXPECTED: &str =
            "a micro-operation: [\"r\", key], [\"append\", key, value] or [\"w\", key, value]";
        let parts = field.items(EXPECTED)?;
        let Some((f, rest)) = parts.split_first() else {
            return Err(field.wrong(EXPECTED));
        };
        let f = f.one_of("micro-operation", &["r", "append", "w"])?;
        let key = |field| Draw::decode(field, ValueType::Key);
        let value = |field| Draw::decode(field, ValueType::Int);
        match (f, rest) {
            ("r", [at]) => Ok(MopDraw::Read(key(at)?)),
            ("append", [at, element]) => Ok(MopDraw::Append(key(at)?, value(element)?)),
            ("w", [at, written]) => Ok(MopDraw::Write(key(at)?, value(written)?)),
            _ => Err(field.wrong(EXPECTED)),
        }
    }
}

/// A [`Draw`] with its counters.
#[derive(Debug)]
pub(super) enum Drawer {
    Fixed(Value),
    Int(i64, i64),
    Choice(Vec<Drawer>),
    Counter(Arc<AtomicI64>),
    Ranked(Arc<Places>),
    List(Vec<Drawer>),
    Cas(Box<[Drawer; 2]>),
    Txn(Vec<MopDrawer>, Option<(u64, u64)>),
}

/// A [`MopDraw`] with its counters.
#[derive(Debug)]
pub(super) enum MopDrawer {
    Read(Drawer),
    Append(Drawer, Drawer),
    Write(Drawer, Drawer),
}

impl Drawer {
    pub(super) fn draw(&self, rng: &mut Rng) -> Value {
        match self {
            Drawer::Fixed(value) => value.clone(),
            Drawer::Choice(drawers) => drawers[rng.index(drawers.len())].draw(rng),
            Drawer::List(drawers) => {
                Value::List(drawers.iter().map(|drawer| drawer.draw(rng)).collect())
            }
            Drawer::Cas(both) => {
                let from = both[0].number(rng);
                Value::Cas(from, both[1].number(rng))
            }
            Drawer::Txn(mops, length) => Value::Txn(match length {
                None => mops.iter().map(|mop| mop.draw(rng)).collect(),
                Some((low, high)) => {
                    let length = low + rng.below(high - low + 1);
                    let drawn = (0..length).map(|_| mops[rng.index(mops.len())].draw(rng));
                    drawn.collect()
                }
            }),
            Drawer::Int(..) | Drawer::Counter(_) | Drawer::Ranked(..) => {
                Value::Int(self.number(rng))
            }
        }
    }

    /// Draws a number; 0 if the value is not one.
    fn number(&self, rng: &mut Rng) -> i64 {
        match self {
            Drawer::Int(low, high) => {
                let spread = high.wrapping_sub(*low).cast_unsigned();
                // All 2^64 numbers: each random word is one.
                let drawn = match spread.checked_add(1) {
                    Some(count) => rng.below(count),
                    None => rng.word(),
                };
                low.wrapping_add(drawn.cast_signed())
            }
            Drawer::Counter(count) => count.fetch_add(1, Ordering::Relaxed),
            Drawer::Ranked(places) => places.draw(rng) as i64,
            other => other.draw(rng).as_int().unwrap_or(0),
        }
    }

    /// Draws a key.
    pub(super) fn key(&self, rng: &mut Rng) -> Key {
        match self.draw(rng) {
            Value::Text(text) => Key::Text(text),
            other => Key::Int(other.as_int().unwrap_or(0)),
        }
    }
}

impl MopDrawer {
    fn draw(&self, rng: &mut Rng) -> Mop {
        match self {
            MopDrawer::Read(key) => Mop::Read {
                key: key.key(rng),
                observed: Observed::Nil,
            },
            MopDrawer::Append(key, element) => Mop::Append {
                key: key.key(rng),
                element: element.number(rng),
            },
            MopDrawer::Write(key, value) => Mop::Write {
                key: key.key(rng),
                value: value.number(rng),
            },
        }
    }
}

/// The notation of outlines.
impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Draw::Fixed(value) => write!(f, "{value}"),
            Draw::Int(low, high) => write!(f, "int {low}..{high}"),
            Draw::Choice(draws) => write!(f, "one of [{}]", joined(draws)),
            Draw::Counter(None) => f.write_str("counter"),
            Draw::Counter(Some(name)) => write!(f, "counter {name:?}"),
            Draw::Ranked(distribution, count) => write!(f, "{distribution} of {count}"),
            Draw::List(draws) => write!(f, "[{}]", joined(draws)),
            Draw::Cas(both) => write!(f, "from {} to {}", both[0], both[1]),
            Draw::Txn(txn) => {
                f.write_str("txn")?;
                match txn.length {
                    Some((low, high)) => write!(f, " of {low}..{high} micro-operations"),
                    None => write!(f, " of {} micro-operations", txn.mops.len()),
                }
            }
        }
    }
}

/// The first few draws.
fn joined(draws: &[Draw]) -> String {
    const SHOWN_MAX: usize = 8;
    let mut shown: Vec<String> = draws.iter().take(SHOWN_MAX).map(Draw::to_string).collect();
    if draws.len() > SHOWN_MAX {
        shown.push("…".into());
    }
    shown.join(" ")
}
