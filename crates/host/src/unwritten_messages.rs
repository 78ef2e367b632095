//! Messages that a connection has to write.

use crate::wire;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// From this length on, bytes of a message are written from where they are; shorter ones are gathered.
const LONG: usize = 16 << 10;
/// Maximum number of pieces in one write.
const SLICES_MAX: usize = 16;
/// Maximum capacity of a buffer that is kept to gather messages again.
const SPARE_CAPACITY_MAX: usize = 256 << 10;

/// A message for another node: `head`, and then `shared`, which messages for other nodes may have too.
#[derive(Debug)]
pub(crate) struct MessageParts {
    pub(crate) head: Vec<u8>,
    pub(crate) shared: Option<Arc<Vec<u8>>>,
}

impl MessageParts {
    pub(crate) const fn new(head: Vec<u8>, shared: Arc<Vec<u8>>) -> MessageParts {
        let shared = Some(shared);
        MessageParts { head, shared }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.shared.as_ref().map_or(0, |it| it.len())
    }
}

impl From<Vec<u8>> for MessageParts {
    fn from(head: Vec<u8>) -> MessageParts {
        MessageParts { head, shared: None }
    }
}

/// Bytes to be written; never none.
#[derive(Debug)]
enum UnwrittenPiece {
    /// Prefixes and short messages.
    Gathered(Vec<u8>),
    Long(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl UnwrittenPiece {
    fn bytes(&self) -> &[u8] {
        match self {
            UnwrittenPiece::Gathered(bytes) | UnwrittenPiece::Long(bytes) => bytes,
            UnwrittenPiece::Shared(bytes) => bytes,
        }
    }
}

/// Messages to be written with their prefixes, in order, of which a part may be written already.
///
/// Short messages are gathered, so that one write takes many of them at the cost of a copy. Long bytes are a piece of their own.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenMessages {
    pieces: VecDeque<UnwrittenPiece>,
    /// Bytes of the first piece that are written.
    written: usize,
    /// Bytes of all pieces that are not written.
    unwritten: usize,
    /// An empty buffer, used again for the next short messages.
    spare: Vec<u8>,
}

/// The pieces of one write.
pub(crate) type WriteSlices<'a> = [IoSlice<'a>; SLICES_MAX];

impl UnwrittenMessages {
    /// Number of bytes that are not written.
    pub(crate) const fn bytes(&self) -> usize {
        self.unwritten
    }

    /// Adds a message, and copies it.
    pub(crate) fn push(&mut self, message: &[u8]) {
        self.gather(|bytes| wire::write(bytes, message));
    }

    /// Adds a message; long parts of it are not copied.
    pub(crate) fn push_owned(&mut self, message: MessageParts) {
        self.gather(|bytes| wire::write_prefix(bytes, message.len()));
        if message.head.len() < LONG {
            self.gather(|bytes| bytes.extend_from_slice(&message.head));
        } else {
            self.push_piece(UnwrittenPiece::Long(message.head));
        }
        match message.shared {
            Some(shared) if shared.len() < LONG => {
                self.gather(|bytes| bytes.extend_from_slice(&shared));
            }
            Some(shared) => self.push_piece(UnwrittenPiece::Shared(shared)),
            None => {}
        }
    }

    fn push_piece(&mut self, piece: UnwrittenPiece) {
        self.unwritten += piece.bytes().len();
        self.pieces.push_back(piece);
    }

    /// Adds bytes to those that are gathered.
    fn gather(&mut self, add: impl FnOnce(&mut Vec<u8>)) {
        if let Some(UnwrittenPiece::Gathered(bytes)) = self.pieces.back_mut() {
            let before = bytes.len();
            add(bytes);
            self.unwritten += bytes.len() - before;
        } else {
            let mut bytes = std::mem::take(&mut self.spare);
            add(&mut bytes);
            self.push_piece(UnwrittenPiece::Gathered(bytes));
        }
    }

