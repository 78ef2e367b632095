//! `seatrial volume`: its commands, with replicas and the owner of a volume as processes.

use super::process::{PATIENCE, Server, binary, free_addresses, run};
use super::scratch::Scratch;
use crate::spoken;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Runs `seatrial volume` to its end; returns exit status and both outputs.
pub(super) fn volume(words: &[&str]) -> (i32, String) {
    let output = run(&[&["volume"], words].concat());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}

/// Asserts exit status and a part of the output.
pub(super) fn assert_volume(words: &[&str], status: i32, part: &str) -> String {
    let (found, text) = volume(words);
    assert!(
        found == status && text.contains(part),
        "{words:?}: {found} {text}"
    );
    text
}

/// The owner of a volume as a process; killed when dropped.
pub(super) struct Attached {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    /// What it reported until then.
    said: String,
}

impl Attached {
    /// Attaches, and waits until NBD is served.
    pub(super) fn start(folder: &str, words: &[&str]) -> Attached {
        let socket = format!("unix:{folder}/nbd");
        let mut command = Command::new(binary());
        command
            .args(["volume", "attach", folder, "--nbd", &socket])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = spoken::spawn(&mut command);
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("attached: ") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        Attached { child, lines, said }
    }

    /// Waits for its end; returns exit status and what else it reported.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }

