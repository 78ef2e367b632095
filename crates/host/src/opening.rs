//! The opening of a connection: both sides name their protocol, and prove that they know the key if there is one. Byte map in
//! `docs/formats/opening.md`.
//!
//! Nothing here touches a socket: [`ClientOpening`] and [`ServerOpening`] take the received messages and return the ones to
//! send.

use crate::key::{NONCE_LENGTH, PROOF_LENGTH, ProofSide, SecretKey};
use std::fmt;

/// The protocol of a server.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name, at most 12 bytes.
    pub name: &'static str,
    /// Its version.
    pub version: u8,
    /// The reply to a client whose first message is not an opening: a client of a version before there were openings.
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
/// Length of the header of every opening message, in bytes.
const HEADER_LENGTH: usize = 24;
/// Maximum length of an opening message.
pub(crate) const LENGTH_MAX: usize = HEADER_LENGTH + TEXT_LENGTH_MAX;
/// Maximum length of a refusal's text, in bytes.
const TEXT_LENGTH_MAX: usize = 256;

/// Type of an opening message. Codes from 16 on are refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum OpeningCode {
    /// Client: open a connection without a key.
    Open = 1,
    /// Client: open a connection with a key.
    OpenWithKey = 2,
    /// Server: the connection is open.
    Welcome = 3,
    /// Server: a challenge; prove that you know the key.
    Challenge = 4,
    /// Either side: the proof.
    Proof = 5,
    WrongVersion = 16,
    WrongProtocol = 17,
    NoKey = 18,
    WrongKey = 19,
    Full = 20,
}

impl OpeningCode {
    const ALL: [OpeningCode; 10] = [
        OpeningCode::Open,
        OpeningCode::OpenWithKey,
        OpeningCode::Welcome,
        OpeningCode::Challenge,
        OpeningCode::Proof,
        OpeningCode::WrongVersion,
        OpeningCode::WrongProtocol,
        OpeningCode::NoKey,
        OpeningCode::WrongKey,
        OpeningCode::Full,
    ];

    fn from_byte(byte: u8) -> Option<OpeningCode> {
        OpeningCode::ALL
            .into_iter()
            .find(|code| *code as u8 == byte)
    }
}

/// Why a connection was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The server refused, with this text.
    #[error("refused by the server: {0}")]
    Refused(String),
    /// The server does not know the key, or is an impostor.
    #[error("the server does not prove that it knows the key")]
    WrongProof,
    /// The client has a key, and the server requires none.
    #[error("the server has no key, but this client has one")]
    NoKey,
    /// The reply is not that of a seatrial server.
    #[error("the reply is not that of a seatrial server, or it is of an earlier version")]
    NotAServer,
    /// The system provides no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// Header of an opening message.
struct OpeningHeader {
    code: OpeningCode,
    version: u8,
    name: [u8; NAME_LENGTH],
}

impl OpeningHeader {
    fn new(code: OpeningCode, protocol: Protocol) -> OpeningHeader {
        let mut name = [0; NAME_LENGTH];
        name[..protocol.name.len()].copy_from_slice(protocol.name.as_bytes());
        OpeningHeader {
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

    /// The code, header and body of a message; `None` if it is not an opening. A header of another version of the opening is
    /// `None`.
    fn decode(message: &[u8]) -> Option<(u8, Option<OpeningHeader>, &[u8])> {
        let (header, body) = message.split_first_chunk::<HEADER_LENGTH>()?;
        if !header.starts_with(MAGIC) || header[11] != 0 {
            return None;
        }
        let name = header[HEADER_LENGTH - NAME_LENGTH..].try_into().ok()?;
        let known = OpeningCode::from_byte(header[9]).map(|code| OpeningHeader {
            code,
            version: header[10],
            name,
        });
        Some((header[8], known, body))
    }

    fn is_of(&self, protocol: Protocol) -> bool {
        let mine = OpeningHeader::new(self.code, protocol);
        (mine.version, mine.name) == (self.version, self.name)
    }
}

/// The protocol that a header names, escaped: received bytes need not be text.
impl fmt::Display for OpeningHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: &[u8] = self.name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        write!(f, "{} {}", name.escape_ascii(), self.version)
    }
}

