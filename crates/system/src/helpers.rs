//! The client helpers that this program carries: single files, one for each language. `clients` in this crate has links to them,
//! so that a package of the crate has the files.

use crate::beginnings::Beginning;
use std::fs;
use std::io;
use std::path::Path;

/// All of them.
pub(crate) const HELPERS: [Beginning; 3] = [
    Beginning {
        name: "seatrial_client.py",
        about: "the client protocol for Python, in one file",
        text: include_str!("../clients/seatrial_client.py"),
    },
    Beginning {
        name: "seatrial_client.go",
        about: "the client protocol for Go, in one file",
        text: include_str!("../clients/seatrial_client.go"),
    },
    Beginning {
        name: "seatrial_client.js",
        about: "the client protocol for JavaScript (Node), in one file",
        text: include_str!("../clients/seatrial_client.js"),
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
