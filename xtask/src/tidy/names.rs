//! One meaning for each name: types and files that share a name with another are listed in `docs/names.md`.

use super::{Finding, Tree, budget};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The list, which may only shrink.
pub(crate) const PAGE: &str = "docs/names.md";

/// Names of files that say nothing but their place.
const PLACES: [&str; 4] = ["lib.rs", "main.rs", "mod.rs", "tests.rs"];

/// What begins the declaration of a type.
const KEYWORDS: [&str; 4] = ["struct ", "enum ", "trait ", "union "];

/// Title and explanation of each section of the page, and whether its rows have reasons.
const SECTIONS: [(&str, &str, bool); 3] = [
    (
        "Public types",
        "Public names that several crates or modules declare, each with the reason why it stays.",
        true,
    ),
    (
        "Types",
        "All names of types that are declared more than once, public or not.",
        false,
    ),
    (
        "Files",
        "All names of source files that occur more than once, each with what they have in common.",
        true,
    ),
];

/// Where each name is declared, for each section: name and `path:line`.
type Declared<'a> = [BTreeMap<&'a str, Vec<String>>; 3];

/// Finds names with more declarations than the page allows, and rows of the page that allow too many.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let declared = declared(tree.sources());
    let allowed = allowed(tree.text(PAGE).unwrap_or_default());
    for (section, (names, rows)) in declared.iter().zip(&allowed).enumerate() {
        let several = names.iter().filter(|(_, places)| places.len() > 1);
        for (name, places) in several {
            let most = rows.get(name).map_or(1, |row| row.times);
            if places.len() > most {
                let what = format!(
                    "{name} means {} things ({}), at most {most}; give the new one a name of its own",
                    places.len(),
                    places.join(", ")
                );
                findings.push(Finding::new(PAGE, 0, what));
            }
        }
        for (name, row) in rows {
            let times = names.get(name).map_or(0, Vec::len);
            if times < row.times {
                let what = format!(
                    "{name} occurs {times} times; run `cargo xtask map`, which lowers the row"
                );
                findings.push(Finding::new(PAGE, row.line, what));
            }
            if SECTIONS[section].2 && row.reason.is_empty() {
                let what =
                    format!("{name} has no reason; rename one, or say why both have this name");
                findings.push(Finding::new(PAGE, row.line, what));
            }
        }
    }
}

/// The page with all rows lowered to what there is; no row is raised or added.
pub(crate) fn lowered(tree: &Tree) -> String {
    let declared = declared(tree.sources());
    let allowed = allowed(tree.text(PAGE).unwrap_or_default());
    let mut page = "# Names that occur several times\n\nA name of a type or file means one thing in the workspace. The names \
                    below occur more than once.\n`cargo xtask tidy` refuses further ones and counts that rise; `cargo xtask \
                    map` lowers the counts.\n"
        .to_owned();
    for ((title, about, has_reasons), (names, rows)) in
        SECTIONS.iter().zip(declared.iter().zip(&allowed))
    {
        let _ = write!(page, "\n## {title}\n\n{about}\n\n");
        page += &lowered_rows(names, rows, *has_reasons);
    }
    page
}

/// The table of a section, or that there is nothing in it.
fn lowered_rows(
    names: &BTreeMap<&str, Vec<String>>,
    rows: &BTreeMap<&str, Row<'_>>,
    has_reasons: bool,
) -> String {
    let mut table = String::new();
    for (name, row) in rows {
        let times = names.get(name).map_or(0, Vec::len).min(row.times);
        if times > 1 {
            let _ = write!(table, "| `{name}` | {times} |");
            let _ = if has_reasons {
                writeln!(table, " {} |", row.reason)
            } else {
                writeln!(table)
            };
        }
    }
    match (table.is_empty(), has_reasons) {
        (true, _) => "None.\n".to_owned(),
        (false, true) => format!("| name | times | why |\n| --- | --- | --- |\n{table}"),
        (false, false) => format!("| name | times |\n| --- | --- |\n{table}"),
    }
}

/// Where names are declared.
fn declared(sources: &[budget::Source]) -> Declared<'_> {
    let mut declared = Declared::default();
    for source in sources {
        for (name, at, is_public) in types(&source.code) {
            let place = format!("{}:{}", source.path, line(&source.code, at));
            if is_public {
                declared[0].entry(name).or_default().push(place.clone());
            }
            declared[1].entry(name).or_default().push(place);
        }
        let file = source.path.rsplit('/').next().unwrap_or_default();
        if !PLACES.contains(&file) {
            declared[2]
                .entry(file)
                .or_default()
                .push(source.path.clone());
        }
    }
    declared
}

