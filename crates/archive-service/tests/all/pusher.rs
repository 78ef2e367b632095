//! A machine that copies every recording of one service into another one, live: it holds nothing itself.

use seatrial_archive::{RecordingId, Source};
use seatrial_archive_service::{
    ArchiveAnswer, ArchiveClient, ArchiveOperation, BlockBatch, Claimed, ClientReply,
    ClientRequest, CopyRequest, ListFilter, RecordingDescription, RefusalCode, ReplayBound,
    ReplayFrom, ReplayHandle, ReplayRequest,
};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval of queries for new recordings.
const LIST_INTERVAL: Duration = Duration::from_millis(100);

/// The purpose of a request; recordings are those of the source.
enum Asked {
    List,
    Claim(RecordingDescription),
    Describe(RecordingDescription, Claimed),
    Play(u64),
    Piece(ReplayHandle),
    Copied(ReplayHandle),
}

/// Between two services: a client of each.
pub(crate) struct Pusher {
    source: ArchiveClient,
    destination: ArchiveClient,
    /// The destination, as messages name it.
    there: NodeId,
    /// The copy of each recording of the source; 0 while it is being claimed.
    copies: BTreeMap<u64, u64>,
    plays: BTreeMap<ReplayHandle, u64>,
    asked: BTreeMap<Ticket, Asked>,
    tickets: u64,
    list_at: Time,
    is_listing: bool,
    /// The first error.
    pub(crate) error: Option<String>,
}

type Out = Vec<Output<ClientReply>>;

/// Asks for what a recording has and its copy has not, the copy's last message included.
fn missing(
    found: &RecordingDescription,
    claimed: &Claimed,
    copy: &RecordingDescription,
) -> ReplayRequest {
    let has_any = claimed.next_message > copy.start.message;
    ReplayRequest {
        recording: found.recording,
        from: if has_any {
            ReplayFrom::Message(claimed.next_message - 1)
        } else {
            ReplayFrom::Position(claimed.position)
        },
        bound: ReplayBound::Follow,
        window_bytes: 4 << 10,
        is_eager: false,
    }
}

impl Pusher {
    pub(crate) fn new(source: ArchiveClient, destination: ArchiveClient, there: NodeId) -> Pusher {
        Pusher {
            source,
            destination,
            there,
            copies: BTreeMap::new(),
            plays: BTreeMap::new(),
            asked: BTreeMap::new(),
            tickets: 0,
            list_at: Time::ZERO,
            is_listing: false,
            error: None,
        }
    }

    /// The number of the copy of a recording.
    pub(crate) fn copy(&self, recording: u64) -> Option<RecordingId> {
        let copy = self.copies.get(&recording).filter(|copy| **copy != 0)?;
        Some(RecordingId(*copy))
    }

