//! Equality of values, as in Clojure and Jepsen.

use crate::{Key, Mop, Observed, Value};
use std::cmp::Ordering;

/// A value taken apart by one level, whatever variant holds it: a compare-and-set, a transaction and the value of a key
/// are sequences here.
enum Form<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Word(&'a str),
    Sequence(Sequence<'a>),
    Set(&'a [Value]),
    Map(&'a [(Value, Value)]),
}

/// What prints between brackets.
#[derive(Clone, Copy)]
enum Sequence<'a> {
    Values(&'a [Value]),
    Integers(&'a [i64]),
    Pair(i64, i64),
    Keyed(&'a Key, &'a Value),
    Mops(&'a [Mop]),
    Mop(&'a Mop),
}

impl<'a> From<&'a Value> for Form<'a> {
    fn from(value: &'a Value) -> Form<'a> {
        match value {
            Value::Nil => Form::Nil,
            Value::Bool(truth) => Form::Bool(*truth),
            Value::Int(number) => Form::Int(*number),
            Value::Float(number) => Form::Float(*number),
            Value::Text(text) => Form::Text(text),
            Value::Word(word) => Form::Word(word.as_str()),
            Value::List(items) => Form::Sequence(Sequence::Values(items)),
            Value::Set(items) => Form::Set(items),
            Value::Map(pairs) => Form::Map(pairs),
            Value::Cas(from, to) => Form::Sequence(Sequence::Pair(*from, *to)),
            Value::Txn(mops) => Form::Sequence(Sequence::Mops(mops)),
            Value::Keyed(key, value) => Form::Sequence(Sequence::Keyed(key, value)),
        }
    }
}

impl<'a> From<&'a Key> for Form<'a> {
    fn from(key: &'a Key) -> Form<'a> {
        match key {
            Key::Int(number) => Form::Int(*number),
            Key::Word(word) => Form::Word(word.as_str()),
            Key::Text(text) => Form::Text(text),
        }
    }
}

impl<'a> Sequence<'a> {
    fn len(self) -> usize {
        match self {
            Sequence::Values(values) => values.len(),
            Sequence::Integers(integers) => integers.len(),
            Sequence::Pair(..) | Sequence::Keyed(..) => 2,
            Sequence::Mops(mops) => mops.len(),
            Sequence::Mop(_) => 3,
        }
    }

    fn get(self, place: usize) -> Form<'a> {
        match self {
            Sequence::Values(values) => Form::from(&values[place]),
            Sequence::Integers(integers) => Form::Int(integers[place]),
            Sequence::Pair(first, second) => Form::Int([first, second][place]),
            Sequence::Keyed(key, _) if place == 0 => Form::from(key),
            Sequence::Keyed(_, value) => Form::from(value),
            Sequence::Mops(mops) => Form::Sequence(Sequence::Mop(&mops[place])),
            Sequence::Mop(mop) => match place {
                0 => Form::Word(match mop {
                    Mop::Append { .. } => "append",
                    Mop::Write { .. } => "w",
                    Mop::Read { .. } => "r",
                }),
                1 => Form::from(mop.key()),
                _ => argument(mop),
            },
        }
    }

    fn forms(self) -> impl Iterator<Item = Form<'a>> {
        (0..self.len()).map(move |place| self.get(place))
    }
}

/// The last of the three.
fn argument(mop: &Mop) -> Form<'_> {
    match mop {
        Mop::Append { element, .. } => Form::Int(*element),
        Mop::Write { value, .. } => Form::Int(*value),
        Mop::Read { observed, .. } => match observed {
            Observed::Nil => Form::Nil,
            Observed::Register(value) => Form::Int(*value),
            Observed::List(elements) => Form::Sequence(Sequence::Integers(elements)),
        },
    }
}

/// What one look at two values tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    Equal,
    Different,
    /// There are sets or maps whose order differs.
    Unclear,
}

impl Looks {
    fn of(equal: bool) -> Looks {
        if equal {
            Looks::Equal
        } else {
            Looks::Different
        }
    }
}

/// Compares what stands at the same place; sets and maps may be equal all the same.
fn look(one: &Form<'_>, other: &Form<'_>) -> Looks {
    match (one, other) {
        (Form::Nil, Form::Nil) => Looks::Equal,
        (Form::Bool(one), Form::Bool(other)) => Looks::of(one == other),
        (Form::Int(one), Form::Int(other)) => Looks::of(one == other),
        (Form::Float(one), Form::Float(other)) => {
            Looks::of(one.partial_cmp(other) == Some(Ordering::Equal))
        }
        (Form::Text(one), Form::Text(other)) | (Form::Word(one), Form::Word(other)) => {
            Looks::of(one == other)
        }
        (Form::Sequence(one), Form::Sequence(other)) => {
            if one.len() != other.len() {
                return Looks::Different;
            }
            all(one.forms().zip(other.forms()))
        }
        (Form::Set(one), Form::Set(other)) => {
            if one.len() != other.len() {
                return Looks::Unclear;
            }
            let items = one.iter().zip(*other);
            unordered(all(items.map(|(one, other)| (one.into(), other.into()))))
        }
        (Form::Map(one), Form::Map(other)) => {
            if one.len() != other.len() {
                return Looks::Unclear;
            }
            let pairs = one.iter().zip(*other);
            unordered(all(pairs.flat_map(|(one, other)| {
                [
                    ((&one.0).into(), (&other.0).into()),
                    ((&one.1).into(), (&other.1).into()),
                ]
            })))
        }
        _ => Looks::Different,
    }
}

fn all<'a>(pairs: impl Iterator<Item = (Form<'a>, Form<'a>)>) -> Looks {
    let mut looks = Looks::Equal;
    for (one, other) in pairs {
        match look(&one, &other) {
            Looks::Equal => {}
            Looks::Different => return Looks::Different,
            Looks::Unclear => looks = Looks::Unclear,
        }
    }
    looks
}

/// What differs at one place of a set may be at another.
fn unordered(looks: Looks) -> Looks {
    match looks {
        Looks::Equal => Looks::Equal,
        Looks::Different | Looks::Unclear => Looks::Unclear,
    }
}

/// A value in an order of its own: sets and maps are sorted and without duplicates.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Sorted<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(Number),
    Text(&'a str),
    Word(&'a str),
    Sequence(Vec<Sorted<'a>>),
    Set(Vec<Sorted<'a>>),
    Map(Vec<(Sorted<'a>, Sorted<'a>)>),
}

/// A number that equals itself; there is one zero.
struct Number(f64);

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl<'a> Sorted<'a> {
    /// `None` if there is anything in it that does not equal itself.
    fn new(form: &Form<'a>) -> Option<Sorted<'a>> {
        Some(match form {
            Form::Nil => Sorted::Nil,
            Form::Bool(truth) => Sorted::Bool(*truth),
            Form::Int(number) => Sorted::Int(*number),
            Form::Float(number) if number.is_nan() => return None,
            Form::Float(number) => Sorted::Float(Number(*number)),
            Form::Text(text) => Sorted::Text(text),
            Form::Word(word) => Sorted::Word(word),
            Form::Sequence(sequence) => {
                let forms = sequence.forms().map(|form| Sorted::new(&form));
                Sorted::Sequence(forms.collect::<Option<_>>()?)
            }
            Form::Set(items) => {
                let items = items.iter().map(|item| Sorted::new(&item.into()));
                let mut items: Vec<Sorted<'a>> = items.collect::<Option<_>>()?;
                items.sort_unstable();
                items.dedup();
                Sorted::Set(items)
            }
            Form::Map(pairs) => {
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

/// Equal are values that Clojure's `=` calls so, and that Jepsen prints alike but for the order in sets and maps:
/// a compare-and-set equals the list of both values, a value of a key the list of key and value, a transaction the list
/// of lists. An integer equals no floating-point number, a keyword no text, and not-a-number not even itself.
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
                let (one, other) = (Form::from(self), Form::from(other));
                match look(&one, &other) {
                    Looks::Equal => true,
                    Looks::Different => false,
                    Looks::Unclear => match (Sorted::new(&one), Sorted::new(&other)) {
                        (Some(one), Some(other)) => one == other,
                        _ => false,
                    },
                }
            }
        }
    }
}
