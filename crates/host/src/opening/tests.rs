use super::*;
use seatrial_machine::Rng;

const KV: Protocol = Protocol {
    name: "kv",
    version: 2,
    refuse_old: |message| (message == b"old").then(|| b"too old".to_vec()),
};

fn key(byte: u8) -> Option<SecretKey> {
    SecretKey::new(&[byte; 32])
}

fn server(key: Option<SecretKey>) -> ServerOpening {
    ServerOpening::new(KV, key, [7; NONCE_LENGTH])
}

fn client(key: Option<SecretKey>) -> ClientOpening {
    ClientOpening::with_nonce(KV, key, [9; NONCE_LENGTH])
}

/// What the client makes of it, and whether the server lets it in.
fn open(mut client: ClientOpening, mut server: ServerOpening) -> (Result<(), OpeningError>, bool) {
    let mut message = client.message().to_vec();
    loop {
        let (answer, is_open) = match server.step(&message) {
            OpeningStep::Send(answer) => (answer, None),
            OpeningStep::Open(answer) => (answer.unwrap(), Some(true)),
            OpeningStep::Refuse { message, .. } => (message.unwrap(), Some(false)),
        };
        assert!(answer.len() <= LENGTH_MAX);
        match (client.step(&answer), is_open) {
            (Ok(Some(next)), None) => message = next,
            (Ok(None), Some(true)) => return (Ok(()), true),
            (Err(error), is_open) => return (Err(error), is_open.unwrap_or(false)),
            other => panic!("{other:?}"),
        }
    }
}

fn refused(text: &str) -> (Result<(), OpeningError>, bool) {
    (Err(OpeningError::Refused(text.to_owned())), false)
}

#[test]
fn who_knows_the_key_is_let_in() {
    assert_eq!(open(client(None), server(None)), (Ok(()), true));
    assert_eq!(open(client(key(1)), server(key(1))), (Ok(()), true));
    let wrong = refused("the key is not that of this server");
    assert_eq!(open(client(key(2)), server(key(1))), wrong);
    let missing = refused("a key is needed (--key-file)");
    assert_eq!(open(client(None), server(key(1))), missing);
    // The client does not go on with a server that proves nothing.
    let (error, _) = open(client(key(1)), server(None));
    assert_eq!(error, Err(OpeningError::NoKey));
}

#[test]
fn a_server_that_does_not_know_the_key_is_found_out() {
    let mut client = client(key(1));
    let challenge = OpeningHeader::new(OpeningCode::Challenge, KV).message(&[7; NONCE_LENGTH]);
    let proof = client.step(&challenge).unwrap().unwrap();
    // It sends the client's proof back, or makes one up.
    let mine = &proof[HEADER_LENGTH..];
    for body in [mine, &[0; PROOF_LENGTH]] {
        let mut client = client_after(&challenge);
        let answer = OpeningHeader::new(OpeningCode::Proof, KV).message(body);
        assert_eq!(client.step(&answer), Err(OpeningError::WrongProof));
    }
}

fn client_after(challenge: &[u8]) -> ClientOpening {
    let mut client = client(key(1));
    client.step(challenge).unwrap();
    client
}

#[test]
fn a_proof_is_good_for_one_opening() {
    let mut first = server(key(1));
    let mut client = client(key(1));
    let OpeningStep::Send(challenge) = first.step(client.message()) else {
        panic!("no challenge");
    };
    let proof = client.step(&challenge).unwrap().unwrap();
    let mut second = ServerOpening::new(KV, key(1), [8; NONCE_LENGTH]);
    second.step(client.message());
    let replayed = second.step(&proof);
    assert!(matches!(
        replayed,
        OpeningStep::Refuse { is_guess: true, .. }
    ));
    assert!(matches!(first.step(&proof), OpeningStep::Open(_)));
}

#[test]
fn other_protocols_and_versions_are_refused_in_words() {
    let other = |name, version| Protocol {
        name,
        version,
        refuse_old: |_| None,
    };
    for (protocol, shown) in [
        (other("archive", 2), "archive 2"),
        (other("kv", 1), "kv 1"),
        (other("\u{1b}[2J", 1), "\\x1b[2J 1"),
    ] {
        let client = ClientOpening::with_nonce(protocol, None, [9; NONCE_LENGTH]);
        let expected = refused(&format!("unsupported protocol {shown} (expected kv 2)"));
        assert_eq!(open(client, server(None)), expected);
    }
    let mut newer = client(None);
    newer.opening[8] = 2;
    let expected = refused("unsupported opening (expected version 1)");
    assert_eq!(open(newer, server(None)), expected);
    // A client from before there were openings is answered in its own protocol.
    let old = server(key(1)).step(b"old");
    let OpeningStep::Refuse { message, .. } = old else {
        panic!("{old:?}");
    };
    assert_eq!(message.as_deref(), Some(b"too old".as_slice()));
    let foreign = server(key(1)).step(b"GET / HTTP/1.1");
    assert!(matches!(foreign, OpeningStep::Refuse { message: None, .. }));
}

#[test]
fn changed_messages_open_nothing() {
    let mut rng = Rng::from_seed(1);
    for _ in 0..20_000 {
        let (mut server, mut client) = (server(key(1)), client(key(1)));
        let mut first = client.message().to_vec();
        let is_first_changed = rng.chance(0.5) && change(&mut first, &mut rng);
        let OpeningStep::Send(mut challenge) = server.step(&first) else {
            assert!(is_first_changed);
            continue;
        };
        let is_second_changed = rng.chance(0.5) && change(&mut challenge, &mut rng);
        let Ok(Some(proof)) = client.step(&challenge) else {
            assert!(is_second_changed);
            continue;
        };
        let is_open = matches!(server.step(&proof), OpeningStep::Open(_));
        assert_eq!(is_open, !is_first_changed && !is_second_changed);
    }
}

/// Changes one bit.
fn change(bytes: &mut [u8], rng: &mut Rng) -> bool {
    let place = rng.index(bytes.len());
    bytes[place] ^= 1 << rng.below(8);
    true
}
