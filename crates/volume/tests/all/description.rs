//! What an upstairs and its replicas say of themselves after work, and after the loss of a replica.

use seatrial_machine::{
    DataFolder, DurationHistogram, Fault, Input, Machine, MetricValue, NodeId, Output, StatusSheet,
    Ticket, Time,
};
use seatrial_sim::{Booted, World, WorldOptions};
use seatrial_volume::{
    BlockNumber, BlockSpan, Downstairs, DownstairsOptions, Geometry, GuestReply, GuestRequest,
    KeyRing, Upstairs, UpstairsOptions, VolumeId,
};
use std::time::Duration;

const GEOMETRY: Geometry = Geometry {
    volume: VolumeId(7),
    block_length: 512,
    blocks: 1_000,
};

const UPSTAIRS: NodeId = NodeId::server(9);

enum VolumeNode {
    Up(Box<Upstairs>),
    Down(Box<Downstairs>),
}

impl Machine for VolumeNode {
    type Request = GuestRequest;
    type Reply = GuestReply;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Vec<Output<GuestReply>>) {
        match self {
            VolumeNode::Up(up) => up.turn(now, input, out),
            VolumeNode::Down(down) => down.turn(now, input, out),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self {
            VolumeNode::Up(up) => up.wake_at(),
            VolumeNode::Down(down) => down.wake_at(),
        }
    }

    fn describe(&self, now: Time, sheet: &mut StatusSheet) {
        match self {
            VolumeNode::Up(up) => up.describe(now, sheet),
            VolumeNode::Down(down) => down.describe(now, sheet),
        }
    }
}

fn replicas() -> Vec<NodeId> {
    (1..=3).map(NodeId::server).collect()
}

fn world() -> World<VolumeNode> {
    let boot = |id: NodeId, data: &DataFolder| {
        if id != UPSTAIRS {
            let options = DownstairsOptions {
                map_interval: 100_000,
                segment_length: 50_000,
                log_slack: 100_000,
                ..DownstairsOptions::new(GEOMETRY)
            };
            let booted = Downstairs::boot(data, options).map_err(|it| it.to_string())?;
            return Ok(Booted {
                machine: VolumeNode::Down(Box::new(booted.0.machine)),
                logs: booted.0.logs,
            });
        }
        let keys = KeyRing::new(GEOMETRY.volume, &[5; 32]);
        let options = UpstairsOptions {
            activates: true,
            ..UpstairsOptions::new(GEOMETRY, keys, replicas(), 1)
        };
        let upstairs = Upstairs::new(options);
        Ok(Booted::new(VolumeNode::Up(Box::new(upstairs))))
    };
    let mut world = World::new(1, WorldOptions::default(), boot);
    world.calm();
    for node in replicas().into_iter().chain([UPSTAIRS]) {
        world.add(node);
    }
    world
}

fn run(world: &mut World<VolumeNode>, seconds: u64) {
    world.run_until(world.now() + Duration::from_secs(seconds));
}

/// The sheet of a node, all of whose charts show metrics that it has, as rates only what can have one.
fn sheet_of(world: &World<VolumeNode>, node: NodeId) -> StatusSheet {
    let mut sheet = StatusSheet::default();
    let machine = world.machine(node).expect("it runs");
    machine.describe(world.now(), &mut sheet);
    for line in sheet.charts.iter().flat_map(|it| &it.lines) {
        let mut metrics = sheet.metrics.iter();
        let is_there = metrics.any(|it| it.name == line.metric);
        assert!(is_there, "{}: a chart without its metric", line.metric);
    }
    let mut names: Vec<_> = sheet
        .metrics
        .iter()
        .map(|it| (it.name, &it.labels))
        .collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a metric stands twice");
    sheet
}

/// The sum of a metric, whose values are whole, over its labels; of durations their number.
fn value_of(sheet: &StatusSheet, name: &str) -> u64 {
    let metrics = sheet.metrics.iter().filter(|it| it.name == name);
    let values = metrics.map(|it| match &it.value {
        MetricValue::Gauge(value) | MetricValue::Counter(value) => *value as u64,
        MetricValue::Durations(durations) => DurationHistogram::count(durations),
    });
    let values: Vec<u64> = values.collect();
    assert!(!values.is_empty(), "no metric {name}");
    values.iter().sum()
}

