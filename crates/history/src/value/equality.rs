//! Equality of values, as in Clojure and Jepsen.

use crate::{Key, Mop, Observed, Value};
use std::cmp::Ordering;

/// A value split by one level, independent of its variant: a compare-and-set, a transaction and a keyed value are sequences
/// here.
enum ValueForm<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Word(&'a str),
    Sequence(SequenceForm<'a>),
    Set(&'a [Value]),
    Map(&'a [(Value, Value)]),
}

/// A value that prints between brackets.
#[derive(Clone, Copy)]
enum SequenceForm<'a> {
    Values(&'a [Value]),
    Integers(&'a [i64]),
    Pair(i64, i64),
    Keyed(&'a Key, &'a Value),
    Mops(&'a [Mop]),
    Mop(&'a Mop),
}

impl<'a> From<&'a Value> for ValueForm<'a> {
    fn from(value: &'a Value) -> ValueForm<'a> {
        match value {
            Value::Nil => ValueForm::Nil,
            Value::Bool(truth) => ValueForm::Bool(*truth),
            Value::Int(number) => ValueForm::Int(*number),
            Value::Float(number) => ValueForm::Float(*number),
            Value::Text(text) => ValueForm::Text(text),
            Value::Word(word) => ValueForm::Word(word.as_str()),
            Value::List(items) => ValueForm::Sequence(SequenceForm::Values(items)),
            Value::Set(items) => ValueForm::Set(items),
            Value::Map(pairs) => ValueForm::Map(pairs),
            Value::Cas(from, to) => ValueForm::Sequence(SequenceForm::Pair(*from, *to)),
            Value::Txn(mops) => ValueForm::Sequence(SequenceForm::Mops(mops)),
            Value::Keyed(key, value) => ValueForm::Sequence(SequenceForm::Keyed(key, value)),
        }
    }
}

impl<'a> From<&'a Key> for ValueForm<'a> {
    fn from(key: &'a Key) -> ValueForm<'a> {
        match key {
            Key::Int(number) => ValueForm::Int(*number),
            Key::Word(word) => ValueForm::Word(word.as_str()),
            Key::Text(text) => ValueForm::Text(text),
        }
    }
}

impl<'a> SequenceForm<'a> {
    fn len(self) -> usize {
        match self {
            SequenceForm::Values(values) => values.len(),
            SequenceForm::Integers(integers) => integers.len(),
            SequenceForm::Pair(..) | SequenceForm::Keyed(..) => 2,
            SequenceForm::Mops(mops) => mops.len(),
            SequenceForm::Mop(_) => 3,
        }
    }

    fn get(self, place: usize) -> ValueForm<'a> {
        match self {
            SequenceForm::Values(values) => ValueForm::from(&values[place]),
            SequenceForm::Integers(integers) => ValueForm::Int(integers[place]),
            SequenceForm::Pair(first, second) => ValueForm::Int([first, second][place]),
            SequenceForm::Keyed(key, _) if place == 0 => ValueForm::from(key),
            SequenceForm::Keyed(_, value) => ValueForm::from(value),
            SequenceForm::Mops(mops) => ValueForm::Sequence(SequenceForm::Mop(&mops[place])),
            SequenceForm::Mop(mop) => match place {
                0 => ValueForm::Word(match mop {
                    Mop::Append { .. } => "append",
                    Mop::Write { .. } => "w",
                    Mop::Read { .. } => "r",
                }),
                1 => ValueForm::from(mop.key()),
                _ => argument(mop),
            },
        }
    }

    fn forms(self) -> impl Iterator<Item = ValueForm<'a>> {
        (0..self.len()).map(move |place| self.get(place))
    }
}

/// The last of a micro-operation's three elements.
fn argument(mop: &Mop) -> ValueForm<'_> {
    match mop {
        Mop::Append { element, .. } => ValueForm::Int(*element),
        Mop::Write { value, .. } => ValueForm::Int(*value),
        Mop::Read { observed, .. } => match observed {
            Observed::Nil => ValueForm::Nil,
            Observed::Register(value) => ValueForm::Int(*value),
            Observed::List(elements) => ValueForm::Sequence(SequenceForm::Integers(elements)),
        },
    }
}

/// Result of comparing two values in the order of their elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    /// Undecided: sets or maps differ in order or length, so they may still be equal.
    Unclear,
}

impl Comparison {
    fn of(equal: bool) -> Comparison {
        if equal {
            Comparison::Equal
        } else {
            Comparison::Different
        }
    }
}

/// Compares two values element by element, without sorting: decides all but values with sets or maps in different orders.
fn compare(one: &ValueForm<'_>, other: &ValueForm<'_>) -> Comparison {
    match (one, other) {
        (ValueForm::Nil, ValueForm::Nil) => Comparison::Equal,
        (ValueForm::Bool(one), ValueForm::Bool(other)) => Comparison::of(one == other),
        (ValueForm::Int(one), ValueForm::Int(other)) => Comparison::of(one == other),
        (ValueForm::Float(one), ValueForm::Float(other)) => {
            Comparison::of(one.partial_cmp(other) == Some(Ordering::Equal))
        }
        (ValueForm::Text(one), ValueForm::Text(other))
        | (ValueForm::Word(one), ValueForm::Word(other)) => Comparison::of(one == other),
        (ValueForm::Sequence(one), ValueForm::Sequence(other)) => {
            if one.len() != other.len() {
                return Comparison::Different;
            }
            all(one.forms().zip(other.forms()))
        }
        (ValueForm::Set(one), ValueForm::Set(other)) => {
            if one.len() != other.len() {
                return Comparison::Unclear;
            }
            let items = one.iter().zip(*other);
            unordered(all(items.map(|(one, other)| (one.into(), other.into()))))
        }
        (ValueForm::Map(one), ValueForm::Map(other)) => {
            if one.len() != other.len() {
                return Comparison::Unclear;
            }
            let pairs = one.iter().zip(*other);
            unordered(all(pairs.flat_map(|(one, other)| {
                [
                    ((&one.0).into(), (&other.0).into()),
                    ((&one.1).into(), (&other.1).into()),
                ]
            })))
        }
        _ => Comparison::Different,
    }
}

fn all<'a>(pairs: impl Iterator<Item = (ValueForm<'a>, ValueForm<'a>)>) -> Comparison {
    let mut result = Comparison::Equal;
    for (one, other) in pairs {
        match compare(&one, &other) {
            Comparison::Equal => {}
            Comparison::Different => return Comparison::Different,
            Comparison::Unclear => result = Comparison::Unclear,
        }
    }
    result
}

/// An element that differs at one place of a set may be equal to one at another place.
fn unordered(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::Equal,
        Comparison::Different | Comparison::Unclear => Comparison::Unclear,
    }
}

