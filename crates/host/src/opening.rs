//! How a connection begins: both sides say which protocol they speak, and prove that they know a key if there is one. Byte
//! map in `docs/formats/opening.md`.
//!
//! Nothing here touches a socket: [`ClientOpening`] and [`ServerOpening`] take what came and say what to send.

use crate::key::{Key, NONCE_LENGTH, PROOF_LENGTH, Proof};
use std::fmt;

/// What a server serves.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name, at most 12 bytes.
    pub name: &'static str,
    /// Its version.
    pub version: u8,
    /// What a client is answered whose first message is no opening: one of a version before there were openings.
    pub refuse_old: fn(&[u8]) -> Option<Vec<u8>>,
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Protocol) -> bool {
        (self.name, self.version) == (other.name, other.version)
    }
}

impl Eq for Protocol {}

const MAGIC: &[u8; 8] = b"seatrial";
/// The version of the opening.
const VERSION: u8 = 1;
const NAME_LENGTH: usize = 12;
/// Bytes that every message of an opening starts with.
const HEADER_LENGTH: usize = 24;
/// The longest message of an opening.
pub(crate) const LENGTH_MAX: usize = HEADER_LENGTH + TEXT_LENGTH_MAX;
/// Bytes of the words of a refusal.
const TEXT_LENGTH_MAX: usize = 256;

/// What a message of an opening is. From 16 on it is why the server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Code {
    /// Client: asks to be let in, and has no key.
    Open = 1,
    /// The same with a key.
    OpenWithKey = 2,
    /// Server: come in.
    Welcome = 3,
    /// Server: prove that you know the key.
    Challenge = 4,
    /// Either: the proof.
    Proof = 5,
    WrongVersion = 16,
    WrongProtocol = 17,
    NoKey = 18,
    WrongKey = 19,
    Full = 20,
}

impl Code {
    const ALL: [Code; 10] = [
        Code::Open,
        Code::OpenWithKey,
        Code::Welcome,
        Code::Challenge,
        Code::Proof,
        Code::WrongVersion,
        Code::WrongProtocol,
        Code::NoKey,
        Code::WrongKey,
        Code::Full,
    ];

    fn from_byte(byte: u8) -> Option<Code> {
        Code::ALL.into_iter().find(|code| *code as u8 == byte)
    }
}

/// Why a connection was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The server refuses, with these words.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server does not know the key, or somebody else answers.
    #[error("the server does not prove that it knows the key")]
    WrongProof,
    /// The client has a key, and the server asks for none.
    #[error("the server has no key, and one was given here")]
    NoKey,
    /// What answers is no server of this kind.
    #[error("what answers is no seatrial server, or one of an earlier version")]
    Stranger,
    /// There is no random number to be had.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// The header of a message.
struct Header {
    code: Code,
    version: u8,
    name: [u8; NAME_LENGTH],
}

impl Header {
    fn new(code: Code, protocol: Protocol) -> Header {
        let mut name = [0; NAME_LENGTH];
        name[..protocol.name.len()].copy_from_slice(protocol.name.as_bytes());
        Header {
            code,
            version: protocol.version,
            name,
        }
    }

    fn message(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, self.code as u8, self.version, 0]);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(body);
        bytes
    }

    /// The header and the body; `None`: it is of no opening. The version of the opening is not checked.
    fn decode(message: &[u8]) -> Option<(u8, Option<Header>, &[u8])> {
        let (header, body) = message.split_first_chunk::<HEADER_LENGTH>()?;
        if !header.starts_with(MAGIC) || header[11] != 0 {
            return None;
        }
        let name = header[HEADER_LENGTH - NAME_LENGTH..].try_into().ok()?;
        let known = Code::from_byte(header[9]).map(|code| Header {
            code,
            version: header[10],
            name,
        });
        Some((header[8], known, body))
    }

    fn is_of(&self, protocol: Protocol) -> bool {
        let mine = Header::new(self.code, protocol);
        (mine.version, mine.name) == (self.version, self.name)
    }
}

/// The protocol that a header names, as it may be shown: what came is not believed to be text.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: &[u8] = self.name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        write!(f, "{} {}", name.escape_ascii(), self.version)
    }
}

fn refusal(code: Code, protocol: Protocol, text: &str) -> Vec<u8> {
    let text = &text[..text.floor_char_boundary(TEXT_LENGTH_MAX)];
    Header::new(code, protocol).message(text.as_bytes())
}

/// What a server says to a connection for which it has no place.
pub(crate) fn full(protocol: Protocol, connections_max: usize) -> Vec<u8> {
    let text = format!("{connections_max} connections are open, try again later");
    refusal(Code::Full, protocol, &text)
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this and wait for an answer.
    Send(Vec<u8>),
    /// Send this, if anything; the connection is open.
    Open(Option<Vec<u8>>),
    /// Send this, if anything; the connection is refused.
    Refuse {
        message: Option<Vec<u8>>,
        reason: String,
        /// Somebody guesses.
        is_guess: bool,
    },
}

/// A server's side of one opening. It knows nothing but its key, its nonce and what it was told, and lets a client try once.
#[derive(Debug)]
pub(crate) struct ServerOpening {
    protocol: Protocol,
    key: Option<Key>,
    nonce: [u8; NONCE_LENGTH],
    /// What was said so far, once the client was challenged.
    said: Option<Vec<u8>>,
}

