//! A service and its clients in the simulated world, under faults drawn by swarm.

use crate::copier::Copier;
use crate::ledger::Ledger;
use crate::model::repair_holes;
use crate::pusher::Pusher;
use seatrial_archive::{Archive, Cursor, CursorBound, Durability, Origin};
use seatrial_archive_service::{
    ArchiveAnswer, ArchiveClient, ArchiveClientOptions, ArchiveOperation, ArchiveService,
    BatchPlace, ClientReply, ClientRequest, FrameBatch, Health, ReplayBound, ReplayEnd, ReplayFrom,
    ReplayHandle, ReplayRequest, ServiceBug, ServiceLimits, ServiceOptions,
};
use seatrial_farm::least;
use seatrial_machine::{
    DataFolder, Fault, FaultKind, Input, Link, Machine, NodeId, Output, Peer, Rng, Storage, Ticket,
    Time,
};
use seatrial_sim::{Booted, MemoryStorage, World, WorldOptions, explore};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SERVER: NodeId = NodeId::server(1);
/// The destination of all copies.
const COPIER: NodeId = NodeId::server(2);
/// Source and destination of pushes, in every other run.
const DESTINATION: NodeId = NodeId::server(3);
const PUSHER: NodeId = NodeId::server(4);
/// Recording clients, and recordings of each.
const RECORDERS: u32 = 2;
const RECORDINGS: usize = 2;
/// Replaying clients, each of all recordings; the last one is slow.
const TAILS: u32 = 2;
/// Batches in flight for each recording.
const PIPELINE: usize = 4;
/// Batches of one run.
const BATCHES: u64 = 150;
const WINDOW: u32 = 4 << 10;
/// Exceeds every message that starts within a window.
const BURST: u32 = 12 << 10;

/// A machine of this world.
enum ArchiveMachine {
    Service(Box<ArchiveService>),
    Client(Box<ArchiveClient>),
    Copier(Box<Copier>),
    Pusher(Box<Pusher>),
}

impl Machine for ArchiveMachine {
    type Request = ClientRequest;
    type Reply = ClientReply;

