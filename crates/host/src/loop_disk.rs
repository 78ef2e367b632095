//! A file system on a loop device that loses its power: what was not synced is lost, as in a real failure.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Tries to unmount while a killed process is still on its way out.
const TRIES: u32 = 100;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// What a cut leaves of the file system's journal in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFlush {
    /// It is written first, as if the cut came a moment after a commit.
    Journal,
    /// Nothing is written any more.
    Nothing,
}

/// A file system on a loop device of its own, mounted. Dropping it unmounts and detaches it.
///
/// Needs root, `losetup`, `mount` and `mkfs` of the file system; [`LoopDisk::check`] says what is missing. All calls block, for
/// about a tenth of a second.
#[derive(Debug)]
pub struct LoopDisk {
    device: String,
    point: PathBuf,
    is_mounted: bool,
}

impl LoopDisk {
    /// Makes a file system of this kind (`ext4` or `xfs`) of this many bytes in the file `image`, and mounts it at `point`. The
    /// file is sparse: it takes as much as is written.
    pub fn new(kind: &str, length: u64, image: &Path, point: &Path) -> io::Result<LoopDisk> {
        File::create(image)?.set_len(length)?;
        fs::create_dir_all(point)?;
        let device = system("losetup", &["--find", "--show", &name(image)])?;
        let mut disk = LoopDisk {
            device: device.trim().to_owned(),
            point: point.to_owned(),
            is_mounted: false,
        };
        disk.format(kind)?;
        Ok(disk)
    }

    /// Writes all that it has been given to the image.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.point)?)?)
    }

    /// Tries one in a temporary folder: makes it, cuts its power, and removes it. The error says what this machine lacks.
    pub fn check(kind: &str, folder: &Path) -> io::Result<()> {
        let mut disk = LoopDisk::new(
            kind,
            LoopDisk::LENGTH,
            &folder.join("image"),
            &folder.join("disk"),
        )?;
        disk.cut(JournalFlush::Nothing)?;
        disk.unmount()
    }

    /// Bytes of a file system that is large enough for a test: XFS has at least 300 MiB.
    pub const LENGTH: u64 = 1 << 30;

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// An empty file system.
    pub fn format(&mut self, kind: &str) -> io::Result<()> {
        self.unmount()?;
        let force = if kind == "xfs" { "-f" } else { "-F" };
        system(&format!("mkfs.{kind}"), &["-q", force, &self.device])?;
        self.mount()
    }

    /// Mounts it again after [`LoopDisk::unmount`]; the file system recovers from its journal.
    pub fn mount(&mut self) -> io::Result<()> {
        system("mount", &[&self.device, &name(&self.point)])?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts it. Waits for two seconds for processes that have files open.
    pub fn unmount(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            if !self.is_mounted {
                return Ok(());
            }
            self.is_mounted = system("umount", &[&name(&self.point)]).is_err();
            if self.is_mounted {
                std::thread::sleep(PAUSE);
            }
        }
        let reason = format!("{} stays busy", self.point.display());
        Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
    }

    /// Cuts the power: from now on nothing reaches the device, reads and writes fail, and what is in memory only is lost. Unmount
    /// and mount it to have the power back.
    pub fn cut(&self, flush: JournalFlush) -> io::Result<()> {
        let folder = File::open(&self.point)?;
        let flags = match flush {
            JournalFlush::Journal => 1,
            JournalFlush::Nothing => 2,
        };
        shut_down(&folder, flags)
            .map_err(|error| io::Error::other(format!("the file system's shutdown call: {error}")))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // Whatever is left is named by `losetup --list`.
        let _ = self.unmount();
        let _ = system("losetup", &["--detach", &self.device]);
    }
}

/// The call by which file systems are tested against a loss of power: `FS_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`. ext4 and XFS
/// take the same flags.
fn shut_down(folder: &File, flags: u32) -> io::Result<()> {
    const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
    #[expect(unsafe_code, reason = "a call of file systems that no safe crate has")]
    // SAFETY: the call reads one word of 32 bits at the address that it is given, and writes nothing.
    unsafe {
        rustix::ioctl::ioctl(folder, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(flags))?;
    }
    Ok(())
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a program of the system; its output. Those of Debian for root are not in every `PATH`.
fn system(program: &str, words: &[&str]) -> io::Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(words).stdin(Stdio::null());
    let failed = |reason: String| io::Error::other(format!("{program}: {reason}"));
    let output = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", words.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
