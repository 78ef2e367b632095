//! Interned names.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

/// A short name that recurs in a history: the `f` of an operation, a field, a keyword. Copying is free; a name read
/// from outside is interned once for the life of the program, and [`Symbol::intern`] bounds how many there can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(&'static str);

/// Distinct names that may be interned: hostile input must not fill the memory with names.
const NAMES_MAX: usize = 65_536;
/// Longest name in bytes.
const NAME_LENGTH_MAX: usize = 256;

static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Symbol {
    /// The symbol of a name in the program's text.
    pub const fn new(name: &'static str) -> Symbol {
        Symbol(name)
    }

    /// The symbol of a name from outside; `None` when it is longer than 256 bytes or 65,536 names are known.
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
        let kept: &'static str = Box::leak(name.into());
        names.insert(kept);
        Some(Symbol(kept))
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
