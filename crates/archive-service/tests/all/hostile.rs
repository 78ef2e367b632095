//! A service and a client that receive arbitrary bytes.

use seatrial_archive::Durability;
use seatrial_archive_service::message::{ClientMessage, ServerMessage, VERSION};
use seatrial_archive_service::{
    ArchiveClient, ArchiveClientOptions, ArchiveOperation, ArchiveService, ClientRequest,
    FrameBatch, ReplayBound, ReplayFrom, ReplayRequest, ServiceOptions,
};
use seatrial_machine::{Input, Machine, NodeId, Output, Rng, Ticket, Time};
use seatrial_sim::MemoryStorage;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SERVER: NodeId = NodeId::server(1);
const CLIENT: NodeId = NodeId::client(1);

/// Gives a machine one input, runs its jobs at once, and returns the messages sent.
fn turn<M: Machine<Reply: Debug>>(
    machine: &mut M,
    now: Time,
    input: Input<M::Request>,
) -> Vec<Vec<u8>> {
    let mut inputs = VecDeque::from([input]);
    let mut sent = Vec::new();
    while let Some(input) = inputs.pop_front() {
        let mut out = Vec::new();
        machine.turn(now, input, &mut out);
        machine.check_invariants();
        for output in out {
            match output {
                Output::Send { message, .. } => sent.push(message),
                Output::Compute(job, ticket) => {
                    inputs.push_back(Input::Computed(ticket, job.run()));
                }
                Output::Reply(..) | Output::Admit(_) | Output::Close(_) => {}
                other => panic!("the service asks for {other:?}"),
            }
        }
    }
    sent
}

/// Changes a few bytes, mostly to small values; sometimes truncates.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            return;
        }
        let place = rng.index(bytes.len().min(80));
        bytes[place] = match rng.below(3) {
            0 => rng.below(4) as u8,
            1 => 255,
            _ => rng.word() as u8,
        };
    }
    if rng.chance(0.1) {
        let length = rng.index(bytes.len());
        bytes.truncate(length);
    }
}

/// A random request to a client.
fn request(rng: &mut Rng) -> ClientRequest {
    let recording = 1 + rng.below(3);
    match rng.below(6) {
        0 => ClientRequest::Ask(ArchiveOperation::Start {
            label: "x".to_owned(),
            segment_length: 2_048,
            durability: Durability::Batch,
            is_resumed: rng.chance(0.5),
        }),
        1 => ClientRequest::Ask(ArchiveOperation::Extend { recording }),
        2 => ClientRequest::Ask(ArchiveOperation::Truncate {
            recording,
            position: rng.below(500),
        }),
        3 => ClientRequest::Play(ReplayRequest {
            recording,
            from: ReplayFrom::Message(rng.below(3)),
            bound: ReplayBound::Follow,
            window_bytes: 1 << 16,
            is_eager: rng.chance(0.5),
        }),
        _ => {
            let mut batch = FrameBatch::new();
            for number in 0..=rng.below(3) {
                batch.push(number as u32, &vec![7; rng.index(300)], rng.chance(0.5));
            }
            ClientRequest::Record { recording, batch }
        }
    }
}

/// A client and a service exchange messages and changed copies of them. No machine panics, and at the end a new client is
/// served.
#[test]
fn changed_messages_harm_neither_the_service_nor_the_client() {
    let mut answered = 0;
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        println!("seed {seed}");
        let storage = Arc::new(MemoryStorage::new());
        let options = ServiceOptions::new(1_000);
        let opened = ArchiveService::open(storage, Path::new("archive"), options);
        let (mut service, _) = opened.expect("an empty archive opens");
        let mut client = ArchiveClient::new(ArchiveClientOptions::new(SERVER, seed));
        let mut now = Time::ZERO;
        for step in 0..400 {
            now += Duration::from_millis(rng.below(300));
            let input = match rng.below(3) {
                0 => Input::Wake,
                _ => Input::Request(Ticket(step), request(&mut rng)),
            };
            let mut to_service = turn(&mut client, now, input);
            for _ in 0..3 {
                let mut to_client = turn(&mut service, now, Input::Wake);
                for message in std::mem::take(&mut to_service) {
                    for bytes in copies(message, &mut rng) {
                        let _ = ClientMessage::decode(&bytes);
                        let from = CLIENT;
                        let input = Input::Message { from, bytes };
                        to_client.extend(turn(&mut service, now, input));
                    }
                }
                for message in to_client {
                    answered += 1;
                    for bytes in copies(message, &mut rng) {
                        let _ = ServerMessage::decode(&bytes);
                        let from = SERVER;
                        let input = Input::Message { from, bytes };
                        to_service.extend(turn(&mut client, now, input));
                    }
                }
            }
        }
        let hello = ClientMessage::Hello {
            version: VERSION,
            token: 77,
            session: 0,
        };
        let from = NodeId::client(2);
        let bytes = hello.encode();
        let welcome = turn(&mut service, now, Input::Message { from, bytes });
        let decoded = ServerMessage::decode(&welcome[0]);
        assert!(matches!(
            decoded,
            Ok(ServerMessage::Welcome { granted: Ok(_), .. })
        ));
    }
    assert!(answered > 10_000, "{answered} messages of the service");
}

/// A message, and sometimes changed copies of it.
fn copies(message: Vec<u8>, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if rng.chance(0.4) {
        let mut changed = message.clone();
        mutate(&mut changed, rng);
        all.push(changed);
    }
    if rng.chance(0.9) {
        all.push(message);
    }
    all
}
