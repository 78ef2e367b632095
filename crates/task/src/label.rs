//! Names and labels of tasks.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A task's name, for people.
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    Constant(&'static str),
    Shared(Arc<str>),
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Constant(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Name {
        Name(Text::Constant(text))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(Text::Shared(text.into()))
    }
}

/// A name, and data for whoever observes the task. A bare text is a label too.
#[derive(Clone)]
pub struct Label {
    name: Name,
    data: Option<Arc<dyn Any + Send + Sync>>,
}

impl Label {
    /// A name and data, which [`Label::data`] gives back to whoever knows its type.
    pub fn new(name: impl Into<Name>, data: impl Any + Send + Sync) -> Label {
        Label {
            name: name.into(),
            data: Some(Arc::new(data)),
        }
    }

    /// What people see.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The data, if it is there and of this type.
    pub fn data<D: Any>(&self) -> Option<&D> {
        self.data.as_deref()?.downcast_ref()
    }
}

impl<N: Into<Name>> From<N> for Label {
    fn from(name: N) -> Label {
        Label {
            name: name.into(),
            data: None,
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
