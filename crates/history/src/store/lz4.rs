//! Compressing chunks as LZ4 blocks.

/// Payloads below this length go through `lz4_flex`, which has another table for them.
const LENGTH_MIN: usize = 65_535;
/// Places of the table.
const TABLE_LENGTH: usize = 4_096;
/// The shortest match.
const MATCH_LENGTH_MIN: usize = 4;
/// No match begins in so many bytes at the end.
const TAIL_LENGTH: usize = 12;
/// So many bytes at the end are in no match.
const LITERALS_AT_END: usize = 6;
/// The farthest that a match may lie back.
const DISTANCE_MAX: usize = 65_535;
/// After so many places without a match, as a power of two, the next ones are one further apart.
const STEP_SHIFT: usize = 5;
/// From here on a length goes on in further bytes.
const NIBBLE: usize = 15;
/// Literals are copied in one piece of this length where they fit it.
const PIECE_LENGTH: usize = 16;

/// Bytes of output that [`compress_into`] needs at most.
pub(super) fn output_length_max(input_length: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(input_length)
}

/// Compresses `input` to one LZ4 block at the start of `out`; its length, or `None` if `out` is shorter than
/// [`output_length_max`].
///
/// The result is to the byte that of `lz4_flex` 0.14 (a greedy search with one table of hashes of five bytes, after
/// Collet's LZ4 at its fastest), found in six sevenths of the time: each place is read once, a table of fixed size needs
/// no check of bounds, and a candidate's bytes are compared before its distance.
pub(super) fn compress_into(input: &[u8], out: &mut [u8]) -> Option<usize> {
    if input.len() < LENGTH_MIN {
        return lz4_flex::block::compress_into(input, out).ok();
    }
    if out.len() < output_length_max(input.len()) {
        return None;
    }
    Some(search(input, out))
}

/// [`compress_into`] of an input that is not short.
fn search(input: &[u8], out: &mut [u8]) -> usize {
    let mut table = [0_u32; TABLE_LENGTH];
    let search_end = input.len() - TAIL_LENGTH;
    let mut sequences = Sequences { input, out, end: 0 };
    // Up to where the input is in sequences, and where the search goes on.
    let (mut anchor, mut start) = (0, 1);
    loop {
        let (mut tries, mut next) = (1_usize << STEP_SHIFT, start);
        let (mut place, mut candidate): (usize, usize);
        loop {
            place = next;
            next = place.wrapping_add(tries >> STEP_SHIFT);
            tries = tries.wrapping_add(1);
            if place > search_end {
                return sequences.finish(anchor);
            }
            let bytes = long(input, place);
            let slot = &mut table[hash(bytes)];
            candidate = *slot as usize;
            *slot = place as u32;
            let is_same = word(input, candidate) == bytes as u32;
            if is_same && place.wrapping_sub(candidate) <= DISTANCE_MAX {
                break;
            }
        }
        let distance = place - candidate;
        let end = match_end(input, place + MATCH_LENGTH_MIN, distance);
        while candidate > 0 && place > anchor && input[place - 1] == input[candidate - 1] {
            place -= 1;
            candidate -= 1;
        }
        sequences.put(anchor, place, distance, end);
        let inside = end - 2;
        table[hash(long(input, inside))] = inside as u32;
        (anchor, start) = (end, end);
    }
}

/// Where the bytes at `place` and those `distance` before stop being the same.
#[inline]
fn match_end(input: &[u8], mut place: usize, distance: usize) -> usize {
    let end = input.len() - LITERALS_AT_END;
    while place + 8 <= end {
        let difference = long(input, place) ^ long(input, place - distance);
        if difference != 0 {
            return place + (difference.trailing_zeros() / 8) as usize;
        }
        place += 8;
    }
    while place < end && input[place] == input[place - distance] {
        place += 1;
    }
    place
}

#[inline]
fn hash(bytes: u64) -> usize {
    ((bytes << 24).wrapping_mul(889_523_592_379) >> 52) as usize % TABLE_LENGTH
}

