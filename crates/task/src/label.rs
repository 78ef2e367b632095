//! Names and labels of tasks.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The name of a task, for messages.
#[derive(Clone)]
pub struct TaskName(Text);

#[derive(Clone)]
enum Text {
    Constant(&'static str),
    Shared(Arc<str>),
}

impl TaskName {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Constant(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for TaskName {
    fn eq(&self, other: &TaskName) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for TaskName {}

impl PartialEq<str> for TaskName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl From<&'static str> for TaskName {
    fn from(text: &'static str) -> TaskName {
        TaskName(Text::Constant(text))
    }
}

impl From<String> for TaskName {
    fn from(text: String) -> TaskName {
        TaskName(Text::Shared(text.into()))
    }
}

/// A task's name and optional data of any type, for observers. Texts convert into labels.
#[derive(Clone)]
pub struct Label {
    name: TaskName,
    data: Option<Arc<dyn Any + Send + Sync>>,
}

impl Label {
    /// Creates a label with data, which [`Label::data`] returns by type.
    pub fn new(name: impl Into<TaskName>, data: impl Any + Send + Sync) -> Label {
        Label {
            name: name.into(),
            data: Some(Arc::new(data)),
        }
    }

    /// The name.
    pub fn name(&self) -> &TaskName {
        &self.name
    }

    /// The data; `None` if there is none, or of another type.
    pub fn data<D: Any>(&self) -> Option<&D> {
        self.data.as_deref()?.downcast_ref()
    }
}

impl<N: Into<TaskName>> From<N> for Label {
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
