//! NBD clients that are not ours: libnbd's tools, qemu's, fio's engine, and the kernel's ext4 through FUSE and a loop device.
//!
//! A missing program skips its test with the reason; in CI (`CI=true`), which installs them, it fails.

use crate::memory_volume::{ServedVolume, export};
use seatrial_volume_suite::{NbdAddress, NbdLimits};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Are these programs here?
fn are_here(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_here =
        |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let Some(missing) = programs.iter().find(|name| !is_here(name)) else {
        return true;
    };
    let is_strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_strict, "{missing} is not installed");
    println!("skipped: {missing} is not installed");
    false
}

/// Runs a program to its success; returns its output.
fn run(program: &str, arguments: &[&str]) -> String {
    let output: Output = Command::new("timeout")
        .args(["60", program])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text
}

fn on_socket(folder: &Path, bytes: u64) -> (ServedVolume, String) {
    let address = NbdAddress::Unix(folder.join("nbd"));
    let served = ServedVolume::start(export(bytes), address, NbdLimits::default());
    let uri = served.address.to_string();
    (served, uri)
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    let word = |number: usize| {
        (number as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes()
    };
    (0..length.div_ceil(8))
        .flat_map(word)
        .take(length)
        .collect()
}

#[test]
fn nbdinfo_shows_what_is_offered() {
    if !are_here(&["nbdinfo"]) {
        return;
    }
    let served = ServedVolume::on_tcp(64 << 20);
    let uri = served.address.to_string();
    let shown = run("nbdinfo", &["--json", &uri]);
    for part in [
        "\"export-name\": \"memory\"",
        "\"description\": \"a volume in memory\"",
        "\"base:allocation\"",
        "\"export-size\": 67108864",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"is_read_only\": false",
        "\"block_size_minimum\": 1",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let listed = run("nbdinfo", &["--list", &uri]);
    assert!(listed.contains("memory"), "{listed}");
    served.end();
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    if !are_here(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    // Not a whole number of blocks, with a hole in the middle.
    let mut bytes = pattern(24_000_123);
    bytes[8_000_000..16_000_000].fill(0);
    let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
    fs::write(&from, &bytes).unwrap();
    let (served, uri) = on_socket(scratch.path(), 64 << 20);
    run("nbdcopy", &["--flush", from.to_str().unwrap(), &uri]);
    let map = run("nbdinfo", &["--map", "--totals", &uri]);
    assert!(map.contains("hole,zero"), "{map}");
    run("nbdcopy", &[&uri, to.to_str().unwrap()]);
    let copied = fs::read(&to).unwrap();
    assert!(copied[..bytes.len()] == bytes, "the copy differs");
    assert!(copied[bytes.len()..].iter().all(|&byte| byte == 0));
    served.end();
}

#[test]
fn qemu_writes_reads_discards_and_converts() {
    if !are_here(&["qemu-io", "qemu-img"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (served, uri) = on_socket(scratch.path(), 64 << 20);
    let commands = [
        "write -P 0x5a 1000 70000",
        "write -P 0x11 1M 5M",
        "aio_write -P 0x22 7M 64k",
        "aio_write -P 0x33 8M 3",
        "aio_flush",
        "write -f -P 0x44 20M 512",
        "flush",
        "read -P 0x5a 1000 70000",
        "read -P 0 0 1000",
        "read -P 0x33 8M 3",
        "read -P 0 8388611 100",
        "write -z 2M 1M",
        "write -z -u 3M 1M",
        "discard 4M 1M",
        "read -P 0x11 1M 1M",
        "read -P 0 2M 3M",
        "read -P 0x11 5M 1M",
        "read -P 0x44 20M 512",
    ];
    let mut arguments = vec!["-f", "raw", &uri];
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    let shown = run("qemu-io", &arguments);
    assert!(!shown.contains("Pattern verification failed"), "{shown}");
    let copy = scratch.path().join("copy.qcow2");
    let copy = copy.to_str().unwrap();
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &uri, copy],
    );
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", &uri, copy],
    );
    let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"zero\": true"), "{map}");
    served.end();
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !are_here(&["fio"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (served, uri) = on_socket(scratch.path(), 64 << 20);
    let place = format!("--uri={uri}");
    for (size, depth) in [("4k", "25"), ("1m", "8"), ("512-70000", "16")] {
        let sizes = format!(
            "--bsrange={}",
            if size.contains('-') {
                size.to_owned()
            } else {
                format!("{size}-{size}")
            }
        );
        let depth = format!("--iodepth={depth}");
        run(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &place,
                "--rw=randwrite",
                &sizes,
                "--bs_unaligned",
                &depth,
                "--size=32m",
                "--verify=crc32c",
                "--verify_state_save=0",
                "--verify_fatal=1",
                "--fsync=100",
                "--randseed=7",
            ],
        );
    }
    served.end();
}

/// Why the kernel cannot mount the volume here.
fn cannot_mount() -> Option<&'static str> {
    let is_root = Command::new("id").arg("-u").output();
    if !is_root.is_ok_and(|it| it.stdout == b"0\n") {
        return Some("it needs root");
    }
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Some("it needs /dev/fuse and loop devices");
    }
    None
}

