//! The document of a plan: values with their positions in the text.

use std::fmt;

/// Maximum nesting of lists and tables.
pub const DEPTH_MAX: usize = 80;

/// Maximum length of the text of a plan, in bytes.
pub const TEXT_LENGTH_MAX: usize = 1 << 20;

/// A value of a document and its position.
#[derive(Clone, Debug)]
pub struct PlanEntry {
    /// Byte offset in the text.
    pub at: usize,
    /// The value.
    pub value: PlanValue,
}

/// The value of a [`PlanEntry`].
#[derive(Clone, Debug)]
pub enum PlanValue {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or exponent.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<PlanEntry>),
    /// Names and values in the order of the text, without duplicate names.
    Table(Vec<(EntryName, PlanEntry)>),
}

/// The name of a value in a table.
#[derive(Clone, Debug)]
pub struct EntryName {
    /// Byte offset in the text.
    pub at: usize,
    /// The name.
    pub text: String,
}

impl PlanValue {
    /// The type of the value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            PlanValue::Bool(_) => "a boolean",
            PlanValue::Int(_) => "a whole number",
            PlanValue::Float(_) => "a number",
            PlanValue::Text(_) => "text",
            PlanValue::List(_) => "a list",
            PlanValue::Table(_) => "a table",
        }
    }
}

/// Equality of values: positions and the order of names do not matter.
impl PartialEq for PlanEntry {
    fn eq(&self, other: &PlanEntry) -> bool {
        match (&self.value, &other.value) {
            (PlanValue::Bool(one), PlanValue::Bool(two)) => one == two,
            (PlanValue::Int(one), PlanValue::Int(two)) => one == two,
            (PlanValue::Float(one), PlanValue::Float(two)) => one.to_bits() == two.to_bits(),
            (PlanValue::Text(one), PlanValue::Text(two)) => one == two,
            (PlanValue::List(one), PlanValue::List(two)) => one == two,
            (PlanValue::Table(one), PlanValue::Table(two)) => {
                let same = |(name, entry): &(EntryName, PlanEntry)| {
                    let found = two.iter().find(|(other, _)| other.text == name.text);
                    found.is_some_and(|(_, other)| other == entry)
                };
                one.len() == two.len() && one.iter().all(same)
            }
            _ => false,
        }
    }
}

/// The found value in messages: the value itself if it is short, else its type.
impl fmt::Display for PlanEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARACTERS_MAX: usize = 60;
        match &self.value {
            PlanValue::Bool(value) => write!(f, "{value}"),
            PlanValue::Int(value) => write!(f, "{value}"),
            PlanValue::Float(value) => write!(f, "{value}"),
            PlanValue::Text(text) if text.chars().count() <= CHARACTERS_MAX => {
                write!(f, "{text:?}")
            }
            PlanValue::Text(text) => {
                let begin: String = text.chars().take(CHARACTERS_MAX).collect();
                write!(f, "{begin:?}…")
            }
            PlanValue::List(items) if items.is_empty() => f.write_str("an empty list"),
            PlanValue::Table(fields) if fields.is_empty() => f.write_str("an empty table"),
            other => f.write_str(other.kind()),
        }
    }
}