fn fact_of<'a>(sheet: &'a StatusSheet, name: &str) -> &'a str {
    let fact = sheet.facts.iter().find(|it| it.0 == name);
    &fact.unwrap_or_else(|| panic!("no fact {name}")).1
}

/// Checks the sheets after 20 writes of 40 blocks, a flush, a read, and a read beyond the end.
fn check_sheets(world: &World<VolumeNode>) {
    let up = sheet_of(world, UPSTAIRS);
    assert_eq!(fact_of(&up, "state"), "active");
    assert_eq!(fact_of(&up, "replicas"), "3 of 3 active, 2 needed");
    for (name, expected) in [
        ("volume_is_active", 1),
        ("volume_write_seconds", 20),
        ("volume_seal_seconds", 20),
        ("volume_flush_seconds", 1),
        ("volume_read_seconds", 2),
        ("volume_open_seconds", 1),
        ("volume_replica_read_seconds", 1),
        ("volume_failed_replies_total", 1),
        ("volume_written_bytes_total", 20 * 40 * 512),
        ("volume_requests_under_way", 0),
        ("volume_retained_bytes", 0),
        ("volume_replica_is_active", 3),
        ("volume_replica_lag_items", 0),
    ] {
        assert_eq!(value_of(&up, name), expected, "{name}");
    }
    // Writes and flushes, at each of three replicas.
    assert!(value_of(&up, "volume_replica_ack_seconds") >= 63);
    assert_eq!(up.tables[0].rows.len(), 3);

    let down = sheet_of(world, NodeId::server(1));
    let used = value_of(&down, "region_used_bytes");
    assert!(used > 20 * 40 * 512, "{used}");
    assert!(value_of(&down, "region_log_bytes") >= used);
    assert!(value_of(&down, "region_sync_seconds") >= 2);
    assert!(
        value_of(&down, "region_maps_total") >= 1,
        "a map file each 100,000 bytes"
    );
    assert_eq!(value_of(&down, "region_unsynced_bytes"), 0);
    assert_eq!(value_of(&down, "region_has_session"), 1);
    assert!(fact_of(&down, "session of").starts_with("n9, "));
    let reads = replicas();
    let reads = reads.iter().map(|it| sheet_of(world, *it));
    let reads: u64 = reads.map(|it| value_of(&it, "region_read_seconds")).sum();
    assert_eq!(reads, 1, "one replica was asked");
}

#[test]
fn a_volume_says_what_it_did() {
    let mut world = world();
    run(&mut world, 5);
    let mut tickets = 0;
    let mut ask = |world: &mut World<VolumeNode>, request| {
        tickets += 1;
        world.request(UPSTAIRS, Ticket(1 << 40 | tickets), request);
    };
    let span = |first, count| BlockSpan {
        first: BlockNumber(first),
        count,
    };
    for at in 0..20 {
        let first = BlockNumber(at * 40);
        let bytes = vec![at as u8 + 1; 40 * 512];
        ask(
            &mut world,
            GuestRequest::Write {
                first,
                bytes,
                fua: false,
            },
        );
    }
    ask(&mut world, GuestRequest::Flush);
    run(&mut world, 5);
    ask(&mut world, GuestRequest::Read(span(0, 100)));
    ask(&mut world, GuestRequest::Read(span(999, 2)));
    run(&mut world, 5);

    check_sheets(&world);
    // A replica that is lost, and repaired.
    world.apply(&Fault::Kill(NodeId::server(3)));
    ask(
        &mut world,
        GuestRequest::Write {
            first: BlockNumber(0),
            bytes: vec![9; 512],
            fua: true,
        },
    );
    run(&mut world, 30);
    let up = sheet_of(&world, UPSTAIRS);
    assert_eq!(fact_of(&up, "replicas"), "2 of 3 active, 2 needed");
    assert_eq!(up.tables[0].rows[2][..2], ["n3", "offline"]);
    assert_eq!(value_of(&up, "volume_has_quorum"), 1);
    world.apply(&Fault::Restart(NodeId::server(3)));
    run(&mut world, 30);
    let up = sheet_of(&world, UPSTAIRS);
    assert_eq!(value_of(&up, "volume_replica_is_active"), 3);
    assert!(value_of(&up, "volume_replica_repairs_total") >= 1);
    assert!(value_of(&up, "volume_replica_repaired_blocks_total") >= 1);
}
