//! Encoding of text fields of protocol messages.

/// Appends text with its length; text above `length_max` bytes is truncated at a character boundary.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, length_max: usize) {
    let mut length = text.len().min(length_max).min(usize::from(u16::MAX));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..length]);
}
