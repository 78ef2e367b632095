use super::*;
use crate::answer::Answer;

const SERVER: NodeId = NodeId::server(1);
const SESSION: u64 = 0x1_0000_0001;

/// A client driven by hand.
struct Bench {
    client: TransactionClient,
    now: Time,
    sent: Vec<MessageHeader>,
    replies: Vec<(u64, Outcome)>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            client: TransactionClient::new(TransactionClientOptions::new(SERVER, 1)),
            now: Time::ZERO,
            sent: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// With a session and nothing under way.
    fn welcomed() -> Bench {
        let mut bench = Bench::new();
        bench.request(0);
        bench.welcome(Code::Committed, 4);
        bench.committed(1);
        bench.sent.clear();
        bench.replies.clear();
        bench
    }

    fn take(&mut self, out: Vec<Output<Outcome>>) {
        self.client.check_invariants();
        for output in out {
            match output {
                Output::Send { to, message } => {
                    assert_eq!(to, SERVER);
                    self.sent.push(MessageHeader::decode(&message).unwrap());
                }
                Output::Reply(ticket, outcome) => self.replies.push((ticket.0, outcome)),
                other => panic!("{other:?}"),
            }
        }
    }

    fn turn(&mut self, input: Input<Transaction>) {
        let mut out = Vec::new();
        self.client.turn(self.now, input, &mut out);
        self.take(out);
    }

    fn request(&mut self, ticket: u64) {
        let mut transaction = Transaction::new();
        transaction.write(b"a", b"1").unwrap();
        self.turn(Input::Request(Ticket(ticket), transaction));
    }

    fn message(&mut self, bytes: Vec<u8>) {
        let from = SERVER;
        self.turn(Input::Message { from, bytes });
    }

    fn welcome(&mut self, code: Code, window: u16) {
        let hello = self.sent.last().unwrap();
        assert_eq!(hello.kind, MessageKind::Hello);
        let welcome = MessageHeader {
            kind: MessageKind::Welcome,
            code: code as u8,
            count: window,
            detail: 1,
            first: hello.first,
            second: SESSION,
        };
        self.message(welcome.encode().to_vec());
    }

    fn reply(&mut self, code: Code, session: u64, request: u64) {
        self.message(reply(code, session, request));
    }

    fn committed(&mut self, request: u64) {
        self.reply(Code::Committed, SESSION, request);
    }

    /// Lets time pass until the client wants to be woken.
    fn wait(&mut self) {
        self.now = self.client.wake_at().expect("something to wait for");
        self.turn(Input::Wake);
    }

    /// Lets time pass until there is an outcome; requests are repeated meanwhile.
    fn wait_for_outcome(&mut self) {
        while self.replies.is_empty() {
            self.wait();
        }
    }

    fn outcomes(&mut self) -> Vec<(u64, Outcome)> {
        std::mem::take(&mut self.replies)
    }
}

fn reply(code: Code, session: u64, request: u64) -> Vec<u8> {
    let is_committed = code == Code::Committed;
    let header = MessageHeader {
        kind: MessageKind::Reply,
        code: code as u8,
        count: u16::from(is_committed),
        detail: 0,
        first: session,
        second: request,
    };
    let mut bytes = header.encode().to_vec();
    if is_committed {
        bytes.push(3);
    }
    bytes
}

fn unknown(ticket: u64, doubt: Doubt) -> (u64, Outcome) {
    (ticket, Outcome::Unknown(doubt))
}

fn failed(ticket: u64, failure: Failure) -> (u64, Outcome) {
    (ticket, Outcome::Failed(failure))
}

#[test]
fn a_request_gets_a_session_first_and_then_its_answer() {
    let mut bench = Bench::new();
    assert_eq!(bench.client.wake_at(), None);
    bench.request(8);
    bench.request(9);
    assert_eq!(bench.sent.len(), 1, "one hello for both");
    bench.welcome(Code::Committed, 128);
    let ids: Vec<(u64, u64)> = bench.sent[1..]
        .iter()
        .map(|request| (request.first, request.second))
        .collect();
    assert_eq!(ids, [(SESSION, 1), (SESSION, 2)]);
    bench.committed(2);
    bench.committed(2);
    bench.reply(Code::CompareFailed, SESSION, 1);
    let outcomes = bench.outcomes();
    assert_eq!(outcomes.len(), 2, "a copy of an answer is ignored");
    let (9, Outcome::Ok(answers)) = &outcomes[0] else {
        panic!("{outcomes:?}")
    };
    assert!(answers.iter().eq([Answer::Done]));
    assert_eq!(
        outcomes[1],
        failed(8, Failure::CompareFailed { operation: 0 })
    );
    assert_eq!(bench.client.pending(), 0);
    bench.sent.clear();
    bench.wait();
    assert_eq!(bench.client.wake_at(), None);
    assert!(bench.sent.is_empty(), "what has a reply is not sent again");
}

