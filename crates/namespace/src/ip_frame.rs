//! IPv4 frames: parsing, change of addresses, division into segments, resets.

#![expect(
    clippy::host_endian_bytes,
    reason = "notes of the kernel have the order of the machine"
)]

use crate::packet_socket::NOTE_LENGTH;
use std::net::Ipv4Addr;

/// A frame with its note (`virtio_net_hdr`) in front, as packet sockets carry it. All offsets are checked by [`IpFrame::parse`].
///
/// ```text
///  0     note: flags, kind of segmentation, header length, segment size, checksum start and offset (host byte order)
///  10    Ethernet: destination, source, 0x0800
///  24    IPv4: version and header length, …, protocol at 9, source at 12, destination at 16
///  24+h  TCP or UDP, unless the packet is a later fragment
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IpFrame {
    bytes: Vec<u8>,
    /// Offset of the header after IPv4's.
    transport: usize,
    /// End of the IPv4 packet.
    end: usize,
}

/// What a switch needs of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpHeader {
    /// Port of the sender.
    pub(crate) from_port: u16,
    /// Port of the receiver.
    pub(crate) to_port: u16,
    /// The sequence number that the sender expects next; `None` without the flag ACK.
    pub(crate) acknowledged: Option<u32>,
    /// Flags, from FIN at bit 0.
    pub(crate) flags: u8,
}

/// Flag FIN of TCP.
pub(crate) const FIN: u8 = 1;
/// Flag SYN of TCP.
pub(crate) const SYN: u8 = 2;
/// Flag RST of TCP.
pub(crate) const RST: u8 = 4;
/// Flag PSH of TCP.
const PSH: u8 = 8;
/// Flag ACK of TCP.
const ACK: u8 = 16;
/// Flag CWR of TCP: only the first segment carries it.
const CWR: u8 = 128;

/// Note: the transport checksum is still to be computed.
const NEEDS_CHECKSUM: u8 = 1;
/// Note: a TCP segment over IPv4 that is to be divided.
const GSO_TCP4: u8 = 1;
/// Note: mask of the kind of segmentation.
const GSO_KIND: u8 = 0x7f;

const ETHERNET: usize = NOTE_LENGTH;
const IP: usize = NOTE_LENGTH + 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

impl IpFrame {
    /// A frame that was received; `None` unless it is a whole IPv4 packet.
    pub(crate) fn parse(bytes: &[u8]) -> Option<IpFrame> {
        let ip = bytes.get(IP..)?;
        if ip.len() < 20 || bytes[IP - 2..IP] != [8, 0] || ip[0] >> 4 != 4 {
            return None;
        }
        let header = usize::from(ip[0] & 15) * 4;
        let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        // A total length of zero: a segment of 64 KiB or more, which reaches to the end.
        let length = if length == 0 { ip.len() } else { length };
        if header < 20 || length < header || length > ip.len() {
            return None;
        }
        Some(IpFrame {
            bytes: bytes.to_vec(),
            transport: IP + header,
            end: IP + length,
        })
    }

    /// Note and frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The frame without its note.
    pub(crate) fn ethernet(&self) -> &[u8] {
        &self.bytes[ETHERNET..]
    }

    /// Length of the IPv4 packet.
    pub(crate) fn length(&self) -> usize {
        self.end - IP
    }

    /// Address of the sender.
    pub(crate) fn source(&self) -> Ipv4Addr {
        self.address(IP + 12)
    }

    /// Address of the receiver.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        self.address(IP + 16)
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        let bytes = &self.bytes[at..at + 4];
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn set_word(&mut self, at: usize, word: u16) {
        self.bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }

    fn double_word(&self, at: usize) -> u32 {
        u32::from(self.word(at)) << 16 | u32::from(self.word(at + 2))
    }

    fn set_double_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Sets the hardware addresses of sender and receiver.
    pub(crate) fn set_macs(&mut self, from: [u8; 6], to: [u8; 6]) {
        self.bytes[ETHERNET..ETHERNET + 6].copy_from_slice(&to);
        self.bytes[ETHERNET + 6..ETHERNET + 12].copy_from_slice(&from);
    }

