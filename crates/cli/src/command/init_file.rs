//! `seatrial init`: files to begin with.

use crate::args::InitArguments;
use anyhow::{Result, anyhow};
use seatrial_machine::unknown_name;
use seatrial_system::beginnings;
use seatrial_terminal::{Exit, say};

/// Carries the verb out.
pub(crate) fn run(arguments: &InitArguments) -> Result<Exit> {
    let known = beginnings();
    if arguments.list {
        for beginning in &known {
            say!(" {:<20} {}", beginning.name, beginning.about);
        }
        say!("");
        say!(" seatrial init redis > my-system.toml, then seatrial test my-system.toml");
        return Ok(Exit::Valid);
    }
    let name = &arguments.name;
    let found = known.iter().find(|beginning| beginning.name == *name);
    let found = found.ok_or_else(|| {
        let names = known.iter().map(|beginning| beginning.name);
        anyhow!(unknown_name("file", name, names))
    })?;
    say!("{}", found.text.trim_end());
    Ok(Exit::Valid)
}
