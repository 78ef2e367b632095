//! Features of third-party crates: the same for the program as for the whole workspace, so that both are built from the same.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Where a feature is named that only another crate of the workspace turns on.
const MANIFEST: &str = "crates/cli/Cargo.toml";

/// Asks cargo for the features of each crate, with `--workspace` and with the program alone. Without a registry on this machine
/// there is no answer, and no finding.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let workspace = tree(root, &["--workspace", "--edges", "normal,build,dev"]);
    let program = tree(root, &["--package", "seatrial", "--edges", "normal,build"]);
    match (workspace, program) {
        (Some(workspace), Some(program)) => compare(&workspace, &program),
        _ => Vec::new(),
    }
}

/// One line for each crate: name, version, `[features]`.
fn tree(root: &Path, selection: &[&str]) -> Option<String> {
    let output = Command::new("cargo")
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .args(selection)
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

fn compare(workspace: &str, program: &str) -> Vec<Finding> {
    let workspace = features(workspace);
    let mut findings = Vec::new();
    for (name, found) in features(program) {
        let Some(wanted) = workspace.get(name) else {
            continue;
        };
        if !found.is_subset(wanted) {
            let found = joined(&found);
            let wanted = joined(wanted);
            let what = format!(
                "{name} has the features {found} here and {wanted} with --workspace, so what needs it is built twice; \
                 name them"
            );
            findings.push(Finding::new(MANIFEST, 0, what));
        }
    }
    findings
}

fn joined(sets: &BTreeSet<&str>) -> String {
    let sets: Vec<&str> = sets.iter().copied().collect();
    sets.join(" or ")
}

/// Sets of features by crate and version: what the build itself uses may have another one. Crates of the workspace have a path
/// behind the version, and features on purpose.
fn features(tree: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut features = BTreeMap::<_, BTreeSet<_>>::new();
    for line in tree.lines() {
        let Some((name, rest)) = line.split_once(" [") else {
            continue;
        };
        let name = name.trim_end_matches(" (proc-macro)");
        if !name.contains('(') {
            let set = rest.trim_end_matches(" (*)").trim_end_matches(']');
            features.entry(name).or_default().insert(set);
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_other_features_is_found() {
        let workspace = "seatrial v0.1.0 (/here) []\nsyn v3.0.1 (proc-macro) [full]\nlibc v0.2.1 [std]\nhmac v0.1.0 []\n\
                         tokio v1.0.0 [fs,net] (*)";
        let program = "seatrial v0.1.0 (/here) [parquet]\nsyn v3.0.1 (proc-macro) [full] (*)\nlibc v0.2.1 [std]\n\
                       tokio v1.0.0 [net]\nonly-here v1.0.0 []";
        let found: Vec<String> = compare(workspace, program)
            .iter()
            .map(Finding::to_string)
            .collect();
        let expected = "crates/cli/Cargo.toml: tokio v1.0.0 has the features net here and fs,net with --workspace, so what \
                        needs it is built twice; name them";
        assert_eq!(found, [expected]);
        assert!(compare(workspace, workspace).is_empty());
    }
}
