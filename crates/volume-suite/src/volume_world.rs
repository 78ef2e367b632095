//! A volume as machines of a simulated world.

use crate::disk_workload::{DISK, completion, request_of};
use crate::volume_upkeep::{EmptyParent, KeptOwner, SharedKeys, UpkeepPlan};
use crate::{SUITE, Volume, volume_bug};
use seatrial_generator::Thread;
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{DataFolder, FaultKind, Input, Machine, NodeId, Output, Rng, Time};
use seatrial_sim::Booted;
use seatrial_suite::{
    BootMachine, ClientStep, SimulatedRun, SimulatedSystem, SimulatedTest, Simulator, SuiteError,
    Timing, simulate,
};
use seatrial_volume::{
    Downstairs, DownstairsOptions, Geometry, GuestClient, GuestClientOptions, GuestOutcome,
    GuestReply, GuestRequest, ParentVolume, Upstairs, UpstairsOptions, UpstairsServer, VolumeBug,
    VolumeId,
};
use std::sync::Arc;
use std::time::Duration;

/// Default faults.
const FAULTS: [FaultKind; 6] = [
    FaultKind::Kill,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Packet,
    FaultKind::Clock,
    FaultKind::Disk,
];

/// The volume of a world: small, so that operations meet.
pub(crate) const GEOMETRY: Geometry = Geometry {
    volume: VolumeId(1),
    block_length: 512,
    blocks: 64,
};

impl Simulator for Volume {
    fn faults(&self) -> &'static [FaultKind] {
        &FAULTS
    }

    fn workloads(&self) -> &'static [&'static str] {
        &[DISK]
    }

    fn run(&self, simulation: &SimulatedTest) -> Result<SimulatedRun, SuiteError> {
        let system = VolumeWorld {
            bug: volume_bug(simulation.bug),
            servers: simulation.faults.servers.clone(),
        };
        simulate(&SUITE, simulation, system)
    }
}

/// Replicas, an upstairs, which is the last server, and guests.
struct VolumeWorld {
    bug: Option<VolumeBug>,
    servers: Vec<NodeId>,
}

/// Bounds that are small enough to be reached in a run, in bytes.
#[derive(Clone, Copy)]
struct WorldSizes {
    map_interval: u64,
    log_slack: u64,
    inline: usize,
    retained: usize,
    kept: usize,
}

impl WorldSizes {
    fn draw(mut rng: Rng) -> WorldSizes {
        // In half of the worlds every replica that was away is compared.
        let mut draw = rng.fork("kept");
        let kept = if draw.chance(0.5) {
            0
        } else {
            10_000 << draw.below(7)
        };
        WorldSizes {
            map_interval: 20_000 << rng.below(6),
            log_slack: 30_000 << rng.below(6),
            inline: if rng.chance(0.5) { 600 } else { 8_192 },
            retained: 20_000 << rng.below(5),
            kept,
        }
    }
}

impl VolumeWorld {
    fn boot_replica(
        data: &DataFolder,
        sizes: WorldSizes,
        bug: Option<VolumeBug>,
    ) -> Result<Booted<VolumeActor>, String> {
        let options = DownstairsOptions {
            map_interval: sizes.map_interval,
            log_slack: sizes.log_slack,
            segment_length: sizes.map_interval / 2,
            bug,
            ..DownstairsOptions::new(GEOMETRY)
        };
        let (booted, _) = Downstairs::boot(data, options).map_err(|it| it.to_string())?;
        Ok(Booted {
            machine: VolumeActor::Replica(Box::new(booted.machine)),
            logs: booted.logs,
        })
    }
}

impl SimulatedSystem for VolumeWorld {
    type Machine = VolumeActor;
    type Call = Op;

    fn boot(&self, timing: Timing, rng: Rng) -> BootMachine<VolumeActor> {
        let (bug, mut replicas) = (self.bug, self.servers.clone());
        let owner = replicas.pop().expect("a volume has two nodes or more");
        let latency = timing.latency.max(Duration::from_micros(40));
        let sizes = WorldSizes::draw(rng.fork("sizes"));
        let plan = UpkeepPlan::draw(rng.fork("upkeep"), timing.duration);
        let keys = SharedKeys::new(GEOMETRY.volume, &[5; 32]);
        let parent = plan.is_clone.then(|| Arc::new(EmptyParent::default()));
        let mut ids = rng.fork("starts");
        Box::new(move |id: NodeId, data: &DataFolder| {
            if replicas.contains(&id) {
                return VolumeWorld::boot_replica(data, sizes, bug);
            }
            if id != owner {
                let client = GuestClient::new(GuestClientOptions {
                    upstairs: owner,
                    seed: rng.fork(&id.to_string()).word(),
                    request_timeout: timing.timeout,
                    repeat_interval: timing.timeout / 4,
                });
                return Ok(Booted::new(VolumeActor::Guest(Box::new(client))));
            }
            let start = u128::from(ids.word()) << 64 | u128::from(ids.word()) | 1;
            let options = UpstairsOptions {
                activates: true,
                tick: latency * 2,
                resend_after: latency * 8,
                silence: latency * 60,
                flush_interval: latency * 20,
                retained_bytes_max: sizes.retained,
                kept_bytes_max: sizes.kept,
                inline_bytes_max: sizes.inline,
                sweep_piece: 4_096,
                parent: parent.clone().map(|it| it as Arc<dyn ParentVolume>),
                bug,
                ..UpstairsOptions::new(GEOMETRY, keys.ring(), replicas.clone(), start)
            };
            let server = UpstairsServer::new(Upstairs::new(options), ids.word());
            let owner = KeptOwner::new(server, keys.clone(), plan.clone());
            Ok(Booted::new(VolumeActor::Owner(Box::new(owner))))
        })
    }

    fn begin(&mut self, _: Thread, op: &Op) -> ClientStep<Op, GuestRequest> {
        match request_of(op, GEOMETRY) {
            Ok(request) => ClientStep::Ask(op.clone(), request),
            Err(reason) => {
                let failed = op.complete(OpType::Fail, op.value.clone());
                ClientStep::Done(failed.with("error", Value::text(reason)))
            }
        }
    }

    fn resume(&mut self, _: Thread, op: Op, outcome: GuestOutcome) -> ClientStep<Op, GuestRequest> {
        ClientStep::Done(completion(&op, &outcome, GEOMETRY))
    }
}

/// A machine of the world.
pub(crate) enum VolumeActor {
    Replica(Box<Downstairs>),
    Owner(Box<KeptOwner>),
    Guest(Box<GuestClient>),
}

impl Machine for VolumeActor {
    type Request = GuestRequest;
    type Reply = GuestOutcome;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Vec<Output<GuestOutcome>>) {
        let mut inner: Vec<Output<GuestReply>> = Vec::new();
        match self {
            VolumeActor::Guest(client) => return client.turn(now, input, out),
            VolumeActor::Replica(replica) => replica.turn(now, input, &mut inner),
            VolumeActor::Owner(owner) => owner.turn(now, input, &mut inner),
        }
        let replies = inner.into_iter();
        out.extend(replies.map(|it| it.map_reply(|it| GuestOutcome::of_reply(0, it))));
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            VolumeActor::Replica(replica) => replica.wake_at(),
            VolumeActor::Owner(owner) => owner.wake_at(),
            VolumeActor::Guest(client) => client.wake_at(),
        }
    }

    fn check_invariants(&self) {
        match self {
            VolumeActor::Replica(replica) => replica.check_invariants(),
            VolumeActor::Owner(owner) => owner.check_invariants(),
            VolumeActor::Guest(client) => client.check_invariants(),
        }
    }
}
