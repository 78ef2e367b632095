//! The map of the source files: `docs/architecture/CRATE.md`, one page for each crate, made from the sources.

use crate::tidy::{Finding, Tree, names};
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Folder of the pages.
const PAGES: &str = "docs/architecture";
/// The page that links to all of them.
const INDEX: &str = "docs/ARCHITECTURE.md";
/// Prefix of the names of our packages.
const OURS: &str = "seatrial-";

/// Writes the page of every crate, removes pages of crates that no longer exist, and lowers the counts of names. Returns how
/// many files changed.
pub(crate) fn write(tree: &Tree, root: &Path) -> anyhow::Result<usize> {
    let pages = pages(tree);
    let names = (names::PAGE.to_owned(), names::lowered(tree));
    let mut changed = 0;
    std::fs::create_dir_all(root.join(PAGES)).context(PAGES)?;
    for (path, page) in pages.iter().chain([(&names.0, &names.1)]) {
        if tree.text(path) != Some(page) {
            std::fs::write(root.join(path), page).with_context(|| path.clone())?;
            changed += 1;
        }
    }
    for path in stale(tree, &pages) {
        std::fs::remove_file(root.join(path)).with_context(|| path.to_owned())?;
        changed += 1;
    }
    Ok(changed)
}

/// Finds pages that differ from the sources, files without a first sentence, and crates without a link in the index.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let pages = pages(tree);
    for (path, page) in &pages {
        if tree.text(path) != Some(page) {
            let what = "differs from the sources; run `cargo xtask map` and commit the page";
            findings.push(Finding::new(path, 0, what));
        }
        let link = path.strip_prefix("docs/").unwrap_or(path);
        let index = tree.text(INDEX).unwrap_or_default();
        if !index.contains(&format!("({link})")) {
            let what = format!("has no link to {link}; add the crate to the code map");
            findings.push(Finding::new(INDEX, 0, what));
        }
    }
    for path in stale(tree, &pages) {
        let what = "is the page of a crate that does not exist; run `cargo xtask map`";
        findings.push(Finding::new(path, 0, what));
    }
    for (path, text) in sources(tree) {
        if summary(text).is_none() && !path.ends_with("/tests.rs") {
            let what = "begins without a sentence that says what it is; write `//! ...`";
            findings.push(Finding::new(path, 1, what));
        }
    }
}

/// Pages of crates that do not exist.
fn stale<'a>(tree: &'a Tree, pages: &BTreeMap<String, String>) -> Vec<&'a str> {
    let prefix = format!("{PAGES}/");
    let paths = tree.files.iter().map(|file| file.path.as_str());
    let paths = paths.filter(|path| path.starts_with(&prefix) && !pages.contains_key(*path));
    paths.collect()
}

/// All Rust files of the crates with their text, by path.
fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let rust = tree.files.iter().filter(|file| file.is_rust());
    let texts = rust.filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)));
    texts.filter(|(path, _)| path.starts_with("crates/"))
}

/// The pages by path.
fn pages(tree: &Tree) -> BTreeMap<String, String> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in sources(tree) {
        let rest = path.strip_prefix("crates/");
        if let Some((name, file)) = rest.and_then(|rest| rest.split_once('/')) {
            crates.entry(name).or_default().push((file, text));
        }
    }
    let manifest = |name: &str| {
        tree.text(&format!("crates/{name}/Cargo.toml"))
            .unwrap_or_default()
    };
    let below: BTreeMap<&str, BTreeSet<&str>> = crates
        .keys()
        .map(|name| (*name, dependencies(manifest(name))))
        .collect();
    let page = |(name, files): (&&str, &Vec<(&str, &str)>)| {
        let page = page(name, manifest(name), files, &below);
        (format!("{PAGES}/{name}.md"), page)
    };
    crates.iter().map(page).collect()
}

