//! Third-party crates: each one is paid for by everybody who builds this, so each one has a reason.

use super::{Finding, Tree};
use std::collections::BTreeMap;

/// The allow-list: a table whose rows begin with the crate's name in backticks.
const LIST: &str = "docs/dependencies.md";
/// What is really built.
const LOCK: &str = "Cargo.lock";
/// The only place that crates come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks that `Cargo.lock` and the allow-list name the same crates.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let locked = locked(tree.text(LOCK).unwrap_or_default(), findings);
    let allowed = allowed(tree.text(LIST).unwrap_or_default(), findings);
    for (name, line) in &locked {
        if !allowed.contains_key(name) {
            let what = format!(
                "{name} has no line in {LIST}; do without it, or add | `{name}` | the reason |"
            );
            findings.push(Finding::new(LOCK, *line, what));
        }
    }
    for (name, line) in allowed {
        if !locked.contains_key(name) {
            let what = format!("{name} is no longer in {LOCK}; remove the line");
            findings.push(Finding::new(LIST, line, what));
        }
    }
}

/// Third-party crates in the lock file with the line of their name.
fn locked<'a>(lock: &'a str, findings: &mut Vec<Finding>) -> BTreeMap<&'a str, usize> {
    let mut crates = BTreeMap::new();
    let mut name = ("", 0);
    for (number, line) in lock.lines().enumerate() {
        if let Some(value) = value(line, "name") {
            name = (value, number + 1);
        } else if let Some(source) = value(line, "source") {
            crates.entry(name.0).or_insert(name.1);
            if source != REGISTRY {
                let what = format!(
                    "{} comes from {source}; take a published version from crates.io",
                    name.0
                );
                findings.push(Finding::new(LOCK, number + 1, what));
            }
        }
    }
    crates
}

/// The text in `key = "text"`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
    rest.strip_suffix('"')
}

/// Crates of the allow-list with their lines; a row without a reason is no permission.
fn allowed<'a>(list: &'a str, findings: &mut Vec<Finding>) -> BTreeMap<&'a str, usize> {
    let mut crates = BTreeMap::new();
    for (number, line) in list.lines().enumerate() {
        let Some((name, rest)) = line.strip_prefix("| `").and_then(|row| row.split_once('`'))
        else {
            continue;
        };
        let reason = rest.trim_matches(|letter: char| letter == '|' || letter.is_whitespace());
        if reason.is_empty() {
            let what = format!("{name} has no reason; say what it does for us that we should not");
            findings.push(Finding::new(LIST, number + 1, what));
        }
        if crates.insert(name, number + 1).is_some() {
            let what = format!("{name} stands here twice; keep one line");
            findings.push(Finding::new(LIST, number + 1, what));
        }
    }
    crates
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    fn lock(crates: &[&str]) -> String {
        let entry = |name: &&str| {
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nsource = \"{REGISTRY}\"\n\n"
            )
        };
        let ours = "[[package]]\nname = \"seatrial\"\nversion = \"0.1.0\"\n\n";
        crates.iter().map(entry).collect::<String>() + ours
    }

    #[test]
    fn new_stale_double_and_unreasoned_lines_are_found() {
        let list = "| crate | why |\n| --- | --- |\n| `bytes` | buffers |\n| `gone` | once |\n| `libc` | |\n| `libc` | C |\n";
        let files = [
            (LOCK, lock(&["bytes", "libc", "new"])),
            (LIST, list.to_owned()),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let expected = [
            "Cargo.lock:12: new has no line in docs/dependencies.md; do without it, or add | `new` | the reason |",
            "docs/dependencies.md:4: gone is no longer in Cargo.lock; remove the line",
            "docs/dependencies.md:5: libc has no reason; say what it does for us that we should not",
            "docs/dependencies.md:6: libc stands here twice; keep one line",
        ];
        assert_eq!(said(check, &files), expected);
    }

    #[test]
    fn a_crate_from_elsewhere_is_found() {
        let lock = lock(&["bytes"]).replace(REGISTRY, "git+https://example.org/bytes");
        let files = [(LOCK, lock.as_str()), (LIST, "| `bytes` | buffers |\n")];
        let found = said(check, &files);
        assert!(
            found[0].starts_with("Cargo.lock:4: bytes comes from git+https"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
    }
}
