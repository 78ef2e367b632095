//! From bytes to the blocks of a checkpoint: each is complete and checked before its contents are used.

use super::file_writer::DigestStream;
use super::format::{
    DELTA, FileHead, FileRoot, HEADER, ROOT, ROOT_FIELDS_LENGTH, SESSIONS, SLICE,
    payload_length_max,
};
use super::slice_parser::{SliceParser, check_end, check_start, session};
use super::{CheckpointError, CheckpointMark};
use crate::session_table::Sessions;
use seatrial_blocks::{BlockHeader, BlockKind, Defect, HEADER_LENGTH, block, crc32c};
use seatrial_kv_protocol::message::MessageError;
use seatrial_machine::FieldReader;

/// Gets the contents of a file, in order. A list comes as one `list` or `appended`, its elements, and one `end_list`. An error
/// refuses the file.
pub(super) trait CheckpointSink {
    /// The header.
    fn head(&mut self, _head: &FileHead) -> Result<(), &'static str> {
        Ok(())
    }
    /// A register.
    fn register(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str>;
    /// A list begins.
    fn list(&mut self, key: &[u8]);
    /// The next element of the list.
    fn element(&mut self, value: &[u8]) -> Result<(), &'static str>;
    /// The list is complete.
    fn end_list(&mut self) -> Result<(), &'static str>;
    /// A key is removed.
    fn removed(&mut self, _key: &[u8]) -> Result<(), &'static str> {
        Err("a change in a file of a whole state")
    }
    /// Elements for the end of a list begin.
    fn appended(&mut self, _key: &[u8]) -> Result<(), &'static str> {
        Err("a change in a file of a whole state")
    }
}

/// Takes the bytes of a file with any cuts. It holds at most one block (1.3 MiB) that is not complete, the last key, 4 bytes per
/// block and the sessions (at most about 64 MiB): the items go to the sink, block by block.
///
/// It accepts only what a [`CheckpointWriter`](super::CheckpointWriter) writes: a slice that is cut anywhere else, a record out
/// of order or a count that does not fit is an error, so each state has one file. After an error every call returns that error.
#[derive(Debug)]
pub(super) struct CheckpointParser<S> {
    sink: S,
    /// The kind of the first block.
    header_kind: BlockKind,
    /// The beginning of a block.
    partial: Vec<u8>,
    /// Offset and number of the next block.
    offset: u64,
    sequence: u64,
    head: Option<FileHead>,
    slices: SliceParser,
    sessions: Sessions,
    root: FileRoot,
    checksums: Vec<u32>,
    digest: DigestStream,
    mark: Option<CheckpointMark>,
    failed: Option<CheckpointError>,
}

/// An error inside of a payload: the offset in it, and what is wrong.
pub(super) type PayloadError = (usize, String);

/// The error of a field.
pub(super) fn field_error(error: MessageError) -> PayloadError {
    match error {
        MessageError::Short { field, offset, .. } => {
            (offset, format!("the block ends inside its {field}"))
        }
        MessageError::Value {
            field,
            offset,
            value,
        } => (
            offset,
            format!("{field} is {value}, which is never written"),
        ),
        MessageError::Trailing { offset, count } => {
            (offset, format!("{count} bytes after the last field"))
        }
    }
}

/// What a parser has after the root.
pub(super) struct ParsedFile<S> {
    pub(super) sink: S,
    pub(super) head: FileHead,
    pub(super) sessions: Sessions,
    pub(super) mark: CheckpointMark,
}

impl<S: CheckpointSink> CheckpointParser<S> {
    /// For a file that begins with this kind of block, [`HEADER`] or [`DELTA`].
    pub(super) fn new(header_kind: BlockKind, sink: S) -> CheckpointParser<S> {
        CheckpointParser {
            sink,
            header_kind,
            partial: Vec::new(),
            offset: 0,
            sequence: 0,
            head: None,
            slices: SliceParser::default(),
            sessions: Sessions::default(),
            root: FileRoot::default(),
            checksums: Vec::new(),
            digest: DigestStream::new(),
            mark: None,
            failed: None,
        }
    }