/// The page of one crate. Files keep the order of their paths, with the root of the crate first.
fn page(
    name: &str,
    manifest: &str,
    files: &[(&str, &str)],
    below: &BTreeMap<&str, BTreeSet<&str>>,
) -> String {
    let above = below.iter().filter(|(_, names)| names.contains(name));
    let above: BTreeSet<&str> = above.map(|(name, _)| *name).collect();
    let description = field(manifest, "description").unwrap_or_default();
    let package = field(manifest, "name").unwrap_or_default();
    let mut page = format!(
        "# {name}\n\n{description}.\n\n\
         Package `{package}` in `crates/{name}`. Made by `cargo xtask map` from the first sentence of each file.\n\n\
         - depends on: {}\n- used by: {}\n",
        links(&below[name]),
        links(&above)
    );
    for (title, folder) in [
        ("Sources", "src/"),
        ("Tests", "tests/"),
        ("Benches", "benches/"),
    ] {
        let mut rows: Vec<(&str, &str)> = files
            .iter()
            .filter_map(|(path, text)| Some((path.strip_prefix(folder)?, *text)))
            .collect();
        if rows.is_empty() {
            continue;
        }
        rows.sort_by_key(|(path, _)| (!is_root(path), path.replace(".rs", "")));
        let _ = write!(
            page,
            "\n## {title}\n\n| file | what it is |\n| --- | --- |\n"
        );
        for (path, text) in rows {
            let what = summary(text).unwrap_or_else(|| tests_of(path));
            let what = what.replace('|', "\\|");
            let _ = writeln!(
                page,
                "| [`{path}`](../../crates/{name}/{folder}{path}) | {what} |"
            );
        }
    }
    page
}

/// Is it where a crate begins?
fn is_root(path: &str) -> bool {
    matches!(path, "lib.rs" | "main.rs")
}

/// What a file of tests without a sentence is.
fn tests_of(path: &str) -> String {
    let module = path.strip_suffix("/tests.rs").unwrap_or(path);
    format!("Tests of `{module}.rs`.")
}

/// Names of crates as links to their pages.
fn links(names: &BTreeSet<&str>) -> String {
    let links: Vec<String> = names
        .iter()
        .map(|name| format!("[{name}]({name}.md)"))
        .collect();
    if links.is_empty() {
        return "nothing".to_owned();
    }
    links.join(", ")
}

/// The text in `key = "text"` of a manifest.
fn field<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.trim_start().strip_prefix('=');
    manifest
        .lines()
        .find_map(value)?
        .trim()
        .strip_prefix('"')?
        .strip_suffix('"')
}

/// Our crates under `[dependencies]`, by folder.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let mut section = "";
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
        } else if let Some(rest) = line.strip_prefix(OURS)
            && section == "[dependencies]"
        {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '-');
            names.insert(&rest[..end.unwrap_or(rest.len())]);
        }
    }
    names
}

/// The first sentence of a module's documentation in Markdown that needs no link of rustdoc. `None` when there is none.
fn summary(text: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let paragraph = lines.map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = unlinked(&paragraph.collect::<Vec<_>>().join(" "));
    let end = sentence_end(&paragraph)?;
    // What a colon announces is in the file, not on the map.
    let sentence = paragraph[..end].trim_end_matches([':', '.']);
    Some(format!("{sentence}."))
}

/// Where the first sentence ends: after a period before a capital letter, outside of code, or at the paragraph's end.
fn sentence_end(paragraph: &str) -> Option<usize> {
    let mut in_code = false;
    for (at, letter) in paragraph.char_indices() {
        in_code ^= letter == '`';
        let rest = &paragraph[at + letter.len_utf8()..];
        let mut next = rest.chars();
        let ends = letter == '.' && next.next() == Some(' ');
        let begins = |letter: char| letter.is_uppercase() || letter == '`' || letter == '[';
        if ends && !in_code && next.next().is_some_and(begins) {
            return Some(at);
        }
    }
    (!paragraph.is_empty()).then_some(paragraph.len())
}