    /// Replaces the sender's address.
    pub(crate) fn set_source(&mut self, address: Ipv4Addr) {
        self.set_address(IP + 12, address);
    }

    /// Replaces the receiver's address.
    pub(crate) fn set_destination(&mut self, address: Ipv4Addr) {
        self.set_address(IP + 16, address);
    }

    /// Replaces an address, and mends the two checksums that cover it (RFC 1624).
    fn set_address(&mut self, at: usize, address: Ipv4Addr) {
        let before = u32::from(self.address(at));
        let after = u32::from(address);
        self.bytes[at..at + 4].copy_from_slice(&address.octets());
        let header_sum = !self.word(IP + 10);
        self.set_word(IP + 10, !replaced(header_sum, before, after));
        let Some(field) = self.checksum_field() else {
            return;
        };
        let sum = self.word(field);
        if self.bytes[0] & NEEDS_CHECKSUM != 0 {
            // The field holds the sum of the pseudo header alone, not inverted.
            self.set_word(field, replaced(sum, before, after));
        } else if sum != 0 || self.protocol() == TCP {
            self.set_word(field, !replaced(!sum, before, after));
        }
    }

    fn protocol(&self) -> u8 {
        self.bytes[IP + 9]
    }

    /// Is this a fragment after the first, without a transport header?
    fn is_later_fragment(&self) -> bool {
        self.word(IP + 6) & 0x1fff != 0
    }

    /// Offset of the checksum that covers the addresses, if there is one.
    fn checksum_field(&self) -> Option<usize> {
        let offset = match self.protocol() {
            TCP => 16,
            UDP => 6,
            _ => return None,
        };
        let field = self.transport + offset;
        (!self.is_later_fragment() && field + 2 <= self.end).then_some(field)
    }

    /// Length of the TCP header; `None` unless this is TCP with a whole header.
    fn tcp_length(&self) -> Option<usize> {
        if self.protocol() != TCP || self.is_later_fragment() || self.transport + 20 > self.end {
            return None;
        }
        let length = usize::from(self.bytes[self.transport + 12] >> 4) * 4;
        (length >= 20 && self.transport + length <= self.end).then_some(length)
    }

    /// The TCP header; `None` unless this is TCP.
    pub(crate) fn tcp(&self) -> Option<TcpHeader> {
        self.tcp_length()?;
        let at = self.transport;
        let flags = self.bytes[at + 13];
        Some(TcpHeader {
            from_port: self.word(at),
            to_port: self.word(at + 2),
            acknowledged: (flags & ACK != 0).then(|| self.double_word(at + 8)),
            flags,
        })
    }

