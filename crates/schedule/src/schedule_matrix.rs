//! Anomalies by levels of systems, as a page and as a document.

use crate::{Manner, PublishedLevel, ScheduleFile};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;

/// What the schedules of a file have shown.
#[derive(Debug)]
pub struct ScheduleMatrix<'f> {
    /// The file.
    pub file: &'f ScheduleFile,
    /// One row for each level of each system, those of one system in a row.
    pub rows: Vec<MatrixRow>,
}

/// What became of each schedule at one level.
#[derive(Clone, Debug)]
pub struct MatrixRow {
    /// The suite.
    pub system: String,
    /// What the server says about its version.
    pub version: String,
    /// The level.
    pub level: String,
    /// What became of each schedule, in the order of the file; `None`: it was not executed.
    pub manners: Vec<Option<Manner>>,
}

/// What became of an anomaly, over all of its schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnomalyResult {
    Prevented,
    Occurs,
    /// In some of its schedules.
    Some,
    /// Not all of its schedules were executed.
    Open,
}

impl AnomalyResult {
    fn sign(self) -> &'static str {
        match self {
            AnomalyResult::Prevented => "prevented",
            AnomalyResult::Occurs => "occurs",
            AnomalyResult::Some => "some",
            AnomalyResult::Open => "",
        }
    }
}

impl ScheduleMatrix<'_> {
    /// Has an anomaly occurred?
    pub fn has_anomaly(&self) -> bool {
        let mut manners = self.rows.iter().flat_map(|row| &row.manners);
        manners.any(|manner| *manner == Some(Manner::Occurs))
    }

    /// The anomalies in the order of the file.
    fn anomalies(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for schedule in &self.file.schedules {
            if !found.contains(&schedule.anomaly.as_str()) {
                found.push(&schedule.anomaly);
            }
        }
        found
    }

    fn result(&self, row: &MatrixRow, anomaly: &str) -> AnomalyResult {
        let pairs = self.file.schedules.iter().zip(&row.manners);
        let own = pairs.filter(|(schedule, _)| schedule.anomaly == anomaly);
        let own: Vec<Option<Manner>> = own.map(|(_, manner)| *manner).collect();
        let occurs = |manner: &&Option<Manner>| **manner == Some(Manner::Occurs);
        if own.contains(&None) {
            return AnomalyResult::Open;
        }
        match own.iter().filter(occurs).count() {
            0 => AnomalyResult::Prevented,
            count if count == own.len() => AnomalyResult::Occurs,
            _ => AnomalyResult::Some,
        }
    }

    /// Sentences about cells that are not as published.
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        for row in &self.rows {
            let mut published = self.file.published.iter();
            let is_own = |it: &&PublishedLevel| it.system == row.system && it.level == row.level;
            let Some(published) = published.find(is_own) else {
                continue;
            };
            for anomaly in self.anomalies() {
                let seen = self.result(row, anomaly);
                let expected = expected(published, anomaly);
                if !agrees(expected, seen) {
                    found.push(format!(
                        "{} {}, {anomaly}: {} here, {} in {}",
                        row.system,
                        row.level,
                        seen.sign(),
                        expected.sign(),
                        published.tested
                    ));
                }
            }
        }
        found
    }

    /// The number of cells that are compared with published ones.
    fn compared(&self) -> usize {
        let is_published = |row: &&MatrixRow| {
            let mut published = self.file.published.iter();
            published.any(|it| it.system == row.system && it.level == row.level)
        };
        self.rows.iter().filter(is_published).count() * self.anomalies().len()
    }

    /// The page, in Markdown. `command` writes it again.
    pub fn markdown(&self, command: &str) -> String {
        let file = self.file;
        let mut page = format!("# {}: isolation levels and anomalies\n\n", file.title);
        let source = file.source.as_deref().unwrap_or("schedules of our own");
        let _ = write!(
            page,
            "```sh\n{command}\n```\n\nwrites this page. Each cell is one execution of a scripted schedule \
             ([guide](../guide/schedules.md)).\nSource of the schedules: {source}\n\n\
             | cell | meaning |\n| --- | --- |\n\
             | **occurs** | the anomaly occurred |\n\
             | aborts | prevented: the database aborted a transaction |\n\
             | waits | prevented: a transaction waited for a lock |\n\
             | versions | prevented: transactions saw older versions, or none was in the way of another |\n"
        );
        for (number, row) in self.rows.iter().enumerate() {
            let is_first = number == 0 || self.rows[number - 1].system != row.system;
            if is_first {
                let names = file.schedules.iter().map(|it| it.name.as_str());
                let names: Vec<&str> = names.collect();
                let _ = write!(page, "\n## {}\n\n{}\n\n", row.system, row.version);
                let _ = writeln!(page, "| level | {} |", names.join(" | "));
                let _ = writeln!(page, "| --- |{}", " --- |".repeat(names.len()));
            }
            let _ = writeln!(page, "| {} |{}", row.level, cells(row));
        }
        page += &self.comparison();
        page += "\n## Schedules\n\n| schedule | anomaly | what happens if it occurs |\n| --- | --- | --- |\n";
        for schedule in &file.schedules {
            let (name, anomaly, about) = (&schedule.name, &schedule.anomaly, &schedule.about);
            let _ = writeln!(page, "| `{name}` | {anomaly} | {about} |");
        }
        page
    }

    fn comparison(&self) -> String {
        let compared = self.compared();
        if compared == 0 {
            return String::new();
        }
        let differences = self.differences();
        let mut text = format!(
            "\n## Compared with what was published\n\n{compared} cells of {} are compared; an anomaly that occurs in some of its \
             schedules counts as one that\noccurs. {} of them differ{}\n",
            self.file.title,
            differences.len(),
            if differences.is_empty() { "." } else { ":\n" }
        );
        for difference in differences {
            let _ = writeln!(text, "- {difference}");
        }
        text
    }

    /// The same as text for a terminal: one line for each level.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let _ = writeln!(text, "{} {}", row.system, row.level);
            for manner in [
                Manner::Occurs,
                Manner::Aborts,
                Manner::Waits,
                Manner::Versions,
            ] {
                let pairs = self.file.schedules.iter().zip(&row.manners);
                let own = pairs.filter(|(_, found)| **found == Some(manner));
                let names: Vec<&str> = own.map(|(schedule, _)| schedule.name.as_str()).collect();
                if !names.is_empty() {
                    let _ = writeln!(text, "  {:8}  {}", manner.name(), names.join(" "));
                }
            }
        }
        text
    }

    /// The same as a document.
    pub fn json(&self) -> Json {
        let row = |row: &MatrixRow| {
            let pairs = self.file.schedules.iter().zip(&row.manners);
            let cells = pairs.filter_map(|(schedule, manner)| {
                Some((schedule.name.clone(), json!((*manner)?.name())))
            });
            let cells: Map<String, Json> = cells.collect();
            json!({"system": row.system, "version": row.version, "level": row.level, "schedules": cells})
        };
        json!({
            "title": self.file.title,
            "levels": self.rows.iter().map(row).collect::<Vec<Json>>(),
            "compared": self.compared(),
            "differences": self.differences(),
        })
    }
}

