//! `cargo xtask dist`: the program as it is released, one static file with its manual pages and completions.

use crate::{cargo, target_folder, workspace};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The platform: Linux on x86-64, with the C library inside.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What the file may have, in bytes.
const LENGTH_MAX: u64 = 25_000_000;
/// Optional features of the release.
const FEATURES: &str = "parquet";
/// Flags of the compiler: nothing is loaded at a start, functions with the same code are one, relocations are a bit map, and
/// there is no table of symbols (the profile's `strip` leaves that of a static program). Random bytes come from the system call:
/// a static program does not find the C library's function by its name, and an empty root has no device for them.
const FLAGS: &str = "-C target-feature=+crt-static \
-C link-arg=-Wl,--icf=all,-z,pack-relative-relocs,--strip-all --cfg getrandom_backend=\"linux_getrandom\"";

/// Flags of the C compiler: zstd without the strategies of higher levels, since files are written at levels 1 to 3.
const C_FLAGS: &str = "-DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR \
-DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR \
-DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR";

/// Builds and checks it, and writes `target/dist/seatrial-VERSION-x86_64-linux` and the same folder as `.tar.gz`.
pub(crate) fn dist() -> Result<ExitCode> {
    let root = workspace()?;
    let target = target_folder()?;
    let mut build = cargo("build --quiet --profile dist --bin seatrial")?;
    build.args(["--features", FEATURES, "--target", TARGET]);
    build
        .env("RUSTFLAGS", FLAGS)
        .env("CFLAGS", C_FLAGS)
        .env("SEATRIAL_COMMIT", commit(root)?);
    ensure!(
        build.status().context("cargo build")?.success(),
        "the build failed"
    );
    let program = target.join(TARGET).join("dist/seatrial");
    check(&program)?;

    let name = format!("seatrial-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let parent = target.join("dist");
    let folder = parent.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("the folder of an earlier run")?;
    }
    fs::create_dir_all(folder.join("completions"))?;
    let file = folder.join("seatrial");
    fs::copy(&program, &file).with_context(|| format!("cannot copy {}", program.display()))?;
    for page in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        fs::copy(root.join(page), folder.join(page)).with_context(|| page.to_owned())?;
    }
    output(Command::new(&file).arg("man").arg(folder.join("man1")))?;
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = output(Command::new(&file).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(shell), script)?;
    }
    let archive = parent.join(format!("{name}.tar.gz"));
    output(
        Command::new("tar")
            .arg("-C")
            .arg(&parent)
            .arg("-czf")
            .arg(&archive)
            .arg(&name),
    )?;
    let version = output(Command::new(&file).arg("--version"))?;
    println!("{}", String::from_utf8_lossy(&version).trim_end());
    for path in [&file, &archive] {
        println!(
            "{:>11} bytes  {}",
            fs::metadata(path)?.len(),
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// It is small enough, and asks for no loader or library.
fn check(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let length = bytes.len() as u64;
    ensure!(
        length <= LENGTH_MAX,
        "{length} bytes, more than {LENGTH_MAX}: {}",
        program.display()
    );
    ensure!(
        !asks_for_loader(&bytes)?,
        "{}: not static",
        program.display()
    );
    Ok(())
}

/// Has this program a segment with the name of a loader (PT_INTERP)? Of 64-bit little-endian ELF files, as elf(5) describes them.
fn asks_for_loader(bytes: &[u8]) -> Result<bool> {
    const PT_INTERP: u64 = 3;
    ensure!(
        bytes.starts_with(b"\x7fELF\x02\x01"),
        "not an ELF file of 64 bits, little-endian"
    );
    let number = |at: u64, length: usize| -> Result<u64> {
        let at = usize::try_from(at)?;
        let field = bytes
            .get(at..at.saturating_add(length))
            .context("cut off")?;
        Ok(field
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        if number(table.saturating_add(index * size), 4)? == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The commit of this checkout, with `+` when something was changed since; `unknown commit` without Git.
fn commit(root: &Path) -> Result<String> {
    let git = |words: &[&str]| output(Command::new("git").current_dir(root).args(words));
    let Ok(hash) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return Ok("unknown commit".to_owned());
    };
    let is_changed = !git(&["status", "--porcelain"])?.is_empty();
    let mark = if is_changed { "+" } else { "" };
    Ok(format!(
        "{}{mark}",
        String::from_utf8_lossy(&hash).trim_end()
    ))
}

/// What a command prints; an error, with its own words, if it fails.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let found = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&found.stderr);
    ensure!(
        found.status.success(),
        "{command:?}: {}: {error}",
        found.status
    );
    Ok(found.stdout)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test says where")]
mod tests {
    use super::*;

    #[test]
    fn this_test_asks_for_a_loader_and_a_text_is_no_program() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(asks_for_loader(&own).unwrap());
        assert!(asks_for_loader(b"#!/bin/sh").is_err());
        assert!(asks_for_loader(&own[..40]).is_err());
    }
}