fn refusal(code: OpeningCode, protocol: Protocol, text: &str) -> Vec<u8> {
    let text = &text[..text.floor_char_boundary(TEXT_LENGTH_MAX)];
    OpeningHeader::new(code, protocol).message(text.as_bytes())
}

/// The refusal of a server whose places are all taken.
pub(crate) fn full(protocol: Protocol, connections_max: usize) -> Vec<u8> {
    let text = format!("{connections_max} connections are open, try again later");
    refusal(OpeningCode::Full, protocol, &text)
}

/// Next step of a server's opening.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OpeningStep {
    /// Send this and wait for the next message.
    Send(Vec<u8>),
    /// Send this, if anything; the connection is open.
    Open(Option<Vec<u8>>),
    /// Send this, if anything, and close the connection.
    Refuse {
        message: Option<Vec<u8>>,
        reason: String,
        /// The proof was wrong: the client may be guessing keys.
        is_guess: bool,
    },
}

/// A server's side of one opening. It holds its key, its nonce and the received messages, and permits one attempt.
#[derive(Debug)]
pub(crate) struct ServerOpening {
    protocol: Protocol,
    key: Option<SecretKey>,
    nonce: [u8; NONCE_LENGTH],
    /// The transcript so far, once the client was challenged.
    transcript: Option<Vec<u8>>,
}

impl ServerOpening {
    pub(crate) fn new(
        protocol: Protocol,
        key: Option<SecretKey>,
        nonce: [u8; NONCE_LENGTH],
    ) -> ServerOpening {
        ServerOpening {
            protocol,
            key,
            nonce,
            transcript: None,
        }
    }

    /// Takes a client's message and returns the next step.
    pub(crate) fn step(&mut self, message: &[u8]) -> OpeningStep {
        match self.transcript.take() {
            None => self.opened(message),
            Some(transcript) => self.proved(&transcript, message),
        }
    }

    fn refuse(&self, code: OpeningCode, text: &str) -> OpeningStep {
        OpeningStep::Refuse {
            message: Some(refusal(code, self.protocol, text)),
            reason: text.to_owned(),
            is_guess: code == OpeningCode::WrongKey,
        }
    }

    fn opened(&mut self, message: &[u8]) -> OpeningStep {
        let mine = OpeningHeader::new(OpeningCode::Welcome, self.protocol);
        let Some((version, header, nonce)) = OpeningHeader::decode(message) else {
            return OpeningStep::Refuse {
                message: (self.protocol.refuse_old)(message),
                reason: format!("its first message is not an opening (expected protocol {mine})"),
                is_guess: false,
            };
        };
        let (VERSION, Some(header), Ok(_)) =
            (version, header, <[u8; NONCE_LENGTH]>::try_from(nonce))
        else {
            let text = format!("unsupported opening (expected version {VERSION})");
            return self.refuse(OpeningCode::WrongVersion, &text);
        };
        if !header.is_of(self.protocol) {
            let text = format!("unsupported protocol {header} (expected {mine})");
            return self.refuse(OpeningCode::WrongProtocol, &text);
        }
        match (&self.key, header.code) {
            (None, OpeningCode::Open | OpeningCode::OpenWithKey) => {
                OpeningStep::Open(Some(mine.message(&[])))
            }
            (Some(_), OpeningCode::OpenWithKey) => {
                let challenge =
                    OpeningHeader::new(OpeningCode::Challenge, self.protocol).message(&self.nonce);
                self.transcript = Some([message, &challenge].concat());
                OpeningStep::Send(challenge)
            }
            (Some(_), OpeningCode::Open) => {
                self.refuse(OpeningCode::NoKey, "a key is needed (--key-file)")
            }
            _ => self.refuse(
                OpeningCode::WrongVersion,
                "the first message has another code",
            ),
        }
    }