/// A value in canonical order: sets and maps are sorted and without duplicates.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Sorted<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(TotalFloat),
    Text(&'a str),
    Word(&'a str),
    Sequence(Vec<Sorted<'a>>),
    Set(Vec<Sorted<'a>>),
    Map(Vec<(Sorted<'a>, Sorted<'a>)>),
}

/// A floating-point number that is not NaN, totally ordered; both zeros are equal.
struct TotalFloat(f64);

impl Ord for TotalFloat {
    fn cmp(&self, other: &TotalFloat) -> Ordering {
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for TotalFloat {
    fn partial_cmp(&self, other: &TotalFloat) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TotalFloat {
    fn eq(&self, other: &TotalFloat) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TotalFloat {}

impl<'a> Sorted<'a> {
    /// `None` if the value contains NaN, which does not equal itself.
    fn new(form: &ValueForm<'a>) -> Option<Sorted<'a>> {
        Some(match form {
            ValueForm::Nil => Sorted::Nil,
            ValueForm::Bool(truth) => Sorted::Bool(*truth),
            ValueForm::Int(number) => Sorted::Int(*number),
            ValueForm::Float(number) if number.is_nan() => return None,
            ValueForm::Float(number) => Sorted::Float(TotalFloat(*number)),
            ValueForm::Text(text) => Sorted::Text(text),
            ValueForm::Word(word) => Sorted::Word(word),
            ValueForm::Sequence(sequence) => {
                let forms = sequence.forms().map(|form| Sorted::new(&form));
                Sorted::Sequence(forms.collect::<Option<_>>()?)
            }
            ValueForm::Set(items) => {
                let items = items.iter().map(|item| Sorted::new(&item.into()));
                let mut items: Vec<Sorted<'a>> = items.collect::<Option<_>>()?;
                items.sort_unstable();
                items.dedup();
                Sorted::Set(items)
            }
            ValueForm::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| {
                    Some((Sorted::new(&key.into())?, Sorted::new(&value.into())?))
                });
                let mut pairs: Vec<_> = pairs.collect::<Option<_>>()?;
                pairs.sort_unstable();
                pairs.dedup();
                Sorted::Map(pairs)
            }
        })
    }
}

/// Equality of Clojure's `=`: values are equal if they print alike except for the order in sets and maps. A compare-and-set
/// equals the list of both values, a keyed value the list of key and value, a transaction the list of lists. An integer
/// never equals a floating-point number, nor a keyword a text, nor NaN itself.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Nil, Value::Nil) => true,
            (Value::Int(one), Value::Int(other)) => one == other,
            (Value::Cas(from, to), Value::Cas(other_from, other_to)) => {
                (from, to) == (other_from, other_to)
            }
            (Value::Txn(one), Value::Txn(other)) => one == other,
            _ => {
                let (one, other) = (ValueForm::from(self), ValueForm::from(other));
                // The cheap comparison decides almost always; only then sort.
                match compare(&one, &other) {
                    Comparison::Equal => true,
                    Comparison::Different => false,
                    Comparison::Unclear => match (Sorted::new(&one), Sorted::new(&other)) {
                        (Some(one), Some(other)) => one == other,
                        _ => false,
                    },
                }
            }
        }
    }
}
