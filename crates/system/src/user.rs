//! The user that processes of nodes run as when this program is root: some databases refuse to run as root.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user of this name, if this program may become another user; an error if the name is unknown.
    pub(crate) fn named(name: &str) -> Result<Option<User>, String> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
        if !is_root {
            return Ok(None);
        }
        let text =
            fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
        let user = text.lines().find_map(|line| User::of_line(line, name));
        user.map(Some)
            .ok_or_else(|| format!("unknown user {name:?}: /etc/passwd has no such line"))
    }

    /// The user of a line `name:password:uid:gid:…`.
    fn of_line(line: &str, name: &str) -> Option<User> {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut numbers = fields.skip(1);
        Some(User {
            uid: numbers.next()?.parse().ok()?,
            gid: numbers.next()?.parse().ok()?,
        })
    }

    /// Makes the command run as this user.
    pub(crate) fn apply(self, command: &mut Command) {
        command.gid(self.gid).uid(self.uid);
    }

    /// Gives a file or folder to this user.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_passwd_are_read() {
        let line = "postgres:x:105:110:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash";
        assert_eq!(
            User::of_line(line, "postgres"),
            Some(User { uid: 105, gid: 110 })
        );
        assert_eq!(User::of_line(line, "postgre"), None);
        assert_eq!(User::of_line("postgres:x:a:b", "postgres"), None);
    }
}