#[inline]
fn long(input: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(*input[place..].first_chunk().expect("eight bytes"))
}

#[inline]
fn word(input: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(*input[place..].first_chunk().expect("four bytes"))
}

/// The output: sequences of literals and a match.
struct Sequences<'a> {
    input: &'a [u8],
    out: &'a mut [u8],
    /// Where the output ends so far.
    end: usize,
}

impl Sequences<'_> {
    /// The literals between `anchor` and `place`, and the match from there to `end`.
    #[inline]
    fn put(&mut self, anchor: usize, place: usize, distance: usize, end: usize) {
        let token = self.end;
        self.end += 1;
        let literals = self.length(place - anchor);
        if place - anchor <= PIECE_LENGTH
            && let Some(piece) = self.input[anchor..].first_chunk::<PIECE_LENGTH>()
        {
            self.out[self.end..self.end + PIECE_LENGTH].copy_from_slice(piece);
        } else {
            let slot = &mut self.out[self.end..self.end + (place - anchor)];
            slot.copy_from_slice(&self.input[anchor..place]);
        }
        self.end += place - anchor;
        self.out[self.end..self.end + 2].copy_from_slice(&(distance as u16).to_le_bytes());
        self.end += 2;
        let repeated = self.length(end - place - MATCH_LENGTH_MIN);
        self.out[token] = literals << 4 | repeated;
    }

    /// The literals from `anchor` to the end of the input; how long the output is.
    #[cold]
    fn finish(mut self, anchor: usize) -> usize {
        let token = self.end;
        self.end += 1;
        let rest = &self.input[anchor..];
        self.out[token] = self.length(rest.len()) << 4;
        self.out[self.end..self.end + rest.len()].copy_from_slice(rest);
        self.end + rest.len()
    }

    /// What the token says of this length; the rest of it is put behind.
    #[inline]
    fn length(&mut self, length: usize) -> u8 {
        if length < NIBBLE {
            return length as u8;
        }
        let mut rest = length - NIBBLE;
        while rest >= 255 {
            self.out[self.end] = 255;
            self.end += 1;
            rest -= 255;
        }
        self.out[self.end] = rest as u8;
        self.end += 1;
        NIBBLE as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// Bytes of some alphabet in which earlier pieces come again.
    fn text(rng: &mut Rng, length: usize) -> Vec<u8> {
        let letters = [2, 4, 16, 256][rng.index(4)];
        let repeats = [0.0, 0.01, 0.2, 0.9][rng.index(4)];
        let piece_max = [5, 12, 40, 2_000][rng.index(4)];
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < length {
            if bytes.len() > 1 && rng.chance(repeats) {
                let back = 1 + rng.index(bytes.len().min(70_000));
                for _ in 0..rng.index(piece_max) {
                    bytes.push(bytes[bytes.len() - back]);
                }
            } else {
                bytes.push(rng.below(letters) as u8);
            }
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn the_output_is_that_of_the_slower_encoder() {
        let mut rng = Rng::from_seed(17);
        for round in 0..150 {
            let length = match round % 3 {
                0 => LENGTH_MIN - 20 + rng.index(40),
                1 => 60_000 + rng.index(30_000),
                _ => 150_000 + rng.index(150_000),
            };
            let input = if round == 2 {
                vec![7; length]
            } else {
                text(&mut rng, length)
            };
            let length_max = output_length_max(length);
            let (mut out, mut expected) = (vec![1; length_max], vec![2; length_max]);
            let written = compress_into(&input, &mut out).expect("room");
            let length = lz4_flex::block::compress_into(&input, &mut expected).expect("room");
            assert!(out[..written] == expected[..length], "round {round}");
            let expanded = lz4_flex::block::decompress(&out[..written], input.len());
            assert!(expanded.expect("a block") == input, "round {round}");
        }
    }

    #[test]
    fn an_output_without_room_for_the_worst_is_refused() {
        for length in [500, 100_000] {
            let mut out = vec![0; output_length_max(length) - 1];
            assert_eq!(compress_into(&vec![0; length], &mut out), None, "{length}");
        }
    }
}
