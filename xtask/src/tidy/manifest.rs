//! The crates' manifests: who may depend on whom, and what keeps cores pure.

use super::{Finding, Tree};
use std::collections::BTreeSet;

/// The house: each crate and the crates below it that it stands on (`docs/ARCHITECTURE.md` draws the same arrows).
/// What these stand on may be named too, and everyone may name `machine`.
const HOUSE: &[(&str, &[&str])] = &[
    ("machine", &[]),
    ("files", &["machine"]),
    ("host", &["files"]),
    ("sim", &["machine"]),
    ("blocks", &["files"]),
    ("archive", &["blocks"]),
    ("archive-service", &["archive"]),
    ("archive-bench", &["archive"]),
    ("terminal", &[]),
    ("farm", &[]),
    ("archive-commands", &["archive-service", "host", "terminal"]),
    ("task", &[]),
    ("history", &["blocks", "task"]),
    ("query", &["history"]),
    ("interchange", &["history"]),
    ("columnar", &["interchange"]),
    ("generator", &["history"]),
    ("plan", &["generator"]),
    ("database", &["generator"]),
    ("verify", &["history"]),
    ("cycles", &["history"]),
    ("checker", &["cycles", "verify"]),
    ("monitors", &[]),
    ("linear", &["checker", "monitors"]),
    ("isolation", &["checker"]),
    ("inference", &["isolation"]),
    ("data-models", &["linear"]),
    ("consistency", &["isolation"]),
    ("check", &["inference", "data-models", "consistency"]),
    ("consensus", &["blocks"]),
    ("kv-protocol", &["consensus"]),
    ("kv", &["blocks", "consensus", "kv-protocol"]),
    ("volume", &["blocks"]),
    ("nbd", &["volume"]),
    ("namespace", &[]),
    ("runner", &["plan", "check", "host", "namespace"]),
    ("suite", &["runner", "sim"]),
    ("system", &["suite"]),
    ("proofs", &["runner"]),
    ("cause", &["checker", "query"]),
    ("report", &["cause"]),
    ("kv-suite", &["suite", "kv", "report"]),
    ("volume-suite", &["suite", "nbd", "report"]),
    ("maelstrom", &["suite"]),
    ("redis-suite", &["suite"]),
    ("sql", &["suite"]),
    ("schedule", &["suite"]),
    ("postgres-suite", &["sql"]),
    ("mariadb-suite", &["sql"]),
    ("sqlite-suite", &["sql"]),
    ("etcd-suite", &["suite"]),
    ("kafka-suite", &["suite"]),
    ("nats-suite", &["suite"]),
    ("rabbitmq-suite", &["suite"]),
    ("zookeeper-suite", &["suite"]),
    ("truth", &["check", "kv-protocol", "host", "interchange"]),
    (
        "cli",
        &[
            "archive-commands",
            "terminal",
            "suite",
            "system",
            "kv-suite",
            "volume-suite",
            "maelstrom",
            "redis-suite",
            "postgres-suite",
            "mariadb-suite",
            "sqlite-suite",
            "etcd-suite",
            "kafka-suite",
            "nats-suite",
            "rabbitmq-suite",
            "zookeeper-suite",
            "schedule",
            "proofs",
            "report",
            "volume",
            "columnar",
            "interchange",
            "query",
            "database",
        ],
    ),
];

/// Crates that others may use in their tests alone: machines are run in the simulator, histories of the field read, and
/// checkers held against databases whose truth is known.
const TESTED_WITH: [(&str, &[&str]); 4] = [
    ("database", &["runner"]),
    (
        "farm",
        &[
            "archive",
            "archive-service",
            "history",
            "check",
            "checker",
            "consensus",
            "consistency",
            "data-models",
            "generator",
            "inference",
            "interchange",
            "isolation",
            "kv",
            "linear",
            "monitors",
            "sim",
        ],
    ),
    (
        "sim",
        &[
            "blocks",
            "archive",
            "archive-service",
            "generator",
            "history",
            "kv",
            "volume",
        ],
    ),
    (
        "interchange",
        &[
            "checker",
            "linear",
            "data-models",
            "isolation",
            "inference",
            "consistency",
            "check",
        ],
    ),
];

