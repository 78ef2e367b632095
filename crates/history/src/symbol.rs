//! Interned names.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

/// A short name that recurs in a history: the `f` of an operation, a field, a keyword. Two words, copied freely. Names from
/// input are interned for the life of the program; [`Symbol::intern`] bounds their number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(&'static str);

/// Distinct names that may be interned: hostile input must not fill the memory with names.
const NAMES_MAX: usize = 65_536;
/// Longest name in bytes.
const NAME_LENGTH_MAX: usize = 256;

static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Symbol {
    /// The symbol of a name in the program's source.
    pub const fn new(name: &'static str) -> Symbol {
        Symbol(name)
    }

    /// Interns a name from input; `None` if it is longer than 256 bytes, or if it is new and 65,536 names are interned.
    pub fn intern(name: &str) -> Option<Symbol> {
        if name.len() > NAME_LENGTH_MAX {
            return None;
        }
        let mut names = NAMES
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Some(Symbol(known));
        }
        if names.len() == NAMES_MAX {
            return None;
        }
        // Leaked on purpose: symbols are copied freely and compared long after their file is closed.
        let interned: &'static str = Box::leak(name.into());
        names.insert(interned);
        assert!(names.len() <= NAMES_MAX, "more names than a program takes");
        Some(Symbol(interned))
    }

    /// The name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<&'static str> for Symbol {
    fn from(name: &'static str) -> Symbol {
        Symbol(name)
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.0)
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
