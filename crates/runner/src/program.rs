//! Programs of systems under test: where they are, which version, and as which user they run.

use crate::ClientError;
use seatrial_namespace::ProgramUser;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;

/// A program that a suite needs and this machine may lack.
#[derive(Clone, Copy, Debug)]
pub struct ServerProgram {
    /// Its file name, such as `redis-server`.
    pub name: &'static str,
    /// Folders outside of `PATH` where packages put it. A component `*` stands for any name; the last match in the order of
    /// names, numbers by value, is taken.
    pub folders: &'static [&'static str],
    /// The command that installs it.
    pub install: &'static str,
}

/// A program that is not installed.
#[derive(Debug, Error)]
#[error(
    "{name} is not installed: it is neither in PATH{}; install it with: {install}",
    in_folders(folders)
)]
pub struct ProgramMissing {
    name: &'static str,
    folders: &'static [&'static str],
    install: &'static str,
}

fn in_folders(folders: &[&str]) -> String {
    let words: Vec<String> = folders.iter().map(|one| format!(" nor in {one}")).collect();
    words.concat()
}

impl ServerProgram {
    /// The path of the program: in one of its folders, else in `PATH`.
    pub fn find(&self) -> Result<PathBuf, ProgramMissing> {
        let mut candidates: Vec<PathBuf> =
            self.folders.iter().flat_map(|one| expand(one)).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        candidates.extend(std::env::split_paths(&path));
        let mut files = candidates.into_iter().map(|folder| folder.join(self.name));
        files.find(|file| is_program(file)).ok_or(ProgramMissing {
            name: self.name,
            folders: self.folders,
            install: self.install,
        })
    }

    /// The first line that the program prints for this argument, and its path.
    pub fn version(&self, argument: &str) -> Result<(PathBuf, String), ClientError> {
        let path = self.find()?;
        self.version_of(&path, argument)
    }

    /// The same of another program with its arguments: a path, or a name in `PATH`.
    pub fn version_of(
        &self,
        program: &Path,
        argument: &str,
    ) -> Result<(PathBuf, String), ClientError> {
        let mut path = program.to_owned();
        if program.components().count() == 1 && !is_program(program) {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
            path = files.find(|file| is_program(file)).ok_or_else(|| {
                format!(
                    "{} is not installed: it is not in PATH; {} is installed with: {}",
                    program.display(),
                    self.name,
                    self.install
                )
            })?;
        }
        let path = std::path::absolute(path)?;
        let output = Command::new(&path)
            .arg(argument)
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or_default().trim().to_owned();
        if line.is_empty() {
            return Err(format!("{} {argument} prints nothing", path.display()).into());
        }
        Ok((path, line))
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The existing folders that a pattern stands for, the highest number first.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if part != "*" {
            for folder in &mut found {
                folder.push(part);
            }
            continue;
        }
        let entries = |folder: &PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<PathBuf> = found
            .iter()
            .flat_map(entries)
            .map(|entry| entry.path())
            .collect();
        names.sort_by_key(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            (name.parse::<u64>().unwrap_or(0), name)
        });
        names.reverse();
        found = names;
    }
    found
}

/// A user without privileges, for programs that refuse to run as root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrdinaryUser {
    /// Its name.
    pub name: String,
    uid: u32,
    gid: u32,
}

impl OrdinaryUser {
    /// The first of these users that exists, if this process is root; `None` if it is not, and needs no other user.
    pub fn find(names: &[&str]) -> Result<Option<OrdinaryUser>, ClientError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users =
            fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let found = names
            .iter()
            .find_map(|name| OrdinaryUser::parse(&users, name));
        found.map(Some).ok_or_else(|| {
            let names = names.join(", ");
            format!("the program refuses to run as root, and /etc/passwd has no user {names}: run the test as an ordinary user").into()
        })
    }

    fn parse(users: &str, name: &str) -> Option<OrdinaryUser> {
        let mut lines = users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>());
        let fields = lines.find(|fields| fields.first() == Some(&name))?;
        Some(OrdinaryUser {
            name: name.to_owned(),
            uid: fields.get(2)?.parse().ok()?,
            gid: fields.get(3)?.parse().ok()?,
        })
    }

    /// This user, if this process is root and may become it; `None` if it is not. An error: there is no such user.
    pub fn named(name: &str) -> Result<Option<OrdinaryUser>, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users =
            fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let user = OrdinaryUser::parse(&users, name);
        user.map(Some)
            .ok_or_else(|| format!("unknown user {name:?}: /etc/passwd has no such line"))
    }

    /// The same for a program in namespaces.
    pub(crate) fn of_program(&self) -> ProgramUser {
        ProgramUser {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Why this user cannot run programs in a user namespace that root made, and what helps.
    pub(crate) fn missing_in_namespace(&self) -> String {
        format!(
            "it must run as the user {}, and the namespaces of --network userns have no user but root: \
             take --network netns or local, or run the test as an ordinary user",
            self.name
        )
    }

    /// Makes `command` run as this user.
    pub fn run(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives a file or folder, with all that is in it, to this user.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))?;
        if fs::symlink_metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                self.own(&entry?.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_remedy() {
        let program = ServerProgram {
            name: "no-such-program",
            folders: &["/usr/lib/none/*/bin"],
            install: "apt-get install none",
        };
        let error = program.find().unwrap_err().to_string();
        assert_eq!(
            error,
            "no-such-program is not installed: it is neither in PATH nor in /usr/lib/none/*/bin; install it with: \
             apt-get install none"
        );
    }

    #[test]
    fn the_highest_version_is_found_first() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["9", "15", "14"] {
            fs::create_dir_all(folder.path().join(version).join("bin")).unwrap();
        }
        let pattern = format!("{}/*/bin", folder.path().display());
        let names: Vec<PathBuf> = expand(&pattern);
        let expected = ["15", "14", "9"].map(|version| folder.path().join(version).join("bin"));
        assert_eq!(names, expected);
        assert!(!is_program(folder.path()));
    }

    #[test]
    fn programs_say_their_version() {
        let shell = ServerProgram {
            name: "cat",
            folders: &[],
            install: "",
        };
        let (path, version) = shell.version("--version").unwrap();
        assert!(
            path.ends_with("cat") && version.starts_with("cat"),
            "{version}"
        );
    }

    #[test]
    fn users_are_read_from_their_file() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:105:109:,,,:/var/lib:/bin/sh\n";
        let user = OrdinaryUser::parse(users, "postgres").unwrap();
        assert_eq!((user.uid, user.gid), (105, 109));
        assert_eq!(OrdinaryUser::parse(users, "nobody"), None);
        assert_eq!(OrdinaryUser::parse("postgres:x:a:b", "postgres"), None);
        assert_eq!(
            OrdinaryUser::parse(users, "postgre"),
            None,
            "a name is whole"
        );
    }
}