    fn turn(&mut self, now: Time, input: Input<ClientRequest>, out: &mut Vec<Output<ClientReply>>) {
        match self {
            ArchiveMachine::Client(client) => client.turn(now, input, out),
            ArchiveMachine::Copier(copier) => copier.turn(now, input, out),
            ArchiveMachine::Pusher(pusher) => pusher.turn(now, input, out),
            ArchiveMachine::Service(service) => {
                let input = match input {
                    Input::Wake => Input::Wake,
                    Input::Message { from, bytes } => Input::Message { from, bytes },
                    Input::Computed(ticket, result) => Input::Computed(ticket, result),
                    Input::Appended(ticket) => Input::Appended(ticket),
                    Input::FileDone(..) | Input::Request(..) => return,
                };
                let mut outputs = Vec::new();
                service.turn(now, input, &mut outputs);
                out.extend(outputs.into_iter().filter_map(|output| match output {
                    Output::Send { to, message } => Some(Output::Send { to, message }),
                    Output::Compute(job, ticket) => Some(Output::Compute(job, ticket)),
                    _ => None,
                }));
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            ArchiveMachine::Service(service) => service.wake_at(),
            ArchiveMachine::Client(client) => client.wake_at(),
            ArchiveMachine::Copier(copier) => copier.wake_at(),
            ArchiveMachine::Pusher(pusher) => pusher.wake_at(),
        }
    }

    fn check_invariants(&self) {
        match self {
            ArchiveMachine::Service(service) => service.check_invariants(),
            ArchiveMachine::Client(client) => client.check_invariants(),
            ArchiveMachine::Copier(copier) => copier.check_invariants(),
            ArchiveMachine::Pusher(pusher) => pusher.check_invariants(),
        }
    }
}

/// Reports a lost connection to a client, and a new one at once.
fn closed(node: &mut ArchiveMachine, now: Time, _: NodeId, out: &mut Vec<Output<ClientReply>>) {
    match node {
        ArchiveMachine::Client(client) => {
            client.connection_closed(out);
            client.connection_opened(now, out);
        }
        ArchiveMachine::Copier(copier) => {
            copier.connection_closed(out);
            copier.connection_opened(now, out);
        }
        ArchiveMachine::Pusher(pusher) => {
            pusher.connection_closed(out);
            pusher.connection_opened(now, out);
        }
        ArchiveMachine::Service(_) => {}
    }
}

fn limits() -> ServiceLimits {
    ServiceLimits {
        record_window_bytes: 4 << 10,
        replay_window_bytes_min: 1 << 10,
        replay_window_bytes_max: WINDOW,
        data_bytes: 1 << 10,
        data_bytes_min: 512,
        replay_bytes_max: 6 << 10,
        record_bytes_max: 6 << 10,
        reads_max: 2,
        session_timeout: Duration::from_secs(2),
        ..ServiceLimits::default()
    }
}

/// Starts the service.
fn serve(
    storage: Arc<dyn Storage>,
    epoch: u64,
    seed: u64,
    bug: Option<ServiceBug>,
) -> Result<ArchiveService, String> {
    let options = ServiceOptions {
        limits: limits(),
        seed,
        bug,
        ..ServiceOptions::new(epoch)
    };
    // The repair that an operator makes after a power failure.
    let folder = Path::new("archive");
    let opened = Archive::open(Arc::clone(&storage), folder, epoch);
    let (mut archive, recovered) = opened.map_err(|error| error.to_string())?;
    repair_holes(&mut archive, recovered)?;
    drop(archive);
    let opened = ArchiveService::open(storage, folder, options);
    let (service, recovered) = opened.map_err(|error| error.to_string())?;
    if let Some((_, problem)) = recovered.problems.first() {
        return Err(problem.to_string());
    }
    Ok(service)
}

/// Starts a node; each life has its own seed.
fn boot(
    seed: u64,
    bug: Option<ServiceBug>,
) -> impl FnMut(NodeId, &DataFolder) -> Result<Booted<ArchiveMachine>, String> {
    let mut seeds = Rng::from_seed(seed).fork("lives");
    let mut lives: BTreeMap<NodeId, u64> = BTreeMap::new();
    move |id, data| {
        let options = ArchiveClientOptions {
            retry_interval: Duration::from_millis(50),
            request_timeout: Duration::from_mins(10),
            ..ArchiveClientOptions::new(SERVER, seeds.word())
        };
        let machine = if id.is_client() {
            ArchiveMachine::Client(Box::new(ArchiveClient::new(options)))
        } else if id == PUSHER {
            let destination_options = ArchiveClientOptions {
                server: DESTINATION,
                seed: seeds.word(),
                ..options.clone()
            };
            let (source, destination) = (
                ArchiveClient::new(options),
                ArchiveClient::new(destination_options),
            );
            ArchiveMachine::Pusher(Box::new(Pusher::new(source, destination, DESTINATION)))
        } else {
            let storage = Arc::clone(data.storage());
            let life = lives.entry(id).or_default();
            *life += 1;
            let epoch = 1_000_000_000 * (1 + *life);
            if id == COPIER {
                let copier = Copier::boot(storage, ArchiveClient::new(options), epoch, bug)?;
                ArchiveMachine::Copier(Box::new(copier))
            } else {
                ArchiveMachine::Service(Box::new(serve(storage, epoch, seeds.word(), bug)?))
            }
        };
        Ok(Booted::new(machine))
    }
}

/// A request of a caller without a reply.
enum PendingRequest {
    Claim(usize),
    Batch(u64, Vec<Vec<u8>>),
    Play(u64),
    Piece(ReplayHandle, u64),
    Health,
}

/// A recording on the side of its recorder.
#[derive(Clone, Copy, Default)]
struct RecordingSlot {
    recording: Option<u64>,
    is_requested: bool,
    in_flight: usize,
}

/// One run: its world, the requests in flight, and the observed messages.
struct Run {
    world: World<ArchiveMachine>,
    rng: Rng,
    ledger: Ledger,
    pending: BTreeMap<Ticket, (NodeId, PendingRequest)>,
    tickets: u64,
    slots: BTreeMap<NodeId, [RecordingSlot; RECORDINGS]>,
    /// Replays by client and number in the ledger, with their handles once known.
    tails: BTreeMap<(NodeId, u64), Option<ReplayHandle>>,
    /// Those of `tails` that end where the recording ends when they are asked for.
    ending: Vec<(NodeId, u64)>,
    durability: Durability,
    /// Is everything pushed to a second service?
    is_pushed: bool,
    batches: u64,
    kinds: Vec<FaultKind>,
    is_broken: bool,
    is_ending: bool,
    kills: u64,
    /// Completed replays, by their number in the ledger.
    complete: Vec<u64>,
    plays: u64,
    /// The last health report of the service.
    health: Option<Health>,
}

impl Run {
    fn new(seed: u64, bug: Option<ServiceBug>) -> Run {
        let mut rng = Rng::from_seed(seed).fork("run");
        let mut options = WorldOptions::swarm(&mut rng, &FaultKind::ALL);
        let mut kinds = vec![FaultKind::Kill];
        let others = [FaultKind::Pause, FaultKind::Partition, FaultKind::Clock];
        kinds.extend(others.into_iter().filter(|_| rng.chance(0.5)));
        let durability = match rng.below(4) {
            0 => Durability::None,
            1 => Durability::Batch,
            _ => Durability::Group {
                milliseconds: 1 << rng.below(8),
                bytes: 1 << (8 + rng.below(8)),
            },
        };
        // Without syncs, only the page cache of a killed process survives.
        if durability == Durability::None {
            options.disk.kill_keeps_all = 1.0;
        }
        let is_pushed = seed % 2 == 1;
        let mut world = World::new(seed, options, boot(seed, bug));
        world.notify_closed(closed);
        world.add(SERVER);
        world.add(COPIER);
        if is_pushed {
            world.add(DESTINATION);
            world.add(PUSHER);
        }
        let mut slots = BTreeMap::new();
        for number in 0..RECORDERS + TAILS {
            world.add(NodeId::client(number));
            if number < RECORDERS {
                slots.insert(NodeId::client(number), Default::default());
            }
        }
        Run {
            world,
            rng,
            ledger: Ledger::default(),
            pending: BTreeMap::new(),
            tickets: 0,
            slots,
            tails: BTreeMap::new(),
            ending: Vec::new(),
            durability,
            is_pushed,
            batches: 0,
            kinds,
            is_broken: false,
            is_ending: false,
            kills: 0,
            complete: Vec::new(),
            plays: 0,
            health: None,
        }
    }