    pub(super) fn terminate(self) -> (Option<i32>, String) {
        let number = self.child.id().to_string();
        assert!(Command::new("kill").arg(number).status().unwrap().success());
        self.end()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// An NBD client with one request at a time.
pub(super) struct GuestConnection(UnixStream);

impl GuestConnection {
    pub(super) fn attach(folder: &str) -> GuestConnection {
        let mut stream = UnixStream::connect(format!("{folder}/nbd")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .unwrap();
        stream.read_exact(&mut [0; 28]).unwrap();
        GuestConnection(stream)
    }

    /// The error of a request, after which the data of a read follow.
    fn request(&mut self, kind: u32, offset: u64, length: u32, payload: &[u8]) -> u32 {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).unwrap();
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        u32::from_be_bytes(*head[4..].first_chunk().unwrap())
    }

    pub(super) fn write(&mut self, offset: u64, payload: &[u8]) {
        assert_eq!(self.request(1, offset, payload.len() as u32, payload), 0);
    }

    pub(super) fn flush(&mut self) {
        assert_eq!(self.request(3, 0, 0, &[]), 0);
    }

    pub(super) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        match self.request(0, offset, length as u32, &[]) {
            0 => {
                let mut bytes = vec![0; length];
                self.0.read_exact(&mut bytes).unwrap();
                Ok(bytes)
            }
            error => Err(error),
        }
    }
}

/// The body of a page of the status server that a process has reported.
fn page(said: &str, path: &str) -> String {
    let address = said.split("http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    reply
}

/// A volume of 16 MiB with three replicas that do not run yet; its folder.
pub(super) fn create(scratch: &Scratch, name: &str) -> String {
    create_with(scratch, name, &[])
}

/// [`create`] with further options.
pub(super) fn create_with(scratch: &Scratch, name: &str, options: &[&str]) -> String {
    let folder = scratch.path(name);
    create_sized(&folder, "16MiB", "4096", options);
    folder
}

fn create_sized(folder: &str, size: &str, blocks: &str, options: &[&str]) {
    let addresses: Vec<String> = free_addresses(3).iter().map(ToString::to_string).collect();
    let addresses = addresses.join(",");
    let words = ["create", folder, "--size", size, "--addresses", &addresses];
    let words = [&words[..], options].concat();
    let created = format!("{blocks} blocks of 4096 bytes on 3 replicas");
    assert_volume(&words, 0, &created);
}

fn downstairs(folder: &str, number: u32) -> Server {
    let number = number.to_string();
    Server::start(&["volume", "downstairs", folder, "--node", &number])
}

/// Waits until the status has this exit status; returns its text.
pub(super) fn await_status(folder: &str, status: i32) -> String {
    let since = Instant::now();
    loop {
        let (found, text) = volume(&["status", folder]);
        if found == status {
            return text;
        }
        assert!(since.elapsed() < PATIENCE, "{found} {text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_volume_outlives_a_replica_and_its_owner() {
    let scratch = Scratch::new("volume-kills");
    let folder = create(&scratch, "disk");
    let mut replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    let mut client = GuestConnection::attach(&folder);
    client.write(0, &[1; 8_192]);
    client.flush();
    replicas.remove(1);
    client.write(4_096, &[2; 4_096]);
    client.write(1 << 20, &[3; 100]); // part of a block
    client.flush();
    let text = await_status(&folder, 1);
    assert!(text.contains("n2 offline"), "{text}");
    drop(owner); // killed
    // Another replica than the one that was away.
    replicas.remove(0);
    replicas.push(downstairs(&folder, 2));
    let owner = Attached::start(&folder, &[]);
    let mut client = GuestConnection::attach(&folder);
    assert_eq!(client.read(0, 4_096), Ok(vec![1; 4_096]));
    assert_eq!(client.read(4_096, 4_096), Ok(vec![2; 4_096]));
    let part = client.read((1 << 20) - 10, 120).unwrap();
    assert_eq!(part, [&[0; 10][..], &[3; 100], &[0; 10]].concat());
    assert_volume(&["snapshot", &folder, "kept"], 0, "");
    // The third replica gets the snapshot while it is repaired.
    replicas.push(downstairs(&folder, 1));
    await_status(&folder, 0);
    assert_volume(&["snapshot", &folder, "kept"], 1, "kept");
    assert_volume(&["status", &folder], 0, "snapshot kept");
    assert_volume(&["snapshot", &folder, "kept", "--drop"], 0, "");
    assert_volume(
        &["bench", &folder, "--time", "1", "--depth", "4"],
        0,
        "random-read",
    );
    let words = ["bench", &folder, "--workloads", "write"];
    assert_volume(&words, 254, "--overwrite allows it");
    let words = ["bench", &folder, "--native"];
    assert_volume(
        &words,
        254,
        "the volume is attached; --native takes it itself",
    );
    assert_volume(
        &["verify", &folder],
        254,
        "its replica is running; stop it first",
    );
    assert_eq!(owner.terminate().0, Some(0));
    assert_volume(&["status", &folder], 254, "the volume is not attached");
    let words = ["bench", &folder, "--native", "--time", "1", "--depth", "4"];
    let text = assert_volume(&words, 0, "random-read");
    assert!(!text.contains("write"), "it may not write: {text}");
    drop(replicas);
    let text = assert_volume(&["verify", &folder], 0, "intact");
    assert_eq!(text.matches("intact").count(), 3, "{text}");
    assert_volume(&["diff", &folder], 0, "0 different, 0 changed later");
    let text = assert_volume(&["dump", &folder, "--blocks"], 0, "generation 3");
    assert!(text.contains("\n256 "), "block 256 was written: {text}");
}

/// An owner that is stopped makes the last writes durable at once; without a quorum it says that it could not.
/// Its log may become longer than any memory, so its replicas write long appends past the page cache.
#[test]
fn long_writes_to_a_large_volume_outlive_all_its_processes() {
    let scratch = Scratch::new("volume-large");
    let folder = scratch.path("disk");
    create_sized(&folder, "1TiB", "268435456", &[]);
    let replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    let mut client = GuestConnection::attach(&folder);
    let mut expected = vec![0; 8 << 20];
    // Long and short ones, over each other: parts of a log's pages are written both ways.
    for (number, length) in (1..=24_u8).zip([1_usize << 20, 5_000, 300 << 10, 2 << 20].repeat(6)) {
        let start = usize::from(number) * 70_001 % (expected.len() - length);
        let bytes: Vec<u8> = (0..length).map(|at| (at / 100) as u8 ^ number).collect();
        expected[start..start + length].copy_from_slice(&bytes);
        client.write(start as u64, &bytes);
    }
    assert!(client.read(0, expected.len()).as_ref() == Ok(&expected));
    client.flush();
    drop((owner, replicas)); // killed
    let replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    let mut client = GuestConnection::attach(&folder);
    assert!(client.read(0, expected.len()).as_ref() == Ok(&expected));
    assert_eq!(owner.terminate().0, Some(0));
    drop(replicas);
    let text = assert_volume(&["verify", &folder], 0, "intact");
    assert_eq!(text.matches("intact").count(), 3, "{text}");
}

#[test]
fn a_stopped_owner_ends_when_all_is_durable() {
    let scratch = Scratch::new("volume-stop");
    let folder = create(&scratch, "disk");
    let mut replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    assert_volume(&["rotate", &folder], 0, "key 1 is used");
    GuestConnection::attach(&folder).write(0, &[1; 4_096].repeat(16));
    let since = Instant::now();
    let (status, text) = owner.terminate();
    assert_eq!(status, Some(0), "{text}");
    assert!(!text.contains("did not close"), "{text}");
    assert!(since.elapsed().as_secs() < 8, "{:?}", since.elapsed());
    let owner = Attached::start(&folder, &[]);
    let mut client = GuestConnection::attach(&folder);
    assert_eq!(client.read(0, 65_536), Ok(vec![1; 65_536]));
    replicas.truncate(1);
    client.write(0, &[2; 4_096]);
    let (status, text) = owner.terminate();
    assert_eq!(status, Some(254), "{text}");
    assert!(text.contains("the last writes are not durable"), "{text}");
}

#[test]
fn a_damaged_replica_is_found() {
    let scratch = Scratch::new("volume-damage");
    let folder = create(&scratch, "disk");
    let replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    let mut client = GuestConnection::attach(&folder);
    client.write(0, &[1; 4_096]);
    client.flush();
    assert_eq!(owner.terminate().0, Some(0));
    drop(replicas);
    // Damage before what was written next to it looks like a torn end. After a start, what is written shows that all before it
    // was there.
    let replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let owner = Attached::start(&folder, &[]);
    await_status(&folder, 0);
    assert_eq!(owner.terminate().0, Some(0));
    drop(replicas);
    assert_volume(&["verify", &folder], 0, "intact");
    // The plain bytes are nowhere in the folder.
    let log = PathBuf::from(format!("{folder}/replica-2/log"));
    let mut bytes = fs::read(&log).unwrap();
    assert!(!bytes.windows(64).any(|it| it == [1; 64]), "encrypted");
    bytes[1_000] ^= 1;
    fs::write(&log, bytes).unwrap();
    let one = format!("{folder}/replica-1");
    let two = format!("{folder}/replica-2");
    assert_volume(&["verify", &folder, "--data", &two], 1, "1 damaged part");
    assert_volume(&["verify", &folder, "--data", &one], 0, "intact");
    let key = format!("{folder}/key");
    fs::write(&key, "7".repeat(64)).unwrap();
    let words = ["verify", &folder, "--data", &one];
    assert_volume(&words, 254, "this is not the key of the volume");
    // A volume that was made before its file knew the key: the seals tell.
    let file = format!("{folder}/volume.toml");
    let text = fs::read_to_string(&file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("key-check"));
    let older = lines.collect::<Vec<_>>().join("\n");
    assert_ne!(older, text.trim_end());
    fs::write(&file, older).unwrap();
    assert_volume(&words, 1, "it was not sealed with this key");
    fs::remove_file(key).unwrap();
    assert_volume(&words, 0, "the seals are not checked");
}

#[test]
fn a_later_owner_takes_the_volume() {
    let scratch = Scratch::new("volume-taken");
    let folder = create(&scratch, "disk");
    let _replicas: Vec<Server> = (1..=3).map(|it| downstairs(&folder, it)).collect();
    let first = Attached::start(&folder, &[]);
    let words = ["attach", &folder, "--nbd", "127.0.0.1:0"];
    assert_volume(&words, 254, "is the volume attached by another process?");
    // As on another machine.
    let copy = scratch.path("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["volume.toml", "key", "link-key"] {
        fs::copy(format!("{folder}/{name}"), format!("{copy}/{name}")).unwrap();
    }
    GuestConnection::attach(&folder).write(0, &[5; 4_096]);
    let _second = Attached::start(&copy, &["--read-only"]);
    let (status, text) = first.end();
    assert_eq!(status, Some(254), "{text}");
    assert!(text.contains("deposed: generation 2"), "{text}");
    let mut client = GuestConnection::attach(&copy);
    assert_eq!(client.request(1, 0, 512, &[0; 512]), 1, "EPERM: read-only");
    let words = ["bench", &copy, "--overwrite", "--workloads", "write"];
    assert_volume(&words, 254, "attached read-only");
}

#[test]
fn a_page_shows_the_volume() {
    let scratch = Scratch::new("volume-page");
    let folder = create(&scratch, "disk");
    let words = ["volume", "downstairs", &folder, "--http", "0"];
    let first = Server::start(&words);
    let _second = downstairs(&folder, 2);
    let owner = Attached::start(&folder, &["--http", "0"]);
    let mut client = GuestConnection::attach(&folder);
    client.write(0, &[1; 4_096]);
    client.flush();
    let since = Instant::now();
    while !page(&owner.said, "/metrics").contains("volume_write_seconds_count 1") {
        assert!(
            since.elapsed() < PATIENCE,
            "{}",
            page(&owner.said, "/metrics")
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let metrics = page(&owner.said, "/metrics");
    for part in [
        "volume_is_active 1",
        "volume_replica_is_active{replica=\"n1\"} 1",
        "volume_replica_is_active{replica=\"n3\"} 0",
        "volume_written_bytes_total 4096",
    ] {
        assert!(metrics.contains(part), "{part}: {metrics}");
    }
    assert!(page(&owner.said, "/").contains("Replicas"));
    let text = assert_volume(
        &["status", &folder],
        1,
        "write request: 1 times, half of them within",
    );
    for stage in ["flush on a quorum: ", "write or flush of n1: "] {
        assert!(text.contains(stage), "{stage}: {text}");
    }
    let metrics = page(&first.said().join(" "), "/metrics");
    assert!(metrics.contains("region_has_session 1"), "{metrics}");
    let words = ["attach", &folder, "--http", "page"];
    assert_volume(&words, 254, "--http takes a port");
}

#[test]
fn a_volume_of_its_own_is_measured() {
    let scratch = Scratch::new("volume-bench");
    let folder = scratch.path("bench");
    let csv = scratch.path("figures.csv");
    let words = [
        "bench",
        "volume",
        "--time",
        "1",
        "--size",
        "8MiB",
        "--lengths",
        "4KiB",
    ];
    let words = [&words[..], &["--data", &folder, "--csv", &csv]].concat();
    let output = run(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let figures = fs::read_to_string(csv).unwrap();
    let rows: Vec<Vec<&str>> = figures.lines().map(|it| it.split(',').collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let expected = [
        "workload",
        "random-read",
        "read",
        "random-write",
        "write",
        "write-flush",
    ];
    assert_eq!(names, expected);
    for row in &rows[1..] {
        assert_eq!(row.len(), rows[0].len());
        assert!(row[4].parse::<u64>().unwrap() > 0, "operations: {row:?}");
    }
    assert!(!Path::new(&folder).exists(), "it is removed");
    let output = run(&["bench", "volume", "--data", &scratch.path("")]);
    assert_eq!(output.status.code(), Some(254));
    let words = [
        "bench",
        "volume",
        "--twins",
        "--time",
        "1",
        "--lengths",
        "4KiB",
    ];
    let output = run(&words);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for row in ["one owner    in the turn", "shared lock  beside"] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn a_test_of_processes_with_kills_is_valid() {
    let scratch = Scratch::new("volume-test");
    let out = scratch.path("run");
    let words = [
        "test",
        "volume",
        "--time",
        "5",
        "--faults",
        "kill,pause,partition",
    ];
    let since = Instant::now();
    let tested = run(&[&words[..], &["--interval", "1", "--out", &out]].concat());
    let elapsed = since.elapsed();
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    let errors = String::from_utf8_lossy(&tested.stderr).into_owned();
    assert_eq!(tested.status.code(), Some(0), "{said}{errors}");
    // A verdict at most 15 s after the time of the test.
    assert!(elapsed.as_secs() < 20, "{elapsed:?}: {said}");
    assert!(
        said.contains("valid") && !errors.contains("panicked"),
        "{said}{errors}"
    );
    // The checker is also found without the suite's name.
    let history = format!("{out}/history.sea");
    let checked = run(&["check", &history, "--checker", "disk"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn wrong_words_are_refused() {
    let scratch = Scratch::new("volume-words");
    let folder = create(&scratch, "disk");
    let none = scratch.path("none");
    for (words, part) in [
        (&["create", &folder][..], "there is a volume already"),
        (&["create", &none, "--size", "1GB"], "--size takes a size"),
        (&["create", &none, "--size", "1000"], "no multiple of 4096"),
        (&["create", &none, "--block-size", "1000"], "1000"),
        (&["create", &none, "--replicas", "6"], "--replicas"),
        (&["create", &none, "--addresses", "here"], "no address"),
        (
            &["status", &none],
            "`seatrial volume create` makes a volume",
        ),
        (&["status", &folder], "is not attached"),
        (&["downstairs", &folder, "--node", "4"], "--node"),
        (&["attach", &folder, "--nbd", "nbd"], "--nbd takes"),
        (&["attach", &folder, "--inline", "x"], "--inline takes"),
        (&["snapshot", &folder, "a b"], "no name of a snapshot"),
        (
            &["replace", &folder, "n9", "127.0.0.1:1"],
            "n9 is no replica",
        ),
        (&["replace", &folder, "n1", "there"], "no address"),
        (&["verify", &folder], "there is no replica's folder"),
        (&["verify", &folder, "--data", &none], "no such folder"),
        (
            &["bench", &folder, "--workloads", "x"],
            "unknown workload `x`",
        ),
        (&["bench", &folder, "--lengths", "1"], "--lengths takes"),
    ] {
        assert_volume(words, 254, part);
    }
    assert!(!Path::new(&none).exists(), "nothing was made");
}

/// Are these programs here, and may they be used? In CI, which installs them, they must be.
fn are_here(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here =
        |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let is_root = rustix::process::getuid().is_root();
    let missing = programs.iter().find(|name| !is_here(name));
    let reason = match missing {
        Some(name) => format!("{name} is not installed"),
        None if !is_root => "only root mounts".to_owned(),
        None if !Path::new("/dev/fuse").exists() => "/dev/fuse is missing".to_owned(),
        None => return true,
    };
    let is_strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_strict || missing.is_none(), "{reason}");
    println!("skipped: {reason}");
    false
}

/// The guide's commands, typed as they stand.
#[test]
fn the_guide_ends_with_ext4() {
    if !are_here(&["nbdinfo", "nbdfuse", "fusermount3", "mkfs.ext4", "losetup"]) {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/volume.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).collect();
    let blocks: Vec<&str> = blocks
        .iter()
        .map(|it| it.split("```").next().unwrap())
        .collect();
    let script = format!("set -e\n{}{}", blocks[0], blocks[1]);
    let scratch = Scratch::new("volume-guide");
    let folder = PathBuf::from(scratch.path("here"));
    fs::create_dir(&folder).unwrap();
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(binary(), bin.join("seatrial")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let child = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .env("PATH", path)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(fs::File::create(folder.join("out")).unwrap())
        .stderr(fs::File::create(folder.join("error")).unwrap())
        .process_group(0)
        .spawn();
    let mut child = child.unwrap();
    let status = child.wait().unwrap();
    // The background processes are of the same group.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["--", &group]).status();
    let out = fs::read_to_string(folder.join("out")).unwrap();
    let error = fs::read_to_string(folder.join("error")).unwrap();
    if !status.success() {
        let mounts = [folder.join("disk/mnt"), folder.join("disk/fuse")];
        for mount in mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
    }
    assert!(status.success(), "{out}\n{error}");
    assert!(out.ends_with("hello\n"), "{out}\n{error}");
}