#[test]
fn a_request_without_a_reply_goes_to_the_next_server_with_its_id() {
    let mut bench = Bench::welcomed();
    bench.client.options.servers = vec![SERVER, NodeId::server(2), NodeId::server(3)];
    let mut out = Vec::new();
    let mut transaction = Transaction::new();
    transaction.read(b"key").unwrap();
    let request = Input::Request(Ticket(1), transaction);
    bench.client.turn(bench.now, request, &mut out);
    for _ in 0..4 {
        let due = bench.client.wake_at().unwrap();
        bench.client.turn(due, Input::Wake, &mut out);
    }
    let mut sent = Vec::new();
    for output in out {
        let Output::Send { to, message } = output else {
            panic!("{output:?}")
        };
        sent.push((to.number(), message));
    }
    let servers: Vec<u32> = sent.iter().map(|it| it.0).collect();
    assert_eq!(servers, [1, 2, 3, 1, 2]);
    assert!(sent.iter().all(|it| it.1 == sent[0].1), "the same request");
}

#[test]
fn a_hello_is_repeated_with_its_token_until_someone_answers() {
    let mut bench = Bench::new();
    bench.request(1);
    bench.wait();
    bench.welcome(Code::Overloaded, 0);
    bench.wait();
    let tokens: Vec<u64> = bench.sent.iter().map(|hello| hello.first).collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    for _ in 3..50 {
        bench.wait();
    }
    assert!(bench.outcomes().is_empty());
    bench.wait();
    assert_eq!(bench.outcomes(), [failed(1, Failure::NoSession)]);
    assert_eq!(
        bench.client.wake_at(),
        None,
        "no transaction waits for a session"
    );
    bench.request(2);
    bench.welcome(Code::WrongVersion, 0);
    assert_eq!(bench.outcomes(), [failed(2, Failure::WrongVersion)]);
    bench.request(3);
    assert_ne!(bench.sent.last().unwrap().first, tokens[0], "a new attempt");
}

#[test]
fn a_welcome_for_someone_else_is_ignored() {
    let mut bench = Bench::new();
    bench.request(1);
    let token = bench.sent[0].first;
    bench.sent[0].first = token ^ 1;
    bench.welcome(Code::Committed, 4);
    assert_eq!(bench.sent.len(), 1);
    bench.sent[0].first = token;
    bench.welcome(Code::Committed, 4);
    assert_eq!(bench.sent.len(), 2);
    // And a second welcome for the same hello changes nothing.
    bench.sent.truncate(1);
    bench.welcome(Code::Committed, 4);
    bench.committed(1);
    assert!(matches!(bench.outcomes()[..], [(1, Outcome::Ok(_))]));
}

#[test]
fn the_window_is_kept_also_over_time_outs() {
    let mut bench = Bench::welcomed();
    for ticket in 1..=6 {
        bench.request(ticket);
    }
    let ids = |bench: &Bench| -> Vec<u64> { bench.sent.iter().map(|it| it.second).collect() };
    assert_eq!(ids(&bench), [2, 3, 4, 5], "window of 4");
    bench.committed(4);
    assert_eq!(ids(&bench).len(), 4, "the oldest is still under way");
    bench.committed(2);
    assert_eq!(ids(&bench), [2, 3, 4, 5, 6]);
    bench.committed(3);
    assert_eq!(ids(&bench), [2, 3, 4, 5, 6, 7]);
    bench.outcomes();
    bench.wait_for_outcome();
    let late = [4, 5, 6].map(|ticket| unknown(ticket, Doubt::Timeout));
    assert_eq!(bench.outcomes(), late);
    bench.committed(5);
    assert!(bench.outcomes().is_empty(), "too late");
    bench.request(7);
    assert_eq!(bench.sent.last().unwrap().second, 8);
}

