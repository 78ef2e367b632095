//! A volume in memory that handles the requests of guests, served over NBD; the plainest twin of the replicated one.

use seatrial_host::{GuestOptions, PeerOptions, Protocol, serve_guest};
use seatrial_machine::{Input, Machine, Output, Ticket, Time};
use seatrial_nbd::NbdExport;
use seatrial_volume::{BlockSpan, GuestError, GuestReply, GuestRequest};
use seatrial_volume_suite::{NbdAddress, NbdLimits, NbdServer, NbdSocket, VolumeCalls};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longer than anything here takes, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Blocks that were written. Replies to every third request are late, so that replies overtake each other.
pub(crate) struct MemoryVolume {
    block_length: usize,
    blocks: BTreeMap<u64, Vec<u8>>,
    late: Vec<(Ticket, GuestReply)>,
    wake: Option<Time>,
    count: u64,
}

impl MemoryVolume {
    fn handle(&mut self, request: GuestRequest) -> GuestReply {
        match request {
            GuestRequest::Read(span) => {
                let zeros = vec![0; self.block_length];
                let mut bytes = Vec::with_capacity(span.count as usize * self.block_length);
                for block in span.blocks() {
                    bytes.extend_from_slice(self.blocks.get(&block.0).unwrap_or(&zeros));
                }
                GuestReply::Bytes(bytes)
            }
            GuestRequest::Write { first, bytes, .. } => {
                let blocks = bytes.chunks(self.block_length);
                let numbered = (first.0..).zip(blocks.map(<[u8]>::to_vec));
                self.blocks.extend(numbered);
                GuestReply::Done
            }
            GuestRequest::Trim { range, .. } => {
                for block in range.blocks() {
                    self.blocks.remove(&block.0);
                }
                GuestReply::Done
            }
            GuestRequest::Extents(span) => self.extents(span),
            GuestRequest::Flush | GuestRequest::Deactivate => GuestReply::Done,
            _ => GuestReply::Failed(GuestError::Refused("not here".into())),
        }
    }

    fn extents(&self, span: BlockSpan) -> GuestReply {
        let mut runs: Vec<(u32, bool)> = Vec::new();
        for block in span.blocks() {
            let has_data = self.blocks.contains_key(&block.0);
            match runs.last_mut() {
                Some((count, is_same)) if *is_same == has_data => *count += 1,
                _ => runs.push((1, has_data)),
            }
        }
        GuestReply::Extents(runs)
    }
}

impl Machine for MemoryVolume {
    type Request = GuestRequest;
    type Reply = GuestReply;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Vec<Output<GuestReply>>) {
        if let Input::Request(ticket, request) = input {
            let reply = self.handle(request);
            self.count += 1;
            if self.count.is_multiple_of(3) {
                self.late.push((ticket, reply));
                self.wake.get_or_insert(now + Duration::from_micros(100));
            } else {
                out.push(Output::Reply(ticket, reply));
            }
        }
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            let late = self.late.drain(..);
            out.extend(late.map(|(ticket, reply)| Output::Reply(ticket, reply)));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake
    }
}

/// A served volume, on a thread of its own.
pub(crate) struct ServedVolume {
    pub(crate) address: NbdAddress,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The export of a volume of this length.
pub(crate) fn export(bytes: u64) -> NbdExport {
    NbdExport {
        name: "memory".into(),
        description: "a volume in memory".into(),
        bytes,
        block_length: 4_096,
        is_read_only: false,
        snapshot: None,
    }
}

impl ServedVolume {
    /// Serves an empty volume.
    pub(crate) fn start(export: NbdExport, address: NbdAddress, limits: NbdLimits) -> ServedVolume {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, bound) = mpsc::channel();
        let thread = thread::spawn(move || {
            let (calls, callers) = VolumeCalls::new::<MemoryVolume>();
            let machine = MemoryVolume {
                block_length: export.block_length as usize,
                blocks: BTreeMap::new(),
                late: Vec::new(),
                wake: None,
                count: 0,
            };
            let options = GuestOptions {
                message_length_max: 1,
                protocol: PROTOCOL,
                key: None,
                peers: PeerOptions::default(),
                http: None,
                tls: None,
            };
            let serve = move || {
                let server = NbdServer::new(export, limits, calls);
                tokio::spawn(async move {
                    let socket = NbdSocket::bind(&address).await.unwrap();
                    ready.send(socket.address().clone()).unwrap();
                    server.run(socket).await;
                });
            };
            let stop = async {
                let _ = stopped.await; // a test that failed drops the other end
            };
            serve_guest(
                options,
                machine,
                GuestRequest::Deactivate,
                callers,
                serve,
                stop,
            )
            .unwrap();
        });
        let address = bound.recv_timeout(PATIENCE).unwrap();
        ServedVolume {
            address,
            stop,
            thread,
        }
    }

    /// Serves an empty volume on a TCP port.
    pub(crate) fn on_tcp(bytes: u64) -> ServedVolume {
        let address = NbdAddress::parse("127.0.0.1:0").unwrap();
        ServedVolume::start(export(bytes), address, NbdLimits::default())
    }

    pub(crate) fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

const PROTOCOL: Protocol = Protocol {
    name: "none",
    version: 1,
    refuse_old: |_| None,
};