/// Crates whose code is told the time and asks for nothing: their `clippy.toml` bans the world.
const CORES: &[&str] = &[
    "machine",
    "sim",
    "blocks",
    "archive",
    "archive-service",
    "task",
    "history",
    "query",
    "interchange",
    "columnar",
    "generator",
    "plan",
    "database",
    "verify",
    "cycles",
    "checker",
    "monitors",
    "linear",
    "data-models",
    "isolation",
    "inference",
    "consistency",
    "check",
    "kv-protocol",
    "kv",
    "consensus",
    "volume",
    "nbd",
    "cause",
    "report",
];

/// What a core must ban.
const WORLD: [&str; 8] = [
    "std::time::Instant",
    "std::time::SystemTime",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::process::Command",
    "std::fs::File",
    "std::fs::OpenOptions",
];

/// The page with the code map.
const CODE_MAP: &str = "docs/ARCHITECTURE.md";

/// Prefix of the names of our packages.
const OURS: &str = "seatrial-";

/// Checks all manifests of the workspace.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    drawn(tree, findings);
    for file in &tree.files {
        let Some(folder) = file.path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let manifest = Manifest {
            path: &file.path,
            text: file.text.as_deref().unwrap_or_default(),
        };
        let name = folder.strip_prefix("crates/").unwrap_or(folder);
        let is_example = name.starts_with("examples/");
        if is_example && !manifest.is_workspace() {
            manifest.inheritance(findings);
        } else {
            manifest.lints(findings);
            manifest.versions(findings);
        }
        // An example stands outside of the house, and may stand on all of it.
        if !is_example {
            manifest.arrows(name, findings);
        }
        if CORES.contains(&name) {
            bans(tree, folder, findings);
        }
        if manifest.text.lines().any(|line| line == "doctest = false") {
            examples_that_never_run(tree, folder, findings);
        }
    }
}

/// A crate that keeps rustdoc from its documentation must not have an example there: it would never be compiled.
fn examples_that_never_run(tree: &Tree, folder: &str, findings: &mut Vec<Finding>) {
    let source = format!("{folder}/src/");
    for file in &tree.files {
        let Some(text) = file
            .text
            .as_deref()
            .filter(|_| file.path.starts_with(&source))
        else {
            continue;
        };
        let fences = text.lines().enumerate().filter_map(|(at, line)| {
            let line = line.trim_start();
            let line = line.strip_prefix("//!").or(line.strip_prefix("///"))?;
            Some((at, line.trim_start().strip_prefix("```")?))
        });
        // Every second one ends an example.
        for (at, words) in fences.step_by(2) {
            if words.is_empty() || words.starts_with("rust") || words.starts_with("no_run") {
                let what =
                    "an example that is never compiled; remove doctest = false from the manifest";
                findings.push(Finding::new(&file.path, at + 1, what));
            }
        }
    }
}

/// Compares the column "depends on" of the code map with the house: rows ``| [`name`](...) | what it is | `a`, `b` |``.
fn drawn(tree: &Tree, findings: &mut Vec<Finding>) {
    for (number, line) in tree.text(CODE_MAP).unwrap_or_default().lines().enumerate() {
        let name = line
            .strip_prefix("| [`")
            .and_then(|row| row.split('`').next());
        let Some((name, cells)) = name.zip(line.strip_suffix(" |")) else {
            continue;
        };
        let (_, cell) = cells.rsplit_once("| ").unwrap_or_default();
        let drawn: BTreeSet<&str> = cell.split('`').skip(1).step_by(2).collect();
        let arrows = HOUSE.iter().find(|(from, _)| *from == name);
        let arrows: BTreeSet<&str> = arrows
            .map_or(&[][..], |(_, to)| to)
            .iter()
            .copied()
            .collect();
        if drawn != arrows {
            let arrows: Vec<String> = arrows.iter().map(|name| format!("`{name}`")).collect();
            let what = format!("{name} depends on {}; write that", arrows.join(", "));
            findings.push(Finding::new(CODE_MAP, number + 1, what));
        }
    }
}

