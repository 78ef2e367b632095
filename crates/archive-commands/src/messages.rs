//! Messages on their way in: bytes from a file or a pipe, cut into lines or framed messages.

use anyhow::{Context as _, Result, ensure};
use seatrial_archive::MESSAGE_LENGTH_MAX;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes read at a time.
const READ_LENGTH: usize = 256 << 10;
/// Pieces that were read and wait to be recorded.
const PIECES_MAX: usize = 8;
/// Bytes before a framed message that say its length.
const LENGTH_LENGTH: usize = 4;

/// What happens while recording.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// The input has ended.
    End,
    /// The input cannot be read further.
    Failed(io::Error),
    /// The user wants to end.
    Interrupted,
}

/// A thread that reads the input; the sender is also used for interruptions. At most [`PIECES_MAX`] pieces wait.
pub(crate) fn read(path: Option<&Path>) -> Result<(Receiver<Event>, SyncSender<Event>)> {
    let input: Box<dyn Read + Send> = match path {
        Some(path) => Box::new(File::open(path).with_context(|| path.display().to_string())?),
        None => Box::new(io::stdin()),
    };
    let (sender, receiver) = sync_channel(PIECES_MAX);
    let mine = sender.clone();
    let thread = std::thread::Builder::new().spawn(move || pass_on(input, &mine));
    thread.context("no thread to read the input")?;
    Ok((receiver, sender))
}

fn pass_on(mut input: Box<dyn Read + Send>, sender: &SyncSender<Event>) {
    let mut buffer = vec![0; READ_LENGTH];
    loop {
        let event = match input.read(&mut buffer) {
            Ok(0) => Event::End,
            Ok(length) => Event::Bytes(buffer[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Event::Failed(error),
        };
        let last = !matches!(event, Event::Bytes(_));
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

/// Cuts a stream of bytes into messages; what is incomplete waits for the next piece. Holds at most one message and one
/// piece.
#[derive(Debug)]
pub(crate) struct Splitter {
    framed: bool,
    /// The beginning of a message that has not ended.
    begun: Vec<u8>,
    messages: u64,
}

impl Splitter {
    /// Lines, or messages with their length before them.
    pub(crate) fn new(framed: bool) -> Splitter {
        Splitter {
            framed,
            begun: Vec::new(),
            messages: 0,
        }
    }

    /// Calls `each` with every message that ends in this piece.
    pub(crate) fn feed(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = piece;
        if !self.begun.is_empty() {
            // The message that began earlier: only as much is copied as belongs to it.
            let taken = self.missing(rest);
            self.begun.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            while let Some((message, after)) = self.cut(&self.begun)? {
                each(message)?;
                self.messages += 1;
                self.begun = after.to_vec();
            }
            if !self.begun.is_empty() && !rest.is_empty() {
                // Its length is known only now.
                return self.feed(rest, each);
            }
        }
        while let Some((message, after)) = self.cut(rest)? {
            each(message)?;
            self.messages += 1;
            rest = after;
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    /// How many of these bytes belong to the message that has begun, as far as that is known.
    fn missing(&self, bytes: &[u8]) -> usize {
        if !self.framed {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            return end.map_or(bytes.len(), |at| at + 1);
        }
        let wanted = match self.begun.first_chunk::<LENGTH_LENGTH>() {
            Some(length) => LENGTH_LENGTH + u32::from_le_bytes(*length) as usize,
            None => LENGTH_LENGTH,
        };
        bytes.len().min(wanted.saturating_sub(self.begun.len()))
    }

    /// The first message in these bytes and the rest.
    fn cut<'a>(&self, bytes: &'a [u8]) -> Result<Option<(&'a [u8], &'a [u8])>> {
        let number = self.messages + 1;
        if self.framed {
            let Some((length, after)) = bytes.split_first_chunk::<LENGTH_LENGTH>() else {
                return Ok(None);
            };
            let length = u32::from_le_bytes(*length) as usize;
            ensure!(
                length <= MESSAGE_LENGTH_MAX,
                "message {number} says that it has {length} bytes; the most are {MESSAGE_LENGTH_MAX} (is the input framed?)"
            );
            return Ok(after.split_at_checked(length));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(bytes.len());
        ensure!(
            length <= MESSAGE_LENGTH_MAX,
            "line {number} has more than {MESSAGE_LENGTH_MAX} bytes, the most that a message may have"
        );
        Ok(end.map(|at| (&bytes[..at], &bytes[at + 1..])))
    }

    /// The input has ended: a last line need not end with a line feed, a framed message must be whole.
    pub(crate) fn end(&mut self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let begun = std::mem::take(&mut self.begun);
        if begun.is_empty() {
            return Ok(());
        }
        ensure!(
            !self.framed,
            "the input ends within message {}: {} bytes of it are there",
            self.messages + 1,
            begun.len()
        );
        each(&begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// What comes out when the bytes come in pieces of these lengths.
    fn split(framed: bool, bytes: &[u8], rng: &mut Rng) -> Result<Vec<Vec<u8>>> {
        let (mut splitter, mut found, mut rest) = (Splitter::new(framed), Vec::new(), bytes);
        while !rest.is_empty() {
            let length = 1 + rng.index(rest.len().min(9));
            let piece;
            (piece, rest) = rest.split_at(length);
            splitter.feed(piece, |message| {
                found.push(message.to_vec());
                Ok(())
            })?;
        }
        splitter.end(|message| {
            found.push(message.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_the_pieces_fall() {
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let messages: Vec<Vec<u8>> = (0..rng.index(20))
                .map(|_| {
                    (0..rng.index(12))
                        .map(|_| b'a' + rng.index(26) as u8)
                        .collect()
                })
                .collect();
            let lines: Vec<u8> = messages
                .iter()
                .flat_map(|m| [&m[..], b"\n"].concat())
                .collect();
            assert_eq!(
                split(false, &lines, &mut rng).unwrap(),
                messages,
                "seed {seed}"
            );
            let framed: Vec<u8> = messages
                .iter()
                .flat_map(|m| [&(m.len() as u32).to_le_bytes(), &m[..]].concat())
                .collect();
            assert_eq!(
                split(true, &framed, &mut rng).unwrap(),
                messages,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn the_last_line_may_lack_its_end_and_a_framed_message_may_not() {
        let mut rng = Rng::from_seed(7);
        let lines = split(false, b"a\n\nlast", &mut rng).unwrap();
        assert_eq!(lines, [b"a".to_vec(), vec![], b"last".to_vec()]);
        let error = split(true, &[1, 0, 0, 0, 9, 5, 0, 0, 0, 1], &mut rng).unwrap_err();
        assert!(error.to_string().contains("within message 2"), "{error}");
        let error = split(true, b"not framed at all", &mut rng).unwrap_err();
        assert!(
            error.to_string().contains("is the input framed?"),
            "{error}"
        );
    }
}
