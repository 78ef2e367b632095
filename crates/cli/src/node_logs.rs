//! The nodes' logs beside a history, searched for a regular expression.

use anyhow::{Context as _, Result};
use seatrial_checker::{LogFilePattern, Pattern, Verdict};
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

/// The verdict of `log-file-pattern` on the logs beside this history: `n1.log` of a run, or `n1/….log` as Jepsen stores them.
pub(crate) fn search(history: &Path, pattern: &str) -> Result<Verdict> {
    let mut found = LogFilePattern::new(compiled(pattern)?);
    let folder = match history.parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => history,
    };
    let mut logs = Vec::new();
    if history.is_file() {
        collect(folder, DEPTH_MAX, &mut logs)?;
    }
    let mut piece = vec![0; PIECE];
    for log in logs {
        let name = log.strip_prefix(folder).unwrap_or(&log);
        let node = name.components().next();
        let node = node.map(|node| node.as_os_str().to_string_lossy());
        let node = node.unwrap_or_default();
        found.begin(
            node.strip_suffix(".log").unwrap_or(&node),
            &name.to_string_lossy(),
        );
        let open = || log.display().to_string();
        let mut file = File::open(&log).with_context(open)?;
        loop {
            let length = file.read(&mut piece).with_context(open)?;
            if length == 0 {
                break;
            }
            found.push(&piece[..length]);
        }
    }
    Ok(found.finish())
}

/// The regular expression of `--log-pattern`.
pub(crate) fn compiled(pattern: &str) -> Result<Pattern> {
    Pattern::new(pattern).with_context(|| format!("--log-pattern {pattern:?}"))
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
            ("jepsen.log", "panic"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let verdict = search(&path("history.sea"), "panic").unwrap();
        assert_eq!(verdict.valid, Validity::Invalid);
        let Figures::LogFilePattern(figures) = &verdict.details.figures else {
            panic!("no figures");
        };
        assert_eq!((figures.files, figures.count), (2, 1));
        let found = &figures.matches[0];
        assert_eq!((found.node.as_str(), found.number), ("n2", 2));
        assert_eq!(found.file, "n2/var/log/db.log");
        assert!(search(&path("history.sea"), "(").is_err());
        let absent = search(Path::new("-"), "panic").unwrap();
        assert!(matches!(absent.valid, Validity::Unknown(_)));
    }
}
