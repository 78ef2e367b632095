//! The upper bound: one thread that writes a plain file.

use super::{MessageCase, Setting};
use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

/// Bytes a call, as many as a block of ours has.
const CALL_LENGTH: usize = 256 * 1024;

/// Rates of writing a file of this length, in messages of the case a second; the first is a warm-up.
pub(crate) fn run(case: MessageCase, length: u64, setting: &Setting) -> Result<Vec<f64>> {
    let path = setting.folder.path().join("plain");
    let shown = || path.display().to_string();
    // Not zeros, and the same buffer for every call: it stays in the cache, which is the best case.
    let buffer: Vec<u8> = (0..CALL_LENGTH).map(|byte| (byte % 251) as u8).collect();
    let mut written = Vec::new();
    for _ in 0..=setting.iterations {
        let _ = std::fs::remove_file(&path);
        let began = Instant::now();
        let mut file = File::create(&path).with_context(shown)?;
        let mut left = length;
        while left > 0 {
            let part = left.min(CALL_LENGTH as u64);
            file.write_all(&buffer[..part as usize])
                .with_context(shown)?;
            left -= part;
        }
        written.push(case.messages as f64 / began.elapsed().as_secs_f64());
    }
    let _ = std::fs::remove_file(&path);
    Ok(written)
}
