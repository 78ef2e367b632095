//! What goes over the wire: the header of every message and the limits. Byte map in `docs/formats/kv-protocol.md`.

use seatrial_machine::FieldReader;
pub use seatrial_machine::MessageError;

/// Bytes of the header that every message starts with.
pub const HEADER_LENGTH: usize = 24;
/// The longest message: 4 MiB.
pub const MESSAGE_LENGTH_MAX: usize = 4 << 20;
/// Operations of one transaction.
pub const OPERATIONS_MAX: usize = 1_024;
/// Bytes of a key.
pub const KEY_LENGTH_MAX: usize = 1_024;
/// Bytes of a register's value or of a list's element.
pub const VALUE_LENGTH_MAX: usize = 1 << 20;
/// Bytes of a list, 4 for each element's length included.
pub const LIST_LENGTH_MAX: usize = 1 << 20;
/// Keys that one scan may ask for.
pub const SCAN_MAX: usize = 1_000;
/// Requests of one session that may be under way.
pub const WINDOW: u64 = 128;
/// Name of the protocol.
pub const PROTOCOL: &str = "kv";
/// Version of the protocol.
pub const VERSION: u8 = 3;

/// Types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A client requests a session.
    Hello = 1,
    /// A client sends a transaction.
    Request = 2,
    /// The server opens or refuses a session.
    Welcome = 3,
    /// The server replies to a request.
    Reply = 4,
    /// A client asks for the node's status, without a session.
    Status = 5,
    /// The server's status.
    StatusReply = 6,
    /// An operator changes the cluster, without a session.
    Admin = 7,
    /// What became of that.
    AdminReply = 8,
}

/// Result of a request, or why no session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Executed and durable.
    Committed = 0,
    /// A register did not hold the expected value.
    CompareFailed = 1,
    /// A list was used as a register, or a register as a list.
    WrongKind = 2,
    /// A list would pass [`LIST_LENGTH_MAX`].
    ListFull = 3,
    /// The reply would pass [`MESSAGE_LENGTH_MAX`].
    AnswerTooLong = 4,
    /// A queue of the server is full.
    Overloaded = 5,
    /// The body is not a valid request.
    Malformed = 6,
    /// The server does not know the session.
    WrongSession = 7,
    /// The server does not support the client's version of the protocol.
    WrongVersion = 8,
    /// The node keeps no state at the index that the request reads.
    NoState = 9,
}

impl Code {
    /// The code of this byte.
    fn from_byte(byte: u8) -> Option<Code> {
        const ALL: [Code; 10] = [
            Code::Committed,
            Code::CompareFailed,
            Code::WrongKind,
            Code::ListFull,
            Code::AnswerTooLong,
            Code::Overloaded,
            Code::Malformed,
            Code::WrongSession,
            Code::WrongVersion,
            Code::NoState,
        ];
        ALL.get(usize::from(byte)).copied()
    }
}

/// A header whose fields depend on the message's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// The type of the message.
    pub kind: MessageKind,
    /// A [`Code`], or the protocol version in a hello.
    pub code: u8,
    /// Operations, answers or window.
    pub count: u16,
    /// Index of the operation that failed, or a version.
    pub detail: u32,
    /// Token or session.
    pub first: u64,
    /// Session (in a welcome) or request id.
    pub second: u64,
}

impl MessageHeader {
    /// Encodes the header.
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0] = self.kind as u8;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.count.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.detail.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    /// Decodes the header of `message`.
    #[inline]
    pub fn decode(message: &[u8]) -> Result<MessageHeader, MessageError> {
        let mut cursor = FieldReader::new(message);
        let kind = match cursor.byte("type")? {
            1 => MessageKind::Hello,
            2 => MessageKind::Request,
            3 => MessageKind::Welcome,
            4 => MessageKind::Reply,
            5 => MessageKind::Status,
            6 => MessageKind::StatusReply,
            7 => MessageKind::Admin,
            8 => MessageKind::AdminReply,
            other => return Err(cursor.never("type", 1, u64::from(other))),
        };
        Ok(MessageHeader {
            kind,
            code: cursor.byte("code")?,
            count: cursor.half("count")?,
            detail: cursor.word("detail")?,
            first: cursor.long("first id")?,
            second: cursor.long("second id")?,
        })
    }

    /// The code of a welcome or reply.
    pub fn outcome(&self) -> Result<Code, MessageError> {
        Code::from_byte(self.code).ok_or(MessageError::Value {
            field: "code",
            offset: 1,
            value: u64::from(self.code),
        })
    }
}

/// The refusal for a client of another version, in that version's encoding, given its first message. `None`: it is not a client.
pub fn refuse_version(first_message: &[u8]) -> Option<Vec<u8>> {
    let hello = MessageHeader::decode(first_message).ok()?;
    (hello.kind == MessageKind::Hello).then(|| {
        let welcome = MessageHeader {
            kind: MessageKind::Welcome,
            code: Code::WrongVersion as u8,
            count: WINDOW as u16,
            detail: u32::from(VERSION),
            first: hello.first,
            second: 0,
        };
        welcome.encode().to_vec()
    })
}

