//! How large a crate may grow.

use super::mask::Mask;
use super::{File, Finding, Tree, shape};
use std::collections::BTreeMap;

/// Most lines of a crate under `src`, those that are only compiled for tests not counted.
const CRATE_LINES_MAX: usize = 12_000;

/// Counts the lines of each crate in one pass over the sources, and finds the crates above the budget.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (name, lines) in lines(tree) {
        if lines > CRATE_LINES_MAX {
            let what = format!(
                "{lines} lines without tests, at most {CRATE_LINES_MAX}; a part that the rest does not need is a crate of its own"
            );
            findings.push(Finding::new(&format!("crates/{name}/src"), 0, what));
        }
    }
}

/// A file of a crate that is not compiled for tests only.
pub(crate) struct Source {
    /// The crate's folder under `crates`.
    name: String,
    /// Path from the workspace's folder.
    pub(super) path: String,
    /// Its code as a mask shows it, modules for tests blanked; offsets and lines are those of the file.
    pub(super) code: String,
    /// Lines without those modules.
    lines: usize,
}

/// The files of the crates under `src`, without those that are only compiled for tests.
pub(super) fn sources(files: &[File]) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut for_tests = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let path = file.path.strip_prefix("crates/");
        let split = path.and_then(|path| path.split_once("/src/"));
        if let (Some((name, _)), Some(text)) = (split, &file.text) {
            let mask = Mask::of(text);
            let folder = folder_of_modules(&file.path);
            for_tests.extend(test_files(&mask).map(|module| format!("{folder}/{module}")));
            sources.push(Source {
                name: name.to_owned(),
                path: file.path.clone(),
                lines: text.lines().count() - shape::test_lines(&mask),
                code: shape::without_tests(&mask),
            });
        }
    }
    let is_for_tests = |path: &str| {
        let ends = |rest: &str| rest == ".rs" || rest.starts_with('/');
        let mut modules = for_tests.iter();
        modules.any(|module| path.strip_prefix(module.as_str()).is_some_and(ends))
    };
    sources.retain(|source| !is_for_tests(&source.path));
    sources
}

/// Lines by crate.
fn lines(tree: &Tree) -> BTreeMap<&str, usize> {
    let mut all = BTreeMap::new();
    for source in tree.sources() {
        *all.entry(source.name.as_str()).or_default() += source.lines;
    }
    all
}

/// Where the files of the modules lie that this file declares.
fn folder_of_modules(path: &str) -> &str {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    match module.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        _ => module,
    }
}

/// The modules with a file of their own that are only compiled for tests.
fn test_files(mask: &Mask) -> impl Iterator<Item = &str> {
    let marks = mask.code.match_indices("#[cfg(test)]");
    marks.filter_map(|(at, mark)| {
        let module = mask.code[at + mark.len()..].trim_start();
        let (name, _) = module.strip_prefix("mod ")?.split_once(';')?;
        // Otherwise the semicolon belongs to something inside the module's braces.
        (!name.contains('{')).then_some(name.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, tree};
    use super::*;

    #[test]
    fn a_crate_above_the_budget_is_found() {
        let half = "fn a() {}\n".repeat(CRATE_LINES_MAX / 2);
        let files = [
            ("crates/one/src/lib.rs", half.as_str()),
            ("crates/one/src/a/b.rs", half.as_str()),
            ("crates/two/src/lib.rs", half.as_str()),
            ("crates/one/tests/all.rs", half.as_str()),
        ];
        assert_eq!(said(check, &files), [""; 0]);
        let more = format!("{half}// one line more\n");
        let files = [("crates/one/src/a/b.rs", more.as_str()), files[0], files[2]];
        let found = said(check, &files);
        assert!(
            found.len() == 1
                && found[0].starts_with("crates/one/src: 12001 lines without tests, at most 12000"),
            "{found:?}"
        );
    }

    #[test]
    fn modules_for_tests_do_not_count() {
        let files = [
            (
                "crates/one/src/lib.rs",
                "mod a;\n#[cfg(test)]\nmod tape;\nfn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
            ),
            ("crates/one/src/tape.rs", "fn c() {}\n"),
            ("crates/one/src/tape/reel.rs", "fn d() {}\n"),
            ("crates/one/src/tapes.rs", "fn e() {}\n"),
            ("crates/one/src/a.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/one/src/a/tests.rs", "fn f() {}\n"),
            ("crates/one/src/tests.rs", "fn g() {}\n"),
        ];
        // Of lib.rs 4 lines, of tapes.rs 1, of a.rs 2, and of tests.rs, which nobody declares for tests, 1.
        assert_eq!(lines(&tree(&files)), BTreeMap::from([("one", 8)]));
    }
}
