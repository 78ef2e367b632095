//! A machine that copies every recording of a service into an archive of its own, live.

use crate::model::repair_holes;
use seatrial_archive::{Archive, Cursor, CursorBound, Origin, Position, RecordingId};
use seatrial_archive_service::{
    ArchiveAnswer, ArchiveClient, ArchiveOperation, ClientReply, ClientRequest, CopySource,
    CopyTarget, ListFilter, RecordingDescription, ReplayBound, ReplayFrom, ReplayHandle,
    ReplayRequest, ServiceBug,
};
use seatrial_machine::{Input, Machine, Output, Peer, Storage, Ticket, Time};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FOLDER: &str = "copies";
/// Interval of queries for new recordings.
const LIST_INTERVAL: Duration = Duration::from_millis(100);

/// The purpose of a request.
enum Asked {
    List,
    Play(u64),
    Piece(ReplayHandle),
}

/// The destination: its archive, and a client of the source.
pub(crate) struct Copier {
    client: ArchiveClient,
    storage: Arc<dyn Storage>,
    archive: Archive,
    epoch: u64,
    bug: Option<ServiceBug>,
    /// By recording of the source.
    targets: BTreeMap<u64, CopyTarget>,
    plays: BTreeMap<ReplayHandle, u64>,
    asked: BTreeMap<Ticket, Asked>,
    tickets: u64,
    list_at: Time,
    is_listing: bool,
    /// The first error.
    pub(crate) error: Option<String>,
}

impl Copier {
    pub(crate) fn boot(
        storage: Arc<dyn Storage>,
        client: ArchiveClient,
        epoch: u64,
        bug: Option<ServiceBug>,
    ) -> Result<Copier, String> {
        let opened = Archive::open(storage.clone(), Path::new(FOLDER), epoch);
        let (mut archive, recovered) = opened.map_err(|error| error.to_string())?;
        repair_holes(&mut archive, recovered)?;
        Ok(Copier {
            client,
            storage,
            archive,
            epoch,
            bug,
            targets: BTreeMap::new(),
            plays: BTreeMap::new(),
            asked: BTreeMap::new(),
            tickets: 0,
            list_at: Time::ZERO,
            is_listing: false,
            error: None,
        })
    }

    /// The end of the copy of a recording.
    pub(crate) fn end(&self, recording: u64) -> Option<u64> {
        Some(self.targets.get(&recording)?.end().0)
    }

    /// Position and contents of every message of a copy.
    pub(crate) fn read(&self, recording: u64) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let id = self.targets.get(&recording).map(CopyTarget::recording);
        let id = id.unwrap_or(RecordingId(0));
        let folder = Path::new(FOLDER);
        let cursor = Cursor::open(
            self.storage.clone(),
            folder,
            id,
            Origin::Start,
            CursorBound::Follow,
        );
        let mut cursor = cursor.map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        while let Some(block) = cursor.next_block().map_err(|error| error.to_string())? {
            for message in block.messages() {
                found.push((message.position.0, message.payload.to_vec()));
            }
        }
        Ok(found)
    }

    fn ask(
        &mut self,
        now: Time,
        request: ClientRequest,
        asked: Asked,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asked.insert(ticket, asked);
        self.client.turn(now, Input::Request(ticket, request), out);
    }

    /// Executes the outputs of the client until there are none.
    fn settle(
        &mut self,
        now: Time,
        mut todo: Vec<Output<ClientReply>>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
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
        todo: &mut Vec<Output<ClientReply>>,
    ) -> Result<(), String> {
        match (asked, reply) {
            (Asked::List, ClientReply::Answer(ArchiveAnswer::List { recordings, .. })) => {
                self.is_listing = false;
                self.list_at = now + LIST_INTERVAL;
                for found in recordings {
                    self.begin(now, &found, todo)?;
                }
            }
            (Asked::Play(recording), ClientReply::Playing(handle)) => {
                self.plays.insert(handle, recording);
                self.ask(now, ClientRequest::Next(handle), Asked::Piece(handle), todo);
            }
            (Asked::Piece(handle), ClientReply::Piece(piece)) => {
                let clock = self.epoch + now.nanoseconds();
                let recording = self.plays.get(&handle);
                if let Some(target) = recording.and_then(|it| self.targets.get_mut(it)) {
                    for block in piece.blocks() {
                        let copied = target.append(Position(block.position), block.bytes, clock);
                        copied.map_err(|error| error.to_string())?;
                    }
                }
                self.ask(now, ClientRequest::Next(handle), Asked::Piece(handle), todo);
            }
            (_, reply) => return Err(format!("the copier was answered {reply:?}")),
        }
        Ok(())
    }

    fn begin(
        &mut self,
        now: Time,
        found: &RecordingDescription,
        todo: &mut Vec<Output<ClientReply>>,
    ) -> Result<(), String> {
        if self.targets.contains_key(&found.recording) {
            return Ok(());
        }
        let target = CopyTarget::begin(
            self.storage.clone(),
            Path::new(FOLDER),
            &mut self.archive,
            &CopySource::remote("source", found),
            self.epoch + now.nanoseconds(),
        );
        let mut target = target.map_err(|error| error.to_string())?;
        if let Some(bug) = self.bug {
            target.plant(bug);
        }
        let request = ReplayRequest {
            recording: found.recording,
            from: ReplayFrom::Position(target.from().0),
            bound: ReplayBound::Follow,
            window_bytes: 4 << 10,
            is_eager: false,
        };
        self.targets.insert(found.recording, target);
        let asked = Asked::Play(found.recording);
        self.ask(now, ClientRequest::Play(request), asked, todo);
        Ok(())
    }
}

impl Peer for Copier {
    fn connection_closed(&mut self, out: &mut Vec<Output<ClientReply>>) {
        self.client.connection_closed(out);
    }

    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        let mut todo = Vec::new();
        self.client.connection_opened(now, &mut todo);
        self.settle(now, todo, out);
    }
}

impl Machine for Copier {
    type Request = ClientRequest;
    type Reply = ClientReply;

    fn turn(&mut self, now: Time, input: Input<ClientRequest>, out: &mut Vec<Output<ClientReply>>) {
        let mut todo = Vec::new();
        self.client.turn(now, input, &mut todo);
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
        let clock = self.epoch + now.nanoseconds();
        for target in self.targets.values_mut() {
            let ticked = target.tick(clock).map_err(|error| error.to_string());
            self.error = self.error.take().or(ticked.err());
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let list = (!self.is_listing).then_some(self.list_at);
        [self.client.wake_at(), list].into_iter().flatten().min()
    }

    fn check_invariants(&self) {
        self.client.check_invariants();
    }
}
