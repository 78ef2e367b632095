//! `seatrial doctor`: what this machine can do, and how to get what is missing.

use crate::args::DoctorArguments;
use seatrial_namespace::{NetworkKind, best_kind, probe};
use seatrial_proofs::{InstalledServer, SERVERS, find_program};
use seatrial_terminal::{Exit, say};
use serde_json::{Value as Json, json};
use std::fs::OpenOptions;

/// One line of the table.
struct Ability {
    topic: &'static str,
    name: &'static str,
    is_there: bool,
    /// What was found: a version, a path; or what is wrong.
    detail: String,
    /// How to get what is missing.
    remedy: &'static str,
}

/// Carries the verb out. Always exits with 0: a missing part is an answer, not an error.
pub(crate) fn run(arguments: &DoctorArguments) -> Exit {
    // Namespaces first: they are tried in a child process, which must be forked before there are threads.
    let mut abilities = networks();
    let auto = best_kind().0;
    abilities.extend(disks_and_tools());
    abilities.extend(SERVERS.iter().map(server));
    if arguments.json {
        let rows: Vec<Json> = abilities.iter().map(Ability::json).collect();
        say!("{:#}", json!({ "network": auto.name(), "abilities": rows }));
        return Exit::Valid;
    }
    let mut topic = "";
    for ability in &abilities {
        if ability.topic != topic {
            topic = ability.topic;
            say!("{topic}");
        }
        say!("{}", ability.text());
    }
    say!("best network for clusters (--network auto): {auto}");
    Exit::Valid
}

impl Ability {
    fn json(&self) -> Json {
        json!({
            "topic": self.topic,
            "name": self.name,
            "available": self.is_there,
            "detail": self.detail,
            "remedy": (!self.is_there).then_some(self.remedy),
        })
    }

    fn text(&self) -> String {
        let mark = if self.is_there { '✓' } else { '✗' };
        let mut line = format!("  {mark} {:<12} {}", self.name, self.detail);
        if !self.is_there {
            line.push_str("; ");
            line.push_str(self.remedy);
        }
        line
    }
}

fn networks() -> Vec<Ability> {
    let ability = |kind: NetworkKind, remedy| {
        let tried = probe(kind);
        Ability {
            topic: "networks of their own for nodes (--network)",
            name: kind.name(),
            is_there: tried.is_ok(),
            detail: match tried {
                Ok(()) if kind == NetworkKind::Local => "loopback and proxies".into(),
                Ok(()) => "addresses, switch and processes of their own".into(),
                Err(error) => error.to_string(),
            },
            remedy,
        }
    };
    vec![
        ability(NetworkKind::Local, ""),
        ability(
            NetworkKind::Userns,
            "permit user namespaces: sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ability(
            NetworkKind::Netns,
            "run as root (not needed where userns works)",
        ),
    ]
}

fn disks_and_tools() -> Vec<Ability> {
    let device = |path: &str| match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => (true, path.to_owned()),
        Err(error) => (false, format!("{path}: {error}")),
    };
    let file = |programs: &[&str], missing: &str| match find_program(programs) {
        Some(path) => (true, path.display().to_string()),
        None => (false, missing.to_owned()),
    };
    let row = |topic, name, (is_there, detail), remedy| Ability {
        topic,
        name,
        is_there,
        detail,
        remedy,
    };
    let disks = "disks";
    let tools = "tools";
    let faketime = [
        "/usr/lib/*/faketime/libfaketime.so.1",
        "/usr/lib/faketime/libfaketime.so.1",
        "/usr/local/lib/faketime/libfaketime.so.1",
    ];
    vec![
        row(
            disks,
            "loop",
            device("/dev/loop-control"),
            "run as root, for losses of power on a file system in a file",
        ),
        row(
            disks,
            "fuse",
            device("/dev/fuse"),
            "apt-get install fuse3, and permission for /dev/fuse",
        ),
        row(
            tools,
            "libfaketime",
            file(&faketime, "not found"),
            "apt-get install libfaketime, for clocks of C and Java programs",
        ),
        row(
            tools,
            "ssh",
            file(&["ssh"], "not found"),
            "apt-get install openssh-client",
        ),
    ]
}

/// Looks for a server and asks for its version.
fn server(server: &InstalledServer) -> Ability {
    let path = server.path();
    let detail = match &path {
        None => "not found".to_owned(),
        Some(path) => server.version(path),
    };
    Ability {
        topic: "servers",
        name: server.name,
        is_there: path.is_some(),
        detail,
        remedy: server.remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_has_a_remedy() {
        let mut ability = Ability {
            topic: "servers",
            name: "redis",
            is_there: true,
            detail: "7.0".into(),
            remedy: "install it",
        };
        assert_eq!(ability.text(), "  ✓ redis        7.0");
        assert_eq!(ability.json()["remedy"], Json::Null);
        ability.is_there = false;
        assert_eq!(ability.text(), "  ✗ redis        7.0; install it");
        assert_eq!(ability.json()["remedy"], "install it");
    }
}
