//! Aeron Archive as its own samples measure it: one Java process for several iterations.

use super::{MessageCase, Setting};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Iterations that each process needs before its code is compiled.
pub(crate) const WARM_UPS: usize = 2;
const VERSION: &str = "1.51.0";
const SHA_256: &str = "9686a7c6bb3c464f7ac76ceaf7a0c67249e3499aa8142872a6d1b2f398bca458";
/// Longer than any iteration takes on a busy machine; a process that says nothing for so long hangs.
const ITERATION_TIMEOUT: Duration = Duration::from_mins(2);
/// The sample truncates its recording before the next iteration, and fails when the archive has not ended it by then.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is a guess; a process that failed in spite of it is followed by another.
const ATTEMPTS: u32 = 3;
/// What Aeron's own scripts give the virtual machine.
const JAVA_OPTIONS: [&str; 14] = [
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:+TrustFinalNonStaticFields",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:GuaranteedSafepointInterval=300000",
    "-XX:+UseParallelGC",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dagrona.disable.bounds.checks=true",
    "-Daeron.term.buffer.sparse.file=false",
    "-Daeron.pre.touch.mapped.memory=true",
    "-Daeron.archive.file.sync.level=0",
    "-Daeron.archive.file.io.max.length=1m",
    "-Daeron.sample.channel=aeron:ipc",
];
/// Its best modes on two cores: a thread for each part when it records, one thread for all that yields when it replays.
const RECORD_OPTIONS: [&str; 2] = [
    "-Daeron.threading.mode=DEDICATED",
    "-Daeron.archive.threading.mode=DEDICATED",
];
const REPLAY_OPTIONS: [&str; 5] = [
    "-Daeron.threading.mode=SHARED",
    "-Daeron.archive.threading.mode=SHARED",
    "-Daeron.shared.idle.strategy=org.agrona.concurrent.YieldingIdleStrategy",
    "-Daeron.archive.idle.strategy=org.agrona.concurrent.YieldingIdleStrategy",
    "-Daeron.sample.idleStrategy=org.agrona.concurrent.YieldingIdleStrategy",
];

/// Which of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AeronSample {
    Record,
    Replay,
}

/// `aeron-all`: Aeron, its archive, its samples and what they need.
#[derive(Debug)]
pub(crate) struct Jar {
    path: PathBuf,
}

impl Jar {
    /// The one that is given, the one in the cache folder, or a fetched one; its bytes are the expected ones.
    pub(crate) fn find(given: Option<&Path>) -> Result<Jar> {
        let java = Command::new("java").arg("-version").output();
        ensure!(
            java.is_ok_and(|output| output.status.success()),
            "java cannot be started; Aeron needs a Java runtime, version 17 or newer"
        );
        if let Some(path) = given {
            return Jar::checked(path.to_owned());
        }
        let folder = cache_folder()?;
        let path = folder.join(format!("aeron-all-{VERSION}.jar"));
        if !path.exists() {
            fetch(&folder)?;
        }
        Jar::checked(path)
    }

    fn checked(path: PathBuf) -> Result<Jar> {
        let found = sha_256(&path)?;
        ensure!(
            found == SHA_256,
            "{}: is not aeron-all {VERSION}: its SHA-256 is {found}, not {SHA_256}",
            path.display()
        );
        Ok(Jar { path })
    }

    /// Messages a second of each iteration, warm-ups first.
    pub(crate) fn run(
        &self,
        sample: AeronSample,
        case: MessageCase,
        setting: &Setting,
    ) -> Result<Vec<f64>> {
        let wanted = WARM_UPS + setting.iterations as usize;
        let mut attempt = 1;
        loop {
            let mut process = AeronProcess::start(self, sample, case, setting)?;
            match process.rates(wanted) {
                Ok(rates) => return Ok(rates),
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(error) => eprintln!("seatrial: {error:#}; once more"),
            }
            attempt += 1;
        }
    }
}

/// Where fetched files are kept for the next time.
fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let above = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set; --aeron-jar names the jar")?;
    Ok(above.join("seatrial"))
}

/// Has Maven bring the jar into the folder.
fn fetch(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    eprintln!(" fetching aeron-all {VERSION} with Maven");
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode"])
        .arg("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy")
        .arg(format!("-Dartifact=io.aeron:aeron-all:{VERSION}"))
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("mvn cannot be started; Maven fetches Aeron, or --aeron-jar names its jar")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        let said: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("ERROR"))
            .take(3)
            .collect();
        bail!(
            "Maven could not fetch aeron-all {VERSION} (is there a network?); --aeron-jar names a jar\n{}",
            said.join("\n")
        );
    }
    Ok(())
}

