//! Handshakes and requests against a volume in memory, in every order of replies.

use super::NbdErrno::{Invalid, NoSpace, Overflow};
use super::*;
use seatrial_machine::{Rng, Ticket};
use seatrial_volume::{
    BlockNumber, BlockSpan, GuestError, GuestReply, GuestRequest, REQUEST_LENGTH_MAX,
};

const BLOCK: usize = 512;

fn export() -> NbdExport {
    NbdExport {
        name: "disk".into(),
        description: "a disk".into(),
        bytes: 64 * BLOCK as u64,
        block_length: BLOCK as u32,
        is_read_only: false,
        snapshot: None,
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

/// Options and the kinds of the replies to them.
type OptionReplies = Vec<(u32, u32)>;

/// Runs a handshake to its end or the end of the input; returns the progress, the numbers of the replies (`None` for bytes that
/// are none), and the bytes that were not consumed.
fn run(input: &[u8]) -> Result<(NbdProgress, OptionReplies, usize), NbdError> {
    let mut whole = Vec::new();
    let mut handshake = NbdHandshake::new(vec![export()]);
    let (consumed, progress) = handshake.step(input, &mut whole)?;
    // The same, byte by byte.
    let (mut bytewise, mut buffer) = (Vec::new(), Vec::new());
    let mut handshake = NbdHandshake::new(vec![export()]);
    for byte in &input[..consumed] {
        buffer.push(*byte);
        let (taken, _) = handshake.step(&buffer, &mut bytewise)?;
        buffer.drain(..taken);
    }
    assert_eq!(whole, bytewise);
    let (mut replies, mut rest) = (Vec::new(), &whole[..]);
    while rest.starts_with(&0x0003_e889_0455_65a9_u64.to_be_bytes()) {
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        replies.push((number(8), number(12)));
        rest = &rest[20 + number(16) as usize..];
    }
    replies.extend((!rest.is_empty()).then_some((0, rest.len() as u32)));
    Ok((progress, replies, input.len() - consumed))
}

const ACK: u32 = 1;
const INVALID: u32 = 0x8000_0003;

#[test]
fn options_are_answered_by_the_protocol() {
    let flags = &[0, 0, 0, 3][..];
    let allocation = named(
        "disk",
        &[&[0, 0, 0, 1][..], &named("base:allocation", b"")].concat(),
    );
    let all = [
        (option(3, b""), vec![(3, 2), (3, ACK)]),
        (option(3, b"x"), vec![(3, INVALID)]),
        (option(5, b""), vec![(5, 0x8000_0002)]),
        (option(77, b"data"), vec![(77, 0x8000_0001)]),
        (option(11, b""), vec![(11, 0x8000_0001)]),
        (
            option(6, &named("", &[0, 3, 0, 1, 0, 2, 0, 3])),
            vec![(6, 3), (6, 3), (6, 3), (6, 3), (6, ACK)],
        ),
        (option(6, &named("other", &[0, 0])), vec![(6, 0x8000_0006)]),
        (option(6, b"\0\0\0\x09name"), vec![(6, INVALID)]),
        (
            option(6, &vec![0; OPTION_LENGTH_MAX + 1]),
            vec![(6, 0x8000_0009)],
        ),
        (option(10, &allocation), vec![(10, INVALID)]), // replies are not structured yet
        (option(8, b""), vec![(8, ACK)]),
        (option(10, &allocation), vec![(10, 4), (10, ACK)]),
        (option(9, &named("", &[0; 4])), vec![(9, 4), (9, ACK)]),
        (option(7, &named("disk", &[0, 0])), vec![(7, 3), (7, ACK)]),
    ];
    let mut input = flags.to_vec();
    let mut expected = Vec::new();
    for (bytes, replies) in &all {
        input.extend_from_slice(bytes);
        expected.extend_from_slice(replies);
    }
    input.extend_from_slice(b"requests");
    let session = NbdSession {
        is_structured: true,
        has_block_status: true,
        is_read_only: false,
        snapshot: None,
        bytes: 64 * BLOCK as u64,
    };
    assert_eq!(run(&input), Ok((NbdProgress::Begin(session), expected, 8)));
}

/// Snapshots are exports of their own: listed, read-only, and read as what they are.
#[test]
fn snapshots_are_exports() {
    let exports = vec![export(), export().of_snapshot("before")];
    let mut handshake = NbdHandshake::new(exports);
    let flags = &[0, 0, 0, 3][..];
    let go = option(7, &named("disk@before", &[0, 0]));
    let input = [flags, &option(3, b""), &go].concat();
    let mut out = Vec::new();
    let (_, progress) = handshake.step(&input, &mut out).unwrap();
    let has = |text: &[u8]| out.windows(text.len()).any(|it| it == text);
    assert!(has(b"\0\0\0\x04disk") && has(b"\0\0\0\x0bdisk@before"));
    let NbdProgress::Begin(session) = progress else {
        panic!("{progress:?}")
    };
    assert!(session.is_read_only);
    let mut requests = NbdRequests::new(BLOCK as u32);
    let mut outputs = Vec::new();
    for (kind, length) in [(0, 2 * BLOCK), (7, 4 * BLOCK), (1, BLOCK)] {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        for field in [kind, 0, 0, 0, 0, length as u32] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        let header = NbdHeader::decode(bytes[..].try_into().unwrap()).unwrap();
        let session = NbdSession {
            has_block_status: true,
            is_structured: true,
            ..session.clone()
        };
        let payload = if kind == 1 {
            vec![0; BLOCK]
        } else {
            Vec::new()
        };
        requests.begin(1, &session, NbdRequest { header, payload }, &mut outputs);
    }
    let span = |count| BlockSpan {
        first: BlockNumber(0),
        count,
    };
    let asked: Vec<GuestRequest> = outputs
        .into_iter()
        .filter_map(|it| match it {
            NbdOutput::Guest(_, request) => Some(request),
            NbdOutput::Reply(..) => None,
        })
        .collect();
    let expected = [
        GuestRequest::ReadSnapshot("before".into(), span(2)),
        GuestRequest::SnapshotExtents("before".into(), span(4)),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn the_oldest_option_and_ends() {
    for (flags, length) in [(1_u32, 134), (3, 10), (0, 134)] {
        let input = [&flags.to_be_bytes()[..], &option(1, b"disk")].concat();
        let (progress, replies, _) = run(&input).unwrap();
        assert!(matches!(progress, NbdProgress::Begin(_)));
        assert_eq!(replies, [(0, length)]);
    }
    let input = [&[0, 0, 0, 1][..], &option(2, b"")].concat();
    assert_eq!(run(&input), Ok((NbdProgress::End, vec![(2, ACK)], 0)));
    let input = [&[0, 0, 0, 1][..], &option(1, b"none")].concat();
    assert_eq!(run(&input), Err(NbdError::UnknownExport("none".into())));
    for input in [&b"\0\0\0\x07"[..], b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n"] {
        assert!(matches!(run(input), Err(NbdError::Protocol(_))));
    }
    let many = [&[0, 0, 0, 3][..], &option(3, b"").repeat(1_001)].concat();
    assert!(matches!(run(&many), Err(NbdError::Protocol(_))));
}

fn session(is_structured: bool) -> NbdSession {
    NbdSession {
        is_structured,
        has_block_status: is_structured,
        is_read_only: false,
        snapshot: None,
        bytes: 64 * BLOCK as u64,
    }
}

/// A request as bytes.
fn header(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; HEADER_LENGTH] {
    let bytes = [
        &0x2560_9513_u32.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ];
    bytes.concat().try_into().unwrap()
}

#[test]
fn requests_out_of_bounds_are_refused() {
    let mut bounds = session(true);
    bounds.bytes = 1 << 40;
    let end = bounds.bytes;
    let check = |flags, kind, offset, length| {
        let decoded = NbdHeader::decode(&header(flags, kind, 1, offset, length)).unwrap();
        decoded.check(&bounds)
    };
    assert_eq!(check(0, 0, end - 1, 1), Ok(NbdCommand::Read));
    assert_eq!(
        check(4, 0, 0, REQUEST_LENGTH_MAX as u32),
        Ok(NbdCommand::Read)
    );
    assert_eq!(check(0, 0, 0, REQUEST_LENGTH_MAX as u32 + 1), Err(Overflow));
    assert_eq!(check(0, 0, end, 1), Err(Invalid));
    assert_eq!(check(0, 1, u64::MAX, 9), Err(NoSpace));
    assert_eq!(check(1, 1, end - 1, 2), Err(NoSpace));
    assert_eq!(check(0, 1, 0, u32::MAX), Err(Invalid));
    assert_eq!(check(0, 6, 0, u32::MAX), Ok(NbdCommand::WriteZeroes));
    assert_eq!(check(19, 6, 0, 1), Ok(NbdCommand::WriteZeroes));
    assert_eq!(check(0, 4, 5, u32::MAX), Ok(NbdCommand::Trim));
    assert_eq!(check(2, 4, 0, 1), Err(Invalid));
    assert_eq!(check(0, 3, u64::MAX, 7), Ok(NbdCommand::Flush));
    assert_eq!(check(0, 7, 0, 0), Err(Invalid));
    assert_eq!(check(0, 8, 0, 0), Err(Invalid));
    bounds.is_read_only = true;
    let decoded = NbdHeader::decode(&header(0, 1, 1, 0, 1)).unwrap();
    assert_eq!(decoded.check(&bounds), Err(NbdErrno::Permission));
    bounds.is_structured = false;
    let decoded = NbdHeader::decode(&header(4, 0, 1, 0, 1)).unwrap();
    assert_eq!(decoded.check(&bounds), Err(Invalid));
}

/// A volume in memory: a block that was never written is `None`.
struct MemoryVolume(Vec<Option<Vec<u8>>>);

impl MemoryVolume {
    fn handle(&mut self, request: GuestRequest) -> GuestReply {
        let range = |span: BlockSpan| {
            assert!(
                span.count > 0 && span.end() <= self.0.len() as u64,
                "{span}"
            );
            span.first.0 as usize..span.end() as usize
        };
        match request {
            GuestRequest::Read(span) => {
                let blocks = self.0[range(span)].iter();
                let zeros = vec![0; BLOCK];
                let bytes = blocks.flat_map(|block| block.as_ref().unwrap_or(&zeros).clone());
                GuestReply::Bytes(bytes.collect())
            }
            GuestRequest::Write { first, bytes, .. } => {
                assert!(!bytes.is_empty() && bytes.len().is_multiple_of(BLOCK));
                for (place, block) in bytes.chunks(BLOCK).enumerate() {
                    self.0[first.0 as usize + place] = Some(block.to_vec());
                }
                GuestReply::Done
            }
            GuestRequest::Trim { range: span, .. } => {
                let range = range(span);
                self.0[range].fill(None);
                GuestReply::Done
            }
            GuestRequest::Extents(span) => {
                let blocks = self.0[range(span)].iter();
                GuestReply::Extents(blocks.map(|block| (1, block.is_some())).collect())
            }
            _ => GuestReply::Done,
        }
    }
}

/// The bytes of a successful read, from a simple or structured reply.
fn read_bytes(reply: &NbdReply, length: usize) -> Vec<u8> {
    let bytes = [&reply.head[..], &reply.payload].concat();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    if number(0) == 0x6744_6698 {
        assert_eq!(number(4), 0, "an error");
        return bytes[16..].to_vec();
    }
    let (mut data, mut rest) = (vec![0; length], &bytes[..]);
    let mut first = None;
    while !rest.is_empty() {
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let offset = u64::from_be_bytes(rest[20..28].try_into().unwrap()) as usize;
        let (kind, length) = (number(4) & 0xffff, number(16) as usize);
        let start = offset - *first.get_or_insert(offset);
        match kind {
            1 => data[start..start + length - 8].copy_from_slice(&rest[28..20 + length]),
            2 => assert_eq!(length, 12),
            _ => panic!("chunk {kind}"),
        }
        assert_eq!(
            number(4) >> 16 == 1,
            rest.len() == 20 + length,
            "the last one"
        );
        rest = &rest[20 + length..];
    }
    data
}

/// A random request that changes the volume, and what it does to the bytes.
fn change(rng: &mut Rng, model: &mut [u8], place: std::ops::Range<usize>) -> NbdRequest {
    let start = place.start + rng.index(place.len());
    let length = 1 + rng.index((place.end - start).min(5 * BLOCK));
    let fill = rng.word() as u8;
    let (kind, flags) = *rng.pick(&[(1, 0), (1, 1), (6, 0), (6, 2)]);
    let is_write = kind == 1;
    model[start..start + length].fill(if is_write { fill } else { 0 });
    NbdRequest {
        header: NbdHeader::decode(&header(flags, kind, 7, start as u64, length as u32)).unwrap(),
        payload: if is_write {
            vec![fill; length]
        } else {
            Vec::new()
        },
    }
}

/// Requests in flight that touch different bytes, often of the same blocks, with replies in any order: none is lost.
#[test]
fn concurrent_changes_of_parts_of_a_block_are_all_kept() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut volume = MemoryVolume(vec![None; 64]);
        let mut model = vec![0; 64 * BLOCK];
        let mut requests = NbdRequests::new(BLOCK as u32);
        let mut open = Vec::new();
        let (mut begun, mut replies) = (0, 0);
        // Each writer has bytes of its own: 37 do not fit to blocks.
        let writers = 37;
        let width = model.len() / writers;
        let mut busy = vec![false; writers];
        while begun < 200 || !requests.is_empty() {
            let mut out = Vec::new();
            let writer = rng.index(writers);
            if begun < 200 && !busy[writer] && rng.chance(0.6) {
                let place = writer * width..(writer + 1) * width;
                let request = change(&mut rng, &mut model, place);
                begun += 1;
                busy[writer] = true;
                requests.begin(writer as u64, &session(true), request, &mut out);
            } else if !open.is_empty() {
                let (ticket, request) = open.swap_remove(rng.index(open.len()));
                let reply = volume.handle(request);
                requests.on_reply(ticket, reply, &mut out);
            }
            for output in out {
                match output {
                    NbdOutput::Guest(ticket, request) => open.push((ticket, request)),
                    NbdOutput::Reply(writer, reply) => {
                        assert_eq!(reply.head[4..8], [0; 4], "an error");
                        busy[writer as usize] = false;
                        replies += 1;
                    }
                }
            }
        }
        assert_eq!(replies, 200);
        for is_structured in [false, true] {
            let (start, length) = (rng.index(1_000), 20_000);
            let bytes = ask(&mut requests, &mut volume, is_structured, 0, start, length);
            assert_eq!(read_bytes(&bytes, length), model[start..start + length]);
        }
    }
}

/// Carries out one request alone.
fn ask(
    requests: &mut NbdRequests,
    volume: &mut MemoryVolume,
    is_structured: bool,
    kind: u16,
    offset: usize,
    length: usize,
) -> NbdReply {
    let bytes = header(0, kind, 1, offset as u64, length as u32);
    let request = NbdRequest {
        header: NbdHeader::decode(&bytes).unwrap(),
        payload: Vec::new(),
    };
    let mut out = Vec::new();
    requests.begin(0, &session(is_structured), request, &mut out);
    loop {
        match out.pop().unwrap() {
            NbdOutput::Reply(_, reply) => return reply,
            NbdOutput::Guest(ticket, request) => {
                let reply = volume.handle(request);
                requests.on_reply(ticket, reply, &mut out);
            }
        }
    }
}

#[test]
fn extents_are_clipped_and_trims_keep_parts_of_blocks() {
    let mut volume = MemoryVolume(vec![Some(vec![1; BLOCK]); 64]);
    let mut requests = NbdRequests::new(BLOCK as u32);
    ask(&mut requests, &mut volume, true, 4, BLOCK - 1, 3 * BLOCK);
    assert!(volume.0[0].is_some() && volume.0[3].is_some());
    assert_eq!(volume.0[1..3], [None, None]);
    let reply = ask(&mut requests, &mut volume, true, 7, 100, 4 * BLOCK);
    let words = |bytes: &[u8]| {
        let words = bytes.chunks(4);
        let words = words.map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        words.collect::<Vec<u32>>()
    };
    let expected = [1, 412, 0, 1_024, 3, 612, 0];
    assert_eq!(words(&reply.head[20..]), expected);
    // Less than a block: nothing to free.
    let reply = ask(&mut requests, &mut volume, true, 4, 5 * BLOCK + 1, BLOCK);
    assert_eq!(reply.head[4..8], [0; 4]);
    assert!(volume.0[5].is_some());
    // Cache and flush.
    assert_eq!(
        ask(&mut requests, &mut volume, true, 5, 0, 9).head.len(),
        16
    );
    assert_eq!(
        ask(&mut requests, &mut volume, true, 3, 0, 0).head.len(),
        16
    );
    assert_eq!(
        ask(&mut requests, &mut volume, true, 0, 0, 0).head.len(),
        20
    );
}

#[test]
fn errors_have_the_numbers_of_the_protocol() {
    let mut requests = NbdRequests::new(BLOCK as u32);
    for (is_structured, length) in [(false, 16), (true, 50)] {
        let request = NbdRequest {
            header: NbdHeader::decode(&header(0, 0, 9, 0, 1)).unwrap(),
            payload: Vec::new(),
        };
        let mut out = Vec::new();
        requests.begin(3, &session(is_structured), request, &mut out);
        let Some(NbdOutput::Guest(ticket, _)) = out.pop() else {
            panic!("no read");
        };
        let failed = GuestReply::Failed(GuestError::Inactive);
        requests.on_reply(ticket, failed.clone(), &mut out);
        requests.on_reply(ticket, failed, &mut out); // a reply to no request
        let [NbdOutput::Reply(3, reply)] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!(reply.head.len(), length);
        let at = if is_structured { 20 } else { 4 };
        assert_eq!(reply.head[at..at + 4], 108_u32.to_be_bytes());
    }
    // A reply of the wrong kind or length is an error of the request, not a panic.
    for wrong in [GuestReply::Done, GuestReply::Bytes(vec![0; 3])] {
        let mut out = Vec::new();
        let request = NbdRequest {
            header: NbdHeader::decode(&header(0, 0, 9, 0, 1)).unwrap(),
            payload: Vec::new(),
        };
        requests.begin(3, &session(false), request, &mut out);
        let Some(NbdOutput::Guest(ticket, _)) = out.pop() else {
            panic!("no read");
        };
        requests.on_reply(ticket, wrong, &mut out);
        assert!(matches!(&out[..], [NbdOutput::Reply(3, reply)] if reply.head[7] == 5));
    }
}

#[test]
fn any_bytes_end_in_requests_or_an_error() {
    let mut rng = Rng::from_seed(11);
    let valid = [
        &[0, 0, 0, 3][..],
        &option(8, b""),
        &option(6, &named("disk", &[0, 1, 0, 3])),
        &option(
            10,
            &named(
                "disk",
                &[&[0, 0, 0, 1][..], &named("base:allocation", b"")].concat(),
            ),
        ),
        &option(7, &named("disk", &[0, 0])),
    ]
    .concat();
    for _ in 0..20_000 {
        let mut bytes = valid.clone();
        for _ in 0..=rng.index(4) {
            let place = rng.index(bytes.len());
            bytes[place] = *rng.pick(&[0, 1, 0xff, 0x80, 4]);
        }
        bytes.truncate(rng.index(bytes.len() + 1));
        let mut out = Vec::new();
        let mut handshake = NbdHandshake::new(vec![export()]);
        if let Ok((consumed, _)) = handshake.step(&bytes, &mut out) {
            assert!(consumed <= bytes.len());
        }
        assert!(out.len() < 1_000);
    }
    let mut requests = NbdRequests::new(BLOCK as u32);
    let mut volume = MemoryVolume(vec![None; 64]);
    for _ in 0..50_000 {
        let mut bytes = header(
            *rng.pick(&[0, 0, 1, 2, 4, 8, 16, 0xffff]),
            rng.below(9) as u16,
            rng.word(),
            *rng.pick(&[0, 1, 511, 512, 1_000, 32_767, 32_768, u64::MAX]),
            *rng.pick(&[0, 1, 2, 512, 1_023, 32_768, u32::MAX]),
        );
        if rng.chance(0.1) {
            bytes[rng.index(HEADER_LENGTH)] ^= 1 << rng.below(8);
        }
        let Ok(decoded) = NbdHeader::decode(&bytes) else {
            continue;
        };
        let length = decoded.payload_length() as usize;
        let payload = vec![1; if length <= 32_768 { length } else { 0 }];
        let request = NbdRequest {
            header: decoded,
            payload,
        };
        let mut out = Vec::new();
        requests.begin(1, &session(rng.chance(0.5)), request, &mut out);
        while let Some(output) = out.pop() {
            if let NbdOutput::Guest(ticket, request) = output {
                let reply = volume.handle(request);
                requests.on_reply(ticket, reply, &mut out);
            }
        }
        assert!(requests.is_empty());
    }
    let mut out = Vec::new();
    requests.on_reply(Ticket(u64::MAX), GuestReply::Done, &mut out);
    assert!(out.is_empty());
}
