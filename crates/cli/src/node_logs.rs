//! The nodes' logs beside a history: searched for a regular expression, and read around findings.

use crate::opened::of_source;
use anyhow::{Context as _, Result};
use seatrial_checker::{LogFilePattern, Pattern, Verdict};
use seatrial_history::ChunkSource;
use seatrial_report::{Causes, Report};
use serde_json::Value as Json;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Folders below that of the history that are searched for logs: of a node, and two more.
const DEPTH_MAX: usize = 3;
/// Logs that are searched.
const LOGS_MAX: usize = 10_000;
/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;
/// Jepsen's own log, which has the operations.
const OWN_LOG: &str = "jepsen.log";

/// The verdict of `log-file-pattern` on the logs of these nodes beside this history: `n1.log` and `n1-….log` of a run, or
/// `n1/….log` as Jepsen stores them. If the nodes are not known, all logs count.
pub(crate) fn search(history: &Path, patterns: &[String], nodes: &[String]) -> Result<Verdict> {
    let mut found = LogFilePattern::new(compiled(patterns)?);
    let (folder, logs) = beside(history)?;
    for log in logs {
        let (start, file) = names(&folder, &log);
        let node = if nodes.is_empty() {
            &start
        } else if let Some(node) = owner(&start, nodes) {
            node
        } else {
            continue;
        };
        found.begin(node, &file);
        read(&log, &mut |piece| found.push(piece))?;
    }
    Ok(found.finish())
}

/// The names of the nodes in the attributes of a history.
pub(crate) fn nodes_of(attributes: &Json) -> Vec<String> {
    let nodes = attributes["nodes"].as_array().into_iter().flatten();
    nodes
        .filter_map(|node| Some(node.as_str()?.to_owned()))
        .collect()
}

/// The node whose logs begin with this name: its own, or that of a log of its program, which is kept as `n1-NAME.log`.
fn owner<'n>(start: &str, nodes: &'n [String]) -> Option<&'n String> {
    nodes.iter().find(|node| {
        let rest = start.strip_prefix(node.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// The causes of a report's findings: what the history and the logs of its nodes beside it say. Nothing is read if there are
/// no findings, and no log if the history does not name its nodes: other programs write logs too.
pub(crate) fn causes(
    report: &Report<'_>,
    source: &dyn ChunkSource,
    history: Option<&Path>,
) -> Result<Causes> {
    let mut search = report.search_causes(source).map_err(of_source)?;
    let nodes = nodes_of(report.attributes);
    let (true, Some(history), false) = (search.wants_logs(), history, nodes.is_empty()) else {
        return Ok(search.finish());
    };
    let (folder, logs) = beside(history)?;
    for log in logs {
        let (start, file) = names(&folder, &log);
        if let Some(node) = owner(&start, &nodes) {
            search.begin_log(node, &file);
            read(&log, &mut |piece| search.push_log(piece))?;
        }
    }
    Ok(search.finish())
}

/// The folder of a history, and the logs in it.
fn beside(history: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let folder = match history.parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => history,
    };
    let mut logs = Vec::new();
    if history.is_file() {
        collect(folder, DEPTH_MAX, &mut logs)?;
    }
    Ok((folder.to_owned(), logs))
}

/// The first part of a log's path without its extension, which names its node, and its whole path in the folder.
fn names(folder: &Path, log: &Path) -> (String, String) {
    let name = log.strip_prefix(folder).unwrap_or(log);
    let node = name.components().next();
    let node = node.map(|node| node.as_os_str().to_string_lossy());
    let node = node.unwrap_or_default();
    let node = node.strip_suffix(".log").unwrap_or(&node).to_owned();
    (node, name.to_string_lossy().into_owned())
}

/// Reads a log piece by piece.
fn read(log: &Path, take: &mut dyn FnMut(&[u8])) -> Result<()> {
    let open = || log.display().to_string();
    let mut file = File::open(log).with_context(open)?;
    let mut piece = vec![0; PIECE];
    loop {
        let length = file.read(&mut piece).with_context(open)?;
        if length == 0 {
            return Ok(());
        }
        take(&piece[..length]);
    }
}

/// The verdict when logs cannot be read.
pub(crate) fn unsearched(error: &anyhow::Error) -> Verdict {
    LogFilePattern::unread(format!("the nodes' logs cannot be searched: {error:#}"))
}

/// Regular expressions of `--log-pattern`, of plans and suites, of which any may match.
pub(crate) fn compiled(patterns: &[String]) -> Result<Vec<Pattern>> {
    let compiled = patterns
        .iter()
        .map(|pattern| Pattern::new(pattern).with_context(|| format!("log pattern {pattern:?}")));
    compiled.collect()
}

/// Adds the logs of a folder, by name. Links are not followed.
fn collect(folder: &Path, depth: usize, logs: &mut Vec<PathBuf>) -> Result<()> {
    let open = || folder.display().to_string();
    let entries = fs::read_dir(folder).with_context(open)?;
    let mut entries: Vec<fs::DirEntry> = entries.collect::<Result<_, _>>().with_context(open)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().with_context(open)?);
        if kind.is_dir() && depth > 0 {
            collect(&path, depth - 1, logs)?;
        } else if kind.is_file()
            && path.extension().is_some_and(|extension| extension == "log")
            && entry.file_name() != OWN_LOG
            && logs.len() < LOGS_MAX
        {
            logs.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_checker::{Figures, Validity};

    #[test]
    fn logs_beside_a_history_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("n2/var/log")).unwrap();
        for (name, text) in [
            ("history.sea", "panic"),
            ("n1.log", "fine\n"),
            ("n2/var/log/db.log", "start\npanic: x\n"),
            ("n2/data.bin", "panic"),
            ("n1-db.log", "start\nslow\n"),
            ("n10.log", "slow\n"),
            ("client.log", "slow\n"),
            ("jepsen.log", "panic"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let search = |name: &str, patterns: &[&str], nodes: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let [patterns, nodes]: [Vec<String>; 2] = [owned(patterns), owned(nodes)];
            search(&path(name), &patterns, &nodes)
        };
        let verdict = search("history.sea", &["none", "panic"], &[]).unwrap();
        assert_eq!(verdict.valid, Validity::Invalid);
        let Figures::LogFilePattern(figures) = &verdict.details.figures else {
            panic!("no figures");
        };
        assert_eq!((figures.files, figures.count), (5, 1));
        let found = &figures.matches[0];
        assert_eq!((found.node.as_str(), found.number), ("n2", 2));
        assert_eq!(found.file, "n2/var/log/db.log");
        // The logs of other programs are not those of the nodes.
        let verdict = search("history.sea", &["slow"], &["n1", "n2"]).unwrap();
        let Figures::LogFilePattern(figures) = &verdict.details.figures else {
            panic!("no figures");
        };
        assert_eq!((figures.files, figures.count), (3, 1));
        let found = &figures.matches[0];
        assert_eq!((found.node.as_str(), &*found.file), ("n1", "n1-db.log"));
        assert!(search("history.sea", &["panic", "("], &[]).is_err());
        let absent = search("absent.sea", &["panic"], &[]).unwrap();
        assert!(matches!(absent.valid, Validity::Unknown(_)));
    }
}
