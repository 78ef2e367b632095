//! The client helpers that this program carries: single files, one for each language.

use std::fs;
use std::io;
use std::path::Path;

/// A file with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helper {
    /// Its name, such as `seatrial_client.py`.
    pub(crate) name: &'static str,
    /// One line about it.
    pub(crate) about: &'static str,
    /// Its text.
    pub(crate) text: &'static str,
}

/// All of them.
pub(crate) const HELPERS: [Helper; 3] = [
    Helper {
        name: "seatrial_client.py",
        about: "the client protocol for Python, in one file",
        text: include_str!("../../../clients/python/seatrial_client.py"),
    },
    Helper {
        name: "seatrial_client.go",
        about: "the client protocol for Go, in one file",
        text: include_str!("../../../clients/go/seatrial/seatrial_client.go"),
    },
    Helper {
        name: "seatrial_client.js",
        about: "the client protocol for JavaScript (Node), in one file",
        text: include_str!("../../../clients/javascript/seatrial_client.js"),
    },
];

/// Writes all of them into a folder.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for helper in HELPERS {
        fs::write(folder.join(helper.name), helper.text)?;
    }
    Ok(())
}
