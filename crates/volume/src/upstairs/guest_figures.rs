//! Latencies of a guest's requests, and an upstairs' description of itself for its status page and metrics.

use crate::guest::{GuestReply, GuestRequest};
use crate::status::{MirrorState, MirrorStatus, VolumeStatus};
use crate::upstairs::Upstairs;
use seatrial_machine::{
    DurationHistogram, LinePart, MetricValue, Output, StatusSheet, Ticket, Time, thousands,
};
use std::collections::BTreeMap;

/// Kinds of requests that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimedKind {
    Read,
    Write,
    Flush,
}

/// Times from the turn that took a request to the turn with its reply. Requests under way are bounded by their sender.
#[derive(Debug, Default)]
pub(super) struct GuestFigures {
    begun: BTreeMap<Ticket, (TimedKind, Time)>,
    reads: DurationHistogram,
    writes: DurationHistogram,
    flushes: DurationHistogram,
}

impl GuestFigures {
    /// A request arrived.
    pub(super) fn on_request(&mut self, now: Time, ticket: Ticket, request: &GuestRequest) {
        let kind = match request {
            GuestRequest::Read(_) => TimedKind::Read,
            GuestRequest::Write { .. }
            | GuestRequest::WriteUnwritten { .. }
            | GuestRequest::Trim { .. } => TimedKind::Write,
            GuestRequest::Flush => TimedKind::Flush,
            _ => return,
        };
        self.begun.insert(ticket, (kind, now));
    }

    /// A turn pushed these outputs.
    pub(super) fn on_outputs(&mut self, now: Time, outputs: &[Output<GuestReply>]) {
        for output in outputs {
            let Output::Reply(ticket, _) = output else {
                continue;
            };
            if let Some((kind, since)) = self.begun.remove(ticket) {
                let histogram = match kind {
                    TimedKind::Read => &mut self.reads,
                    TimedKind::Write => &mut self.writes,
                    TimedKind::Flush => &mut self.flushes,
                };
                histogram.add(now.since(since));
            }
        }
    }
}

impl Upstairs {
    /// Adds requests, memory and replicas to a sheet. Costs a pass over the replicas.
    pub(super) fn describe_all(&self, sheet: &mut StatusSheet) {
        let status = self.status();
        sheet.fact("volume", self.options.geometry.volume.to_string());
        sheet.fact(
            "state",
            if status.is_active {
                "active"
            } else {
                "not active"
            },
        );
        sheet.fact("generation", thousands(u64::from(status.generation)));
        sheet.fact("durable flush", thousands(status.flush));
        sheet.fact("snapshots", status.snapshots.join(", "));
        self.describe_requests(sheet, &status);
        describe_replicas(sheet, &status);
    }

    fn describe_requests(&self, sheet: &mut StatusSheet, status: &VolumeStatus) {
        let figures = &self.figures;
        let is_active = f64::from(u8::from(status.is_active));
        sheet.gauge(
            "volume_is_active",
            "1 if guests can use the volume",
            is_active,
        );
        let about = "Time from taking a read of a guest to its reply";
        sheet.durations("volume_read_seconds", about, &figures.reads);
        let about = "Time from taking a write or trim of a guest to its reply";
        sheet.durations("volume_write_seconds", about, &figures.writes);
        let about = "Time from taking a flush of a guest to its reply";
        sheet.durations("volume_flush_seconds", about, &figures.flushes);
        let about = "Bytes that guests have read";
        sheet.counter("volume_read_bytes_total", about, status.bytes[0]);
        let about = "Bytes that guests have written";
        sheet.counter("volume_written_bytes_total", about, status.bytes[1]);
        let about = "Replies to guests that were errors";
        sheet.counter("volume_failed_replies_total", about, status.failed);
        let about = "Requests of guests under way";
        sheet.gauge("volume_requests_under_way", about, status.requests as f64);
        let about = "Bytes of writes that are kept until they are durable on a quorum and carried out by every replica";
        sheet.gauge("volume_retained_bytes", about, status.retained_bytes as f64);
        sheet.chart(
            "Requests of guests",
            &[
                ("reads", "volume_read_seconds", LinePart::Rate),
                ("writes", "volume_write_seconds", LinePart::Rate),
                ("flushes", "volume_flush_seconds", LinePart::Rate),
            ],
        );
        sheet.chart(
            "Latency in this process",
            &[
                (
                    "read, median",
                    "volume_read_seconds",
                    LinePart::Quantile(0.5),
                ),
                (
                    "read, 99 %",
                    "volume_read_seconds",
                    LinePart::Quantile(0.99),
                ),
                (
                    "write, median",
                    "volume_write_seconds",
                    LinePart::Quantile(0.5),
                ),
                (
                    "write, 99 %",
                    "volume_write_seconds",
                    LinePart::Quantile(0.99),
                ),
                (
                    "flush, 99 %",
                    "volume_flush_seconds",
                    LinePart::Quantile(0.99),
                ),
            ],
        );
        sheet.chart(
            "Writes that are not durable yet, bytes",
            &[("retained", "volume_retained_bytes", LinePart::Level)],
        );
    }
}

/// Adds a table of the replicas and their metrics.
fn describe_replicas(sheet: &mut StatusSheet, status: &VolumeStatus) {
    let mut rows = Vec::new();
    for replica in &status.replicas {
        add_replica_metrics(sheet, replica);
        rows.push(vec![
            replica.node.to_string(),
            replica.state.to_string(),
            replica.reason.clone(),
            thousands(replica.unacknowledged),
            thousands(replica.chunks_left),
            thousands(replica.repairs[1]),
            thousands(replica.damaged),
        ]);
    }
    sheet.table(
        "Replicas",
        &[
            "replica",
            "state",
            "reason",
            "unacknowledged",
            "chunks to compare",
            "blocks repaired",
            "damaged",
        ],
        rows,
    );
}

/// Adds the metrics of one replica.
fn add_replica_metrics(sheet: &mut StatusSheet, replica: &MirrorStatus) {
    let label = || vec![("replica", replica.node.to_string())];
    let [repairs, repaired] = replica.repairs;
    let is_active = u64::from(replica.state == MirrorState::Active);
    for (name, about, value) in [
        (
            "volume_replica_is_active",
            "1 if the replica has everything",
            is_active,
        ),
        (
            "volume_replica_unacknowledged_messages",
            "Messages to the replica that it has not acknowledged",
            replica.unacknowledged,
        ),
        (
            "volume_replica_repair_chunks",
            "Chunks left to compare in the repair of the replica",
            replica.chunks_left,
        ),
    ] {
        sheet.metric(name, about, label(), MetricValue::Gauge(value as f64));
    }
    for (name, about, value) in [
        (
            "volume_replica_repairs_total",
            "Repairs of the replica that were begun",
            repairs,
        ),
        (
            "volume_replica_repaired_blocks_total",
            "Blocks that repairs have copied to the replica",
            repaired,
        ),
        (
            "volume_replica_resent_messages_total",
            "Messages that were sent to the replica again",
            replica.resent,
        ),
        (
            "volume_replica_damaged_blocks_total",
            "Blocks that the replica could not deliver intact",
            replica.damaged,
        ),
    ] {
        sheet.metric(name, about, label(), MetricValue::Counter(value as f64));
    }
}
