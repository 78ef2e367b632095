//! Recovery: from a log to a store.

use crate::log::{BATCH, BOOT, COMMAND};
use crate::message::{MessageHeader, MessageKind};
use crate::state::{ExecutionEffect, StoreState};
use crate::transaction::Operations;
use seatrial_blocks::{Block, Frame, Frames, RecoverError, Recovery, Walker};
use seatrial_machine::Disk;

/// Version of the log's records.
const VERSION: u32 = 1;

/// Result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootReport {
    /// The end of the log. The driver truncates it there, and makes the truncation and the rest durable before the first turn: a
    /// process that was killed may have left bytes that are readable and not synced.
    pub recovery: Recovery,
    /// Number of commands executed again.
    pub commands: u64,
    /// Number of this start, from 1.
    pub incarnation: u32,
}

/// Why a store cannot recover from a log.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The log cannot be read to its end.
    #[error(transparent)]
    Log(#[from] RecoverError),
    /// A complete record that a store does not write.
    #[error("record at {offset} (byte {place} of the payload of its block): {problem}")]
    Record {
        /// Offset of the record's block.
        offset: u64,
        /// Offset of the record within the block's payload.
        place: usize,
        /// The error.
        problem: String,
    },
}

/// A state, rebuilt by executing the log's commands.
#[derive(Debug)]
pub(crate) struct LogReplay {
    state: StoreState,
    commands: u64,
    incarnation: u32,
    answers: Vec<u8>,
}

impl LogReplay {
    /// Reads the whole log. `state` is the initial state.
    pub(crate) fn run(
        disk: &dyn Disk,
        state: StoreState,
    ) -> Result<(StoreState, BootReport), BootError> {
        let mut replay = LogReplay {
            state,
            commands: 0,
            incarnation: 0,
            answers: Vec::new(),
        };
        let mut walker = Walker::new(disk, 0).expecting(0);
        let mut blocks = 0;
        let result = loop {
            match walker.next_block() {
                Ok(Some(block)) => replay.block(&block)?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            blocks += 1;
        };
        let recovery = Recovery::after(&walker, blocks, result)?;
        let report = BootReport {
            recovery,
            commands: replay.commands,
            incarnation: replay.incarnation.saturating_add(1),
        };
        Ok((replay.state, report))
    }

    fn block(&mut self, block: &Block<'_>) -> Result<(), BootError> {
        let error = |place, problem| BootError::Record {
            offset: block.offset,
            place,
            problem,
        };
        if block.header.kind != BATCH {
            let kind = block.header.kind.0;
            return Err(error(
                0,
                format!("a block of kind {kind} is not of a store's log"),
            ));
        }
        for frame in Frames::new(block.payload) {
            let frame = frame.map_err(|problem| error(0, problem.to_string()))?;
            let done = match frame.flags {
                COMMAND => self.command(&frame, block.header.sequence),
                BOOT => self.boot(&frame),
                other => Err(format!("a frame with flags {other}")),
            };
            done.map_err(|problem| error(frame.offset, problem))?;
        }
        Ok(())
    }

    fn command(&mut self, frame: &Frame<'_>, batch: u64) -> Result<(), String> {
        let header = MessageHeader::decode(frame.payload).map_err(|error| error.to_string())?;
        if header.kind != MessageKind::Request {
            return Err("a command that is not a request".into());
        }
        self.answers.clear();
        let operations = Operations::new(frame.payload, header.count);
        match self.state.execute(operations, batch, &mut self.answers) {
            Ok(ExecutionEffect::Read) => return Err("a command that changes nothing".into()),
            Err(abort) if !abort.is_dirty => {
                return Err(format!(
                    "a command that committed once does not commit again: {:?} at operation {}",
                    abort.code, abort.operation
                ));
            }
            Ok(ExecutionEffect::Change) | Err(_) => self.commands += 1,
        }
        Ok(())
    }

    fn boot(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let [incarnation, version] = read_record(frame.payload).ok_or("a cut boot record")?;
        if version != VERSION {
            return Err(format!(
                "log of version {version}, this program reads {VERSION}"
            ));
        }
        if incarnation <= self.incarnation || incarnation == u32::MAX {
            return Err(format!(
                "start {incarnation} after start {}",
                self.incarnation
            ));
        }
        self.incarnation = incarnation;
        Ok(())
    }
}

/// The record of a start.
pub(crate) fn record(incarnation: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&incarnation.to_le_bytes());
    bytes[4..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The two words of a boot record.
fn read_record(payload: &[u8]) -> Option<[u32; 2]> {
    let (first, rest) = payload.split_first_chunk()?;
    let second: &[u8; 4] = rest.try_into().ok()?;
    Some([u32::from_le_bytes(*first), u32::from_le_bytes(*second)])
}