    fn ask(&mut self, now: Time, request: ClientRequest, asked: Asked, out: &mut Out) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let client = match asked {
            Asked::Claim(_) | Asked::Describe(..) | Asked::Copied(_) => &mut self.destination,
            Asked::List | Asked::Play(_) | Asked::Piece(_) => &mut self.source,
        };
        self.asked.insert(ticket, asked);
        client.turn(now, Input::Request(ticket, request), out);
    }

    fn settle(&mut self, now: Time, mut todo: Out, out: &mut Out) {
        while !todo.is_empty() {
            for output in std::mem::take(&mut todo) {
                match output {
                    Output::Reply(ticket, reply) => {
                        let asked = self.asked.remove(&ticket);
                        let done = asked.map_or(Ok(()), |it| self.reply(now, it, reply, &mut todo));
                        self.error = self.error.take().or(done.err());
                    }
                    other => out.push(other),
                }
            }
        }
    }

    fn reply(
        &mut self,
        now: Time,
        asked: Asked,
        reply: ClientReply,
        out: &mut Out,
    ) -> Result<(), String> {
        match (asked, reply) {
            (Asked::List, ClientReply::Answer(ArchiveAnswer::List { recordings, .. })) => {
                self.is_listing = false;
                self.list_at = now + LIST_INTERVAL;
                for found in recordings {
                    self.begin(now, found, out);
                }
            }
            (Asked::Claim(found), ClientReply::Answer(ArchiveAnswer::Claimed(claimed))) => {
                let recording = claimed.recording;
                let request = ClientRequest::Ask(ArchiveOperation::Describe { recording });
                self.ask(now, request, Asked::Describe(found, claimed), out);
            }
            // A former life of this machine still holds the claim: try again.
            (Asked::Claim(found), ClientReply::Refused(refusal))
                if matches!(
                    refusal.code,
                    RefusalCode::Recording | RefusalCode::Overloaded
                ) =>
            {
                self.copies.remove(&found.recording);
            }
            (
                Asked::Describe(found, claimed),
                ClientReply::Answer(ArchiveAnswer::Description(copy)),
            ) => {
                self.copies.insert(found.recording, claimed.recording);
                let request = missing(&found, &claimed, &copy);
                let asked = Asked::Play(found.recording);
                self.ask(now, ClientRequest::Play(request), asked, out);
            }
            (Asked::Play(recording), ClientReply::Playing(handle)) => {
                self.plays.insert(handle, recording);
                self.ask(now, ClientRequest::Next(handle), Asked::Piece(handle), out);
            }
            (Asked::Piece(handle), ClientReply::Piece(piece)) => {
                let mut batch = BlockBatch::new();
                for block in piece.blocks() {
                    let pushed = batch.push(block.position, block.bytes);
                    pushed.map_err(|refusal| refusal.to_string())?;
                }
                let recording = self.plays.get(&handle).and_then(|it| self.copy(*it));
                let recording = recording.ok_or("a piece of an unknown replay")?.0;
                let request = ClientRequest::Copy { recording, batch };
                self.ask(now, request, Asked::Copied(handle), out);
            }
            (Asked::Copied(handle), ClientReply::Recorded(_)) => {
                self.ask(now, ClientRequest::Next(handle), Asked::Piece(handle), out);
            }
            (_, reply) => return Err(format!("the pusher was answered {reply:?}")),
        }
        Ok(())
    }

    fn begin(&mut self, now: Time, found: RecordingDescription, out: &mut Out) {
        if self.copies.contains_key(&found.recording) {
            return;
        }
        self.copies.insert(found.recording, 0);
        let request = CopyRequest {
            source: Source {
                archive: "source".to_owned(),
                recording: RecordingId(found.recording),
            },
            label: found.label.clone(),
            segment_length: found.segment_length,
            durability: found.durability,
            start: found.start,
        };
        let request = ClientRequest::Ask(ArchiveOperation::Copy(request));
        self.ask(now, request, Asked::Claim(found), out);
    }
}

impl Peer for Pusher {
    fn connection_closed(&mut self, out: &mut Out) {
        self.source.connection_closed(out);
        self.destination.connection_closed(out);
    }

    fn connection_opened(&mut self, now: Time, out: &mut Out) {
        let mut todo = Vec::new();
        self.source.connection_opened(now, &mut todo);
        self.destination.connection_opened(now, &mut todo);
        self.settle(now, todo, out);
    }
}

impl Machine for Pusher {
    type Request = ClientRequest;
    type Reply = ClientReply;

    fn turn(&mut self, now: Time, input: Input<ClientRequest>, out: &mut Out) {
        let mut todo = Vec::new();
        match input {
            Input::Message { from, bytes } if from == self.there => {
                let input = Input::Message { from, bytes };
                self.destination.turn(now, input, &mut todo);
            }
            Input::Wake => {
                self.source.turn(now, Input::Wake, &mut todo);
                self.destination.turn(now, Input::Wake, &mut todo);
            }
            other => self.source.turn(now, other, &mut todo),
        }
        self.settle(now, todo, out);
        if self.list_at <= now && !self.is_listing {
            self.is_listing = true;
            let list = ArchiveOperation::List {
                after: 0,
                count_max: 100,
                filter: ListFilter::default(),
            };
            let mut todo = Vec::new();
            self.ask(now, ClientRequest::Ask(list), Asked::List, &mut todo);
            self.settle(now, todo, out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let list = (!self.is_listing).then_some(self.list_at);
        let clients = [self.source.wake_at(), self.destination.wake_at()];
        clients.into_iter().flatten().chain(list).min()
    }

    fn check_invariants(&self) {
        self.source.check_invariants();
        self.destination.check_invariants();
    }
}
