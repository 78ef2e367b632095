//! Servers that are installed on this machine.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server that can be tested, or that one needs, and how its version is asked for.
#[derive(Debug)]
pub struct InstalledServer {
    /// Its name.
    pub name: &'static str,
    /// Names of the program, or patterns of paths with one `*`; `$NAME` at the beginning is an environment variable.
    programs: &'static [&'static str],
    arguments: &'static [&'static str],
    /// What its version must contain.
    wanted: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// Time limit of a program that is asked for its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// Longest output that is read of one.
const VERSION_BYTES: u64 = 4_096;

/// The servers that are looked for.
pub const SERVERS: [InstalledServer; 9] = [
    InstalledServer {
        name: "redis",
        programs: &["redis-server", "valkey-server"],
        arguments: &["--version"],
        wanted: "",
        remedy: "apt-get install redis-server",
    },
    InstalledServer {
        name: "postgres",
        programs: &["/usr/lib/postgresql/*/bin/postgres", "postgres"],
        arguments: &["--version"],
        wanted: "",
        remedy: "apt-get install postgresql",
    },
    InstalledServer {
        name: "etcd",
        programs: &["etcd"],
        arguments: &["--version"],
        wanted: "",
        remedy: "apt-get install etcd-server",
    },
    InstalledServer {
        name: "mariadb",
        programs: &[
            "mariadbd",
            "/usr/sbin/mariadbd",
            "mysqld",
            "/usr/sbin/mysqld",
        ],
        arguments: &["--version"],
        wanted: "",
        remedy: "apt-get install mariadb-server",
    },
    InstalledServer {
        name: "zookeeper",
        programs: &[
            "zkServer.sh",
            "/usr/share/zookeeper/bin/zkServer.sh",
            "/usr/share/java/zookeeper.jar",
        ],
        arguments: &[],
        wanted: "",
        remedy: "apt-get install zookeeper",
    },
    InstalledServer {
        name: "kafka",
        programs: &["$KAFKA_LIB/kafka_*"],
        arguments: &[],
        wanted: "",
        remedy: "name a folder with its jars by KAFKA_LIB; `seatrial test kafka` prints commands that make one",
    },
    InstalledServer {
        name: "nats",
        programs: &["nats-server"],
        arguments: &["--version"],
        wanted: "",
        remedy: "go install github.com/nats-io/nats-server/v2@latest",
    },
    InstalledServer {
        name: "rabbitmq",
        programs: &["rabbitmq-server", "/usr/sbin/rabbitmq-server"],
        arguments: &[],
        wanted: "",
        remedy: "apt-get install rabbitmq-server",
    },
    InstalledServer {
        name: "java",
        programs: &["java"],
        arguments: &["-version"],
        wanted: "",
        remedy: "apt-get install default-jre-headless",
    },
];

/// What proofs need besides: certain versions of servers, and disks whose power can be cut. `seatrial doctor` does not list
/// these.
const OTHERS: [InstalledServer; 8] = [
    InstalledServer {
        name: "zookeeper-3.8.0",
        programs: &["/usr/share/java/zookeeper-3.8.0.jar"],
        arguments: &[],
        wanted: "",
        remedy: "apt-get install zookeeper on Debian 12",
    },
    InstalledServer {
        name: "zookeeper-3.9.4",
        programs: &["./zookeeper-3.9.4/zookeeper-3.9.4.jar"],
        arguments: &[],
        wanted: "",
        remedy: "put its jars into a folder of this name here: docs/guide/proofs.md has the commands",
    },
    InstalledServer {
        name: "etcd-3.5.0",
        programs: &["etcd-3.5.0"],
        arguments: &["--version"],
        wanted: "Version: 3.5.0",
        remedy: "build it with Go and put it into PATH by this name: docs/guide/proofs.md has the commands",
    },
    InstalledServer {
        name: "etcd-3.5.21",
        programs: &["etcd-3.5.21"],
        arguments: &["--version"],
        wanted: "Version: 3.5.21",
        remedy: "build it with Go and put it into PATH by this name: docs/guide/proofs.md has the commands",
    },
    InstalledServer {
        name: "nats-server 2.9.1 or 2.9.10 to 2.9.19",
        programs: &["nats-server"],
        arguments: &["--version"],
        wanted: "v2.9.1",
        remedy: "apt-get install nats-server on Debian 12",
    },
    InstalledServer {
        name: "nats-server-2.12.1",
        programs: &["nats-server-2.12.1"],
        arguments: &["--version"],
        wanted: "",
        remedy: "go install github.com/nats-io/nats-server/v2@v2.12.1, and copy it to a folder in PATH by this name",
    },
    InstalledServer {
        name: "mkfs.xfs",
        programs: &["mkfs.xfs", "/usr/sbin/mkfs.xfs", "/sbin/mkfs.xfs"],
        arguments: &["-V"],
        wanted: "",
        remedy: "apt-get install xfsprogs",
    },
    InstalledServer {
        name: LOOP_DEVICES,
        programs: &["/dev/loop-control"],
        arguments: &[],
        wanted: "",
        remedy: "run it as root, on a kernel that has them",
    },
];

