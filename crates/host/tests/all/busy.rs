//! A machine that begins more jobs than the host has threads for.

use crate::wire::{PATIENCE, PROTOCOL, open, receive, send};
use seatrial_host::{HostLimits, ListenOptions, PeerOptions, serve_machine};
use seatrial_machine::{Computed, Input, Job, Machine, NodeId, Output, Ticket, Time, WORK_MAX};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// Messages of the test.
const COUNT: u64 = 5_000;

/// Begins a job for each message; answers the last one with the most jobs that were under way.
#[derive(Default)]
struct Busy {
    under_way: u64,
    most: u64,
    done: u64,
    asker: Option<NodeId>,
}

struct Nap;

impl Job for Nap {
    fn run(self: Box<Self>) -> Computed {
        thread::sleep(Duration::from_micros(200));
        Box::new(())
    }
}

impl Machine for Busy {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { from, .. } => {
                out.push(Output::Admit(from));
                self.asker = Some(from);
                self.under_way += 1;
                self.most = self.most.max(self.under_way);
                out.push(Output::Compute(Box::new(Nap), Ticket(self.done)));
            }
            Input::Computed(..) => {
                self.under_way -= 1;
                self.done += 1;
                if self.done == COUNT
                    && let Some(to) = self.asker
                {
                    let message = self.most.to_le_bytes().to_vec();
                    out.push(Output::Send { to, message });
                }
            }
            Input::Request(ticket, ()) => out.push(Output::Reply(ticket, ())),
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

#[test]
fn a_machine_with_too_much_under_way_is_given_no_more_messages() {
    let options = ListenOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        message_length_max: 64,
        limits: HostLimits::default(),
        protocol: PROTOCOL,
        http: None,
        tls: None,
        key: None,
        peers: PeerOptions::default(),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = mpsc::channel();
    let server = thread::spawn(move || {
        let ready = move |address| ready.send(address).unwrap();
        let stopped = async {
            let _ = stopped.await; // a test that failed drops the other end
        };
        serve_machine(options, Busy::default(), (), ready, stopped).unwrap();
    });
    let stream = TcpStream::connect(address.recv_timeout(PATIENCE).unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    open(&stream, None).unwrap();
    for _ in 0..COUNT {
        send(&stream, b"more");
    }
    let most = u64::from_le_bytes(receive(&stream).unwrap().try_into().unwrap());
    // One batch of turns may pass the bound.
    let bound = WORK_MAX as u64;
    assert!(
        (bound..bound + 256).contains(&most),
        "{most} jobs under way"
    );
    stop.send(()).unwrap();
    server.join().unwrap();
}
