//! Appends blocks and roots to a test file.

use super::Codec;
use super::PURPOSE;
use super::block_kinds::{
    self, ATTRIBUTES, CONTINUES, DIRECTORY, PART_LENGTH_MAX, RESULTS, RESULTS_PART,
};
use super::directory::{DirectoryEntry, Document, ENTRIES_MAX, RootContents, write_level};
use super::survey::SurveyedFile;
use seatrial_blocks::block::flags;
use seatrial_blocks::root::{RootSlots, first_page};
use seatrial_blocks::{BlockFileError, BlockKind, LogFile};
use seatrial_machine::Disk;
use serde_json::Value as Json;

/// Appends blocks and roots to a file.
#[derive(Debug)]
pub(super) struct Appender {
    log: LogFile,
    pub(super) contents: RootContents,
    sequence: u64,
    slots: RootSlots,
    /// Is the whole file durable?
    synced: bool,
    /// The failure after which nothing more may be written.
    failure: Option<String>,
    out: Vec<u8>,
}

impl Appender {
    /// Begins a file in an empty log: first page, attributes, root.
    pub(super) fn create(mut log: LogFile, attributes: &Json) -> Result<Appender, BlockFileError> {
        log.append(&first_page(PURPOSE))?;
        let mut file = Appender {
            log,
            contents: RootContents::default(),
            sequence: 0,
            slots: RootSlots::new(),
            synced: false,
            failure: None,
            out: Vec::new(),
        };
        file.contents.attributes = file.document(ATTRIBUTES, &attributes.to_string())?;
        file.root()?;
        Ok(file)
    }

    /// Continues a file at its end, which must be that of a block: a torn one has to be repaired first. Makes durable what a
    /// killed writer left unsynced.
    pub(super) fn resume(log: LogFile, found: SurveyedFile) -> Result<Appender, BlockFileError> {
        assert_eq!(log.len(), found.end, "no bytes after the last block");
        Appender::cut(log, found)
    }

    /// [`Appender::resume`] after cutting off all bytes after the last whole block.
    pub(super) fn cut(mut log: LogFile, found: SurveyedFile) -> Result<Appender, BlockFileError> {
        log.cut(found.end)?;
        let mut file = Appender {
            log,
            contents: found.contents,
            sequence: found.sequence,
            slots: found.slots,
            synced: true,
            failure: None,
            out: Vec::new(),
        };
        file.carry()?;
        Ok(file)
    }

    /// Length of the file in bytes.
    pub(super) fn length(&self) -> u64 {
        self.log.len()
    }

    #[cfg(test)]
    pub(super) fn fail_from_now_on(&mut self) {
        self.failure = Some("a test says so".to_owned());
    }