    fn ask(&mut self, client: NodeId, request: ClientRequest, pending: PendingRequest) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.pending.insert(ticket, (client, pending));
        self.world.request(client, ticket, request);
    }

    /// Does the client take pieces rarely?
    fn is_slow(&self, client: NodeId) -> bool {
        client.number() == RECORDERS + TAILS - 1 && !self.is_ending
    }

    fn slot(&mut self, client: NodeId, index: usize) -> &mut RecordingSlot {
        &mut self.slots.entry(client).or_default()[index]
    }

    /// Claims a recording, or records a batch.
    fn record(&mut self, client: NodeId) {
        if self.world.machine(client).is_none() {
            return;
        }
        let index = self.rng.index(RECORDINGS);
        let slot = self.slot(client, index);
        let Some(recording) = slot.recording else {
            if !std::mem::replace(&mut slot.is_requested, true) {
                let operation = ArchiveOperation::Start {
                    label: format!("{client} {index}"),
                    segment_length: 2 << 10,
                    durability: self.durability,
                    is_resumed: true,
                };
                self.ask(
                    client,
                    ClientRequest::Ask(operation),
                    PendingRequest::Claim(index),
                );
            }
            return;
        };
        if slot.in_flight >= PIPELINE {
            return;
        }
        slot.in_flight += 1;
        let (mut batch, mut messages) = (FrameBatch::new(), Vec::new());
        for number in 0..=self.rng.below(3) {
            let mut message = format!("{:08} {number} ", self.batches).into_bytes();
            let length = if self.rng.chance(0.05) { 3_000 } else { 200 };
            message.resize(message.len() + self.rng.index(length), b'.');
            batch.push(number as u32, &message, self.rng.chance(0.5));
            messages.push(message);
        }
        self.batches += 1;
        self.ledger.submitted(recording, &messages);
        let request = ClientRequest::Record { recording, batch };
        self.ask(client, request, PendingRequest::Batch(recording, messages));
    }

