//! A client's machine over a real connection, to a server that misbehaves.

use crate::wire::{PATIENCE, PROTOCOL, receive, send, welcome};
use seatrial_host::{ConnectOptions, Peer, Session, SessionOptions};
use seatrial_machine::{Input, Machine, NodeId, Output, Ticket, Time};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Asks the server for an echo of a number; gives up after 50 ms.
#[derive(Default)]
struct Caller {
    waiting: Option<(Ticket, u8, Time)>,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Echo,
    Late,
    Lost,
}

impl Machine for Caller {
    type Request = u8;
    type Reply = Answer;

    fn turn(&mut self, now: Time, input: Input<u8>, out: &mut Vec<Output<Answer>>) {
        match input {
            Input::Request(ticket, number) => {
                self.waiting = Some((ticket, number, now + Duration::from_millis(50)));
                let to = NodeId::server(1);
                let message = vec![number; 100];
                out.push(Output::Send { to, message });
            }
            Input::Message { bytes, .. } => {
                let is_mine = |(_, number, _): &mut (_, u8, _)| bytes == vec![*number; 100];
                let found = self.waiting.take_if(is_mine);
                out.extend(found.map(|(ticket, ..)| Output::Reply(ticket, Answer::Echo)));
            }
            Input::Wake => {
                let late = self.waiting.take_if(|(.., due)| *due <= now);
                out.extend(late.map(|(ticket, ..)| Output::Reply(ticket, Answer::Late)));
            }
            Input::Appended(_) | Input::FileDone(..) | Input::Computed(..) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.waiting.map(|(.., due)| due)
    }
}

impl Peer for Caller {
    fn connection_closed(&mut self, out: &mut Vec<Output<Answer>>) {
        let lost = self.waiting.take();
        out.extend(lost.map(|(ticket, ..)| Output::Reply(ticket, Answer::Lost)));
    }
}

/// A session with a server that does what `serve` says.
fn with_session<F: Future<Output = ()>>(
    serve: impl FnOnce(TcpStream) + Send + 'static,
    test: impl FnOnce(Session<Caller>) -> F,
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        welcome(&stream);
        serve(stream);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = SessionOptions {
            server: NodeId::server(1),
            connect: ConnectOptions::new(PROTOCOL, 100),
        };
        let session = Session::connect(address, Caller::default(), options);
        let session = session.await.unwrap();
        let test = tokio::time::timeout(PATIENCE, test(session));
        test.await.expect("the session hangs");
    });
    server.join().unwrap();
}

#[test]
fn an_answer_that_comes_in_pieces_around_a_time_out_does_not_confuse_the_next_one() {
    with_session(
        |mut stream| {
            let first = receive(&stream).unwrap();
            stream.write_all(&[100, 0, 0, 0]).unwrap();
            stream.write_all(&first[..30]).unwrap();
            // The second request says that the first was given up.
            let second = receive(&stream).unwrap();
            stream.write_all(&first[30..]).unwrap();
            send(&stream, &second);
            assert_eq!(receive(&stream).unwrap(), [3; 100]);
        },
        |mut session| async move {
            assert_eq!(session.request(1).await, Some(Answer::Late));
            assert_eq!(session.request(2).await, Some(Answer::Echo));
            assert!(session.is_connected());
            assert_eq!(session.request(3).await, Some(Answer::Lost));
            assert!(!session.is_connected());
        },
    );
}

#[test]
fn a_request_that_its_caller_gives_up_does_not_confuse_the_next_one() {
    with_session(
        |mut stream| {
            let first = receive(&stream).unwrap();
            stream.write_all(&[100, 0]).unwrap();
            let second = receive(&stream).unwrap();
            stream.write_all(&[0, 0]).unwrap();
            stream.write_all(&first).unwrap();
            send(&stream, &second);
        },
        |mut session| async move {
            let short = Duration::from_millis(20);
            let given_up = tokio::time::timeout(short, session.request(1)).await;
            assert!(given_up.is_err());
            assert_eq!(session.request(2).await, Some(Answer::Echo));
        },
    );
}

#[test]
fn a_server_that_claims_too_much_or_goes_away_is_lost() {
    for bytes in [&[101, 0, 0, 0][..], &[100, 0, 0, 0, 7], &[]] {
        with_session(
            move |mut stream| {
                receive(&stream).unwrap();
                stream.write_all(bytes).unwrap();
            },
            |mut session| async move {
                assert_eq!(session.request(1).await, Some(Answer::Lost));
                assert!(!session.is_connected());
            },
        );
    }
}