/// Decoders of fields that only the store's messages have.
pub trait StoreFields<'a> {
    /// A key: length and bytes.
    fn key(&mut self) -> Result<&'a [u8], MessageError>;
    /// A value: length and bytes.
    fn value(&mut self) -> Result<&'a [u8], MessageError>;
    /// A value, or the mark of none.
    fn optional_value(&mut self) -> Result<Option<&'a [u8]>, MessageError>;
    /// The end of a range: a key, or the mark of an open end.
    fn end_key(&mut self) -> Result<Option<&'a [u8]>, MessageError>;
    /// The limit of a scan.
    fn scan_limit(&mut self) -> Result<u16, MessageError>;
}

impl<'a> StoreFields<'a> for FieldReader<'a> {
    #[inline]
    fn key(&mut self) -> Result<&'a [u8], MessageError> {
        let length = usize::from(self.half("key length")?);
        if length > KEY_LENGTH_MAX {
            return Err(self.never("key length", 2, length as u64));
        }
        self.bytes("key", length)
    }

    #[inline]
    fn value(&mut self) -> Result<&'a [u8], MessageError> {
        let length = self.word("value length")? as usize;
        if length > VALUE_LENGTH_MAX {
            return Err(self.never("value length", 4, length as u64));
        }
        self.bytes("value", length)
    }

    #[inline]
    fn optional_value(&mut self) -> Result<Option<&'a [u8]>, MessageError> {
        let mut ahead = self.clone();
        if ahead.word("value length")? == ABSENT {
            *self = ahead;
            return Ok(None);
        }
        self.value().map(Some)
    }

    #[inline]
    fn end_key(&mut self) -> Result<Option<&'a [u8]>, MessageError> {
        let mut ahead = self.clone();
        if ahead.half("key length")? == OPEN_END {
            *self = ahead;
            return Ok(None);
        }
        self.key().map(Some)
    }

    #[inline]
    fn scan_limit(&mut self) -> Result<u16, MessageError> {
        let limit = self.half("limit of a scan")?;
        if limit == 0 || usize::from(limit) > SCAN_MAX {
            return Err(self.never("limit of a scan", 2, u64::from(limit)));
        }
        Ok(limit)
    }
}

/// The length that stands for no value.
pub(crate) const ABSENT: u32 = u32::MAX;
/// The length that stands for a range without end.
pub(crate) const OPEN_END: u16 = u16::MAX;

const _: () = assert!(KEY_LENGTH_MAX < OPEN_END as usize && SCAN_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn the_byte_map_is_the_documented_one() {
        let header = MessageHeader {
            kind: MessageKind::Reply,
            code: Code::WrongKind as u8,
            count: 0x0201,
            detail: 0x0605_0403,
            first: 0x1716_1514_1312_1110,
            second: 0x2726_2524_2322_2120,
        };
        let bytes = [
            4, 2, 1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x20, 0x21,
            0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
        ];
        assert_eq!(header.encode(), bytes);
        assert_eq!(MessageHeader::decode(&bytes), Ok(header));
        assert_eq!(header.outcome(), Ok(Code::WrongKind));
    }

    #[test]
    fn a_client_of_another_version_is_answered_in_its_own_words() {
        let hello = MessageHeader {
            kind: MessageKind::Hello,
            code: 1,
            count: 0,
            detail: 0,
            first: 77,
            second: 0,
        };
        let answer = refuse_version(&hello.encode()).unwrap();
        let welcome = MessageHeader::decode(&answer).unwrap();
        assert_eq!(welcome.outcome(), Ok(Code::WrongVersion));
        assert_eq!((welcome.first, welcome.detail), (77, u32::from(VERSION)));
        assert_eq!(refuse_version(b"GET / HTTP/1.1\r\nHost: x\r\n"), None);
    }

    #[test]
    fn every_code_survives_its_byte() {
        for byte in 0..=u8::MAX {
            let code = Code::from_byte(byte);
            assert_eq!(code.is_some(), byte <= Code::NoState as u8);
            assert!(code.is_none_or(|code| code as u8 == byte));
        }
    }

    #[test]
    fn cut_and_unknown_headers_are_refused_with_their_place() {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0] = 2;
        for length in 0..HEADER_LENGTH {
            let error = MessageHeader::decode(&bytes[..length]).unwrap_err();
            assert!(matches!(error, MessageError::Short { .. }), "{error}");
        }
        bytes[0] = 9;
        let error = MessageHeader::decode(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "type at 0 is 9, which is never sent");
    }

    #[test]
    fn arbitrary_headers_never_panic() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..rng.index(40)).map(|_| rng.word() as u8 % 10).collect();
            if let Ok(header) = MessageHeader::decode(&bytes) {
                assert_eq!(header.encode(), bytes[..HEADER_LENGTH]);
            }
        }
    }
}
