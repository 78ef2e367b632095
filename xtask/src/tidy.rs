//! The style of this workspace as tests: what a reviewer would otherwise have to say twice.

mod budget;
mod causes;
mod dependencies;
pub(crate) mod features;
mod files;
pub(crate) mod licences;
mod manifest;
mod mask;
pub(crate) mod names;
mod packages;
mod pages;
mod shape;
mod tables;
mod words;

use anyhow::Context;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Something to mend.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the workspace's folder.
    file: String,
    /// From 1; 0 when the whole file is meant.
    line: usize,
    /// What is wrong, and what to do instead.
    text: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding {
            file: file.to_owned(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// One file of the workspace.
pub(crate) struct File {
    /// Path from the workspace's folder, with `/`.
    pub(crate) path: String,
    /// Its bytes as text; `None` when they are none.
    pub(crate) text: Option<String>,
    /// Bytes.
    length: u64,
}

impl File {
    fn new(path: &str, bytes: Vec<u8>) -> File {
        File {
            path: path.to_owned(),
            length: bytes.len() as u64,
            text: String::from_utf8(bytes).ok(),
        }
    }

    /// Is it Rust?
    pub(crate) fn is_rust(&self) -> bool {
        self.ends_in("rs")
    }

    /// Is it Markdown?
    fn is_page(&self) -> bool {
        self.ends_in("md")
    }

    /// Is this its extension?
    fn ends_in(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|kind| kind == extension)
    }

    /// Does it come from elsewhere, with its own licence beside it?
    fn is_vendored(&self) -> bool {
        self.path.contains("/assets/uplot/")
    }
}

/// All files that are tracked, or would be if they were added.
pub(crate) struct Tree {
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    /// Made when first asked for.
    sources: OnceLock<Vec<budget::Source>>,
}

impl Tree {
    /// Reads the files of the repository at `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Tree> {
        let git = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .context("git lists the files; is it installed?")?;
        let refused = String::from_utf8_lossy(&git.stderr).into_owned();
        anyhow::ensure!(git.status.success(), "git ls-files: {refused}");
        let list = String::from_utf8(git.stdout).context("a file name is not UTF-8")?;
        let mut paths: Vec<&str> = list.split_terminator('\0').collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => files.push(File::new(path, bytes)),
                // Deleted in the working tree, not yet in the index.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).context(path.to_owned()),
            }
        }
        Ok(Tree::of(files))
    }

    fn of(files: Vec<File>) -> Tree {
        let sources = OnceLock::new();
        Tree { files, sources }
    }

    /// The files of the crates that are not only compiled for tests.
    fn sources(&self) -> &[budget::Source] {
        self.sources.get_or_init(|| budget::sources(&self.files))
    }

    /// The text of the file at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        file.text.as_deref()
    }
}

/// All findings in the order of files and lines.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    manifest::check(tree, &mut findings);
    budget::check(tree, &mut findings);
    dependencies::check(tree, &mut findings);
    files::check(tree, &mut findings);
    files::check_root(tree, &mut findings);
    names::check(tree, &mut findings);
    packages::check(tree, &mut findings);
    pages::check(tree, &mut findings);
    tables::check(tree, &mut findings);
    crate::map::check(tree, &mut findings);
    for file in &tree.files {
        let Some(text) = &file.text else { continue };
        if file.is_vendored() {
            continue;
        }
        words::check_text(&file.path, text, &mut findings);
        if file.is_rust() {
            let mask = mask::Mask::of(text);
            shape::check(&file.path, text, &mask, &mut findings);
            causes::check(&file.path, text, &mask, &mut findings);
            words::check_code(&file.path, &mask, &mut findings);
        }
    }
    findings.sort();
    findings
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of these files.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| File::new(path, text.as_bytes().to_vec());
        Tree::of(files.iter().map(file).collect())
    }

    /// What one check says of these files, one line each.
    pub(crate) fn said(
        check: impl Fn(&Tree, &mut Vec<Finding>),
        files: &[(&str, &str)],
    ) -> Vec<String> {
        let mut findings = Vec::new();
        check(&tree(files), &mut findings);
        findings.sort();
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn this_workspace_is_tidy() {
        let root = crate::workspace().unwrap();
        let findings = check(&Tree::read(root).unwrap());
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }
}
