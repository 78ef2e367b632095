//! Checks of this workspace, run as `cargo xtask tidy`.

mod tidy;

use anyhow::{Context, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        _ => bail!("usage: cargo xtask tidy"),
    }
}

/// Prints what is untidy in this workspace; fails when anything is.
fn tidy() -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let tree = tidy::Tree::read(workspace()?)?;
    let findings = tidy::check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let (files, milliseconds) = (tree.files.len(), began.elapsed().as_millis());
    let count = findings.len();
    println!("tidy: {count} to mend in {files} files ({milliseconds} ms)");
    Ok(ExitCode::from(u8::from(count > 0)))
}

/// The folder of the workspace.
fn workspace() -> anyhow::Result<&'static Path> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().context("xtask lies in the workspace")
}