    /// Fails if an earlier write or sync failed: the contents of the medium are unknown since.
    #[inline]
    pub(super) fn check(&self) -> Result<(), BlockFileError> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(self.poisoned(reason)),
        }
    }

    #[cold]
    fn poisoned(&self, reason: &str) -> BlockFileError {
        BlockFileError::Poisoned {
            path: self.log.path().to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// Remembers a failure, permanently.
    fn keep(&mut self, result: Result<(), BlockFileError>) -> Result<(), BlockFileError> {
        if let Err(error) = &result {
            self.failure.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Appends one block; returns its offset and length.
    pub(super) fn block(
        &mut self,
        kind: BlockKind,
        extra_flags: u16,
        payload: &[u8],
        codec: Codec,
    ) -> Result<(u64, u32), BlockFileError> {
        self.check()?;
        let order = if self.synced { 0 } else { flags::UNORDERED };
        self.out.clear();
        block_kinds::write(
            &mut self.out,
            kind,
            order | extra_flags,
            self.sequence,
            payload,
            codec,
        );
        let offset = self.log.len();
        let appended = self.log.append(&self.out);
        self.keep(appended)?;
        assert_eq!(
            self.log.len(),
            offset + self.out.len() as u64,
            "a block was not appended as a whole"
        );
        self.sequence += 1;
        self.synced = false;
        Ok((offset, self.out.len() as u32))
    }

    pub(super) fn sync(&mut self) -> Result<(), BlockFileError> {
        self.check()?;
        if !self.synced {
            let synced = self.log.sync();
            self.keep(synced)?;
            self.synced = true;
        }
        Ok(())
    }

    /// Appends a document in parts.
    fn document(&mut self, kind: BlockKind, text: &str) -> Result<Document, BlockFileError> {
        let mut document = Document {
            length: text.len() as u64,
            ..Document::default()
        };
        for part in text.as_bytes().chunks(PART_LENGTH_MAX) {
            let flags = if document.parts == 0 { 0 } else { CONTINUES };
            let (offset, _) = self.block(kind, flags, part, Codec::Lz4)?;
            if document.parts == 0 {
                document.offset = offset;
            }
            document.parts += 1;
        }
        assert!(document.offset > 0, "a document without parts");
        Ok(document)
    }

    /// Replaces the attributes: appends them and a root.
    pub(super) fn set_attributes(&mut self, attributes: &Json) -> Result<(), BlockFileError> {
        self.contents.attributes = self.document(ATTRIBUTES, &attributes.to_string())?;
        self.root()
    }

    /// Appends the results of one more analysis; the next root names them.
    pub(super) fn results(&mut self, text: &str, validity: &str) -> Result<(), BlockFileError> {
        let document = self.document(RESULTS_PART, text)?;
        let mut head = Vec::new();
        head.extend(self.contents.results.to_le_bytes());
        head.extend((self.contents.analyses + 1).to_le_bytes());
        document.write(&mut head);
        head.extend(validity.as_bytes());
        let (offset, _) = self.block(RESULTS, 0, &head, Codec::None)?;
        self.contents.results = offset;
        self.contents.analyses += 1;
        Ok(())
    }

    /// Adds a chunk to the directory.
    pub(super) fn add(&mut self, entry: DirectoryEntry) -> Result<(), BlockFileError> {
        if self.contents.levels.is_empty() {
            self.contents.levels.push(Vec::new());
        }
        self.contents.levels[0].push(entry);
        if self.contents.levels[0].len() >= ENTRIES_MAX {
            self.carry()?;
            self.root()?;
        }
        Ok(())
    }

    /// Writes full levels as directory blocks, each of which becomes an entry of the level above.
    pub(super) fn carry(&mut self) -> Result<(), BlockFileError> {
        let mut level = 0;
        while level < self.contents.levels.len() {
            while self.contents.levels[level].len() >= ENTRIES_MAX {
                let entries: Vec<DirectoryEntry> =
                    self.contents.levels[level].drain(..ENTRIES_MAX).collect();
                let mut payload = Vec::new();
                write_level(level as u32, &entries, &mut payload);
                let (offset, length) = self.block(DIRECTORY, 0, &payload, Codec::None)?;
                if self.contents.levels.len() == level + 1 {
                    self.contents.levels.push(Vec::new());
                }
                self.contents.levels[level + 1]
                    .push(DirectoryEntry::over(&entries, offset, length));
            }
            level += 1;
        }
        assert!(
            self.contents
                .levels
                .iter()
                .all(|entries| entries.len() < ENTRIES_MAX),
            "a level is full after the carry"
        );
        Ok(())
    }

    /// Makes everything durable, then appends a root that names it, then updates the hint on the first page. In this order a
    /// crash at any point leaves a valid newest root.
    pub(super) fn root(&mut self) -> Result<(), BlockFileError> {
        self.sync()?;
        let mut payload = Vec::new();
        self.contents.write(&mut payload);
        let sequence = self.sequence;
        let (offset, _) = self.block(BlockKind::ROOT, 0, &payload, Codec::None)?;
        self.sync()?;
        assert!(
            self.synced,
            "the first page names a root that is not durable"
        );
        let slot = self.slots.next(offset, sequence);
        let written = self.log.write_slot(&slot);
        self.keep(written)
    }
}