    fn proved(&self, transcript: &[u8], message: &[u8]) -> OpeningStep {
        let proof = OpeningHeader::decode(message)
            .filter(|(version, header, _)| {
                let is_proof =
                    |it: &OpeningHeader| it.code == OpeningCode::Proof && it.is_of(self.protocol);
                *version == VERSION && header.as_ref().is_some_and(is_proof)
            })
            .map(|(_, _, proof)| proof);
        let Some(key) = &self.key else {
            return self.refuse(OpeningCode::NoKey, "this server has no key");
        };
        if !proof.is_some_and(|proof| key.proves(ProofSide::Client, transcript, proof)) {
            return self.refuse(OpeningCode::WrongKey, "the key is not that of this server");
        }
        let mine = key.prove(ProofSide::Server, transcript);
        OpeningStep::Open(Some(
            OpeningHeader::new(OpeningCode::Proof, self.protocol).message(&mine),
        ))
    }
}

/// A client's side of one opening.
#[derive(Debug)]
pub struct ClientOpening {
    protocol: Protocol,
    key: Option<SecretKey>,
    opening: Vec<u8>,
    /// The transcript so far, once the key was proved.
    transcript: Option<Vec<u8>>,
}

impl ClientOpening {
    /// Begins an opening, with a nonce of the system.
    pub fn new(protocol: Protocol, key: Option<SecretKey>) -> Result<ClientOpening, OpeningError> {
        let nonce = crate::key::nonce();
        let nonce = nonce.map_err(|error| OpeningError::Random(error.to_string()))?;
        Ok(ClientOpening::with_nonce(protocol, key, nonce))
    }

    fn with_nonce(
        protocol: Protocol,
        key: Option<SecretKey>,
        nonce: [u8; NONCE_LENGTH],
    ) -> ClientOpening {
        let code = if key.is_some() {
            OpeningCode::OpenWithKey
        } else {
            OpeningCode::Open
        };
        ClientOpening {
            protocol,
            key,
            opening: OpeningHeader::new(code, protocol).message(&nonce),
            transcript: None,
        }
    }

    /// The first message to send.
    pub fn message(&self) -> &[u8] {
        &self.opening
    }

    /// Takes a server's message. Returns the message to send, or `None` when the connection is open.
    pub fn step(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, OpeningError> {
        let Some((VERSION, Some(header), body)) = OpeningHeader::decode(message) else {
            return Err(OpeningError::NotAServer);
        };
        if header.code as u8 >= OpeningCode::WrongVersion as u8 {
            let text = String::from_utf8_lossy(body).into_owned();
            return Err(OpeningError::Refused(text));
        }
        if !header.is_of(self.protocol) {
            return Err(OpeningError::NotAServer);
        }
        match (header.code, &self.key, self.transcript.take()) {
            (OpeningCode::Welcome, None, _) => Ok(None),
            (OpeningCode::Welcome, Some(_), _) => Err(OpeningError::NoKey),
            (OpeningCode::Challenge, Some(key), None) if body.len() == NONCE_LENGTH => {
                let transcript = [&self.opening, message].concat();
                let proof = key.prove(ProofSide::Client, &transcript);
                self.transcript = Some(transcript);
                let answer = OpeningHeader::new(OpeningCode::Proof, self.protocol).message(&proof);
                Ok(Some(answer))
            }
            (OpeningCode::Proof, Some(key), Some(transcript)) if body.len() == PROOF_LENGTH => {
                if key.proves(ProofSide::Server, &transcript, body) {
                    Ok(None)
                } else {
                    Err(OpeningError::WrongProof)
                }
            }
            _ => Err(OpeningError::NotAServer),
        }
    }
}

#[cfg(test)]
mod tests;
