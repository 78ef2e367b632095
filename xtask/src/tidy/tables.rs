//! One table for each kind of thing that people name: checkers, workloads, families of faults.

use super::{Finding, Tree};
use std::collections::BTreeSet;

/// Where each table is, and what stands before a name in its rows.
const TABLES: [(&str, &str); 3] = [
    ("crates/check/src/registry.rs", "entry!("),
    ("crates/generator/src/workload.rs", "row("),
    ("crates/machine/src/fault/kind.rs", "row(FaultKind::"),
];

/// Files that name several of them besides, each with the reason.
const ALLOWED: [(&str, &str); 11] = [
    (
        "crates/check/src/infer.rs",
        "names that suites of Jepsen give to workloads, and shapes of operations, each with its checker",
    ),
    (
        "crates/check/src/workloads.rs",
        "workloads whose checkers have other names",
    ),
    (
        "crates/linear/src/model.rs",
        "the names of the models of one checker, from which its rows are made",
    ),
    (
        "crates/verify/src/linear_proofs/linear_model.rs",
        "the data types that certificates name: the verifier shares no code with the checkers",
    ),
    (
        "crates/verify/src/linear_proofs/further_types.rs",
        "the same, of those that have parameters or several parts",
    ),
    (
        "crates/database/src/database_options.rs",
        "which workloads a simulated database can write",
    ),
    (
        "crates/kv-suite/src/data.rs",
        "workloads whose operations do not show by function and value which workload they belong to",
    ),
    (
        "crates/system/src/value_shape.rs",
        "the shape of the values of each workload's completions",
    ),
    (
        "crates/kafka-suite/src/lib.rs",
        "which workloads a topic of Kafka can carry out",
    ),
    (
        "crates/nats-suite/src/lib.rs",
        "which workloads streams and buckets of NATS can carry out",
    ),
    (
        "crates/cause/src/fault_window.rs",
        "operations of Jepsen's nemeses, each with the family that it belongs to",
    ),
];

/// So many different names so close together are a list.
const NAMES_MAX: usize = 2;
/// Lines that are close together.
const LINES: usize = 8;

/// Finds other lists of such names, and exceptions that are none any more.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let names: [BTreeSet<&str>; 3] = TABLES.map(|(path, mark)| table(tree, path, mark));
    for ((path, mark), names) in TABLES.iter().zip(&names) {
        if tree.text(path).is_some() && names.len() <= NAMES_MAX {
            let what = format!(
                "no table of names with rows `{mark}...`; say in xtask/src/tidy/tables.rs where it is"
            );
            findings.push(Finding::new(path, 0, what));
        }
    }
    for source in tree.sources() {
        let text = tree.text(&source.path).unwrap_or_default();
        let list = names
            .iter()
            .find_map(|names| list(text, &source.code, names));
        let is_table = TABLES.iter().any(|(path, _)| *path == source.path);
        // It may name whatever it likes: it compares the checkers with brute force.
        let is_free = is_table || source.path.starts_with("crates/truth/");
        let is_allowed = ALLOWED.iter().any(|(path, _)| *path == source.path);
        match list {
            Some((line, found)) if !is_free && !is_allowed => {
                let found: Vec<&str> = found.into_iter().collect();
                let what = format!(
                    "a list of names ({}) beside the tables of checkers, workloads and faults; take them from there",
                    found.join(", ")
                );
                findings.push(Finding::new(&source.path, line, what));
            }
            None if is_allowed => {
                let what = "has no list of names any more; remove it from xtask/src/tidy/tables.rs";
                findings.push(Finding::new(&source.path, 0, what));
            }
            _ => {}
        }
    }
}

/// The names of a table: the first literal after each mark.
fn table<'a>(tree: &'a Tree, path: &str, mark: &str) -> BTreeSet<&'a str> {
    let rows = tree.text(path).unwrap_or_default().split(mark).skip(1);
    let names = rows.filter_map(|row| {
        let (before, name) = row.split_once('"')?;
        // The definition of the row has no literal in its own line.
        (!before.contains('\n')).then(|| name.split('"').next())?
    });
    names.collect()
}

/// The first place where more than two of the names stand close together in literals of their own: line and names.
fn list<'a>(
    text: &'a str,
    code: &str,
    names: &BTreeSet<&str>,
) -> Option<(usize, BTreeSet<&'a str>)> {
    let quotes: Vec<usize> = code.match_indices('"').map(|(at, _)| at).collect();
    let mut seen: Vec<(usize, &str)> = Vec::new();
    let (mut line, mut counted) = (1, 0);
    // A mask keeps the quotes of literals and blanks what is between them.
    for pair in quotes.chunks_exact(2) {
        let [open, close] = [pair[0], pair[1]];
        let Some(name) = names
            .get(&text[open + 1..close])
            .map(|_| &text[open + 1..close])
        else {
            continue;
        };
        line += code[counted..open].matches('\n').count();
        counted = open;
        seen.push((line, name));
        let close_by = seen.iter().filter(|(other, _)| line - other < LINES);
        let found: BTreeSet<&str> = close_by.map(|(_, name)| *name).collect();
        if found.len() > NAMES_MAX {
            return Some((line, found));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    const REGISTRY: (&str, &str) = (
        "crates/check/src/registry.rs",
        "macro_rules! entry {\n    ($name:literal) => {};\n}\nconst A: [u8; 3] = [\n    entry!(\"set\", \"a\"),\n    \
         entry!(\"log\", \"b\"),\n    entry!(\"bank\",\n        \"c\"),\n];\n",
    );

    #[test]
    fn another_list_is_found() {
        let list = "// \"set\" \"log\" \"bank\"\nfn a() -> [&str; 3] {\n    [\"set\", \"log\", // or\n     \"bank\"]\n}\n";
        let pair = "fn a() { [\"set\", \"log\", \"set\", \"others\", \"the bank\"] }\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{list}}}\n");
        let files = [
            REGISTRY,
            ("crates/cli/src/a.rs", list),
            ("crates/cli/src/b.rs", pair),
            ("crates/cli/src/c.rs", &tests),
            (ALLOWED[0].0, list),
        ];
        let expected = "crates/cli/src/a.rs:4: a list of names (bank, log, set) beside the tables of checkers, workloads and \
                        faults; take them from there";
        assert_eq!(said(check, &files), [expected]);
    }

    #[test]
    fn names_that_are_far_apart_are_no_list() {
        let apart = format!(
            "fn a() {{ \"set\", \"log\"{} \"bank\" }}\n",
            "\n".repeat(LINES)
        );
        assert_eq!(
            said(check, &[REGISTRY, ("crates/cli/src/a.rs", &apart)]),
            [""; 0]
        );
    }

    #[test]
    fn tables_and_exceptions_that_are_gone_are_found() {
        let files = [(REGISTRY.0, "fn a() {}\n"), (ALLOWED[0].0, "fn a() {}\n")];
        let expected = [
            "crates/check/src/infer.rs: has no list of names any more; remove it from xtask/src/tidy/tables.rs",
            "crates/check/src/registry.rs: no table of names with rows `entry!(...`; say in xtask/src/tidy/tables.rs where it is",
        ];
        assert_eq!(said(check, &files), expected);
    }
}