impl ServerOpening {
    pub(crate) fn new(
        protocol: Protocol,
        key: Option<Key>,
        nonce: [u8; NONCE_LENGTH],
    ) -> ServerOpening {
        ServerOpening {
            protocol,
            key,
            nonce,
            said: None,
        }
    }

    /// The client says this.
    pub(crate) fn step(&mut self, message: &[u8]) -> Step {
        match self.said.take() {
            None => self.opened(message),
            Some(said) => self.proved(&said, message),
        }
    }

    fn refuse(&self, code: Code, text: &str) -> Step {
        Step::Refuse {
            message: Some(refusal(code, self.protocol, text)),
            reason: text.to_owned(),
            is_guess: code == Code::WrongKey,
        }
    }

    fn opened(&mut self, message: &[u8]) -> Step {
        let mine = Header::new(Code::Welcome, self.protocol);
        let Some((version, header, nonce)) = Header::decode(message) else {
            return Step::Refuse {
                message: (self.protocol.refuse_old)(message),
                reason: format!("its first message is no opening; {mine} is spoken here"),
                is_guess: false,
            };
        };
        let (VERSION, Some(header), Ok(_)) =
            (version, header, <[u8; NONCE_LENGTH]>::try_from(nonce))
        else {
            let text = format!("openings of version {VERSION} are understood here");
            return self.refuse(Code::WrongVersion, &text);
        };
        if !header.is_of(self.protocol) {
            let text = format!("{header} is not spoken here, {mine} is");
            return self.refuse(Code::WrongProtocol, &text);
        }
        match (&self.key, header.code) {
            (None, Code::Open | Code::OpenWithKey) => Step::Open(Some(mine.message(&[]))),
            (Some(_), Code::OpenWithKey) => {
                let challenge = Header::new(Code::Challenge, self.protocol).message(&self.nonce);
                self.said = Some([message, &challenge].concat());
                Step::Send(challenge)
            }
            (Some(_), Code::Open) => self.refuse(Code::NoKey, "a key is needed (--key-file)"),
            _ => self.refuse(Code::WrongVersion, "an opening begins otherwise"),
        }
    }

    fn proved(&self, said: &[u8], message: &[u8]) -> Step {
        let proof = Header::decode(message)
            .filter(|(version, header, _)| {
                let is_proof = |it: &Header| it.code == Code::Proof && it.is_of(self.protocol);
                *version == VERSION && header.as_ref().is_some_and(is_proof)
            })
            .map(|(_, _, proof)| proof);
        let Some(key) = &self.key else {
            return self.refuse(Code::NoKey, "there is no key here");
        };
        if !proof.is_some_and(|proof| key.proves(Proof::Client, said, proof)) {
            return self.refuse(Code::WrongKey, "the key is not that of this server");
        }
        let mine = key.prove(Proof::Server, said);
        Step::Open(Some(Header::new(Code::Proof, self.protocol).message(&mine)))
    }
}

/// A client's side of one opening.
#[derive(Debug)]
pub struct ClientOpening {
    protocol: Protocol,
    key: Option<Key>,
    opening: Vec<u8>,
    /// What was said so far, once the key was proved.
    said: Option<Vec<u8>>,
}

impl ClientOpening {
    /// With a nonce of the system.
    pub fn new(protocol: Protocol, key: Option<Key>) -> Result<ClientOpening, OpeningError> {
        let nonce = crate::key::nonce();
        let nonce = nonce.map_err(|error| OpeningError::Random(error.to_string()))?;
        Ok(ClientOpening::with_nonce(protocol, key, nonce))
    }

    fn with_nonce(
        protocol: Protocol,
        key: Option<Key>,
        nonce: [u8; NONCE_LENGTH],
    ) -> ClientOpening {
        let code = if key.is_some() {
            Code::OpenWithKey
        } else {
            Code::Open
        };
        ClientOpening {
            protocol,
            key,
            opening: Header::new(code, protocol).message(&nonce),
            said: None,
        }
    }

    /// The first message.
    pub fn message(&self) -> &[u8] {
        &self.opening
    }

    /// The server says this: what to answer, or nothing when the connection is open.
    pub fn step(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, OpeningError> {
        let Some((VERSION, Some(header), body)) = Header::decode(message) else {
            return Err(OpeningError::Stranger);
        };
        if header.code as u8 >= Code::WrongVersion as u8 {
            let text = String::from_utf8_lossy(body).into_owned();
            return Err(OpeningError::Refused(text));
        }
        if !header.is_of(self.protocol) {
            return Err(OpeningError::Stranger);
        }
        match (header.code, &self.key, self.said.take()) {
            (Code::Welcome, None, _) => Ok(None),
            (Code::Welcome, Some(_), _) => Err(OpeningError::NoKey),
            (Code::Challenge, Some(key), None) if body.len() == NONCE_LENGTH => {
                let said = [&self.opening, message].concat();
                let proof = key.prove(Proof::Client, &said);
                self.said = Some(said);
                let answer = Header::new(Code::Proof, self.protocol).message(&proof);
                Ok(Some(answer))
            }
            (Code::Proof, Some(key), Some(said)) if body.len() == PROOF_LENGTH => {
                if key.proves(Proof::Server, &said, body) {
                    Ok(None)
                } else {
                    Err(OpeningError::WrongProof)
                }
            }
            _ => Err(OpeningError::Stranger),
        }
    }
}

#[cfg(test)]
mod tests;
