//! `seatrial doctor`: what this machine can do, and how to get what is missing.

use crate::args::DoctorArguments;
use crate::exit::Exit;
use crate::output::say;
use seatrial_namespace::{NetworkKind, best_kind, probe};
use serde_json::{Value as Json, json};
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// A server that suites test, and how its version is asked for.
struct Server {
    name: &'static str,
    /// Names of the program, or patterns of paths with one `*`.
    programs: &'static [&'static str],
    arguments: &'static [&'static str],
    remedy: &'static str,
}

/// Time limit of a program that is asked for its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// Longest output that is read of one.
const VERSION_BYTES: u64 = 4_096;

/// The servers and tools that are looked for.
const SERVERS: [Server; 9] = [
    Server {
        name: "redis",
        programs: &["redis-server", "valkey-server"],
        arguments: &["--version"],
        remedy: "apt-get install redis-server",
    },
    Server {
        name: "postgres",
        programs: &["/usr/lib/postgresql/*/bin/postgres", "postgres"],
        arguments: &["--version"],
        remedy: "apt-get install postgresql",
    },
    Server {
        name: "etcd",
        programs: &["etcd"],
        arguments: &["--version"],
        remedy: "apt-get install etcd-server",
    },
    Server {
        name: "mariadb",
        programs: &[
            "mariadbd",
            "/usr/sbin/mariadbd",
            "mysqld",
            "/usr/sbin/mysqld",
        ],
        arguments: &["--version"],
        remedy: "apt-get install mariadb-server",
    },
    Server {
        name: "zookeeper",
        programs: &[
            "zkServer.sh",
            "/usr/share/zookeeper/bin/zkServer.sh",
            "/usr/share/java/zookeeper.jar",
        ],
        arguments: &[],
        remedy: "apt-get install zookeeper",
    },
    Server {
        name: "kafka",
        programs: &[
            "kafka-server-start.sh",
            "/opt/kafka*/bin/kafka-server-start.sh",
        ],
        arguments: &[],
        remedy: "needs java; Maven has org.apache.kafka:kafka_2.13",
    },
    Server {
        name: "nats",
        programs: &["nats-server"],
        arguments: &["--version"],
        remedy: "go install github.com/nats-io/nats-server/v2@latest",
    },
    Server {
        name: "rabbitmq",
        programs: &["rabbitmq-server", "/usr/sbin/rabbitmq-server"],
        arguments: &[],
        remedy: "apt-get install rabbitmq-server",
    },
    Server {
        name: "java",
        programs: &["java"],
        arguments: &["-version"],
        remedy: "apt-get install default-jre-headless",
    },
];

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
    let file = |programs: &[&str], missing: &str| match find(programs) {
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
fn server(server: &Server) -> Ability {
    let path = find(server.programs);
    let detail = match &path {
        None => "not found".to_owned(),
        Some(path) if server.arguments.is_empty() => path.display().to_string(),
        Some(path) => version(path, server.arguments),
    };
    Ability {
        topic: "servers",
        name: server.name,
        is_there: path.is_some(),
        detail,
        remedy: server.remedy,
    }
}

/// The first of these programs that exists: in a folder of `PATH`, or at a path, in which a `*` stands for any name.
fn find(programs: &[&str]) -> Option<PathBuf> {
    programs.iter().find_map(|program| {
        if let Some((before, after)) = program.split_once('*') {
            return find_by_pattern(before, after);
        }
        if program.starts_with('/') {
            return Some(PathBuf::from(program)).filter(|path| path.exists());
        }
        let folders = std::env::var_os("PATH")?;
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
        paths.find(|path| path.is_file())
    })
}

/// The last path, in order, that begins with `before` and ends with `after`, with one name between.
fn find_by_pattern(before: &str, after: &str) -> Option<PathBuf> {
    let (folder, prefix) = before.rsplit_once('/')?;
    let entries = fs::read_dir(Path::new(folder)).ok()?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let paths = names.filter(|name| name.starts_with(prefix));
    let paths = paths.map(|name| PathBuf::from(format!("{folder}/{name}{after}")));
    paths.filter(|path| path.exists()).max()
}

/// The first line that a program prints about its version, or why there is none. A program that hangs is killed.
fn version(path: &Path, arguments: &[&str]) -> String {
    let shown = path.display();
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("{shown}: {error}"),
    };
    let deadline = Instant::now() + VERSION_LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return format!("{shown}: no version within {} s", VERSION_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut text = Vec::new();
    if let Some(out) = child.stdout.take() {
        let _ = out.take(VERSION_BYTES).read_to_end(&mut text);
    }
    if let Some(out) = child.stderr.take().filter(|_| text.is_empty()) {
        let _ = out.take(VERSION_BYTES).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.map_or_else(|| shown.to_string(), |line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_the_last_name_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["server-14", "server-15", "other-99"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("run"), "").unwrap();
        }
        fs::create_dir(folder.path().join("server-16")).unwrap();
        let pattern = format!("{}/server-*/run", folder.path().display());
        let found = find(&["/nowhere/*/run", &pattern]).unwrap();
        assert_eq!(found, folder.path().join("server-15/run"));
        assert_eq!(find(&["/nowhere/server", "no-such-program-7"]), None);
    }

    #[test]
    fn versions_come_from_either_stream() {
        let shell = Path::new("/bin/sh");
        assert_eq!(
            version(shell, &["-c", "echo; echo ' v1 '; echo more"]),
            "v1"
        );
        assert_eq!(version(shell, &["-c", "echo v2 >&2; exit 3"]), "v2");
        assert_eq!(version(shell, &["-c", ":"]), "/bin/sh");
        let missing = version(Path::new("/nowhere/server"), &[]);
        assert!(missing.contains("/nowhere/server: "), "{missing}");
    }

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