/// The export as a file, by FUSE; unmounted at the end.
struct Fused {
    folder: PathBuf,
    process: Child,
}

impl Fused {
    fn mount(folder: PathBuf, uri: &str) -> Fused {
        fs::create_dir(&folder).unwrap();
        let process = Command::new("nbdfuse")
            .arg(&folder)
            .arg(uri)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let fused = Fused { folder, process };
        let begin = Instant::now();
        while !fused.file().exists() {
            assert!(begin.elapsed() < Duration::from_secs(20), "nbdfuse");
            thread::sleep(Duration::from_millis(20));
        }
        fused
    }

    fn file(&self) -> PathBuf {
        self.folder.join("nbd")
    }
}

impl Drop for Fused {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3")
            .arg("-u")
            .arg(&self.folder)
            .status();
        let _ = self.process.wait();
    }
}

/// A mounted ext4 on a loop device on a file; undone at the end.
struct Mounted {
    device: String,
    folder: PathBuf,
}

impl Mounted {
    fn mount(file: &Path, folder: PathBuf, is_new: bool) -> Mounted {
        let device = run("losetup", &["-f", "--show", file.to_str().unwrap()]);
        let device = device.trim().to_owned();
        let mounted = Mounted { device, folder };
        if is_new {
            fs::create_dir(&mounted.folder).unwrap();
            run("mkfs.ext4", &["-q", &mounted.device]);
        } else {
            run("e2fsck", &["-fn", &mounted.device]);
        }
        let folder = mounted.folder.to_str().unwrap();
        run("mount", &[&mounted.device, folder]);
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

#[test]
fn ext4_of_the_kernel_keeps_its_files() {
    if !are_here(&["nbdfuse", "fusermount3", "losetup", "mkfs.ext4"]) {
        return;
    }
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (served, uri) = on_socket(scratch.path(), 96 << 20);
    let bytes = pattern(20 << 20);
    let folder = scratch.path().join("mounted");
    for is_new in [true, false] {
        let fused = Fused::mount(scratch.path().join(format!("fuse-{is_new}")), &uri);
        let mounted = Mounted::mount(&fused.file(), folder.clone(), is_new);
        let file = mounted.folder.join("file");
        if is_new {
            fs::write(&file, &bytes).unwrap();
            fs::write(mounted.folder.join("gone"), &bytes).unwrap();
            fs::File::open(&file).unwrap().sync_all().unwrap();
            fs::remove_file(mounted.folder.join("gone")).unwrap();
            run("fstrim", &[mounted.folder.to_str().unwrap()]);
        }
        assert!(fs::read(&file).unwrap() == bytes, "the file differs");
        drop(mounted);
        drop(fused);
    }
    served.end();
}
