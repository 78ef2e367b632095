//! Running the program `seatrial` under limits.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often a child is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of a child's output that are kept.
const OUTPUT_LENGTH_MAX: u64 = 1 << 20;

/// The program under test.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// Kilobytes of address space that it may have; nothing for no limit.
    address_space: Option<u64>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Not within its time; it was killed.
    Timeout,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// The program at `path`, or the one beside this program.
    pub(crate) fn find(path: Option<&Path>) -> Result<Program> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?.with_file_name("seatrial"),
        };
        ensure!(
            path.is_file(),
            "{}: there is no such program; `cargo build --release` builds it, --binary names another",
            path.display()
        );
        Ok(Program {
            path: path.canonicalize()?,
            address_space: None,
        })
    }

    /// The same program with a limit of its address space, in kilobytes.
    pub(crate) fn limited(&self, kilobytes: u64) -> Program {
        Program {
            address_space: Some(kilobytes),
            ..self.clone()
        }
    }

    /// A command that runs it with these words, in this folder.
    pub(crate) fn command(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = match self.address_space {
            Some(kilobytes) => {
                let mut shell = Command::new("/bin/sh");
                let script = format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"");
                shell.arg("-c").arg(script).arg(&self.path);
                shell
            }
            None => Command::new(&self.path),
        };
        command.args(words).current_dir(folder).stdin(Stdio::null());
        command.env("RUST_BACKTRACE", "0");
        command
    }

    /// Runs it to its end, or kills it after `timeout`. Output goes through files of `folder`, so that a child which writes
    /// much never waits for a reader.
    pub(crate) fn run(&self, folder: &Path, words: &[&str], timeout: Duration) -> Result<Ran> {
        let (out, err) = (folder.join("stdout"), folder.join("stderr"));
        let mut command = self.command(folder, words);
        command
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let mut child = command.spawn().context("seatrial cannot be started")?;
        let end = wait(&mut child, timeout)?;
        Ok(Ran {
            end,
            stdout: text(&out)?,
            stderr: text(&err)?,
        })
    }

    /// [`Program::run`] that has to end with status 0 within a minute.
    pub(crate) fn succeed(&self, folder: &Path, words: &[&str]) -> Result<String> {
        let ran = self.run(folder, words, Duration::from_mins(1))?;
        let (end, stderr) = (&ran.end, &ran.stderr);
        ensure!(
            *end == End::Exit(0),
            "seatrial {words:?}: {end:?}: {stderr}"
        );
        Ok(ran.stdout)
    }
}

/// How a child ended, if it has.
pub(crate) fn ended(child: &mut Child) -> Result<Option<End>> {
    let status = child.try_wait()?;
    Ok(status.map(|status| match status.signal() {
        Some(signal) => End::Signal(signal),
        None => End::Exit(status.code().unwrap_or(-1)),
    }))
}

/// Waits for the end of a child; kills it after `timeout`.
pub(crate) fn wait(child: &mut Child, timeout: Duration) -> Result<End> {
    let began = Instant::now();
    loop {
        if let Some(end) = ended(child)? {
            return Ok(end);
        }
        if began.elapsed() >= timeout {
            child.kill()?;
            child.wait()?;
            return Ok(End::Timeout);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The first part of a file as text.
pub(crate) fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(OUTPUT_LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A new folder, removed when it is dropped: in memory (`/dev/shm`) where the system has that.
pub(crate) fn scratch_folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    folder.context("a temporary folder")
}
