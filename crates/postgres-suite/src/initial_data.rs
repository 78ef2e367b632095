//! The data folders of the servers before their first start.

use seatrial_runner::{ClientError, NodePlace, OrdinaryUser};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Makes the data folders: one `initdb`, and a copy of its result for the standby, which then needs no base backup. The copy is
/// made before any server starts, so both begin with the same checkpoint.
pub(crate) struct InitialData {
    initdb: PathBuf,
    user: Option<OrdinaryUser>,
    /// Has it been made? The first server that starts makes all of it.
    is_made: Mutex<bool>,
}

impl InitialData {
    pub(crate) fn new(initdb: PathBuf, user: Option<OrdinaryUser>) -> InitialData {
        InitialData {
            initdb,
            user,
            is_made: Mutex::new(false),
        }
    }

    /// The data folder of a node, as an absolute path; made with those of all other nodes if it is the first call.
    pub(crate) fn folder(&self, place: &NodePlace) -> Result<PathBuf, ClientError> {
        let mut is_made = self.is_made.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_made {
            self.make(place)?;
            *is_made = true;
        }
        own_folder(place)
    }

    fn make(&self, place: &NodePlace) -> Result<(), ClientError> {
        let first = folder_of(place, 1)?;
        self.give(first.parent().unwrap_or(&first))?;
        self.initialize(&first)?;
        for number in 2..=place.nodes.len() {
            let other = folder_of(place, number)?;
            copy(&first, &other).map_err(|error| format!("{}: {error}", other.display()))?;
            fs::write(other.join("standby.signal"), "")?;
            self.give(other.parent().unwrap_or(&other))?;
        }
        Ok(())
    }

    fn give(&self, path: &Path) -> Result<(), ClientError> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        let given = user.own(path);
        Ok(given.map_err(|error| {
            format!(
                "{} cannot be given to {}: {error}",
                path.display(),
                user.name
            )
        })?)
    }

    fn initialize(&self, folder: &Path) -> Result<(), ClientError> {
        let mut command = Command::new(&self.initdb);
        let fixed = "--username=postgres --auth=trust --encoding=UTF8 --no-locale --no-sync --no-instructions";
        command
            .arg("-D")
            .arg(folder)
            .args(fixed.split(' '))
            .stdin(Stdio::null());
        // It must be able to enter the folder in which it runs.
        command.current_dir("/");
        if let Some(user) = &self.user {
            user.run(&mut command);
        }
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", self.initdb.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let remedy = match &self.user {
            Some(user) => format!(
                "\n(it runs as the user {}, because PostgreSQL refuses root: choose with --out a folder that this user can enter)",
                user.name
            ),
            None => String::new(),
        };
        Err(format!("initdb failed ({}): {reason}{remedy}", output.status).into())
    }
}

/// The folder of the data inside a node's folder.
const FOLDER: &str = "data";

fn own_folder(place: &NodePlace) -> Result<PathBuf, ClientError> {
    Ok(std::path::absolute(place.folder.join(FOLDER))?)
}

/// The data folder of the node with this number: nodes' folders lie side by side.
fn folder_of(place: &NodePlace, number: usize) -> Result<PathBuf, ClientError> {
    let node = place.nodes.get(number - 1).ok_or("the node is missing")?;
    let folder = place.folder.with_file_name(node.to_string()).join(FOLDER);
    Ok(std::path::absolute(folder)?)
}

/// Copies a folder with all that is in it, permissions included: the server refuses folders that others can read.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
