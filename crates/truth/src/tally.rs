//! Counts of what was compared, and the disagreements by class.

use crate::case::Case;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What came of one checker and model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) histories: u64,
    pub(crate) valid: u64,
    pub(crate) invalid: u64,
    pub(crate) unknown: u64,
    /// Verdicts on cases of which the definitions say no one thing.
    pub(crate) open: u64,
    pub(crate) false_passes: u64,
    pub(crate) false_alarms: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// Valid or invalid without a certificate.
    pub(crate) bare: u64,
    /// Forged certificates.
    pub(crate) forged: u64,
    pub(crate) forged_accepted: u64,
}

impl Row {
    const COLUMNS: [&'static str; 12] = [
        "histories",
        "valid",
        "invalid",
        "unknown",
        "open",
        "false passes",
        "false alarms",
        "certificates accepted",
        "refused",
        "without",
        "forged",
        "forged accepted",
    ];

    fn cells(&self) -> [u64; 12] {
        [
            self.histories,
            self.valid,
            self.invalid,
            self.unknown,
            self.open,
            self.false_passes,
            self.false_alarms,
            self.accepted,
            self.refused,
            self.bare,
            self.forged,
            self.forged_accepted,
        ]
    }

    fn add(&mut self, other: &Row) {
        let fields = [
            (&mut self.histories, other.histories),
            (&mut self.valid, other.valid),
            (&mut self.invalid, other.invalid),
            (&mut self.unknown, other.unknown),
            (&mut self.open, other.open),
            (&mut self.false_passes, other.false_passes),
            (&mut self.false_alarms, other.false_alarms),
            (&mut self.accepted, other.accepted),
            (&mut self.refused, other.refused),
            (&mut self.bare, other.bare),
            (&mut self.forged, other.forged),
            (&mut self.forged_accepted, other.forged_accepted),
        ];
        for (mine, theirs) in fields {
            *mine += theirs;
        }
    }
}

/// The name of a class of disagreements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// What went wrong.
    pub(crate) kind: String,
    /// Checker and model.
    pub(crate) subject: String,
}

/// Disagreements of one class.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) count: u64,
    /// How much there is to read, and the smallest case, its number, and more to say of it.
    pub(crate) size: (usize, usize),
    pub(crate) edn: String,
    pub(crate) number: u64,
    pub(crate) note: String,
}

/// All counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cases: u64,
    pub(crate) rows: BTreeMap<(&'static str, String), Row>,
    pub(crate) reasons: BTreeMap<String, u64>,
    pub(crate) classes: BTreeMap<Name, Class>,
}

impl Tally {
    pub(crate) fn row(&mut self, checker: &'static str, model: &str) -> &mut Row {
        self.rows.entry((checker, model.to_owned())).or_default()
    }

    /// How often was a class of disagreements met so far?
    pub(crate) fn known(&self, class: &Name) -> u64 {
        self.classes.get(class).map_or(0, |class| class.count)
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        for (name, row) in other.rows {
            self.rows.entry(name).or_default().add(&row);
        }
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        for (name, class) in other.classes {
            self.disagree(name, class);
        }
    }

    /// Keeps the smallest case of a class.
    pub(crate) fn disagree(&mut self, name: Name, class: Class) {
        let Some(known) = self.classes.get_mut(&name) else {
            self.classes.insert(name, class);
            return;
        };
        known.count += class.count;
        let count = known.count;
        if class.size < known.size {
            *known = Class { count, ..class };
        }
    }

    /// A table in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from("| checker | model |");
        for column in Row::COLUMNS {
            let _ = write!(text, " {column} |");
        }
        text.push_str("\n| --- | --- |");
        text.push_str(&" ---: |".repeat(Row::COLUMNS.len()));
        let mut all = Row::default();
        for ((checker, model), row) in &self.rows {
            all.add(row);
            line(&mut text, checker, model, row);
        }
        line(&mut text, "all", "", &all);
        text.push('\n');
        text
    }

    /// Why verdicts were unknown.
    pub(crate) fn reasons(&self) -> String {
        let lines = self.reasons.iter();
        let mut lines: Vec<_> = lines.map(|(reason, count)| (count, reason)).collect();
        lines.sort_unstable_by(|one, other| other.cmp(one));
        let mut text = String::new();
        for (count, reason) in lines {
            let _ = writeln!(text, "- {count} × {reason}");
        }
        text
    }

    /// The disagreements by kind, each with the smallest cases that show it and the models of which each is the smallest.
    pub(crate) fn disagreements(&self) -> String {
        type Cases<'a> = BTreeMap<String, Vec<(&'a Name, &'a Class)>>;
        let mut kinds: BTreeMap<&str, Cases<'_>> = BTreeMap::new();
        for (name, class) in &self.classes {
            let cases = kinds.entry(&name.kind).or_default();
            cases
                .entry(class.edn.clone())
                .or_default()
                .push((name, class));
        }
        let mut text = String::new();
        for (kind, cases) in kinds {
            let classes = cases.values().flatten();
            let count: u64 = classes.map(|(_, class)| class.count).sum();
            let _ = writeln!(text, "## {kind} ({count})\n");
            for (edn, classes) in cases {
                for (Name { subject, .. }, class) in &classes {
                    let (count, number) = (class.count, class.number);
                    let _ = writeln!(text, "- {subject}: {count} ×, case {number}");
                }
                let _ = writeln!(text, "\n```\n{edn}```\n");
                if let Some((_, Class { note, .. })) =
                    classes.first().filter(|it| !it.1.note.is_empty())
                {
                    let _ = writeln!(text, "{note}\n");
                }
            }
        }
        text
    }
}

fn line(text: &mut String, checker: &str, model: &str, row: &Row) {
    let _ = write!(text, "\n| {checker} | {model} |");
    for cell in row.cells() {
        let _ = write!(text, " {cell} |");
    }
}

/// How much there is to read.
pub(crate) fn size(case: &Case) -> (usize, usize) {
    let micros = case.txns.iter().map(|txn| txn.micros.len()).sum();
    (case.txns.len(), micros)
}
