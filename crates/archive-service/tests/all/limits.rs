//! The cost of sessions that receive nothing, for the service and for other sessions.

use seatrial_archive::{Archive, Durability, RecordingOptions};
use seatrial_archive_service::message::{ClientMessage, ServerMessage, VERSION};
use seatrial_archive_service::{
    ArchiveAnswer, ArchiveOperation, ArchiveService, Health, RefusalCode, ReplayBound, ReplayFrom,
    ReplayRequest, ServiceLimits, ServiceOptions,
};
use seatrial_machine::{Input, Machine, NodeId, Output, Time};
use seatrial_sim::MemoryStorage;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BYTES: usize = 8 << 20;
const MESSAGE: usize = 4 << 10;

/// A service with one recording, its clock, and its effects.
struct LimitedService {
    service: ArchiveService,
    now: Time,
    jobs_max: usize,
    closed: Vec<NodeId>,
}

/// One client: a session and the number of its last request.
#[derive(Clone, Copy)]
struct LimitedClient {
    id: NodeId,
    session: u64,
    request: u64,
}

fn limits() -> ServiceLimits {
    ServiceLimits {
        sessions_max: 300,
        replays_max: 400,
        replay_bytes_max: 2 << 20,
        data_bytes: 64 << 10,
        data_bytes_min: 8 << 10,
        ..ServiceLimits::default()
    }
}

impl LimitedService {
    fn new(limits: ServiceLimits) -> LimitedService {
        let storage = Arc::new(MemoryStorage::new());
        let folder = Path::new("archive");
        let (mut archive, _) = Archive::open(storage.clone(), folder, 1).unwrap();
        let options = RecordingOptions {
            durability: Durability::None,
            ..RecordingOptions::default()
        };
        let mut writer = archive.start(&options, 1).unwrap();
        for number in 0..BYTES / MESSAGE {
            let message = vec![number as u8; MESSAGE];
            writer.append_batch([message.as_slice()], 1).unwrap();
        }
        writer.stop(1).unwrap();
        drop(archive);
        let options = ServiceOptions {
            limits,
            ..ServiceOptions::new(1_000)
        };
        let (service, _) = ArchiveService::open(storage, folder, options).unwrap();
        LimitedService {
            service,
            now: Time::ZERO,
            jobs_max: 0,
            closed: Vec::new(),
        }
    }

    /// Delivers a message, runs the resulting jobs in order, and returns the messages sent.
    fn deliver(&mut self, from: NodeId, message: &ClientMessage<'_>) -> Vec<(NodeId, Vec<u8>)> {
        let bytes = message.encode();
        let (mut inputs, mut sent) = (VecDeque::from([Input::Message { from, bytes }]), Vec::new());
        let mut jobs = VecDeque::new();
        loop {
            let Some(input) = inputs.pop_front() else {
                let Some((job, ticket)): Option<(Box<dyn seatrial_machine::Job>, _)> =
                    jobs.pop_front()
                else {
                    return sent;
                };
                inputs.push_back(Input::Computed(ticket, job.run()));
                continue;
            };
            let mut out = Vec::new();
            self.service.turn(self.now, input, &mut out);
            self.service.check_invariants();
            for output in out {
                match output {
                    Output::Send { to, message } => sent.push((to, message)),
                    Output::Compute(job, ticket) => jobs.push_back((job, ticket)),
                    Output::Close(id) => self.closed.push(id),
                    Output::Admit(_) | Output::Reply(..) => {}
                    other => panic!("the service asks for {other:?}"),
                }
            }
            self.jobs_max = self.jobs_max.max(jobs.len());
        }
    }

    fn hello(&mut self, number: u32) -> Result<LimitedClient, RefusalCode> {
        let id = NodeId::client(number);
        let hello = ClientMessage::Hello {
            version: VERSION,
            token: u64::from(number) + 1,
            session: 0,
        };
        let sent = self.deliver(id, &hello);
        let welcome = sent.iter().rfind(|(to, _)| *to == id).unwrap();
        match ServerMessage::decode(&welcome.1) {
            Ok(ServerMessage::Welcome { granted, .. }) => {
                let session = granted.map_err(|refusal| refusal.code)?.session;
                Ok(LimitedClient {
                    id,
                    session,
                    request: 0,
                })
            }
            other => panic!("{other:?}"),
        }
    }

    fn ask(
        &mut self,
        client: &mut LimitedClient,
        operation: ArchiveOperation,
    ) -> Vec<(NodeId, Vec<u8>)> {
        client.request += 1;
        let (session, request) = (client.session, client.request);
        let message = ClientMessage::Request {
            session,
            request,
            operation,
        };
        self.deliver(client.id, &message)
    }

    fn play(&mut self, client: &mut LimitedClient) -> Vec<(NodeId, Vec<u8>)> {
        self.ask(
            client,
            ArchiveOperation::Replay(ReplayRequest {
                recording: 1,
                from: ReplayFrom::Start,
                bound: ReplayBound::End,
                window_bytes: 4 << 20,
                is_eager: false,
            }),
        )
    }

