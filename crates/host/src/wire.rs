//! Framing of messages on a byte stream: a length (4 bytes, little-endian, not counting itself) before each.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Length of the prefix before each message, in bytes.
pub const PREFIX_LENGTH: usize = 4;

/// Appends a message with its prefix to `out`.
pub fn write(out: &mut Vec<u8>, message: &[u8]) {
    write_prefix(out, message.len());
    out.extend_from_slice(message);
}

/// Appends the prefix of a message to `out`.
pub(crate) fn write_prefix(out: &mut Vec<u8>, length: usize) {
    assert!(u32::try_from(length).is_ok(), "a message of {length} bytes");
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

/// Capacity reserved for the next read.
const READ_LENGTH: usize = 64 << 10;

/// The messages of a stream, one by one. It owns the bytes of an incomplete message, so [`Messages::next`] is cancel safe.
///
/// A message that is longer than a read is read into memory of its own, which becomes the message. Memory grows only with the
/// bytes that arrive, whatever length a prefix claims; up to the length of an earlier message it is taken at once.
#[derive(Debug)]
pub struct Messages<S> {
    stream: S,
    length_max: usize,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were returned already.
    start: usize,
    /// The begin of a long message, and its length.
    long: Option<(Vec<u8>, usize)>,
    /// Length of the longest message that has arrived.
    longest: usize,
}

impl<S: AsyncRead + Unpin> Messages<S> {
    /// The messages of `stream`, each of at most `length_max` bytes.
    pub fn new(stream: S, length_max: usize) -> Messages<S> {
        Messages {
            stream,
            length_max,
            buffer: Vec::new(),
            start: 0,
            long: None,
            longest: 0,
        }
    }

    /// Changes the maximum length of a message, from now on.
    pub fn set_length_max(&mut self, length_max: usize) {
        self.length_max = length_max;
    }

    /// The bytes that have arrived and are not returned.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// The next message; `None` at the end of the stream, between two messages. Fails if the stream ends within a message, and
    /// if a prefix claims more than the maximum, before the message arrives. Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.long.is_some() {
                return self.read_long().await;
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            self.buffer.reserve(READ_LENGTH);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Reads the rest of the long message that has begun. Cancel safe.
    async fn read_long(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let Some((bytes, length)) = &mut self.long
            && bytes.len() < *length
        {
            let missing = *length - bytes.len();
            if bytes.len() == bytes.capacity() {
                let has_been_sent = *length <= self.longest;
                let growth = if has_been_sent { missing } else { bytes.len() };
                bytes.reserve_exact(growth.min(missing));
            }
            let mut rest = (&mut self.stream).take(missing as u64);
            if rest.read_buf(bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let message = self.long.take().map(|(bytes, _)| bytes);
        self.longest = self.longest.max(message.as_ref().map_or(0, Vec::len));
        Ok(message)
    }

    /// The next message, if it is complete. A long one that is not is begun.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((prefix, rest)) = self.buffer[self.start..].split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > self.length_max {
            let allowed = self.length_max;
            let problem = format!("a message of {length} bytes exceeds the maximum of {allowed}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let Some(message) = rest.get(..length) else {
            if length > READ_LENGTH && !rest.is_empty() {
                self.long = Some((rest.to_vec(), length));
                self.start = self.buffer.len();
            }
            return Ok(None);
        };
        let message = message.to_vec();
        self.start += PREFIX_LENGTH + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8], length_max: usize) -> Vec<Result<Vec<u8>, io::ErrorKind>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut all = Vec::new();
            let mut messages = Messages::new(bytes, length_max);
            loop {
                match messages.next().await {
                    Ok(Some(message)) => all.push(Ok(message)),
                    Ok(None) => return all,
                    Err(error) => {
                        all.push(Err(error.kind()));
                        return all;
                    }
                }
            }
        })
    }

    #[test]
    fn messages_come_back_one_by_one() {
        let mut bytes = Vec::new();
        for message in [&b"one"[..], b"", &[7; 10_000]] {
            write(&mut bytes, message);
        }
        let all = read_all(&bytes, 10_000);
        assert_eq!(
            all,
            [Ok(b"one".to_vec()), Ok(Vec::new()), Ok(vec![7; 10_000])]
        );
    }

    #[test]
    fn a_cut_stream_and_a_claim_too_large_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello");
        for end in 1..bytes.len() {
            assert_eq!(
                read_all(&bytes[..end], 10),
                [Err(io::ErrorKind::UnexpectedEof)],
                "{end}"
            );
        }
        assert_eq!(read_all(&bytes, 4), [Err(io::ErrorKind::InvalidData)]);
        assert_eq!(
            read_all(&[255; 8], 1 << 20),
            [Err(io::ErrorKind::InvalidData)]
        );
    }

    #[test]
    fn giving_up_in_the_middle_of_a_message_loses_nothing() {
        let mut bytes = Vec::new();
        let sent = [vec![1; 10], Vec::new(), vec![2; 200_000]];
        for message in &sent {
            write(&mut bytes, message);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            let mut messages = Messages::new(far, 1 << 20);
            let mut rng = seatrial_machine::Rng::from_seed(1);
            let (mut got, mut given_up) = (Vec::new(), 0);
            let mut rest = bytes.as_slice();
            while got.len() < sent.len() {
                let piece = rng
                    .index(if got.len() < 2 { 7 } else { 50_000 })
                    .min(rest.len());
                tokio::io::AsyncWriteExt::write_all(&mut near, &rest[..piece])
                    .await
                    .unwrap();
                rest = &rest[piece..];
                tokio::select! {
                    biased;
                    message = messages.next() => got.push(message.unwrap().unwrap()),
                    () = std::future::ready(()) => given_up += 1,
                }
            }
            assert_eq!(got, sent);
            assert!(given_up > 5, "{given_up}");
        });
    }

    #[test]
    fn any_bytes_end_in_messages_or_an_error() {
        let mut rng = seatrial_machine::Rng::from_seed(2);
        for _ in 0..2_000 {
            let mut bytes = Vec::new();
            for _ in 0..rng.below(4) {
                let message: Vec<u8> = (0..rng.below(40)).map(|_| rng.word() as u8).collect();
                write(&mut bytes, &message);
            }
            for _ in 0..rng.below(3) {
                if !bytes.is_empty() {
                    let place = rng.index(bytes.len());
                    bytes[place] = rng.word() as u8;
                }
            }
            let all = read_all(&bytes, 64);
            let lengths = all
                .iter()
                .flatten()
                .map(|message| PREFIX_LENGTH + message.len());
            let used: usize = lengths.sum();
            assert!(used <= bytes.len());
            assert_eq!(used == bytes.len(), all.iter().all(Result::is_ok));
        }
    }
}
