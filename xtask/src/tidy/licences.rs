//! Licences of third-party crates: each must be met by those that `deny.toml` allows.

use super::{Finding, Tree};
use std::path::Path;
use std::process::Command;

/// The file of cargo-deny; its list of licences is the only one.
const DENY: &str = "deny.toml";

/// Asks cargo for the licences of all packages of the lock file. Without a registry on this machine there is no answer, and no
/// finding: the check needs no network.
pub(crate) fn check(root: &Path, tree: &Tree) -> Vec<Finding> {
    let metadata = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root)
        .output();
    match metadata {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            compare(&text, tree.text(DENY).unwrap_or_default())
        }
        _ => Vec::new(),
    }
}

fn compare(metadata: &str, deny: &str) -> Vec<Finding> {
    let everywhere = allowed(deny);
    let exceptions = exceptions(deny);
    let mut findings = Vec::new();
    for (name, licence) in licences(metadata) {
        let mut allowed = everywhere.clone();
        allowed.extend(exceptions.iter().filter(|it| it.0 == name).map(|it| it.1));
        if !is_met(licence, &allowed) {
            let what = format!(
                "{name} has the licence {licence:?}, which [licenses] allow does not meet; do without the crate, or decide"
            );
            findings.push(Finding::new(DENY, 0, what));
        }
    }
    findings
}

/// The texts of `allow = ["…", …]`.
fn allowed(deny: &str) -> Vec<&str> {
    let list = deny.split_once("\nallow = [").map_or("", |part| part.1);
    let list = list.split_once(']').map_or("", |part| part.0);
    list.split('"').skip(1).step_by(2).collect()
}

/// Crate and licence of each line `{ crate = "…", allow = ["…"] }`.
fn exceptions(deny: &str) -> Vec<(&str, &str)> {
    let lines = deny.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("{ crate = \"")?;
        let (name, rest) = rest.split_once("\", allow = [\"")?;
        Some((name, rest.split_once("\"]")?.0))
    });
    lines.collect()
}

/// Name and licence expression of each package; no licence is the empty one.
fn licences(metadata: &str) -> impl Iterator<Item = (&str, &str)> {
    // A package begins with its name and version; every other named line continues differently.
    metadata.split("{\"name\":\"").skip(1).filter_map(|part| {
        let (name, rest) = part.split_once("\",\"version\":\"")?;
        let licence = rest
            .split_once("\"license\":\"")
            .filter(|found| !found.0.contains('{'));
        let licence = licence.and_then(|found| found.1.split_once('"'));
        (!name.contains('"')).then_some((name, licence.map_or("", |found| found.0)))
    })
}

/// Does some alternative of the expression need allowed licences only?
fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // `(A OR B) AND C`: brackets stand round alternatives only, so every part between ANDs needs one that is allowed.
    let has_allowed = |part: &str| part.split(" OR ").any(|one| allowed.contains(&one.trim()));
    plain.split(" AND ").all(has_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_that_is_not_allowed_is_found() {
        let package = |name: &str, licence: &str| {
            format!(
                "{{\"name\":\"{name}\",\"version\":\"1.0.0\",\"id\":\"x\",\"license\":{licence},\"dependencies\":\
                 [{{\"name\":\"libc\",\"source\":\"y\"}}]}},"
            )
        };
        let metadata = [
            package("free", "\"GPL-3.0 OR MIT\""),
            package("both", "\"(MIT OR Zlib) AND Unicode-3.0\""),
            package("bound", "\"MIT AND GPL-3.0\""),
            package("old", "\"MIT/Apache-2.0\""),
            package("none", "null"),
            package("excepted", "\"MPL-2.0+\""),
            package("other", "\"MPL-2.0+\""),
        ];
        let deny = "[licenses]\nallow = [\"MIT\", \"Unicode-3.0\"]\nexceptions = [\n    \
                    { crate = \"excepted\", allow = [\"MPL-2.0+\"] },\n]\n";
        let found = compare(&metadata.concat(), deny);
        let names: Vec<&str> = found
            .iter()
            .map(|finding| finding.text.split(' ').next().unwrap())
            .collect();
        assert_eq!(names, ["bound", "none", "other"]);
        assert_eq!(found[0].file, DENY);
    }
}
