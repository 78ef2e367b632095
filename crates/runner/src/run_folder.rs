//! Run folders: names, locks and files.

use chrono::DateTime;
use rustix::fs::{FlockOperation, flock};
use seatrial_host::{create_folder, sync_folder_of};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// The folder of one run: `history.sea`, `results.json`, logs and data of the nodes. It is locked as long as this value lives,
/// by a lock that the kernel releases when the process dies.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The open folder, which holds the lock.
    _lock: File,
}

/// Why a folder cannot be used for a run.
#[derive(Debug, Error)]
pub enum FolderError {
    /// Another run uses it.
    #[error("{} is in use by another run; choose another folder with --out", .0.display())]
    Locked(PathBuf),
    /// It contains the history of an earlier run.
    #[error("{} already contains the history of an earlier run; choose another folder with --out", .0.display())]
    Used(PathBuf),
    /// It cannot be created or opened.
    #[error("the run folder {} cannot be used: {error}", path.display())]
    File {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Maximum number of runs of one suite that begin in the same second with the same seed.
const TWINS_MAX: u32 = 1000;

impl RunFolder {
    /// Creates the folder if it does not exist, and locks it. Fails if another run uses or has used it.
    pub fn open(path: impl Into<PathBuf>) -> Result<RunFolder, FolderError> {
        let path = path.into();
        let file_error = |path: &Path, error| FolderError::File {
            path: path.to_owned(),
            error,
        };
        create_folder(&path).map_err(|error| file_error(&path, error))?;
        let lock = File::open(&path).map_err(|error| file_error(&path, error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(FolderError::Locked(path)),
            Err(error) => return Err(file_error(&path, error.into())),
        }
        let folder = RunFolder { path, _lock: lock };
        if folder.history().exists() {
            return Err(FolderError::Used(folder.path));
        }
        Ok(folder)
    }

    /// Creates and locks `runs/SUITE/TIME-SEED`, with the suffix `-2`, `-3`, … if that exists. The links `runs/SUITE/latest` and
    /// `runs/latest` lead to it, as in Jepsen's store.
    pub fn fresh(runs: &Path, suite: &str, seed: u64) -> Result<RunFolder, FolderError> {
        let suite_folder = runs.join(suite);
        let file_error = |path: &Path, error| FolderError::File {
            path: path.to_owned(),
            error,
        };
        create_folder(&suite_folder).map_err(|error| file_error(&suite_folder, error))?;
        let name = format!("{}-{seed:04x}", time_name(SystemTime::now()));
        for twin in 1..=TWINS_MAX {
            let suffix = if twin == 1 {
                String::new()
            } else {
                format!("-{twin}")
            };
            let run = format!("{name}{suffix}");
            let path = suite_folder.join(&run);
            match fs::create_dir(&path).and_then(|()| sync_folder_of(&path)) {
                Ok(()) => {
                    link_latest(runs, suite, &run);
                    return RunFolder::open(path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(file_error(&path, error)),
            }
        }
        Err(FolderError::Used(suite_folder.join(name)))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the history.
    pub fn history(&self) -> PathBuf {
        self.path.join("history.sea")
    }

    /// Path of the results.
    pub fn results(&self) -> PathBuf {
        self.path.join("results.json")
    }
}

/// Lets the links named `latest` lead to this run of a suite. A link serves people who type, so a run continues without it, for
/// instance on a file system that has none.
fn link_latest(runs: &Path, suite: &str, run: &str) {
    let of_suite = (runs.join(suite), PathBuf::from(run));
    let of_all = (runs.to_owned(), Path::new(suite).join(run));
    for (folder, target) in [of_suite, of_all] {
        let latest = folder.join("latest");
        if let Err(error) = replace_link(&target, &latest) {
            tracing::warn!("{} does not lead to this run: {error}", latest.display());
        }
    }
}

/// Replaces a link, or creates it; anything else with its name stays.
fn replace_link(target: &Path, link: &Path) -> io::Result<()> {
    if fs::symlink_metadata(link).is_ok_and(|found| !found.is_symlink()) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Renamed into place: who follows the link meanwhile finds one of the two runs.
    let new = link.with_file_name(format!(".latest-{}", std::process::id()));
    symlink(target, &new)?;
    fs::rename(&new, link).inspect_err(|_| drop(fs::remove_file(&new)))
}

/// A time as part of a file name: `2026-11-21T09-14-03`, UTC.
pub fn time_name(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    // A time outside the calendar's range becomes 1970; a suffix keeps such folders apart.
    let time = DateTime::from_timestamp(since.as_secs() as i64, 0).unwrap_or_default();
    time.format("%Y-%m-%dT%H-%M-%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_per_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run");
        let first = RunFolder::open(&path).unwrap();
        assert!(matches!(
            RunFolder::open(&path),
            Err(FolderError::Locked(_))
        ));
        fs::write(first.history(), b"x").unwrap();
        drop(first);
        let error = RunFolder::open(&path).unwrap_err();
        assert!(matches!(error, FolderError::Used(_)));
        assert!(error.to_string().contains("earlier run"), "{error}");
    }

    #[test]
    fn twins_get_folders_of_their_own() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let folders: Vec<_> = (0..5)
            .map(|_| RunFolder::fresh(path, "kv", 0x91c4).unwrap())
            .collect();
        for (number, folder) in folders.iter().enumerate() {
            assert!(folder.path().starts_with(path.join("kv")));
            let earlier = &folders[..number];
            assert!(earlier.iter().all(|other| other.path() != folder.path()));
        }
    }

    #[test]
    fn links_lead_to_the_latest_run() {
        let scratch = tempfile::tempdir().unwrap();
        let leads_to = |link: &str| fs::canonicalize(scratch.path().join(link)).unwrap();
        for suite in ["kv", "kv", "volume"] {
            let folder = RunFolder::fresh(scratch.path(), suite, 1).unwrap();
            let path = fs::canonicalize(folder.path()).unwrap();
            assert_eq!(leads_to("latest"), path);
            assert_eq!(leads_to(&format!("{suite}/latest")), path);
        }
        assert_ne!(leads_to("latest"), leads_to("kv/latest"));
        // The folders can be moved together.
        let link = fs::read_link(scratch.path().join("latest")).unwrap();
        assert!(link.is_relative(), "{link:?}");
    }

    #[test]
    fn what_is_no_link_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let latest = scratch.path().join("kv/latest");
        fs::create_dir_all(&latest).unwrap();
        let folder = RunFolder::fresh(scratch.path(), "kv", 1).unwrap();
        assert!(folder.path().is_dir() && fs::symlink_metadata(&latest).unwrap().is_dir());
        let names = fs::read_dir(scratch.path().join("kv")).unwrap();
        assert_eq!(names.count(), 2, "the run and the folder, nothing else");
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run");
        fs::write(&path, b"x").unwrap();
        assert!(matches!(
            RunFolder::open(&path),
            Err(FolderError::File { .. })
        ));
    }

    #[test]
    fn moments_have_names() {
        let name = |seconds| time_name(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(name(0), "1970-01-01T00-00-00");
        assert_eq!(name(951_782_399), "2000-02-28T23-59-59");
        assert_eq!(name(951_782_400), "2000-02-29T00-00-00");
        assert_eq!(name(1_795_252_443), "2026-11-21T09-14-03");
        assert_eq!(name(4_107_542_399), "2100-02-28T23-59-59");
        assert_eq!(name(4_107_542_400), "2100-03-01T00-00-00");
    }
}