#[test]
fn a_lost_session_leaves_doubt_and_the_next_request_asks_for_another() {
    let mut bench = Bench::welcomed();
    for ticket in 1..=5 {
        bench.request(ticket);
    }
    bench.reply(Code::WrongSession, SESSION + 1, 2);
    assert!(bench.outcomes().is_empty(), "of a session long gone");
    bench.reply(Code::WrongSession, SESSION, 3);
    let lost = [1, 2, 3, 4].map(|ticket| unknown(ticket, Doubt::SessionLost));
    assert_eq!(bench.outcomes(), lost);
    bench.welcome(Code::Committed, 4);
    let last = bench.sent.last().unwrap();
    assert_eq!((last.kind, last.second), (MessageKind::Request, 1));
    bench.committed(1);
    assert!(matches!(bench.outcomes()[..], [(5, Outcome::Ok(_))]));
}

#[test]
fn a_closed_connection_leaves_doubt_and_stops_the_hellos() {
    let mut bench = Bench::welcomed();
    bench.request(1);
    let mut out = Vec::new();
    bench.client.connection_closed(&mut out);
    bench.take(out);
    assert_eq!(bench.outcomes(), [unknown(1, Doubt::ConnectionLost)]);
    bench.sent.clear();
    bench.request(2);
    bench.wait();
    assert!(bench.sent.is_empty(), "no hello without a connection");
    assert_eq!(bench.outcomes(), [failed(2, Failure::NoSession)]);
    bench.request(3);
    let mut out = Vec::new();
    bench.client.connection_opened(bench.now, &mut out);
    bench.take(out);
    bench.welcome(Code::Committed, 4);
    bench.committed(1);
    assert!(matches!(bench.outcomes()[..], [(3, Outcome::Ok(_))]));
}

#[test]
fn too_many_waiting_are_refused() {
    let mut bench = Bench::new();
    bench.client.options.waiting_max = 2;
    for ticket in 1..=3 {
        bench.request(ticket);
    }
    assert_eq!(bench.outcomes(), [failed(3, Failure::Busy)]);
    assert_eq!(bench.client.pending(), 2);
}

#[test]
fn an_unreadable_answer_leaves_the_request_to_its_time_out() {
    let mut bench = Bench::welcomed();
    bench.request(1);
    let mut bytes = reply(Code::Committed, SESSION, 2);
    bytes.push(0);
    bench.message(bytes);
    assert!(bench.outcomes().is_empty());
    bench.turn(Input::Message {
        from: NodeId::server(2),
        bytes: reply(Code::Committed, SESSION, 2),
    });
    assert!(bench.outcomes().is_empty(), "not from the server");
    bench.wait_for_outcome();
    assert_eq!(bench.outcomes(), [unknown(1, Doubt::Timeout)]);
}

/// Whatever comes, each request gets exactly one outcome.
#[test]
fn arbitrary_messages_never_panic_and_every_request_ends_once() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut bench = Bench::new();
        let mut requests = 0;
        for _ in 0..100 {
            if rng.chance(0.3) {
                bench.request(requests);
                requests += 1;
            }
            let mut bytes = match (rng.below(3), bench.sent.last()) {
                (0, Some(hello)) if hello.kind == MessageKind::Hello => {
                    bench.welcome(Code::Committed, rng.below(6) as u16);
                    continue;
                }
                (1, Some(request)) => reply(Code::Committed, request.first, request.second),
                _ => reply(Code::Overloaded, SESSION, rng.below(20)),
            };
            for _ in 0..rng.below(3) {
                let at = rng.index(bytes.len());
                bytes[at] = rng.word() as u8;
            }
            bytes.truncate(rng.index(bytes.len() * 3 + 1));
            bench.message(bytes);
            if rng.chance(0.1) {
                bench.now += Duration::from_millis(rng.below(3_000));
                bench.turn(Input::Wake);
            }
        }
        while bench.client.wake_at().is_some() {
            bench.wait();
        }
        let mut tickets: Vec<u64> = bench.outcomes().iter().map(|(ticket, _)| *ticket).collect();
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..requests), "seed {seed}");
    }
}
