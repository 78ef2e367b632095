//! The shared key of a server and its clients.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Length of a nonce, in bytes.
pub(crate) const NONCE_LENGTH: usize = 32;
/// Length of a proof, in bytes.
pub(crate) const PROOF_LENGTH: usize = 32;
/// Minimum length of a key, in bytes.
const KEY_LENGTH_MIN: usize = 16;
const KEY_LENGTH_MAX: usize = 4_096;

/// A key that a server shares with its clients and other nodes. It is never sent: each side proves that it knows it, by
/// HMAC-SHA-256 (RFC 2104, FIPS 198-1) over the transcript of both sides, with a nonce of each. Its `Debug` output does not show
/// it.
///
/// Its downside: messages after the opening are neither encrypted nor signed.
#[derive(Clone)]
pub struct SecretKey(Arc<[u8]>);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The side that makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofSide {
    Client,
    Server,
}

impl ProofSide {
    /// A different label for each side, so that a proof cannot be reflected.
    fn label(self) -> &'static [u8] {
        match self {
            ProofSide::Client => b"seatrial opening 1, client",
            ProofSide::Server => b"seatrial opening 1, server",
        }
    }
}

impl SecretKey {
    /// Reads a key file: its bytes without a trailing line end, 16 to 4,096.
    pub fn read(path: &Path) -> io::Result<SecretKey> {
        use std::io::Read as _;
        let file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.take(KEY_LENGTH_MAX as u64 + 3)
            .read_to_end(&mut bytes)?;
        SecretKey::new(&bytes).ok_or_else(|| {
            let text = format!(
                "a key has {KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} bytes without its line end"
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// [`SecretKey::read`] with the file's name in the error, and a logged warning if other users may read the file.
    pub fn read_and_warn(path: &Path) -> io::Result<SecretKey> {
        let key = SecretKey::read(path).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        warn_if_readable(path);
        Ok(key)
    }

    /// The key of these bytes, without a trailing line end. `None`: it is too short or too long.
    pub fn new(bytes: &[u8]) -> Option<SecretKey> {
        let line = bytes.strip_suffix(b"\n");
        let line = line.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let bytes = line.unwrap_or(bytes);
        let is_allowed = (KEY_LENGTH_MIN..=KEY_LENGTH_MAX).contains(&bytes.len());
        is_allowed.then(|| SecretKey(bytes.into()))
    }

    fn mac(&self, who: ProofSide, transcript: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC takes keys of any length, so this cannot fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(who.label());
        mac.update(transcript);
        Some(mac)
    }

    /// The proof of one side.
    pub(crate) fn prove(&self, who: ProofSide, transcript: &[u8]) -> [u8; PROOF_LENGTH] {
        let mac = self.mac(who, transcript);
        mac.map_or([0; PROOF_LENGTH], |mac| mac.finalize().into_bytes().into())
    }

    /// Is this the proof of one side? Takes the same time for each wrong proof.
    pub(crate) fn proves(&self, who: ProofSide, transcript: &[u8], proof: &[u8]) -> bool {
        let mac = self.mac(who, transcript);
        mac.is_some_and(|mac| mac.verify_slice(proof).is_ok())
    }
}

/// Random bytes of the operating system, for keys and identities.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Logs a warning if other users may read the key in this file.
pub(crate) fn warn_if_readable(path: &Path) {
    let mode = path.metadata().map_or(0, |it| it.permissions().mode());
    if mode & 0o077 != 0 {
        let path = path.display();
        tracing::warn!("{path}: other users may read this key");
    }
}

/// Random bytes that are used once.
pub(crate) fn nonce() -> io::Result<[u8; NONCE_LENGTH]> {
    random_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_length_and_no_line_end() {
        let key = |bytes: &[u8]| SecretKey::new(bytes).map(|key| key.0.to_vec());
        assert_eq!(key(&[7; 15]), None);
        assert_eq!(key(&[7; 4_097]), None);
        assert_eq!(
            key(b"0123456789abcde\n"),
            None,
            "15 bytes without the line end"
        );
        for end in ["", "\n", "\r\n"] {
            let text = format!("0123456789abcdef{end}");
            assert_eq!(key(text.as_bytes()), Some(b"0123456789abcdef".to_vec()));
        }
        assert!(!format!("{:?}", SecretKey::new(&[b'k'; 16])).contains('k'));
    }

    #[test]
    fn proofs_are_hmac_sha_256() {
        // RFC 4231, test case 2, has a key that is too short here; test case 3: 20 bytes aa, 50 bytes dd.
        let mut mac = Hmac::<Sha256>::new_from_slice(&[0xaa; 20]).unwrap();
        mac.update(&[0xdd; 50]);
        let expected = "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe";
        let found: Vec<u8> = mac.finalize().into_bytes().to_vec();
        let expected: Vec<u8> = (0..expected.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&expected[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(found, expected);
        let key = SecretKey::new(&[0xaa; 20]).unwrap();
        let proof = key.prove(ProofSide::Client, b"said");
        let mut mac = Hmac::<Sha256>::new_from_slice(&[0xaa; 20]).unwrap();
        mac.update(b"seatrial opening 1, clientsaid");
        assert_eq!(proof.as_slice(), mac.finalize().into_bytes().as_slice());
        assert!(key.proves(ProofSide::Client, b"said", &proof));
        assert!(!key.proves(ProofSide::Server, b"said", &proof));
        assert!(!key.proves(ProofSide::Client, b"sais", &proof));
        assert!(!key.proves(ProofSide::Client, b"said", &proof[..31]));
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