    /// The sink.
    pub(super) fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Is the root read?
    pub(super) fn is_complete(&self) -> bool {
        self.mark.is_some()
    }

    /// Takes the next bytes of the file.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.push_to_root(bytes) {
            Ok(taken) if taken < bytes.len() => {
                let error = self.error("bytes after the root".into());
                self.failed = Some(error.clone());
                Err(error)
            }
            done => done.map(|_| ()),
        }
    }

    /// Takes the next bytes, up to the root. Returns their number: less than all if another file follows.
    pub(super) fn push_to_root(&mut self, bytes: &[u8]) -> Result<usize, CheckpointError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = self.take(bytes);
        if let Err(error) = &done {
            self.failed = Some(error.clone());
            self.partial = Vec::new();
        }
        done
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<ParsedFile<S>, CheckpointError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (Some(head), Some(mark)) = (self.head, self.mark) else {
            return Err(CheckpointError {
                offset: self.offset + self.partial.len() as u64,
                problem: "the file ends before its root".into(),
            });
        };
        Ok(ParsedFile {
            sink: self.sink,
            head,
            sessions: self.sessions,
            mark,
        })
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<usize, CheckpointError> {
        let all = bytes.len();
        while !bytes.is_empty() && self.mark.is_none() {
            // A block that is complete in the bytes is read where it is.
            if self.partial.is_empty()
                && let Some(length) = self.block_length(bytes)?
                && length <= bytes.len()
            {
                self.block(&bytes[..length])?;
                bytes = &bytes[length..];
                continue;
            }
            let needed = self.block_length(&self.partial)?.unwrap_or(HEADER_LENGTH);
            let more = bytes.len().min(needed - self.partial.len());
            self.partial.extend_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            if self.block_length(&self.partial)? == Some(self.partial.len()) {
                let mut partial = std::mem::take(&mut self.partial);
                self.block(&partial)?;
                partial.clear();
                self.partial = partial;
            }
        }
        Ok(all - bytes.len())
    }

    /// Length of the block that begins with these bytes, once its header is there. The header is then one that may come here, so
    /// the length is bounded.
    fn block_length(&self, bytes: &[u8]) -> Result<Option<usize>, CheckpointError> {
        let header = match bytes.first_chunk::<HEADER_LENGTH>() {
            Some(header) => BlockHeader::decode(header),
            None => return Ok(None),
        };
        let header = header.map_err(|defect| self.error(defect.to_string()))?;
        self.check_header(&header)?;
        Ok(Some(header.block_length() as usize))
    }

    fn error(&self, problem: String) -> CheckpointError {
        CheckpointError {
            offset: self.offset,
            problem,
        }
    }

    /// The kind of the next block.
    fn expected_kind(&self) -> Option<BlockKind> {
        match &self.head {
            None => Some(self.header_kind),
            Some(_) if self.mark.is_some() => None,
            Some(head) if !self.slices.is_complete(head) => Some(SLICE),
            Some(head) if self.sessions.len() < head.sessions as usize => Some(SESSIONS),
            Some(_) => Some(ROOT),
        }
    }

    fn check_header(&self, header: &BlockHeader) -> Result<(), CheckpointError> {
        let Some(kind) = self.expected_kind() else {
            return Err(self.error("bytes after the root".into()));
        };
        if header.kind != kind {
            let problem = format!("block of kind {}, expected {}", header.kind.0, kind.0);
            return Err(self.error(problem));
        }
        if header.sequence != self.sequence {
            let defect = Defect::Sequence {
                expected: self.sequence,
                found: header.sequence,
            };
            return Err(self.error(defect.to_string()));
        }
        if header.flags != 0 || header.uncompressed_length != header.payload_length {
            return Err(self.error("block with flags or compression".into()));
        }
        let root = ROOT_FIELDS_LENGTH + 4 * self.checksums.len();
        let fits = |length: usize| match kind {
            ROOT => length == root,
            kind => length <= payload_length_max(kind),
        };
        if !fits(header.payload_length as usize) {
            let problem = format!(
                "block of {} bytes, which is never written",
                header.payload_length
            );
            return Err(self.error(problem));
        }
        Ok(())
    }

    /// Reads a complete block, whose header is checked.
    fn block(&mut self, block: &[u8]) -> Result<(), CheckpointError> {
        let Some(Ok(header)) = block.first_chunk().map(BlockHeader::decode) else {
            unreachable!("the header is checked");
        };
        assert_eq!(block.len() as u64, header.block_length());
        let end = HEADER_LENGTH + header.payload_length as usize;
        let (payload, padding) = (&block[HEADER_LENGTH..end], &block[end..]);
        let (stored, computed) = (header.payload_checksum, crc32c(payload));
        if stored != computed {
            let defect = Defect::PayloadChecksum { stored, computed };
            return Err(self.error(defect.to_string()));
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err(self.error(Defect::Padding.to_string()));
        }
        if header.kind != ROOT {
            self.digest.write(block);
        }
        let done = match header.kind {
            HEADER | DELTA => self.header(payload),
            SLICE => self.slice(payload),
            SESSIONS => self.session_block(payload),
            _ => self.read_root(payload, block.len() as u64),
        };
        done.map_err(|(place, problem)| CheckpointError {
            offset: self.offset + (HEADER_LENGTH + place) as u64,
            problem,
        })?;
        if header.kind == SLICE || header.kind == SESSIONS {
            self.checksums.push(computed);
        }
        self.offset += block.len() as u64;
        self.sequence += 1;
        Ok(())
    }

    fn header(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        let head = FileHead::decode(self.header_kind, payload).map_err(field_error)?;
        self.sessions = Sessions::restore(head.next_session, head.clock);
        if head.keys == 0 && head.size > 0 {
            return Err((0, "a size without keys".into()));
        }
        let done = self.sink.head(&head);
        done.map_err(|problem| (0, problem.into()))?;
        self.head = Some(head);
        Ok(())
    }

    fn slice(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        let Some(head) = &self.head else {
            unreachable!("a slice comes after the header");
        };
        self.root.slices += 1;
        self.slices.read(head, payload, &mut self.sink)
    }

    fn session_block(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        self.root.session_blocks += 1;
        let count = self.head.as_ref().map_or(0, |head| head.sessions as usize);
        let mut cursor = FieldReader::new(payload);
        while cursor.offset() < payload.len() {
            let place = cursor.offset();
            check_start(place)?;
            let (id, entry) = session(&mut cursor).map_err(field_error)?;
            if self.sessions.len() == count {
                return Err((
                    place,
                    format!("more than the {count} sessions of the header"),
                ));
            }
            let restored = self.sessions.restore_session(id, entry);
            restored.map_err(|problem| (place, format!("session {id}: {problem}")))?;
        }
        let is_last = self.sessions.len() == count;
        check_end(payload.len(), is_last)
    }

    fn read_root(&mut self, payload: &[u8], block_length: u64) -> Result<(), PayloadError> {
        self.root.length = self.offset;
        self.root.digest = self.digest.finish();
        let mut expected = Vec::with_capacity(payload.len());
        self.root.encode(&self.checksums, &mut expected);
        if let Some(place) = (0..payload.len()).find(|&place| payload[place] != expected[place]) {
            let field = match place {
                0..8 => "number of slices",
                8..16 => "number of blocks of sessions",
                16..24 => "length",
                24..40 => "digest",
                _ => "checksum of a block",
            };
            let problem = format!("the root's {field} is not that of the blocks before it");
            return Err((place, problem));
        }
        self.mark = Some(CheckpointMark {
            length: self.offset + block_length,
            digest: self.root.digest,
        });
        Ok(())
    }
}

const _: () = assert!(block::block_length(ROOT_FIELDS_LENGTH) == HEADER_LENGTH + 40);

#[cfg(test)]
impl<S> CheckpointParser<S> {
    /// A parser that claims to be at this position of the file.
    pub(super) fn at(mut self, position: u64) -> CheckpointParser<S> {
        self.offset = position;
        self
    }
}
