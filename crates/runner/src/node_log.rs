//! Log files of nodes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Maximum number of lines that an error shows.
const TAIL_LINES: usize = 20;
/// Maximum number of bytes that are read for them.
const TAIL_BYTES: u64 = 8 * 1024;

/// Opens the log for appending, writes a line that a process starts, and returns it with the offset after that line.
pub(crate) fn open(path: &Path, note: &str) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "-- seatrial: {note}")?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// The last lines of the log after `offset`; empty if there are none or the file cannot be read. Each line is indented, and
/// invalid UTF-8 is replaced.
pub fn tail(path: &Path, offset: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset.max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let kept = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    let indented: Vec<String> = kept.iter().map(|line| format!("    {line}")).collect();
    indented.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_end_of_the_last_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.log");
        let (mut first, _) = open(&path, "first").unwrap();
        writeln!(first, "old").unwrap();
        let (mut second, offset) = open(&path, "second").unwrap();
        assert_eq!(tail(&path, offset), "");
        for number in 0..30 {
            writeln!(second, "line {number}").unwrap();
        }
        let shown = tail(&path, offset);
        assert_eq!(shown.lines().count(), TAIL_LINES);
        assert!(
            shown.starts_with("    line 10\n") && shown.ends_with("    line 29"),
            "{shown}"
        );
        assert_eq!(tail(Path::new("/nowhere"), 0), "");
    }
}
