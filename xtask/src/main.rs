//! Chores of this workspace: `cargo xtask tidy`, `cargo xtask map`, `cargo xtask truth`, `cargo xtask dist`.

mod dist;
mod map;
mod tidy;

use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["map"] => map(),
        ["truth", ..] => truth(&words[1..]),
        ["dist"] => dist::dist(),
        _ => bail!("usage: cargo xtask tidy | map | truth [--help] | dist"),
    }
}

/// Prints what is untidy in this workspace; fails when anything is.
fn tidy() -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let root = workspace()?;
    let tree = tidy::Tree::read(root)?;
    let mut findings = tidy::check(&tree);
    findings.extend(tidy::licences::check(root, &tree));
    findings.extend(tidy::features::check(root));
    for finding in &findings {
        eprintln!("{finding}");
    }
    let (files, milliseconds) = (tree.files.len(), began.elapsed().as_millis());
    let count = findings.len();
    println!("tidy: {count} to mend in {files} files ({milliseconds} ms)");
    Ok(ExitCode::from(u8::from(count > 0)))
}

/// Writes the map of the source files, `docs/architecture/*.md`, and lowers the counts of `docs/names.md`.
fn map() -> anyhow::Result<ExitCode> {
    let root = workspace()?;
    let changed = map::write(&tidy::Tree::read(root)?, root)?;
    println!("map: pages changed: {changed}");
    Ok(ExitCode::SUCCESS)
}

/// Compares the checkers with brute force (`crates/truth`), in release mode: it takes minutes.
fn truth(options: &[String]) -> anyhow::Result<ExitCode> {
    // The program is one of the routes that histories take, and lies beside the other one. Both are built by one command, so that
    // what they share is compiled with one set of features.
    let built =
        cargo("build --quiet --release --package seatrial --package seatrial-truth --bins")?
            .status()
            .context("cargo build")?;
    ensure!(built.success(), "the build failed");
    let program = target_folder()?.join("release/seatrial-truth");
    let status = Command::new(&program).args(options).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(u8::MAX)))
}

/// Where cargo puts what it builds.
fn target_folder() -> anyhow::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(workspace()?.join(target))
}

/// A command of cargo in the workspace, with the environment that it would have without this program: `cargo xtask` says in
/// variables which package runs, and the build scripts that look at them (ring's) would run again, with all that needs them.
fn cargo(words: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()?);
    command.args(words.split_whitespace());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            command.env_remove(&name);
        }
    }
    Ok(command)
}

/// The folder of the workspace.
fn workspace() -> anyhow::Result<&'static Path> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().context("xtask lies in the workspace")
}