/// Markdown whose links have become their text.
fn unlinked(paragraph: &str) -> String {
    let mut plain = String::new();
    let mut rest = paragraph;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((text, after)) = after.split_once(']') else {
            break;
        };
        plain.push_str(before);
        plain.push_str(text);
        let target = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{said, tree};

    const MANIFEST: &str = "[package]\nname = \"seatrial-one\"\ndescription = \"The first\"\n\n\
                            [dependencies]\nseatrial-two.workspace = true\nserde = \"1\"\n\n\
                            [dev-dependencies]\nseatrial-three.workspace = true\n";

    #[test]
    fn a_page_has_every_file_once() {
        let files = [
            ("crates/one/Cargo.toml", MANIFEST),
            (
                "crates/one/src/a.rs",
                "//! What [`A`](x) is (e.g. a `b. C`):\n//! on. Then more.\nfn a() {}\n",
            ),
            ("crates/one/src/a/tests.rs", "use super::*;\n"),
            (
                "crates/one/src/lib.rs",
                "//! The crate\n//!\n//! A figure.\n",
            ),
            ("crates/one/benches/b.rs", "//! A | B.\n"),
            ("crates/two/src/lib.rs", "//! Second.\n"),
        ];
        let pages = pages(&tree(&files));
        assert_eq!(pages.len(), 2);
        assert_eq!(
            pages["docs/architecture/one.md"],
            "# one\n\nThe first.\n\n\
             Package `seatrial-one` in `crates/one`. Made by `cargo xtask map` from the first sentence of each file.\n\n\
             - depends on: [two](two.md)\n- used by: nothing\n\n\
             ## Sources\n\n| file | what it is |\n| --- | --- |\n\
             | [`lib.rs`](../../crates/one/src/lib.rs) | The crate. |\n\
             | [`a.rs`](../../crates/one/src/a.rs) | What `A` is (e.g. a `b. C`): on. |\n\
             | [`a/tests.rs`](../../crates/one/src/a/tests.rs) | Tests of `a.rs`. |\n\n\
             ## Benches\n\n| file | what it is |\n| --- | --- |\n\
             | [`b.rs`](../../crates/one/benches/b.rs) | A \\| B. |\n"
        );
        let two = &pages["docs/architecture/two.md"];
        assert!(
            two.contains("- depends on: nothing\n- used by: [one](one.md)\n"),
            "{two}"
        );
    }

    #[test]
    fn stale_and_missing_pages_links_and_sentences_are_found() {
        let files = [
            ("crates/one/src/lib.rs", "//! One.\n"),
            ("crates/one/src/a.rs", "fn a() {}\n"),
            ("docs/architecture/gone.md", "# gone\n"),
            ("docs/architecture/one.md", "# one\n"),
        ];
        let expected = [
            "crates/one/src/a.rs:1: begins without a sentence that says what it is; write `//! ...`",
            "docs/ARCHITECTURE.md: has no link to architecture/one.md; add the crate to the code map",
            "docs/architecture/gone.md: is the page of a crate that does not exist; run `cargo xtask map`",
            "docs/architecture/one.md: differs from the sources; run `cargo xtask map` and commit the page",
        ];
        assert_eq!(said(check, &files), expected);
    }

    #[test]
    fn pages_that_were_just_written_are_right() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        std::fs::create_dir_all(folder.join(PAGES)).unwrap();
        let gone = ("docs/architecture/gone.md", "# gone\n");
        std::fs::write(folder.join(gone.0), gone.1).unwrap();
        let source = ("crates/one/src/lib.rs", "//! One.\n");
        assert_eq!(write(&tree(&[source, gone]), folder).unwrap(), 3);
        assert!(!folder.join(gone.0).exists());
        let page = std::fs::read_to_string(folder.join("docs/architecture/one.md")).unwrap();
        let index = (INDEX, "[one](architecture/one.md)");
        let files = [source, index, ("docs/architecture/one.md", page.as_str())];
        assert_eq!(said(check, &files), [""; 0]);
    }
}