    /// The next bytes to write, in order; none if all are written.
    pub(crate) fn next<'a, 'b>(&'a self, slices: &'b mut WriteSlices<'a>) -> &'b [IoSlice<'a>] {
        let (mut from, mut count) = (self.written, 0);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(&piece.bytes()[from..]);
            (from, count) = (0, count + 1);
        }
        &slices[..count]
    }

    /// Removes the first bytes, which are written.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.unwritten, "{count} of {}", self.unwritten);
        self.unwritten -= count;
        self.written += count;
        let is_done = |it: &mut UnwrittenPiece, written| it.bytes().len() <= written;
        while let Some(done) = self.pieces.pop_front_if(|it| is_done(it, self.written)) {
            self.written -= done.bytes().len();
            if let UnwrittenPiece::Gathered(mut bytes) = done
                && bytes.capacity() <= SPARE_CAPACITY_MAX
            {
                bytes.clear();
                self.spare = bytes;
            }
        }
        assert!(
            self.unwritten > 0 || self.pieces.is_empty() && self.written == 0,
            "what is written is removed"
        );
    }
}

/// Slices without bytes, to be filled.
pub(crate) fn no_slices<'a>() -> WriteSlices<'a> {
    [IoSlice::new(&[]); SLICES_MAX]
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn random_bytes(rng: &mut Rng) -> Vec<u8> {
        let length = match rng.below(4) {
            0 => LONG + rng.index(10_000),
            1 => LONG - 1,
            _ => rng.index(100),
        };
        (0..length).map(|_| rng.word() as u8).collect()
    }

    /// Writes a part of what one write would take.
    fn write_some(messages: &mut UnwrittenMessages, rng: &mut Rng, written: &mut Vec<u8>) {
        let mut slices = no_slices();
        let next = messages.next(&mut slices);
        let bytes: Vec<u8> = next.iter().flat_map(|it| it.to_vec()).collect();
        assert!(!bytes.is_empty());
        let count = match rng.below(3) {
            0 => bytes.len(),
            1 => 1,
            _ => 1 + rng.index(bytes.len()),
        };
        written.extend_from_slice(&bytes[..count]);
        messages.advance(count);
    }

    #[test]
    fn messages_stay_whole_and_in_order_however_they_are_written() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..200 {
            let mut messages = UnwrittenMessages::default();
            let (mut expected, mut written) = (Vec::new(), Vec::new());
            for _ in 0..rng.below(60) {
                let head = random_bytes(&mut rng);
                let shared = (rng.below(2) == 0).then(|| Arc::new(random_bytes(&mut rng)));
                let tail = shared.as_ref().map_or(&[][..], |it| it);
                wire::write(&mut expected, &[&head, tail].concat());
                if shared.is_none() && rng.below(2) == 0 {
                    messages.push(&head);
                } else {
                    messages.push_owned(MessageParts { head, shared });
                }
                while rng.below(2) == 0 && messages.bytes() > 0 {
                    write_some(&mut messages, &mut rng, &mut written);
                }
                assert_eq!(messages.bytes(), expected.len() - written.len());
            }
            while messages.bytes() > 0 {
                write_some(&mut messages, &mut rng, &mut written);
            }
            assert!(messages.next(&mut no_slices()).is_empty());
            assert!(written == expected);
            assert!(messages.spare.capacity() <= SPARE_CAPACITY_MAX);
        }
    }

    #[test]
    fn long_bytes_are_written_from_where_they_are() {
        let mut messages = UnwrittenMessages::default();
        let (head, shared) = (vec![7; LONG], Arc::new(vec![8; LONG]));
        let places = [head.as_ptr(), shared.as_ptr()];
        messages.push(b"short");
        messages.push_owned(MessageParts {
            head,
            shared: Some(shared),
        });
        messages.push(b"short");
        let mut slices = no_slices();
        let next = messages.next(&mut slices);
        let lengths: Vec<usize> = next.iter().map(|it| it.len()).collect();
        assert_eq!(lengths, [9 + 4, LONG, LONG, 9]);
        assert_eq!([next[1].as_ptr(), next[2].as_ptr()], places);
    }
}
