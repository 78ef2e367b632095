//! A temporary folder for one test, whose paths are text for command lines.

use std::fs;
use tempfile::TempDir;

/// A new folder, removed when it is dropped.
pub(crate) struct Scratch(TempDir);

#[allow(dead_code, reason = "each of two test programs uses a part")]
impl Scratch {
    /// The name is part of the folder's name, for people who look at a test that hangs.
    pub(crate) fn new(name: &str) -> Scratch {
        let prefix = format!("seatrial-{name}-");
        Scratch(tempfile::Builder::new().prefix(&prefix).tempdir().unwrap())
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.0.path()
    }

    /// The path of a file or folder of this name.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file of this text; its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}
