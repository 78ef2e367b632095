//! The checksum of everything durable.

/// CRC-32C (Castagnoli; the one of iSCSI, RFC 3720 section 12.1), by the processor's carry-less multiply.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32c;
    use seatrial_machine::Rng;

    /// One bit at a time, from the definition.
    fn bitwise(bytes: &[u8]) -> u32 {
        let mut state = u32::MAX;
        for &byte in bytes {
            state ^= u32::from(byte);
            for _ in 0..8 {
                let carry = state & 1;
                state = (state >> 1) ^ (0x82f6_3b78 * carry);
            }
        }
        !state
    }

    #[test]
    fn published_vectors() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn every_length_equals_the_bitwise_definition() {
        let mut rng = Rng::from_seed(1);
        let bytes: Vec<u8> = (0..1_500).map(|_| rng.word() as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(
                crc32c(&bytes[..length]),
                bitwise(&bytes[..length]),
                "{length}"
            );
        }
    }
}