/// Name, offset and publicity of each type that the code declares.
fn types(code: &str) -> impl Iterator<Item = (&str, usize, bool)> {
    let places = KEYWORDS.iter().flat_map(|keyword| {
        let places = code.match_indices(keyword);
        places.map(|(at, keyword)| (at, at + keyword.len()))
    });
    places.filter_map(|(at, end)| {
        let before = code[..at].trim_end_matches(' ');
        // At the beginning of a line, or after `pub` or `pub(...)`: an item.
        let begins =
            before.is_empty() || before.ends_with(['\n', ')', ']']) || before.ends_with("pub");
        let name = &code[end..];
        let length = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let name = &name[..length.unwrap_or(name.len())];
        let is_type = begins && name.starts_with(|first: char| first.is_ascii_uppercase());
        is_type.then_some((name, at, before.ends_with("pub")))
    })
}

fn line(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}

/// A row of the page.
struct Row<'a> {
    /// Number of its line, from 1.
    line: usize,
    /// Declarations that it allows.
    times: usize,
    /// Why.
    reason: &'a str,
}

/// The rows of each section.
fn allowed(page: &str) -> [BTreeMap<&str, Row<'_>>; 3] {
    let mut allowed = <[BTreeMap<_, _>; 3]>::default();
    let mut section = None;
    for (number, line) in page.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            section = SECTIONS.iter().position(|(known, ..)| *known == title);
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Some(section), [_, name, times, rest @ ..]) = (section, &cells[..]) else {
            continue;
        };
        if let Ok(times) = times.parse() {
            let row = Row {
                line: number + 1,
                times,
                reason: rest.first().copied().unwrap_or_default(),
            };
            allowed[section].insert(name.trim_matches('`'), row);
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, tree};
    use super::*;

    const ONE: (&str, &str) = (
        "crates/one/src/lib.rs",
        "/// A struct Comment.\npub struct Place;\nstruct Own;\npub(crate) enum Kind { A }\n\
         #[cfg(test)]\nmod tests {\n    struct Kind;\n}\n",
    );
    const TWO: (&str, &str) = (
        "crates/two/src/a.rs",
        "pub enum Place {}\n\npub trait Kind {}\n",
    );
    const THREE: (&str, &str) = ("crates/one/src/a.rs", "");

    fn page(rows: [&str; 3]) -> String {
        format!(
            "## Public types\n\n{}\n## Types\n\n{}\n## Files\n\n{}\n",
            rows[0], rows[1], rows[2]
        )
    }

    #[test]
    fn second_meanings_are_found() {
        let expected = [
            "docs/names.md: Kind means 2 things (crates/one/src/lib.rs:4, crates/two/src/a.rs:3), at most 1; give the new one a name of its own",
            "docs/names.md: Place means 2 things (crates/one/src/lib.rs:2, crates/two/src/a.rs:1), at most 1; give the new one a name of its own",
            "docs/names.md: Place means 2 things (crates/one/src/lib.rs:2, crates/two/src/a.rs:1), at most 1; give the new one a name of its own",
            "docs/names.md: a.rs means 2 things (crates/two/src/a.rs, crates/one/src/a.rs), at most 1; give the new one a name of its own",
        ];
        assert_eq!(said(check, &[ONE, TWO, THREE]), expected);
        let rows = page([
            "| `Place` | 2 | they differ |",
            "| `Kind` | 2 |\n| `Place` | 2 |",
            "| `a.rs` | 2 | they are alike |",
        ]);
        assert_eq!(said(check, &[ONE, TWO, THREE, (PAGE, &rows)]), [""; 0]);
    }

    #[test]
    fn rows_that_allow_too_much_are_found_and_lowered() {
        let rows = page([
            "| `Place` | 2 | |",
            "| `Kind` | 3 |\n| `Place` | 2 |\n| `Gone` | 2 |",
            "| `a.rs` | 2 |",
        ]);
        let files = [ONE, TWO, THREE, (PAGE, rows.as_str())];
        let expected = [
            "docs/names.md:3: Place has no reason; rename one, or say why both have this name",
            "docs/names.md:6: Kind occurs 2 times; run `cargo xtask map`, which lowers the row",
            "docs/names.md:8: Gone occurs 0 times; run `cargo xtask map`, which lowers the row",
            "docs/names.md:11: a.rs has no reason; rename one, or say why both have this name",
        ];
        assert_eq!(said(check, &files), expected);
        let files_alone = [THREE, (PAGE, rows.as_str())];
        assert_eq!(lowered(&tree(&files_alone)).matches("\nNone.\n").count(), 3);
        let lowered = lowered(&tree(&files));
        assert!(
            lowered.contains("| `Kind` | 2 |\n| `Place` | 2 |\n"),
            "{lowered}"
        );
        assert!(!lowered.contains("Gone"), "{lowered}");
    }
}
