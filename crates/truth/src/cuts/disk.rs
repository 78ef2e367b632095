//! A file system on a loop device that loses its power.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes of the file system; memory is used for what is written only.
const LENGTH: u64 = 1 << 30;
/// Tries to unmount while a killed process is still on its way out.
const TRIES: u32 = 100;

/// What a cut leaves of the journal in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// It is written first, as if the cut came a moment after a commit.
    Journal,
    /// Nothing is written any more.
    Nothing,
}

/// A loop device, mounted. Dropping it unmounts and detaches it.
#[derive(Debug)]
pub(super) struct Disk {
    device: String,
    pub(super) point: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// Makes a file system of this kind in `folder`, on a device of its own.
    pub(super) fn new(kind: &str, folder: &Path) -> Result<Disk> {
        let (image, point) = (folder.join("image"), folder.join("disk"));
        File::create(&image)?.set_len(LENGTH)?;
        fs::create_dir_all(&point)?;
        let device = system("losetup", &["--find", "--show", &name(&image)])?;
        let mut disk = Disk {
            device: device.trim().to_owned(),
            point,
            is_mounted: false,
        };
        disk.format(kind)?;
        Ok(disk)
    }

    /// An empty file system.
    pub(super) fn format(&mut self, kind: &str) -> Result<()> {
        self.unmount()?;
        let force = if kind == "xfs" { "-f" } else { "-F" };
        system(&format!("mkfs.{kind}"), &["-q", force, &self.device])?;
        self.mount()
    }

    pub(super) fn mount(&mut self) -> Result<()> {
        system("mount", &[&self.device, &name(&self.point)])?;
        self.is_mounted = true;
        Ok(())
    }

    /// Waits for processes that have files open.
    pub(super) fn unmount(&mut self) -> Result<()> {
        for _ in 0..TRIES {
            if !self.is_mounted {
                return Ok(());
            }
            self.is_mounted = system("umount", &[&name(&self.point)]).is_err();
            if self.is_mounted {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bail!("{} stays busy", self.point.display())
    }

    /// Cuts the power: from now on nothing reaches the device, and what is in memory only is lost.
    pub(super) fn cut(&self, flush: Flush) -> Result<()> {
        let folder = File::open(&self.point)?;
        let flags = match flush {
            Flush::Journal => 1,
            Flush::Nothing => 2,
        };
        shut_down(&folder, flags).context("the file system's shutdown call")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whatever is left is named by `losetup --list`.
        let _ = self.unmount();
        let _ = system("losetup", &["--detach", &self.device]);
    }
}

/// The call by which file systems are tested against a loss of power: `FS_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`. ext4 and XFS
/// take the same flags.
fn shut_down(folder: &File, flags: u32) -> Result<()> {
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

/// Runs a program of the system; its output.
fn system(program: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    let output = command.output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        words.join(" "),
        said.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
