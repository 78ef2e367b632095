//! The mark of a journal: a small file of its own that says how far the journal was durable, so that a lost one is not taken
//! for a new one.

use crate::journal::JournalOwner;
use seatrial_blocks::crc32c;
use seatrial_machine::{DataFolder, FieldReader, FileName, FileTask, MessageError, NodeId};
use std::io::{self, ErrorKind};

/// Version of the file.
const VERSION: u32 = 1;
/// More bytes than a mark of the most voters has.
const LENGTH_MAX: u64 = 1 << 16;

/// What a node knows of its journal without reading it. Published as a whole, at each start and after each checkpoint: it is
/// never ahead of the journal, and behind it by at most what was written since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalMark {
    /// Whose journal it is.
    pub(crate) owner: JournalOwner,
    /// Number of the start that wrote the mark.
    pub(crate) start: u64,
    /// The journal was durable up to this position.
    pub(crate) end: u64,
    /// Is the journal lost, and the node silent until it rejoins?
    pub(crate) is_lost: bool,
    /// The entry with which the node last rejoined; 0: never.
    pub(crate) rejoined: u64,
    /// The rule of checkpoints of the cluster's founding, …
    pub(crate) checkpoint_bytes: u64,
    /// … and its voters.
    pub(crate) voters: Vec<NodeId>,
}

fn name() -> FileName {
    FileName::new("journal-mark").expect("a name")
}

fn new_name() -> FileName {
    FileName::new("new-journal-mark").expect("a name")
}

impl JournalMark {
    /// Reads the mark of a folder; `None`: there is none. A mark that is damaged is an error of kind `InvalidData`.
    pub(crate) fn read(data: &DataFolder) -> io::Result<Option<JournalMark>> {
        let path = data.files_path().join(name().as_str());
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("{} at 0: {error}", path.display()))
        };
        let file = match data.file(&name()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.len().min(LENGTH_MAX);
        let mut bytes = vec![0; length as usize];
        file.read_at(0, &mut bytes).map_err(failed)?;
        let damage = |problem| failed(io::Error::new(ErrorKind::InvalidData, problem));
        JournalMark::decode(&bytes).map(Some).map_err(damage)
    }

    /// The tasks that publish the mark. Only the result of the last one matters.
    pub(crate) fn tasks(&self) -> [FileTask; 3] {
        let write = FileTask::Write {
            file: new_name(),
            offset: 0,
            bytes: self.encode(),
        };
        let publish = FileTask::Publish {
            file: new_name(),
            to: name(),
        };
        [FileTask::Create { file: new_name() }, write, publish]
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.owner.node.number().to_le_bytes());
        let is_lost = u64::from(self.is_lost);
        for number in [
            self.owner.cluster,
            self.start,
            self.end,
            is_lost,
            self.rejoined,
            self.checkpoint_bytes,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for voter in &self.voters {
            bytes.extend_from_slice(&voter.number().to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<JournalMark, String> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or("a cut file")?;
        let (found, expected) = (crc32c(bytes), u32::from_le_bytes(*checksum));
        if found != expected {
            return Err(format!("checksum {found:08x}, expected {expected:08x}"));
        }
        let mut fields = FieldReader::new(bytes);
        Self::decode_fields(&mut fields, bytes.len()).map_err(|error| error.to_string())
    }

    fn decode_fields(
        fields: &mut FieldReader<'_>,
        length: usize,
    ) -> Result<JournalMark, MessageError> {
        let version = fields.word("version")?;
        if version != VERSION {
            return Err(fields.never("version", 4, u64::from(version)));
        }
        let node = read_node(fields)?;
        let cluster = fields.long("cluster")?;
        let (start, end) = (fields.long("start")?, fields.long("end")?);
        let is_lost = match fields.long("lost")? {
            0 => false,
            1 => true,
            other => return Err(fields.never("lost", 8, other)),
        };
        let rejoined = fields.long("rejoined")?;
        let checkpoint_bytes = fields.long("checkpoint bytes")?;
        let mut voters = Vec::new();
        while fields.offset() < length {
            voters.push(read_node(fields)?);
        }
        Ok(JournalMark {
            owner: JournalOwner { cluster, node },
            start,
            end,
            is_lost,
            rejoined,
            checkpoint_bytes,
            voters,
        })
    }
}

fn read_node(fields: &mut FieldReader<'_>) -> Result<NodeId, MessageError> {
    match fields.word("node")? {
        number if number > 0 && number < 1 << 31 => Ok(NodeId::server(number)),
        other => Err(fields.never("node", 4, u64::from(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn sample() -> JournalMark {
        JournalMark {
            owner: JournalOwner {
                cluster: 7,
                node: NodeId::server(2),
            },
            start: 3,
            end: 1 << 33,
            is_lost: true,
            rejoined: 99,
            checkpoint_bytes: 64,
            voters: vec![NodeId::server(1), NodeId::server(2), NodeId::server(3)],
        }
    }

    #[test]
    fn a_mark_survives_its_encoding_and_no_damage() {
        let bytes = sample().encode();
        assert_eq!(JournalMark::decode(&bytes), Ok(sample()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(JournalMark::decode(&damaged).is_err(), "byte {at}");
            assert!(JournalMark::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut rng = Rng::from_seed(3);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.index(90)).map(|_| rng.word() as u8 % 4).collect();
            bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
            let _ = JournalMark::decode(&bytes);
        }
    }
}