    fn play(&mut self, client: NodeId, recording: u64, bound: ReplayBound) -> u64 {
        let request = ReplayRequest {
            recording,
            from: ReplayFrom::Start,
            bound,
            window_bytes: WINDOW,
            is_eager: false,
        };
        self.plays += 1;
        let play = self.plays;
        self.ask(
            client,
            ClientRequest::Play(request),
            PendingRequest::Play(play << 8 | recording),
        );
        play << 8 | recording
    }

    fn next(&mut self, client: NodeId, handle: ReplayHandle, play: u64) {
        self.ask(
            client,
            ClientRequest::Next(handle),
            PendingRequest::Piece(handle, play),
        );
    }

    /// Runs the world until `time` and checks the answers.
    fn advance(&mut self, time: Time) -> Result<(), String> {
        while self.world.next_time().is_some_and(|next| next <= time) {
            self.world.step();
            let replies: Vec<_> = self.world.drain_replies().collect();
            for (_, ticket, reply) in replies {
                // A former life of the client may have answered just before it ended.
                if let Some((client, pending)) = self.pending.remove(&ticket) {
                    self.answer(client, pending, reply)?;
                }
            }
        }
        self.world.run_until(time);
        self.check_windows()?;
        if let Some(ArchiveMachine::Copier(copier)) = self.world.machine(COPIER)
            && let Some(error) = &copier.error
        {
            return Err(format!("copy: {error}"));
        }
        if let Some(ArchiveMachine::Pusher(pusher)) = self.world.machine(PUSHER)
            && let Some(error) = &pusher.error
        {
            return Err(format!("push: {error}"));
        }
        match self.world.take_boot_failures().pop() {
            Some((id, reason)) => Err(format!("{id} does not start: {reason}")),
            None => Ok(()),
        }
    }

