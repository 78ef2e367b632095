//! `seatrial client check`: what is wrong with a client.

use crate::args::{ClientArguments, ClientCheckArguments, ClientVerb};
use anyhow::{Context as _, Result, anyhow};
use seatrial_generator::workload;
use seatrial_machine::{counted, unknown_name};
use seatrial_system::{ClientCheck, check_client};
use seatrial_terminal::{Exit, say};
use serde_json::json;

/// Carries the verb out.
pub(crate) fn run(arguments: &ClientArguments) -> Result<Exit> {
    match &arguments.verb {
        ClientVerb::Check(arguments) => check(arguments),
    }
}

fn check(arguments: &ClientCheckArguments) -> Result<Exit> {
    let name = &arguments.workload;
    if !workload::NAMES.contains(&name.as_str()) {
        let names = workload::NAMES.iter().copied();
        return Err(anyhow!(unknown_name("workload", name, names)));
    }
    let folder = tempfile::tempdir().context("a folder for the client")?;
    let check = ClientCheck {
        command: &arguments.command,
        workload: name,
        address: arguments.address,
        folder: folder.path(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("a runtime for the client")?;
    let found = runtime.block_on(check_client(&check));
    let found = found.with_context(|| arguments.command.join(" "))?;
    let is_fine = found.findings.is_empty();
    if arguments.json {
        let document =
            json!({ "valid": is_fine, "findings": found.findings, "notes": found.notes });
        say!("{document:#}");
    } else {
        for finding in &found.findings {
            say!("{finding}");
        }
        for note in &found.notes {
            say!(" note: {note}");
        }
        match found.findings.len() {
            0 => say!(" the client keeps the protocol"),
            count => say!(" {}", counted(count as u64, "finding")),
        }
    }
    Ok(if is_fine { Exit::Valid } else { Exit::Invalid })
}
