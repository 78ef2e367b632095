//! The document of a plan: values with their positions in the text.

use std::fmt;

/// Maximum nesting of lists and tables.
pub const DEPTH_MAX: usize = 80;

/// Maximum length of the text of a plan, in bytes.
pub const TEXT_LENGTH_MAX: usize = 1 << 20;

/// A value of a document and its position.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Byte offset in the text.
    pub at: usize,
    /// The value.
    pub shape: Shape,
}

/// The value of an [`Entry`].
#[derive(Clone, Debug)]
pub enum Shape {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Entry>),
    /// Names and values in the order of the text; each name once.
    Table(Vec<(Name, Entry)>),
}

/// The name of a value in a table.
#[derive(Clone, Debug)]
pub struct Name {
    /// Byte offset in the text.
    pub at: usize,
    /// The name.
    pub text: String,
}

impl Shape {
    /// The type of the value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Shape::Bool(_) => "a truth value",
            Shape::Int(_) => "a whole number",
            Shape::Float(_) => "a number",
            Shape::Text(_) => "text",
            Shape::List(_) => "a list",
            Shape::Table(_) => "a table",
        }
    }
}

/// Equality of values: positions and the order of names do not matter.
impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        match (&self.shape, &other.shape) {
            (Shape::Bool(one), Shape::Bool(two)) => one == two,
            (Shape::Int(one), Shape::Int(two)) => one == two,
            (Shape::Float(one), Shape::Float(two)) => one.to_bits() == two.to_bits(),
            (Shape::Text(one), Shape::Text(two)) => one == two,
            (Shape::List(one), Shape::List(two)) => one == two,
            (Shape::Table(one), Shape::Table(two)) => {
                let same = |(name, entry): &(Name, Entry)| {
                    let there = two.iter().find(|(there, _)| there.text == name.text);
                    there.is_some_and(|(_, there)| there == entry)
                };
                one.len() == two.len() && one.iter().all(same)
            }
            _ => false,
        }
    }
}

/// Short, for messages: the value if it is small, else its type.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARACTERS_MAX: usize = 60;
        match &self.shape {
            Shape::Bool(value) => write!(f, "{value}"),
            Shape::Int(value) => write!(f, "{value}"),
            Shape::Float(value) => write!(f, "{value}"),
            Shape::Text(text) if text.chars().count() <= CHARACTERS_MAX => write!(f, "{text:?}"),
            Shape::Text(text) => {
                let begin: String = text.chars().take(CHARACTERS_MAX).collect();
                write!(f, "{begin:?}…")
            }
            Shape::List(items) if items.is_empty() => f.write_str("an empty list"),
            Shape::Table(fields) if fields.is_empty() => f.write_str("an empty table"),
            other => f.write_str(other.kind()),
        }
    }
}