    /// Checks that no client received more than its windows allow.
    fn check_windows(&self) -> Result<(), String> {
        for number in RECORDERS..RECORDERS + TAILS {
            let client = NodeId::client(number);
            let Some(ArchiveMachine::Client(machine)) = self.world.machine(client) else {
                continue;
            };
            let replays = self.tails.keys().filter(|(tail, _)| *tail == client);
            // One window, and one message that started within it.
            let most = (replays.count() as u64 + 4) * u64::from(WINDOW + BURST);
            let replays = machine.untaken_bytes();
            if machine.untaken_bytes_max() > u64::from(WINDOW + BURST) || replays > most {
                return Err(format!("{client} was sent {replays} bytes without credit"));
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        client: NodeId,
        pending: PendingRequest,
        reply: ClientReply,
    ) -> Result<(), String> {
        match (pending, reply) {
            (
                PendingRequest::Claim(index),
                ClientReply::Answer(ArchiveAnswer::Claimed(claimed)),
            ) => {
                self.ledger.claimed(claimed.recording);
                let slot = self.slot(client, index);
                slot.recording = Some(claimed.recording);
            }
            (PendingRequest::Claim(index), ClientReply::Refused(_) | ClientReply::Unknown) => {
                self.slot(client, index).is_requested = false;
            }
            (PendingRequest::Batch(recording, messages), ClientReply::Recorded(place)) => {
                self.confirm(client, recording, &place, &messages)?;
            }
            (PendingRequest::Batch(recording, _), reply) => {
                return Err(format!("{client} cannot record in {recording}: {reply:?}"));
            }
            (PendingRequest::Play(play), ClientReply::Playing(handle)) => {
                self.tails.insert((client, play), Some(handle));
                self.next(client, handle, play);
            }
            (PendingRequest::Piece(handle, play), ClientReply::Piece(piece)) => {
                self.ledger.replayed(play, play & 0xff, &piece)?;
                if self.is_slow(client) {
                    self.tails.insert((client, play), Some(handle));
                } else {
                    self.next(client, handle, play);
                }
            }
            (PendingRequest::Piece(_, play), ClientReply::Ended(ReplayEnd::Complete { .. })) => {
                self.tails.remove(&(client, play));
                self.complete.push(play);
            }
            (PendingRequest::Health, ClientReply::Answer(ArchiveAnswer::Health(health))) => {
                self.health = Some(health);
            }
            (PendingRequest::Piece(_, play), ClientReply::Ended(end)) => {
                return Err(format!("replay {play} of {client} ended: {end:?}"));
            }
            (_, reply) => return Err(format!("{client} was answered {reply:?}")),
        }
        Ok(())
    }

    fn confirm(
        &mut self,
        client: NodeId,
        recording: u64,
        place: &BatchPlace,
        messages: &[Vec<u8>],
    ) -> Result<(), String> {
        let slots = self.slots.get_mut(&client).into_iter().flatten();
        for slot in slots.filter(|slot| slot.recording == Some(recording)) {
            slot.in_flight -= 1;
        }
        self.ledger.confirm(recording, place, messages)
    }

    /// Injects a fault, or heals all.
    fn next_fault(&mut self) {
        let client = NodeId::client(self.rng.below(u64::from(RECORDERS + TAILS)) as u32);
        if self.is_broken {
            self.mend();
            return;
        }
        self.is_broken = true;
        let fault = match *self.rng.pick(&self.kinds) {
            FaultKind::Kill if self.rng.chance(0.2) => {
                self.pending.retain(|_, (asker, _)| *asker != client);
                self.tails.retain(|(tail, _), _| *tail != client);
                if let Some(slots) = self.slots.get_mut(&client) {
                    *slots = Default::default();
                }
                Fault::Kill(client)
            }
            FaultKind::Kill if self.rng.chance(0.3) => Fault::Kill(COPIER),
            FaultKind::Kill if self.is_pushed && self.rng.chance(0.4) => {
                self.kills += 1;
                Fault::Kill(*self.rng.pick(&[DESTINATION, PUSHER]))
            }
            FaultKind::Partition if self.is_pushed && self.rng.chance(0.3) => {
                Fault::Reset(Link::both(PUSHER, DESTINATION).into())
            }
            FaultKind::Kill
            | FaultKind::Packet
            | FaultKind::Disk
            | FaultKind::Corruption
            | FaultKind::Membership => {
                self.kills += 1;
                Fault::Kill(SERVER)
            }
            FaultKind::Pause => Fault::Pause(SERVER),
            FaultKind::Partition => {
                let links = Link::both(client, SERVER).into();
                if self.rng.chance(0.5) {
                    Fault::Cut(links)
                } else {
                    Fault::Reset(links)
                }
            }
            FaultKind::Clock => Fault::Skew {
                node: *self.rng.pick(&[client, SERVER]),
                offset_ns: self.rng.below(400_000_000) as i64 - 200_000_000,
                rate_ppm: self.rng.below(200_000) as i32 - 100_000,
            },
        };
        self.world.apply(&fault);
    }

    fn mend(&mut self) {
        self.is_broken = false;
        for fault in [
            Fault::Heal,
            Fault::Resume(SERVER),
            Fault::Restart(SERVER),
            Fault::Restart(COPIER),
        ] {
            self.world.apply(&fault);
        }
        if self.is_pushed {
            self.world.apply(&Fault::Restart(DESTINATION));
            self.world.apply(&Fault::Restart(PUSHER));
        }
        for number in 0..RECORDERS + TAILS {
            self.world.apply(&Fault::Restart(NodeId::client(number)));
        }
    }

    /// Each replaying client replays each known recording, and now and then one up to its end; slow ones take pieces rarely.
    fn follow(&mut self) {
        let recordings: Vec<u64> = self
            .slots
            .values()
            .flatten()
            .filter_map(|slot| slot.recording)
            .collect();
        let client = NodeId::client(RECORDERS + self.rng.below(u64::from(TAILS)) as u32);
        if self.world.machine(client).is_none() {
            return;
        }
        let played = |run: &Run, recording: u64| {
            let mut plays = run.tails.keys();
            plays.any(|(tail, play)| *tail == client && play & 0xff == recording)
        };
        if let Some(&recording) = recordings.iter().find(|it| !played(self, **it)) {
            let play = self.play(client, recording, ReplayBound::Follow);
            self.tails.insert((client, play), None);
        }
        let is_open = |key: &(NodeId, u64)| key.0 == client && self.tails.contains_key(key);
        if !recordings.is_empty()
            && !self.is_ending
            && !self.ending.iter().any(is_open)
            && self.rng.chance(0.1)
        {
            let recording = *self.rng.pick(&recordings);
            let play = self.play(client, recording, ReplayBound::End);
            self.tails.insert((client, play), None);
            self.ending.push((client, play));
        }
        if self.is_slow(client) && !self.rng.chance(0.02) {
            return;
        }
        let tails = self
            .tails
            .iter_mut()
            .filter(|((tail, _), _)| *tail == client);
        let idle: Vec<_> = tails
            .filter_map(|((_, play), handle)| Some((*play, handle.take()?)))
            .filter(|(play, handle)| {
                let waits = |pending: &(NodeId, PendingRequest)| {
                    matches!(pending, (tail, PendingRequest::Piece(known, of))
                        if *tail == client && known == handle && of == play)
                };
                !self.pending.values().any(waits)
            })
            .collect();
        for (play, handle) in idle {
            self.next(client, handle, play);
        }
    }

    /// Records and replays under faults; then heals, and replays everything.
    fn check(&mut self) -> Result<(), String> {
        let pace = Duration::from_micros(10 << self.rng.below(9));
        let fault_interval = Duration::from_millis(1 << self.rng.below(9));
        let mut fault_at = Time::ZERO + self.rng.exponential(fault_interval);
        for _ in 0..BATCHES * 100 {
            if self.batches >= BATCHES {
                break;
            }
            let client = NodeId::client(self.rng.below(u64::from(RECORDERS)) as u32);
            self.record(client);
            self.follow();
            let pause = self.rng.exponential(pace);
            self.advance(self.world.now() + pause)?;
            if self.world.now() >= fault_at {
                self.next_fault();
                fault_at = self.world.now() + self.rng.exponential(fault_interval);
            }
        }
        self.mend();
        self.world.calm();
        self.is_ending = true;
        self.finish()
    }

    /// Checks that everything is answered in time and is consistent.
    fn finish(&mut self) -> Result<(), String> {
        let is_open = |pending: &PendingRequest| !matches!(pending, PendingRequest::Piece(..));
        for round in 0.. {
            if !self.pending.values().any(|(_, pending)| is_open(pending)) {
                break;
            }
            if round > 120 {
                return Err("the service no longer answers".into());
            }
            self.advance(self.world.now() + Duration::from_secs(1))?;
        }
        let client = NodeId::client(0);
        let slots = self.slots.values().flatten();
        let recordings: Vec<u64> = slots.filter_map(|slot| slot.recording).collect();
        let plays: Vec<u64> = recordings
            .iter()
            .map(|recording| self.play(client, *recording, ReplayBound::End))
            .collect();
        for round in 0.. {
            // A client that was killed has forgotten its replays.
            let is_open = |key: &(NodeId, u64)| self.tails.contains_key(key);
            if plays.iter().all(|play| self.complete.contains(play))
                && !self.ending.iter().any(is_open)
            {
                break;
            }
            if round > 120 {
                return Err("a replay does not end".into());
            }
            self.follow();
            self.advance(self.world.now() + Duration::from_secs(1))?;
        }
        // Live replays have all confirmed messages.
        for round in 0.. {
            let behind = self.behind(&plays);
            if behind.is_none() {
                break;
            }
            if round > 120 {
                return Err(format!("replay {behind:?} does not come to the end"));
            }
            self.follow();
            self.advance(self.world.now() + Duration::from_secs(1))?;
        }
        plays.iter().try_for_each(|play| self.ledger.check(*play))?;
        for round in 0.. {
            let is_whole = |play: u64| self.is_copied(play) && self.is_at_destination(play);
            let unlike = plays.iter().find(|play| !is_whole(**play));
            let Some(unlike) = unlike else {
                break;
            };
            if round > 120 {
                return Err(format!("the copy of {} is not like it", unlike & 0xff));
            }
            self.advance(self.world.now() + Duration::from_secs(1))?;
        }
        self.nothing_is_held()
    }

    /// Checks that the service holds no bytes once everything was recorded and replayed.
    fn nothing_is_held(&mut self) -> Result<(), String> {
        for _ in 0..120 {
            self.health = None;
            let health = ClientRequest::Ask(ArchiveOperation::Health);
            self.ask(NodeId::client(0), health, PendingRequest::Health);
            self.follow();
            self.advance(self.world.now() + Duration::from_secs(1))?;
            let is_free = |it: &Health| it.replay_bytes == 0 && it.record_bytes == 0;
            if self.health.as_ref().is_some_and(is_free) {
                return Ok(());
            }
        }
        Err(format!(
            "the service holds bytes without a receiver: {:?}",
            self.health
        ))
    }

    /// Is the copy of a recording equal to a complete replay?
    fn is_copied(&self, play: u64) -> bool {
        let Some(ArchiveMachine::Copier(copier)) = self.world.machine(COPIER) else {
            return false;
        };
        let messages = self.ledger.messages(play);
        copier.end(play & 0xff).is_some()
            && copier
                .read(play & 0xff)
                .is_ok_and(|copied| copied == messages)
    }

    /// Is the pushed copy of a recording equal to a complete replay, at the same positions?
    fn is_at_destination(&self, play: u64) -> bool {
        if !self.is_pushed {
            return true;
        }
        let Some(ArchiveMachine::Pusher(pusher)) = self.world.machine(PUSHER) else {
            return false;
        };
        let Some(copy) = pusher.copy(play & 0xff) else {
            return false;
        };
        let storage = Arc::new(MemoryStorage::from_files(&self.world.files(DESTINATION)));
        let folder = Path::new("archive");
        let Ok(mut cursor) =
            Cursor::open(storage, folder, copy, Origin::Start, CursorBound::Follow)
        else {
            return false;
        };
        let mut found = Vec::new();
        while let Ok(Some(block)) = cursor.next_block() {
            let messages = block.messages();
            found.extend(messages.map(|it| (it.position.0, it.payload.to_vec())));
        }
        found == self.ledger.messages(play)
    }

    /// A live replay that has not everything; those up to an end are complete by now, and gone.
    fn behind(&self, plays: &[u64]) -> Option<u64> {
        let length = |recording: u64| {
            let whole = plays.iter().find(|play| *play & 0xff == recording);
            whole.map_or(0, |whole| self.ledger.heard(*whole))
        };
        let mut tails = self.tails.keys().map(|(_, play)| *play);
        tails.find(|play| self.ledger.heard(*play) < length(play & 0xff))
    }
}

#[test]
fn the_service_keeps_its_promises() {
    let (mut confirmed, mut replayed, mut kills) = (0, 0, 0);
    let exploration = explore(0..seatrial_farm::seeds(200), |seed| {
        let mut run = Run::new(seed, None);
        let outcome = run.check();
        confirmed += run.ledger.confirmed;
        replayed += run.ledger.replayed;
        kills += run.kills;
        outcome
    });
    assert_eq!(exploration.failure, None);
    // Both faults and progress occurred.
    println!("{confirmed} messages confirmed, {replayed} replayed, {kills} kills");
    assert!(confirmed > least(20_000) && replayed > least(60_000) && kills > least(500));
}

#[test]
fn every_planted_bug_is_found_within_its_seeds() {
    for (bug, seeds) in [
        (ServiceBug::AckBeforeDurable, 20),
        (ServiceBug::GapAtLive, 20),
        (ServiceBug::DuplicateAfterResend, 20),
        (ServiceBug::CreditIgnored, 20),
        (ServiceBug::WrongPositionAfterExtend, 20),
        (ServiceBug::LostInGroup, 20),
        (ServiceBug::GapAccepted, 20),
        (ServiceBug::CopySkipsBlock, 20),
        (ServiceBug::CopiesMixed, 20),
        (ServiceBug::CopiedBlockLost, 20),
        (ServiceBug::UntakenKept, 40),
        (ServiceBug::EndForgotten, 20),
    ] {
        let found = explore(0..seeds, |seed| Run::new(seed, Some(bug)).check());
        println!("{bug}: {found:?}");
        let (seed, reason) = found.failure.expect("the bug is found");
        let again = Run::new(seed, Some(bug)).check();
        assert_eq!(again, Err(reason), "{bug}: the seed replays it");
    }
}
