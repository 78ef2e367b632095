//! Pages: the width of prose, links, names of the code that pages mention, numbers of decisions.

use super::mask::Mask;
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Widest line of prose in characters.
const PROSE_WIDTH_MAX: usize = 120;

/// Pages whose width is not held: made by a program, or records of a day that are not written again.
const ANY_WIDTH: [&str; 2] = ["docs/architecture/", "docs/measures/"];

/// Pages outside of `docs` whose prose is held to the width.
const PROSE: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Pages that describe the code as it is: each name and path in backticks must exist.
const TRUE_TO_CODE: [&str; 4] = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/ARCHITECTURE.md",
    "docs/glossary.md",
];

/// Where a path from the workspace's folder begins.
const FOLDERS: [&str; 5] = ["crates/", "docs/", "xtask/", "examples/", ".ci/"];

/// Checks all pages.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let paths: BTreeSet<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
    let exists = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut below = paths.range(folder.as_str()..);
        paths.contains(path) || below.next().is_some_and(|next| next.starts_with(&folder))
    };
    let mut names = None;
    for file in &tree.files {
        let Some(text) = file.text.as_deref().filter(|_| file.is_page()) else {
            continue;
        };
        if is_prose(&file.path) {
            widths(&file.path, text, findings);
        }
        links(&file.path, text, &exists, findings);
        if TRUE_TO_CODE.contains(&file.path.as_str()) {
            let names = names.get_or_insert_with(|| names_in_code(tree));
            mentions(&file.path, text, names, &exists, findings);
        }
    }
    decisions(&paths, findings);
}

fn is_prose(path: &str) -> bool {
    let is_free = ANY_WIDTH.iter().any(|prefix| path.starts_with(prefix));
    PROSE.contains(&path) || path.starts_with("docs/") && !is_free
}

/// The lines outside of blocks of code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate();
    lines.filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number + 1, line))
    })
}

/// Finds lines of prose that are too wide. Tables cannot be broken.
fn widths(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in prose(text) {
        let width = line.chars().count();
        if width > PROSE_WIDTH_MAX && !line.starts_with('|') {
            let what =
                format!("prose of {width} characters, at most {PROSE_WIDTH_MAX}; break the line");
            findings.push(Finding::new(path, number, what));
        }
    }
}

/// Finds relative links that lead nowhere.
fn links(path: &str, text: &str, exists: &impl Fn(&str) -> bool, findings: &mut Vec<Finding>) {
    for (number, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let found = joined(path, target);
            if !found.as_deref().is_some_and(exists) {
                let what = format!("a link to {target}, which does not exist");
                findings.push(Finding::new(path, number, what));
            }
        }
    }
}

/// The path that a link on a page leads to; `None` when it leaves the repository.
fn joined(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// All words of the code that begin with a capital letter.
fn names_in_code(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let ours = |path: &str| path.starts_with("crates/") || path.starts_with("xtask/");
    for file in tree
        .files
        .iter()
        .filter(|file| file.is_rust() && ours(&file.path))
    {
        let Some(text) = &file.text else { continue };
        let code = Mask::of(text).code;
        let words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        names.extend(words.filter(|word| is_type(word)).map(str::to_owned));
    }
    names
}

/// Is it written like the name of a type: a capital, then a small letter somewhere, and nothing but letters and digits?
fn is_type(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric())
        && word.contains(|letter: char| letter.is_ascii_lowercase())
}

/// Finds names and paths in backticks that are nowhere in the code.
fn mentions(
    path: &str,
    text: &str,
    names: &BTreeSet<String>,
    exists: &impl Fn(&str) -> bool,
    findings: &mut Vec<Finding>,
) {
    for (number, line) in prose(text) {
        for code in line.split('`').skip(1).step_by(2) {
            // The name before generics, calls and fields; a path up to a placeholder in capitals.
            let is_path = FOLDERS.iter().any(|folder| code.starts_with(folder));
            let shape = code.contains([' ', '*', '<']) || code.contains("NAME");
            let missing = if is_path {
                (!shape && !exists(code)).then_some(code)
            } else {
                let parts = code
                    .split("::")
                    .map(|part| part.split(['(', '{']).next().unwrap_or(part));
                let mut types = parts.filter(|part| is_type(part));
                types.find(|part| !names.contains(*part))
            };
            if let Some(missing) = missing {
                let what =
                    format!("names {missing}, which is nowhere in the code; say what is there now");
                findings.push(Finding::new(path, number, what));
            }
        }
    }
}

/// Finds decisions that have the same number.
fn decisions(paths: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for path in paths {
        let name = path.strip_prefix("docs/decisions/");
        let Some((number, _)) = name.and_then(|name| name.split_once('-')) else {
            continue;
        };
        if let Some(first) = numbers.insert(number, path) {
            let what = format!("has the number of {first}; take the next free one");
            findings.push(Finding::new(path, 0, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    #[test]
    fn wide_prose_is_found() {
        let wide = "word ".repeat(25);
        let page = format!(
            "# Title\n{wide}\n| {wide} |\n```\n{wide}\n```\n{}\n",
            &wide[..120]
        );
        let found = said(
            check,
            &[("docs/guide/a.md", &page), ("docs/measures/b.md", &page)],
        );
        let expected = "docs/guide/a.md:2: prose of 125 characters, at most 120; break the line";
        assert_eq!(found, [expected]);
        assert_eq!(said(check, &[("README.md", &page)]).len(), 1);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](../b.md#part) [b](https://example.org) [c](#here)\n[d](d.md), [e](../formats/)\n[f](../../../x)\n";
        let files = [
            ("docs/guide/a.md", page),
            ("docs/b.md", ""),
            ("docs/formats/c.md", ""),
        ];
        let expected = [
            "docs/guide/a.md:2: a link to d.md, which does not exist",
            "docs/guide/a.md:3: a link to ../../../x, which does not exist",
        ];
        assert_eq!(said(check, &files), expected);
    }

    #[test]
    fn names_that_are_gone_are_found() {
        let page = "`Old` and `New::make` in `crates/one/src/old.rs` or `crates/one/src`,\n\
                    `crates/NAME/src/x.rs`, `some words`, `LOUD`, `Old<T>`; `New(u8)`\n";
        let files = [
            ("docs/glossary.md", page),
            ("docs/guide/free.md", page),
            ("crates/one/src/new.rs", "struct New; // Old\n"),
        ];
        let expected = [
            "docs/glossary.md:1: names Old, which is nowhere in the code; say what is there now",
            "docs/glossary.md:1: names crates/one/src/old.rs, which is nowhere in the code; say what is there now",
        ];
        assert_eq!(said(check, &files), expected);
    }

    #[test]
    fn decisions_with_one_number_are_found() {
        let files = [
            ("docs/decisions/0001-a.md", ""),
            ("docs/decisions/0001-b.md", ""),
            ("docs/decisions/0002-c.md", ""),
        ];
        let found = said(check, &files);
        let expected = "docs/decisions/0001-b.md: has the number of docs/decisions/0001-a.md; take the next free one";
        assert_eq!(found, [expected]);
    }
}