/// A file's SHA-256 in hexadecimal, as the system's own tools compute it.
fn sha_256(path: &Path) -> Result<String> {
    let shown = path.display();
    ensure!(path.is_file(), "{shown}: there is no such file");
    for words in [&["sha256sum"][..], &["shasum", "-a", "256"]] {
        let output = Command::new(words[0]).args(&words[1..]).arg(path).output();
        if let Ok(output) = output
            && output.status.success()
            && let Some(sum) = String::from_utf8_lossy(&output.stdout)
                .split_whitespace()
                .next()
        {
            return Ok(sum.to_owned());
        }
    }
    bail!("{shown}: neither sha256sum nor shasum can compute its checksum")
}

/// One Java process that runs a sample; ended when dropped.
struct AeronProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    folders: [PathBuf; 2],
}

impl AeronProcess {
    fn start(
        jar: &Jar,
        sample: AeronSample,
        case: MessageCase,
        setting: &Setting,
    ) -> Result<AeronProcess> {
        // Aeron's log buffers belong in memory, wherever the recordings are.
        let memory = Path::new("/dev/shm");
        let driver = if memory.is_dir() {
            memory
        } else {
            setting.folder.path()
        };
        let driver = driver.join(format!("seatrial-bench-driver-{}", std::process::id()));
        let archive = setting.folder.path().join("aeron-archive");
        // Free a moment ago; if another takes it meanwhile, the process fails and is started again.
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("java");
        command.arg("-cp").arg(&jar.path).args(JAVA_OPTIONS);
        let mut set = |name: &str, value: &dyn std::fmt::Display| {
            command.arg(format!("-D{name}={value}"));
        };
        set("aeron.dir", &driver.display());
        set("aeron.archive.dir", &archive.display());
        set("aeron.sample.messageLength", &case.payload);
        set("aeron.sample.messages", &case.messages);
        let local = "aeron:udp?endpoint=localhost:";
        set("aeron.archive.control.channel", &format!("{local}{port}"));
        set(
            "aeron.archive.control.response.channel",
            &format!("{local}0"),
        );
        set("aeron.archive.replication.channel", &format!("{local}0"));
        if case.checksum {
            let class = "io.aeron.archive.checksum.Crc32c";
            set("aeron.archive.record.checksum", &class);
            set("aeron.archive.replay.checksum", &class);
        }
        match sample {
            AeronSample::Record => command
                .args(RECORD_OPTIONS)
                .arg("io.aeron.samples.archive.EmbeddedRecordingThroughput"),
            AeronSample::Replay => command
                .args(REPLAY_OPTIONS)
                .arg("io.aeron.samples.archive.EmbeddedReplayThroughput"),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("java cannot be started")?;
        let input = child.stdin.take();
        let lines = lines(child.stdout.take().context("java has no output")?);
        let errors = lines_of_errors(child.stderr.take())?;
        Ok(AeronProcess {
            child,
            input,
            lines,
            errors,
            folders: [driver, archive],
        })
    }

    /// Reads the rates that it prints, and lets it continue until there are enough.
    fn rates(&mut self, wanted: usize) -> Result<Vec<f64>> {
        let mut rates = Vec::new();
        while rates.len() < wanted {
            let Ok(line) = self.lines.recv_timeout(ITERATION_TIMEOUT) else {
                let said: Vec<String> = self.errors.try_iter().take(2).collect();
                bail!(
                    "Aeron ended or hung after {} iterations: {}",
                    rates.len(),
                    said.join(" ")
                );
            };
            let Some(rate) = rate(&line) else { continue };
            rates.push(rate);
            std::thread::sleep(PAUSE);
            let answer: &[u8] = if rates.len() < wanted { b"y\n" } else { b"n\n" };
            if let Some(input) = &mut self.input {
                let _ = input.write_all(answer); // when it has ended, no line comes
            }
        }
        Ok(rates)
    }
}

impl Drop for AeronProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for folder in &self.folders {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn lines_of_errors(stream: Option<impl Read + Send + 'static>) -> Result<Receiver<String>> {
    Ok(lines(stream.context("java has no error output")?))
}

/// A thread that passes lines on until the stream ends. At most what one process prints is waiting.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Messages a second from a line as `Recorded 610.35 MB @ 725.75 MB/s - 11,890,000 msg/sec - 32 byte payload …`.
fn rate(line: &str) -> Option<f64> {
    let before = line.split_once(" msg/sec")?.0;
    let digits: String = before.rsplit(' ').next()?.split([',', '.', '\'']).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_found_in_what_samples_print() {
        let line = "Execute again? (y/n): Recorded 610.35 MB @ 725.75 MB/s - 11,890,000 msg/sec - 32 byte payload + 32 byte header";
        assert_eq!(rate(line), Some(11_890_000.0));
        assert_eq!(rate("Replaying 10,000,000 messages"), None);
        assert_eq!(rate("- many msg/sec"), None);
    }
}
