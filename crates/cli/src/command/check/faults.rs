//! The operations of the nemesis, noted while a test file is read for its checkers.

use anyhow::Result;
use seatrial_history::{Chunk, ChunkBuffer, Chunks, History, Op, OpenError, TestFile};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A test file that is read chunk by chunk for checkers. What is no client's operation is noted of each chunk when it is first
/// read: a fold of its own would run ahead of a checker that works longer on a chunk, and most chunks would be read twice.
pub(super) struct WithFaults {
    file: Arc<TestFile>,
    /// By number of the chunk.
    noted: Mutex<BTreeMap<u64, Vec<Op>>>,
}

impl WithFaults {
    pub(super) fn new(file: Arc<TestFile>) -> WithFaults {
        let noted = Mutex::default();
        WithFaults { file, noted }
    }

    /// The operations of the nemesis; chunks that no checker wanted are read for them.
    pub(super) fn faults(&self) -> Result<History> {
        let mut buffer = ChunkBuffer::default();
        for number in 0..self.file.chunk_count() {
            if !self.is_noted(number) {
                self.read_chunk(number, &mut buffer)?;
            }
        }
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let ops = std::mem::take(&mut *noted).into_values().flatten();
        Ok(History::from_ops(ops.collect()))
    }

    fn is_noted(&self, number: u64) -> bool {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.contains_key(&number)
    }
}

impl Chunks for WithFaults {
    type Error = OpenError;

    fn chunk_count(&self) -> u64 {
        self.file.chunk_count()
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        let chunk = self.file.read_chunk(number, buffer)?;
        if let Some(chunk) = chunk
            && !self.is_noted(number)
        {
            let ops = faults_of(chunk);
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.insert(number, ops);
        }
        Ok(chunk)
    }
}

/// Operations that are no client's.
fn faults_of(chunk: &Chunk) -> Vec<Op> {
    let processes = chunk.processes().iter();
    let is_client: Vec<bool> = processes.map(|one| one.is_client()).collect();
    if !is_client.contains(&false) {
        return Vec::new();
    }
    let places = chunk.process_ids().iter().enumerate();
    let others = places.filter(|(_, process)| !is_client[**process as usize]);
    others.map(|(place, _)| chunk.op(place)).collect()
}