fn cells(row: &MatrixRow) -> String {
    let cell = |manner: &Option<Manner>| match manner {
        Some(Manner::Occurs) => " **occurs** |".to_owned(),
        Some(manner) => format!(" {manner} |"),
        None => "  |".to_owned(),
    };
    row.manners.iter().map(cell).collect()
}

fn expected(published: &PublishedLevel, anomaly: &str) -> AnomalyResult {
    if published.occurs.iter().any(|name| name == anomaly) {
        AnomalyResult::Occurs
    } else if published
        .occurs_with_writes
        .iter()
        .any(|name| name == anomaly)
    {
        AnomalyResult::Some
    } else {
        AnomalyResult::Prevented
    }
}

fn agrees(expected: AnomalyResult, seen: AnomalyResult) -> bool {
    match (expected, seen) {
        (_, AnomalyResult::Open) => true,
        (AnomalyResult::Occurs, seen) => seen != AnomalyResult::Prevented,
        (expected, seen) => expected == seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(file: &ScheduleFile, cells: impl Fn(&str) -> Option<Manner>) -> ScheduleMatrix<'_> {
        let manners = file.schedules.iter().map(|it| cells(&it.name)).collect();
        let row = MatrixRow {
            system: "mariadb".into(),
            version: "MariaDB 10.11".into(),
            level: "repeatable-read".into(),
            manners,
        };
        ScheduleMatrix {
            file,
            rows: vec![row],
        }
    }

    #[test]
    fn cells_are_compared_with_what_was_published() {
        let file = ScheduleFile::hermitage();
        let as_published = |name: &str| match name {
            "pmp-write" | "g-single-write" | "p4" | "g2-item" | "g2" | "g2-two-edges" => {
                Some(Manner::Occurs)
            }
            _ => Some(Manner::Versions),
        };
        let same = matrix(&file, as_published);
        assert_eq!(same.differences(), [""; 0]);
        assert!(same.has_anomaly());
        let page = same.markdown("seatrial schedule");
        assert!(
            page.contains("| repeatable-read | versions | versions |"),
            "{page}"
        );
        assert!(page.contains("0 of them differ."), "{page}");
        let other = matrix(&file, |name| match name {
            "p4" => Some(Manner::Aborts),
            "g0" => None,
            _ => as_published(name),
        });
        let expected = "mariadb repeatable-read, P4: prevented here, occurs in MySQL 5.6.21";
        assert_eq!(other.differences(), [expected]);
        assert_eq!(other.json()["differences"][0], expected);
        assert_eq!(other.json()["levels"][0]["schedules"]["g0"], Json::Null);
        let clean = matrix(&file, |_| Some(Manner::Waits));
        assert!(!clean.has_anomaly());
        assert_eq!(clean.differences().len(), 5);
    }
}
