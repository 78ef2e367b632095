//! Documents and results of a test file: texts in parts, found from a head.

use super::block_kinds::{PART_LENGTH_MAX, RESULTS, RESULTS_PART, long};
use super::directory::Document;
use super::survey::{OpenError, read_block};
use seatrial_blocks::codec::expand;
use seatrial_blocks::{BlockKind, Walker};
use seatrial_machine::Disk;
use serde_json::Value as Json;
use std::path::Path;

/// Bytes of a results head before its validity.
pub(super) const HEAD_LENGTH: usize = 16 + Document::LENGTH;

/// Number and validity of an analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Its number, from 1.
    pub number: u64,
    /// The member `valid` of its results.
    pub valid: Json,
}

/// The head of an analysis: where its results are, and the head before.
#[derive(Debug)]
pub(super) struct ResultsHead {
    /// Offset of the head of the analysis before; 0 if there is none.
    pub(super) previous: u64,
    pub(super) number: u64,
    pub(super) results: Document,
    /// JSON text.
    pub(super) validity: Vec<u8>,
}

/// The blocks of a file, and its name for errors.
#[derive(Clone, Copy)]
pub(super) struct FileBlocks<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) path: &'a Path,
}

impl<'a> FileBlocks<'a> {
    fn wrong(&self, offset: u64, reason: String) -> OpenError {
        OpenError::Block {
            path: self.path.to_owned(),
            offset,
            reason,
        }
    }

    /// Reads the text of a document. Memory grows with the parts that are read, not with the claimed length.
    pub(super) fn text(&self, document: Document, kind: BlockKind) -> Result<Vec<u8>, OpenError> {
        let mut text = Vec::new();
        let mut walker = Walker::new(self.disk, document.offset);
        for _ in 0..document.parts {
            let block = walker.next_block();
            let block = block.map_err(|cause| OpenError::Damaged {
                path: self.path.to_owned(),
                cause,
            })?;
            let Some(block) = block.filter(|block| block.header.kind == kind) else {
                return Err(self.wrong(document.offset, "a part of the document is missing".into()));
            };
            let part = expand(&block.header, block.payload);
            let part = part.map_err(|reason| self.wrong(block.offset, reason))?;
            if part.len() > PART_LENGTH_MAX {
                return Err(self.wrong(block.offset, format!("a part of {} bytes", part.len())));
            }
            text.extend_from_slice(&part);
        }
        if text.len() as u64 != document.length {
            let reason = format!(
                "a document of {} bytes, not {}",
                text.len(),
                document.length
            );
            return Err(self.wrong(document.offset, reason));
        }
        Ok(text)
    }

    /// A document as JSON.
    pub(super) fn json(&self, document: Document, kind: BlockKind) -> Result<Json, OpenError> {
        self.parse(document.offset, &self.text(document, kind)?)
    }

    /// JSON from the block at `offset`.
    pub(super) fn parse(&self, offset: u64, text: &[u8]) -> Result<Json, OpenError> {
        serde_json::from_slice(text)
            .map_err(|error| self.wrong(offset, format!("not JSON: {error}")))
    }

    /// The results head at `offset`.
    pub(super) fn head(&self, offset: u64) -> Result<ResultsHead, OpenError> {
        let (_, mut payload) = read_block(self.disk, self.path, offset, RESULTS)?;
        if payload.len() < HEAD_LENGTH {
            let reason = format!("a results head of {} bytes", payload.len());
            return Err(self.wrong(offset, reason));
        }
        let validity = payload.split_off(HEAD_LENGTH);
        let (previous, number) = (long(&payload, 0), long(&payload, 8));
        // Heads point backwards, so following them ends.
        if previous >= offset {
            return Err(self.wrong(offset, format!("follows the results at {previous}")));
        }
        Ok(ResultsHead {
            previous,
            number,
            results: Document::read(&payload[16..]),
            validity,
        })
    }

    /// The heads from the one at `newest` back to the first, with their offsets.
    pub(super) fn heads(
        self,
        newest: u64,
    ) -> impl Iterator<Item = Result<(u64, ResultsHead), OpenError>> + use<'a> {
        let mut next = newest;
        std::iter::from_fn(move || {
            let offset = std::mem::take(&mut next);
            if offset == 0 {
                return None;
            }
            let head = self.head(offset);
            if let Ok(head) = &head {
                next = head.previous;
            }
            Some(head.map(|head| (offset, head)))
        })
    }

    /// Reads the results of a head.
    pub(super) fn results(&self, head: &ResultsHead) -> Result<Json, OpenError> {
        self.json(head.results, RESULTS_PART)
    }
}