    /// A frame that resets the connection of this TCP header at the sender of it: from the other side, with the sequence number
    /// that the sender expects (RFC 5961 accepts no other).
    pub(crate) fn reset(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), sequence: u32) -> IpFrame {
        let mut frame = IpFrame {
            bytes: vec![0; IP + 40],
            transport: IP + 20,
            end: IP + 40,
        };
        frame.set_word(IP - 2, 0x0800);
        frame.bytes[IP] = 0x45;
        frame.set_word(IP + 2, 40);
        frame.set_word(IP + 6, 0x4000); // do not fragment
        frame.bytes[IP + 8] = 64; // hops
        frame.bytes[IP + 9] = TCP;
        frame.bytes[IP + 12..IP + 16].copy_from_slice(&from.0.octets());
        frame.bytes[IP + 16..IP + 20].copy_from_slice(&to.0.octets());
        let tcp = frame.transport;
        frame.set_word(tcp, from.1);
        frame.set_word(tcp + 2, to.1);
        frame.set_double_word(tcp + 4, sequence);
        frame.bytes[tcp + 12] = 5 << 4;
        frame.bytes[tcp + 13] = RST;
        frame.set_word(IP + 10, !sum_of(&frame.bytes[IP..tcp], 0));
        let sum = sum_of(&frame.bytes[tcp..], frame.pseudo_sum(20));
        frame.set_word(tcp + 16, !sum);
        frame
    }

    /// Sum of the pseudo header of a segment of this length.
    fn pseudo_sum(&self, length: usize) -> u32 {
        u32::from(sum_of(&self.bytes[IP + 12..IP + 20], 0))
            + u32::from(self.protocol())
            + length as u32
    }

    /// The packets that this frame stands for: itself, or the TCP segments that the kernel has left to be divided. Links that
    /// lose, delay or pace packets need them one by one.
    pub(crate) fn segments(self) -> Vec<IpFrame> {
        let size = usize::from(u16::from_ne_bytes([self.bytes[4], self.bytes[5]]));
        let is_tcp4 = self.bytes[1] & GSO_KIND == GSO_TCP4;
        let (true, 1.., Some(tcp_length)) = (is_tcp4, size, self.tcp_length()) else {
            return vec![self];
        };
        let headers = self.transport + tcp_length;
        let content = &self.bytes[headers..self.end];
        if content.len() <= size {
            return vec![self];
        }
        let count = content.len().div_ceil(size);
        let pieces = content.chunks(size).enumerate();
        let segments =
            pieces.map(|(number, piece)| self.segment(headers, number, size, count, piece));
        segments.collect()
    }

    /// One of `count` segments.
    fn segment(
        &self,
        headers: usize,
        number: usize,
        size: usize,
        count: usize,
        piece: &[u8],
    ) -> IpFrame {
        let mut bytes = Vec::with_capacity(headers + piece.len());
        bytes.extend(&self.bytes[..headers]);
        bytes.extend(piece);
        let end = bytes.len();
        let mut frame = IpFrame {
            bytes,
            transport: self.transport,
            end,
        };
        frame.bytes[1] = 0; // no segmentation any more; the checksum is still the kernel's to compute
        frame.bytes[2..6].fill(0);
        let tcp = self.transport;
        frame.set_word(IP + 2, (end - IP) as u16);
        frame.set_word(IP + 4, self.word(IP + 4).wrapping_add(number as u16));
        frame.set_word(IP + 10, 0);
        let sum = sum_of(&frame.bytes[IP..tcp], 0);
        frame.set_word(IP + 10, !sum);
        let sequence = self.double_word(tcp + 4);
        frame.set_double_word(tcp + 4, sequence.wrapping_add((number * size) as u32));
        if number + 1 < count {
            frame.bytes[tcp + 13] &= !(FIN | PSH);
        }
        if number > 0 {
            frame.bytes[tcp + 13] &= !CWR;
        }
        let pseudo = frame.pseudo_sum(end - tcp);
        frame.set_word(tcp + 16, sum_of(&[], pseudo));
        frame
    }

    /// Computes the transport checksum, if that was left to the kernel: the frame is then as it would be on a wire.
    fn finish_checksum(&mut self) {
        let is_unfinished = self.bytes[0] & NEEDS_CHECKSUM != 0;
        self.bytes[0] = 0;
        self.bytes[6..NOTE_LENGTH].fill(0);
        let Some(field) = self.checksum_field().filter(|_| is_unfinished) else {
            return;
        };
        // The field holds the sum of the pseudo header.
        let sum = !sum_of(&self.bytes[self.transport..self.end], 0);
        let is_none = sum == 0 && self.protocol() == UDP; // zero means: no checksum
        self.set_word(field, if is_none { u16::MAX } else { sum });
    }

    /// Flips the bit after IPv4's header that a random number chooses. The checksums stay as they were, so the receiver finds it,
    /// unless its protocol has none.
    pub(crate) fn flip_bit(&mut self, draw: u64) {
        self.finish_checksum();
        let bits = (self.end - self.transport) as u64 * 8;
        if bits > 0 {
            let bit = (draw % bits) as usize;
            self.bytes[self.transport + bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[cfg(test)]
    fn checksums_are_right(&self) -> bool {
        let header = sum_of(&self.bytes[IP..self.transport], 0) == 0xffff;
        let segment = &self.bytes[self.transport..self.end];
        header && sum_of(segment, self.pseudo_sum(segment.len())) == 0xffff
    }
}

/// The ones' complement sum of big-endian words, beginning with `sum`.
fn sum_of(bytes: &[u8], sum: u32) -> u16 {
    let mut sum = u64::from(sum);
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| u64::from(byte));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum in which one address has been replaced by another.
fn replaced(sum: u16, before: u32, after: u32) -> u16 {
    let minus = |word: u32| u32::from(!(word as u16));
    let plus = |word: u32| word & 0xffff;
    let total =
        u32::from(sum) + minus(before >> 16) + minus(before) + plus(after >> 16) + plus(after);
    sum_of(&[], total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 128, 3, 254);

    fn reset() -> IpFrame {
        IpFrame::reset((A, 7_000), (B, 41_000), 0xdead_beef)
    }

    #[test]
    fn a_reset_has_correct_checksums_and_parses() {
        let frame = reset();
        assert!(frame.checksums_are_right());
        let parsed = IpFrame::parse(frame.bytes()).unwrap();
        assert_eq!(parsed, frame);
        assert_eq!((parsed.source(), parsed.destination()), (A, B));
        let tcp = parsed.tcp().unwrap();
        assert_eq!((tcp.from_port, tcp.to_port), (7_000, 41_000));
        assert_eq!((tcp.flags, tcp.acknowledged), (RST, None));
    }

    #[test]
    fn every_flipped_bit_makes_the_checksum_wrong() {
        // The kernel left the checksum open: the field holds the sum of the pseudo header.
        let mut open = reset();
        open.bytes[0] = NEEDS_CHECKSUM;
        let pseudo = sum_of(&[], open.pseudo_sum(20));
        open.set_word(open.transport + 16, pseudo);
        let mut finished = open.clone();
        finished.finish_checksum();
        assert_eq!(finished, reset());
        for draw in 0..160 {
            let mut frame = open.clone();
            frame.flip_bit(draw);
            assert!(!frame.checksums_are_right(), "{draw}");
            frame.set_source(B);
            assert!(!frame.checksums_are_right(), "{draw}, with an alias");
        }
    }

    #[test]
    fn changed_addresses_keep_checksums_correct() {
        let mut frame = reset();
        for last in 0..=255 {
            frame.set_source(Ipv4Addr::new(10, last, 255, last));
            frame.set_destination(Ipv4Addr::new(255 - last, 0, last, 1));
            assert!(frame.checksums_are_right(), "{last}");
        }
    }

    #[test]
    fn damaged_frames_are_no_frames() {
        let frame = reset();
        for length in 0..frame.bytes().len() {
            assert_eq!(IpFrame::parse(&frame.bytes()[..length]), None, "{length}");
        }
        for (at, byte) in [(IP, 0x65), (IP, 0x44), (IP + 2, 0xff), (IP - 1, 6)] {
            let mut bytes = frame.bytes().to_vec();
            bytes[at] = byte;
            assert_eq!(IpFrame::parse(&bytes), None, "{at}");
        }
    }

    #[test]
    fn a_long_segment_is_divided_as_the_kernel_would() {
        let content: Vec<u8> = (0..3_500_u32).map(|n| (n % 251) as u8).collect();
        let mut bytes = reset().bytes;
        bytes.extend(&content);
        let length = (bytes.len() - IP) as u16;
        bytes[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
        bytes[0] = NEEDS_CHECKSUM;
        bytes[1] = GSO_TCP4;
        bytes[4..6].copy_from_slice(&1_448_u16.to_ne_bytes());
        let tcp = IP + 20;
        bytes[tcp + 13] = ACK | PSH | FIN;
        let segments = IpFrame::parse(&bytes).unwrap().segments();
        assert_eq!(segments.len(), 3);
        let mut whole = Vec::<u8>::new();
        for (number, mut segment) in segments.into_iter().enumerate() {
            assert_eq!(
                segment.double_word(tcp + 4),
                0xdead_beef + 1_448 * number as u32
            );
            let flags = segment.tcp().unwrap().flags;
            assert_eq!(flags & FIN != 0, number == 2, "only the last one ends");
            whole.extend(&segment.bytes[tcp + 20..]);
            // What the kernel does with such a note: the sum over the segment, the field included.
            let sum = sum_of(&segment.bytes[tcp..], 0);
            segment.set_word(tcp + 16, !sum);
            assert!(segment.checksums_are_right(), "{number}");
        }
        assert_eq!(whole, content);
    }
}