    fn health(&mut self, client: &mut LimitedClient) -> Health {
        for (_, message) in self.ask(client, ArchiveOperation::Health) {
            if let Ok(ServerMessage::Reply {
                result: Ok(ArchiveAnswer::Health(health)),
                ..
            }) = ServerMessage::decode(&message)
            {
                return health;
            }
        }
        panic!("no health");
    }
}

/// Bytes of blocks sent to a client.
fn data(sent: &[(NodeId, Vec<u8>)], client: NodeId) -> u64 {
    let mine = sent.iter().filter(|(to, _)| *to == client);
    let bodies = mine.map(|(_, message)| match ServerMessage::decode(message) {
        Ok(ServerMessage::Data { blocks, .. }) => blocks.len() as u64,
        _ => 0,
    });
    bodies.sum()
}

#[test]
fn sessions_that_read_nothing_stay_within_their_bound_and_block_no_other() {
    let mut server = LimitedService::new(limits());
    let (mut sent, mut thieves) = (0, Vec::new());
    for number in 0..250 {
        let mut thief = server.hello(number).unwrap();
        let answer = server.play(&mut thief);
        sent += data(&answer, thief.id);
        thieves.push(thief);
    }
    // The limit of all replays, and a share and a message for each; a block has 4 KiB.
    let limits = limits();
    let share = 2 * limits.data_bytes_min + (8 << 10);
    let most = limits.replay_bytes_max + (250 * share) as u64;
    assert!(sent > limits.replay_bytes_max / 2, "{sent}");
    assert!(sent <= most, "{sent} bytes, {most} are stated");
    assert!(server.jobs_max <= limits.reads_max, "{}", server.jobs_max);

    // Another session receives everything, one share at a time.
    let mut reader = server.hello(1_000).unwrap();
    let answer = server.play(&mut reader);
    let mut got = data(&answer, reader.id);
    let (mut rounds, mut last) = (0, 0);
    while got < BYTES as u64 && rounds < 10_000 {
        let credit = ClientMessage::Credit {
            session: reader.session,
            replay: reader.request,
            limit: got + (4 << 20),
        };
        let answer = server.deliver(reader.id, &credit);
        let more = data(&answer, reader.id);
        assert!(more > 0, "it stands still at {got}");
        (got, last) = (got + more, more);
        rounds += 1;
    }
    assert!(got >= BYTES as u64);
    assert_eq!(server.health(&mut reader).replay_bytes, sent + last);
    let (session, replay) = (reader.session, reader.request - 1);
    server.deliver(reader.id, &ClientMessage::Close { session, replay });

    // Their sessions end without a rest; their connections are closed.
    for thief in &thieves {
        let session = thief.session;
        server.deliver(thief.id, &ClientMessage::Goodbye { session });
    }
    let health = server.health(&mut reader);
    assert_eq!((health.replay_bytes, health.replays), (0, 0));
    assert_eq!(server.closed.len(), thieves.len());
}

#[test]
fn who_takes_nothing_makes_room_for_others_when_all_sessions_are_taken() {
    let mut server = LimitedService::new(ServiceLimits {
        sessions_max: 10,
        session_timeout: Duration::from_mins(1),
        ..limits()
    });
    for number in 0..10 {
        let mut thief = server.hello(number).unwrap();
        server.play(&mut thief);
        server.now += Duration::from_millis(1);
    }
    assert_eq!(server.hello(100).err(), Some(RefusalCode::Overloaded));
    server.now += limits().stall_min;
    for number in 101..106 {
        server.hello(number).unwrap();
    }
    let expected: Vec<NodeId> = (0..5).map(NodeId::client).collect();
    assert_eq!(
        server.closed, expected,
        "the sessions without progress for longest"
    );
}

#[test]
fn a_session_continues_over_a_new_connection() {
    let mut server = LimitedService::new(limits());
    let mut client = server.hello(1).unwrap();
    let token = 2;
    let again = |session| ClientMessage::Hello {
        version: VERSION,
        token,
        session,
    };
    client.id = NodeId::client(77);
    let sent = server.deliver(client.id, &again(client.session));
    assert!(matches!(
        ServerMessage::decode(&sent[0].1),
        Ok(ServerMessage::Welcome { granted: Ok(it), .. }) if it.session == client.session
    ));
    assert_eq!(server.closed, [NodeId::client(1)], "the old connection");
    assert_eq!(server.health(&mut client).sessions, 1);
    // An unknown session is not created again under its token.
    for session in [client.session ^ 1, 5] {
        let sent = server.deliver(NodeId::client(78), &again(session));
        assert_eq!(
            ServerMessage::decode(&sent[0].1),
            Ok(ServerMessage::Gone { session })
        );
    }
    assert_eq!(server.health(&mut client).sessions, 1);
}