/// One `Cargo.toml`, read line by line: ours are flat.
struct Manifest<'a> {
    path: &'a str,
    text: &'a str,
}

/// One line `key = value` under its `[section]`.
struct ManifestEntry<'a> {
    line: usize,
    section: &'a str,
    key: &'a str,
    value: &'a str,
}

impl ManifestEntry<'_> {
    fn is_inherited(&self) -> bool {
        self.key == "workspace"
            || self.key.ends_with(".workspace")
            || self.value.contains("workspace = true")
    }
}

impl<'a> Manifest<'a> {
    fn entries(&self) -> impl Iterator<Item = ManifestEntry<'a>> {
        let mut section = "";
        self.text
            .lines()
            .enumerate()
            .filter_map(move |(number, line)| {
                let line = line.trim();
                if let Some(name) = line.strip_prefix('[') {
                    section = name.trim_end_matches(']').trim();
                    // `[dependencies.name]` names a dependency as a key would.
                    let (table, key) = section.rsplit_once('.')?;
                    let names = table.ends_with("dependencies");
                    return names.then_some(ManifestEntry {
                        line: number + 1,
                        section: table,
                        key,
                        value: "",
                    });
                }
                let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
                Some(ManifestEntry {
                    line: number + 1,
                    section,
                    key: key.trim(),
                    value: value.trim(),
                })
            })
    }

    /// Dependencies: the line, whether only tests have it, its name, and the rest of the line.
    fn dependencies(&self) -> impl Iterator<Item = (bool, ManifestEntry<'a>)> {
        let entries = self.entries();
        entries.filter_map(|entry| match entry.section.rsplit('.').next()? {
            "dependencies" | "build-dependencies" => Some((false, entry)),
            "dev-dependencies" => Some((true, entry)),
            _ => None,
        })
    }

    fn lints(&self, findings: &mut Vec<Finding>) {
        let mut entries = self.entries();
        if !entries
            .any(|entry| (entry.section, entry.key, entry.value) == ("lints", "workspace", "true"))
        {
            let what = "the workspace's lints are not on; add [lints] workspace = true";
            findings.push(Finding::new(self.path, 0, what));
        }
    }

    fn is_workspace(&self) -> bool {
        self.text.lines().any(|line| line == "[workspace]")
    }

    /// An example without a workspace of its own is copied: it inherits nothing, and has its own lints.
    fn inheritance(&self, findings: &mut Vec<Finding>) {
        for entry in self.entries().filter(ManifestEntry::is_inherited) {
            let what =
                "an example inherits nothing, so that a copy of its folder builds; write it here";
            findings.push(Finding::new(self.path, entry.line, what));
        }
        if !self.entries().any(|entry| entry.section == "lints.rust") {
            let what = "no lints; add [lints.rust] unsafe_code = \"deny\"";
            findings.push(Finding::new(self.path, 0, what));
        }
    }

    fn versions(&self, findings: &mut Vec<Finding>) {
        // A workspace of its own declares its versions itself.
        let declared = |entry: &ManifestEntry<'_>| entry.section == "workspace.dependencies";
        let used = self.dependencies().filter(|(_, entry)| !declared(entry));
        for (_, entry) in used {
            if !entry.is_inherited() {
                let name = entry.key;
                let what = format!(
                    "{name} has a version of its own; declare it in the workspace's Cargo.toml \
                     and write {name}.workspace = true"
                );
                findings.push(Finding::new(self.path, entry.line, what));
            }
        }
    }

    fn arrows(&self, name: &str, findings: &mut Vec<Finding>) {
        let known = HOUSE.iter().any(|(crate_name, _)| *crate_name == name);
        if !known && self.path.starts_with("crates/") {
            let what = "a crate that the house does not know; give the code to the crate that owns \
                        it, or decide the house anew (docs/ARCHITECTURE.md, xtask/src/tidy/manifest.rs)";
            findings.push(Finding::new(self.path, 0, what));
            return;
        }
        let below = below(name);
        for (tests_only, entry) in self.dependencies() {
            let package = entry.key.split('.').next().unwrap_or_default();
            let Some(other) = package.strip_prefix(OURS) else {
                continue;
            };
            let for_tests =
                |&(tool, users): &(&str, &[&str])| tool == other && users.contains(&name);
            let for_tests = tests_only && TESTED_WITH.iter().any(for_tests);
            if !below.contains(other) && !for_tests {
                let allowed: Vec<&str> = below.iter().copied().collect();
                let allowed = allowed.join(", ");
                let what = format!(
                    "{name} must not depend on {other} (only on: {allowed}); move the code, or pass \
                     what it needs as a value"
                );
                findings.push(Finding::new(self.path, entry.line, what));
            }
        }
    }
}

