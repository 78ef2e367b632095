//! What `cargo package` needs of the crates that are published.

use super::{Finding, Tree};

/// Keys that the registry shows; the repository is the owner's to add.
const KEYS: [&str; 2] = ["description", "keywords"];
/// Macros that read a file when a crate is compiled.
const READERS: [&str; 2] = ["include_str!(", "include_bytes!("];

/// Checks the keys, and that no file outside of its folder is part of a crate: a package would not have it.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut private = Vec::new();
    for file in &tree.files {
        let folder = file.path.strip_suffix("/Cargo.toml");
        let Some(folder) = folder.filter(|folder| folder.starts_with("crates/")) else {
            continue;
        };
        let text = file.text.as_deref().unwrap_or_default();
        if text.lines().any(|line| line == "publish = false") {
            private.push(format!("{folder}/"));
            continue;
        }
        for key in KEYS {
            let has = |line: &str| line.starts_with(key) && line.contains('=');
            if !text.lines().any(has) {
                let what = format!("no {key}, which a registry shows; write one line");
                findings.push(Finding::new(&file.path, 0, what));
            }
        }
    }
    for source in tree.sources() {
        let text = tree.text(&source.path).unwrap_or_default();
        if !private.iter().any(|folder| source.path.starts_with(folder)) {
            files_outside(&source.path, text, &source.code, findings);
        }
    }
}

/// Finds the files outside of the crate that a source includes; `code` is its text without literals.
fn files_outside(path: &str, text: &str, code: &str, findings: &mut Vec<Finding>) {
    for reader in READERS {
        for (at, _) in code.match_indices(reader) {
            let name = text[at + reader.len()..].split('"').nth(1);
            let is_for_rustdoc = text[..at].trim_end().ends_with("#[cfg(doctest)]\n#[doc =");
            if is_for_rustdoc || !name.is_some_and(|name| leaves_crate(path, name)) {
                continue;
            }
            let line = 1 + text[..at].matches('\n').count();
            let what =
                "a file outside of the crate, which a package would lack; link it into the crate";
            findings.push(Finding::new(path, line, what));
        }
    }
}

/// Is a file, named relative to a source `crates/NAME/…`, outside of the crate?
fn leaves_crate(source: &str, name: &str) -> bool {
    // `crates`, the crate, and the source itself.
    let depth = source.split('/').count() - 3;
    name.split('/').take_while(|part| *part == "..").count() > depth
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    #[test]
    fn missing_keys_are_found() {
        let manifest = "[package]\ndescription = \"Logs\"\n";
        let found = said(check, &[("crates/blocks/Cargo.toml", manifest)]);
        let what = "crates/blocks/Cargo.toml: no keywords, which a registry shows; write one line";
        assert_eq!(found, [what]);
        let private = format!("{manifest}publish = false\n");
        assert_eq!(
            said(check, &[("crates/truth/Cargo.toml", &private)]),
            [""; 0]
        );
    }

    #[test]
    fn files_outside_of_the_crate_are_found() {
        let of = |name: &str, attribute: &str| {
            let text = format!("const A: &str = 1;\n{attribute}include_str!(\"{name}\");\n");
            said(check, &[("crates/system/src/a/helpers.rs", &text)])
        };
        let found = of("../../../clients/a.py", "const B: &str = ");
        let what = "crates/system/src/a/helpers.rs:2: a file outside of the crate, which a package would lack; \
             link it into the crate";
        assert_eq!(found, [what]);
        assert_eq!(of("../../clients/a.py", "const B: &str = "), [""; 0]);
        assert_eq!(of("../../../a.md", "#[cfg(doctest)]\n#[doc = "), [""; 0]);
        let in_tests =
            "#[cfg(test)]\nmod tests {\n    const A: &str = include_str!(\"../../../a.md\");\n}\n";
        assert_eq!(
            said(check, &[("crates/system/src/lib.rs", in_tests)]),
            [""; 0]
        );
    }
}
