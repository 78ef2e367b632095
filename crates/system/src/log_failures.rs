//! Lines in the nodes' logs that are failures.

use crate::nodes::SharedSystem;
use seatrial_checker::{Aims, Checked, Checker, LogFilePattern, OnlineChecker, Pattern, Verdict};
use seatrial_history::{Chunk, ChunkSource, History, SourceError};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Searches the logs of the nodes in the run folder, once the test has ended, for the failures that the file names. Invalid when
/// a line matches. It reads no operation.
#[derive(Clone)]
pub(crate) struct LogFailures {
    pub(crate) shared: Arc<SharedSystem>,
    pub(crate) pattern: Arc<Pattern>,
}

/// The name of the checker.
const NAME: &str = "log-file-pattern";
/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;

impl LogFailures {
    fn verdict(&self) -> Verdict {
        let searched = self.shared.cluster().and_then(|cluster| {
            let ids: Vec<String> = cluster
                .places
                .iter()
                .map(|place| place.node.to_string())
                .collect();
            search(&cluster.folders.run, &ids, &self.pattern).map_err(|error| error.to_string())
        });
        searched.unwrap_or_else(|reason| Verdict::valid(NAME).unknown(reason))
    }
}

/// Searches `n1.log` and `n1-….log` of each node.
fn search(folder: &Path, nodes: &[String], pattern: &Pattern) -> io::Result<Verdict> {
    let pattern =
        Pattern::new(pattern.text()).map_err(|error| io::Error::other(error.to_string()))?;
    let mut found = LogFilePattern::new(vec![pattern]);
    let names =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    let mut piece = vec![0; PIECE];
    for node in nodes {
        let is_log = |name: &&String| {
            let rest = name
                .strip_prefix(node.as_str())
                .and_then(|rest| rest.strip_suffix(".log"));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        for name in names.iter().filter(is_log) {
            found.begin(node, name);
            let mut file = File::open(folder.join(name))?;
            loop {
                let length = file.read(&mut piece)?;
                if length == 0 {
                    break;
                }
                found.push(&piece[..length]);
            }
        }
    }
    Ok(found.finish())
}

impl Checker for LogFailures {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, _: &History) -> Verdict {
        self.verdict()
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(self.clone())
    }
}

impl OnlineChecker for LogFailures {
    fn name(&self) -> &'static str {
        NAME
    }

    fn push(&mut self, _: &Chunk) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(self: Box<Self>, _: &dyn ChunkSource) -> Result<Checked, SourceError> {
        Ok(self.verdict().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_checker::Validity;

    #[test]
    fn logs_of_nodes_are_searched() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("n1.log", "fine\n"),
            ("n2-db.log", "PANIC: x\n"),
            ("client.log", "PANIC: not a node\n"),
            ("n10.log", "PANIC: another node\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let pattern = Pattern::new("PANIC").unwrap();
        let search = |nodes: &[&str]| {
            let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
            search(folder.path(), &nodes, &pattern).unwrap().valid
        };
        assert_eq!(search(&["n1"]), Validity::Valid);
        assert_eq!(search(&["n1", "n2"]), Validity::Invalid);
    }
}
