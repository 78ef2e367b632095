//! What may be tracked at all.

use super::{Finding, Tree};

/// Largest file in bytes: a clone must stay light.
const FILE_LENGTH_MAX: u64 = 1 << 20;

/// Checks lengths, and that what comes from elsewhere carries its licence.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        if file.length > FILE_LENGTH_MAX {
            let what = format!(
                "{} bytes, at most {FILE_LENGTH_MAX}; make it when it is needed, or keep less of it",
                file.length
            );
            findings.push(Finding::new(&file.path, 0, what));
        }
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let licence = format!("{folder}/LICENSE");
        if file.is_vendored() && tree.text(&licence).is_none() {
            let what = format!("comes from elsewhere; put its licence into {licence}");
            findings.push(Finding::new(&file.path, 0, what));
        }
    }
}

/// Files in the root folder, besides hidden ones: a reader begins there.
const ROOT: [&str; 12] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

/// Checks that nothing lies in the root folder that does not belong there, such as the output of a run.
pub(super) fn check_root(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in &tree.files {
        let is_hidden = file.path.starts_with('.');
        let is_known = ROOT.contains(&file.path.as_str());
        if !file.path.contains('/') && !is_hidden && !is_known {
            let what = "lies in the root folder; put it where it belongs, or leave it out";
            findings.push(Finding::new(&file.path, 0, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    #[test]
    fn large_files_and_missing_licences_are_found() {
        let large = "x".repeat((1 << 20) + 1);
        let found = said(check, &[("a.bin", &large), ("b.bin", &large[1..])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.bin: 1048577 bytes"), "{found:?}");
        let script = "crates/report/assets/uplot/a.js";
        let found = said(check, &[(script, "")]);
        assert!(found[0].contains("put its licence into crates/report/assets/uplot/LICENSE"));
        let licence = ("crates/report/assets/uplot/LICENSE", "MIT");
        assert_eq!(said(check, &[(script, ""), licence]), [""; 0]);
    }

    #[test]
    fn strange_files_in_the_root_folder_are_found() {
        let files = [
            ("README.md", ""),
            (".gitignore", ""),
            ("docs/a.edn", ""),
            ("a.edn", ""),
        ];
        let found = said(check_root, &files);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("a.edn: lies in the root folder"),
            "{found:?}"
        );
    }
}