/// Only root may use them.
const LOOP_DEVICES: &str = "loop devices";

impl InstalledServer {
    /// The server called `name`. Panics when there is none: names are in tables.
    pub(crate) fn named(name: &str) -> &'static InstalledServer {
        const ALL: [&[InstalledServer]; 2] = [&SERVERS, &OTHERS];
        let mut all = ALL.into_iter().flatten();
        let found = all.find(|server| server.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in the table of servers"))
    }

    /// The path of its program.
    pub fn path(&self) -> Option<PathBuf> {
        if self.name == LOOP_DEVICES && !rustix::process::geteuid().is_root() {
            return None;
        }
        let path = find_program(self.programs)?;
        (self.wanted.is_empty() || self.version(&path).contains(self.wanted)).then_some(path)
    }

    /// That it is missing, and how to get it.
    pub fn obstacle(&self) -> String {
        let what = if self.name == LOOP_DEVICES {
            "cannot be used"
        } else {
            "is not installed"
        };
        format!("{} {what}: {}", self.name, self.remedy)
    }

    /// Its version, or its path if it has none to print. Asks the program, for at most 5 s.
    pub fn version(&self, path: &Path) -> String {
        if self.arguments.is_empty() {
            return path.display().to_string();
        }
        version(path, self.arguments)
    }
}

/// The first of these programs that exists: in a folder of `PATH`, or at a path, in which a `*` stands for any name; `./` at the
/// beginning is the current folder. `$NAME` there stands for the environment variable, without which there is no such path.
pub fn find_program(programs: &[&str]) -> Option<PathBuf> {
    programs.iter().find_map(|program| {
        let from_variable;
        let program = match program.strip_prefix('$') {
            Some(named) => {
                let (variable, rest) = named.split_once('/')?;
                let folder = std::env::var(variable).ok().filter(|one| !one.is_empty())?;
                from_variable = format!("{folder}/{rest}");
                &from_variable
            }
            None => *program,
        };
        if let Some((before, after)) = program.split_once('*') {
            return find_by_pattern(before, after);
        }
        if program.starts_with('/') || program.starts_with("./") {
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
        let found = find_program(&["/nowhere/*/run", &pattern]).unwrap();
        assert_eq!(found, folder.path().join("server-15/run"));
        assert_eq!(
            find_program(&["/nowhere/server", "no-such-program-7"]),
            None
        );
        // Cargo sets this one.
        let manifest = find_program(&["$NO_SUCH_VARIABLE_7/x", "$CARGO_MANIFEST_DIR/Cargo.*"]);
        assert!(manifest.unwrap().ends_with("Cargo.toml"));
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let redis = InstalledServer::named("redis").obstacle();
        assert_eq!(
            redis,
            "redis is not installed: apt-get install redis-server"
        );
        let devices = InstalledServer::named(LOOP_DEVICES).obstacle();
        assert!(
            devices.starts_with("loop devices cannot be used: run it as root"),
            "{devices}"
        );
    }

    #[test]
    fn another_version_counts_as_missing() {
        let mut shell = InstalledServer {
            name: "shell",
            programs: &["/bin/sh"],
            arguments: &["-c", "echo v2.9.10"],
            wanted: "v2.9.1",
            remedy: "",
        };
        assert_eq!(shell.path(), Some(PathBuf::from("/bin/sh")));
        shell.wanted = "v2.9.2";
        assert_eq!(shell.path(), None);
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
}