/// Every crate that `name` may name: all below it, and `machine`.
fn below(name: &str) -> BTreeSet<&'static str> {
    let mut all = BTreeSet::new();
    let arrows = |name: &str| HOUSE.iter().find(|(from, _)| *from == name);
    let mut open: Vec<&str> = arrows(name).map_or(&[] as &[_], |(_, to)| *to).to_vec();
    while let Some(next) = open.pop() {
        if all.insert(next) {
            open.extend(arrows(next).map_or(&[] as &[_], |(_, to)| *to));
        }
    }
    if !["machine", "xtask"].contains(&name) {
        all.insert("machine");
    }
    all
}

/// Finds bans that a core's `clippy.toml` lacks.
fn bans(tree: &Tree, folder: &str, findings: &mut Vec<Finding>) {
    let path = format!("{folder}/clippy.toml");
    let text = tree.text(&path).unwrap_or_default();
    for world in WORLD {
        if !text.contains(&format!("\"{world}\"")) {
            let what = format!("a core without a ban of {world}; take the list of another core");
            findings.push(Finding::new(&path, 0, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;

    const LINTS: &str = "\n[lints]\nworkspace = true\n";

    #[test]
    fn a_code_map_with_other_arrows_is_found() {
        let page = "| crate | what it is | depends on |\n\
                    | [`kv`](architecture/kv.md) | a `store` | `blocks`, `consensus`, `kv-protocol` |\n\
                    | [`machine`](architecture/machine.md) | all | nothing |\n\
                    | [`report`](architecture/report.md) | screens | `checker`, `history` |\n";
        let expected = "docs/ARCHITECTURE.md:4: report depends on `cause`; write that";
        assert_eq!(said(check, &[("docs/ARCHITECTURE.md", page)]), [expected]);
    }

    #[test]
    fn arrows_that_turn_back_are_found() {
        let checker = format!(
            "[dependencies]\nseatrial-machine.workspace = true\nseatrial-blocks.workspace = true\n\
             seatrial-generator = {{ workspace = true }}\n{LINTS}"
        );
        let found = said(check, &[("crates/runner/Cargo.toml", &checker)]);
        assert_eq!(found, [""; 0]);
        let found = said(check_arrows, &[("crates/checker/Cargo.toml", &checker)]);
        let expected = "crates/checker/Cargo.toml:4: checker must not depend on generator (only on: \
                        blocks, cycles, files, history, machine, task, verify); move the code, or pass what it needs as a value";
        assert_eq!(found, [expected]);
    }

    /// Without the bans of `clippy.toml`, which these trees do not have.
    fn check_arrows(tree: &Tree, findings: &mut Vec<Finding>) {
        check(tree, findings);
        findings.retain(|finding| !finding.file.ends_with("clippy.toml"));
    }

    #[test]
    fn some_crates_are_for_the_tests_of_others() {
        let manifest = |section| format!("[{section}]\nseatrial-sim.workspace = true\n{LINTS}");
        let count = |name: &str, section| {
            let path = format!("crates/{name}/Cargo.toml");
            said(check_arrows, &[(&path, &manifest(section))]).len()
        };
        assert_eq!(count("kv", "dev-dependencies"), 0);
        assert_eq!(count("kv", "dependencies"), 1);
        assert_eq!(count("kv", "target.'cfg(unix)'.dependencies"), 1);
        assert_eq!(count("history", "dev-dependencies"), 0);
        assert_eq!(count("checker", "dev-dependencies"), 1);
        assert_eq!(count("cli", "dependencies"), 0);
        let manifest =
            |section| format!("[{section}]\nseatrial-interchange.workspace = true\n{LINTS}");
        let count = |section| {
            said(
                check_arrows,
                &[("crates/checker/Cargo.toml", &manifest(section))],
            )
            .len()
        };
        assert_eq!([count("dev-dependencies"), count("dependencies")], [0, 1]);
    }

    #[test]
    fn a_dependency_as_a_section_is_seen() {
        let manifest = format!("[dependencies.seatrial-kv]\nworkspace = true\n{LINTS}");
        let found = said(check_arrows, &[("crates/runner/Cargo.toml", &manifest)]);
        assert!(
            found
                .iter()
                .any(|line| line.contains("runner must not depend on kv")),
            "{found:?}"
        );
    }

    #[test]
    fn missing_lints_own_versions_and_unknown_crates_are_found() {
        let found = said(
            check,
            &[("crates/host/Cargo.toml", "[dependencies]\nserde = \"1\"\n")],
        );
        let expected = [
            "crates/host/Cargo.toml: the workspace's lints are not on; add [lints] workspace = true",
            "crates/host/Cargo.toml:2: serde has a version of its own; declare it in the workspace's \
             Cargo.toml and write serde.workspace = true",
        ];
        assert_eq!(found, expected);
        let found = said(check, &[("crates/util/Cargo.toml", LINTS)]);
        assert!(
            found[0].contains("a crate that the house does not know"),
            "{found:?}"
        );
    }

    #[test]
    fn an_example_that_is_never_compiled_is_found() {
        let manifest = format!("[lib]\ndoctest = false\n{LINTS}");
        let text = "//! ```text\n//! a picture\n//! ```\n\n/// ```\n/// let one = 1;\n/// ```\n";
        let files = |manifest| {
            [
                ("crates/host/Cargo.toml", manifest),
                ("crates/host/src/key.rs", text),
            ]
        };
        let found = said(check, &files(manifest.as_str()));
        assert_eq!(
            found,
            [
                "crates/host/src/key.rs:5: an example that is never compiled; remove doctest = false from the manifest"
            ]
        );
        assert_eq!(said(check, &files(LINTS)), [""; 0]);
    }

    #[test]
    fn an_example_that_inherits_is_found() {
        let manifest = "[package]\nlicense.workspace = true\n[dependencies]\nredis.workspace = true\n\
                        seatrial = { path = \"../../crates/cli\" }\n[lints]\nworkspace = true\n";
        let found = said(check, &[("examples/redis/Cargo.toml", manifest)]);
        let what =
            "an example inherits nothing, so that a copy of its folder builds; write it here";
        let lines = [2, 4, 7].map(|line| format!("examples/redis/Cargo.toml:{line}: {what}"));
        assert_eq!(found[1..], lines);
        assert!(
            found[0].starts_with("examples/redis/Cargo.toml: no lints; "),
            "{found:?}"
        );
        // Its own workspace is held to what seatrial's is.
        let versions = "seatrial = { path = \"../../crates/cli\" }\n";
        let alone = format!("[workspace]\n{}", manifest.replace(versions, ""));
        assert_eq!(
            said(check, &[("examples/redis/Cargo.toml", &alone)]),
            [""; 0]
        );
    }

    #[test]
    fn a_core_that_may_ask_for_the_time_is_found() {
        let bans = format!(
            "\"{}\"",
            WORLD[1..].join(
                "\"
\""
            )
        );
        let files = [
            ("crates/sim/Cargo.toml", LINTS),
            ("crates/sim/clippy.toml", bans.as_str()),
        ];
        let expected = "crates/sim/clippy.toml: a core without a ban of std::time::Instant; take the \
                        list of another core";
        assert_eq!(said(check, &files), [expected]);
    }

    #[test]
    fn the_house_has_no_way_back() {
        for &(name, _) in HOUSE {
            assert!(!below(name).contains(name), "{name} stands on itself");
        }
        assert_eq!(
            below("report").into_iter().collect::<Vec<_>>(),
            [
                "blocks", "cause", "checker", "cycles", "files", "history", "machine", "query",
                "task", "verify"
            ]
        );
    }
}
