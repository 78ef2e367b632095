//! The description of an upstairs for its status page and metrics.

use crate::guest::GuestRequest;
use crate::status::{MirrorState, StageStatus};
use crate::upstairs::Upstairs;
use crate::upstairs::activation::ActivationPhase;
use crate::upstairs::live_repair::Repair;
use crate::upstairs::mirror::Mirror;
use seatrial_machine::{
    DurationHistogram, LinePart, MetricValue, StatusSheet, Ticket, Time, thousands,
};
use std::collections::BTreeMap;

/// Requests of a guest that are counted by kind; others are rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestRequestKind {
    Read,
    Write,
    Flush,
    Trim,
}

/// Names of the kinds, in their order.
const KINDS: [&str; 4] = ["read", "write", "flush", "trim"];

impl GuestRequestKind {
    const fn of(request: &GuestRequest) -> Option<GuestRequestKind> {
        match request {
            GuestRequest::Read(_) => Some(GuestRequestKind::Read),
            GuestRequest::Write { .. } | GuestRequest::WriteUnwritten { .. } => {
                Some(GuestRequestKind::Write)
            }
            GuestRequest::Flush => Some(GuestRequestKind::Flush),
            GuestRequest::Trim { .. } => Some(GuestRequestKind::Trim),
            _ => None,
        }
    }
}

/// Counts and durations since the start, for the description. One entry of a map for each request under way.
#[derive(Debug, Default)]
pub(super) struct UpstairsFigures {
    /// The time of the turn.
    pub(super) now: Time,
    /// Kind and arrival of the requests that have no reply.
    open: BTreeMap<Ticket, (GuestRequestKind, Time)>,
    /// Times from a request to its reply, by kind, errors included.
    replied: [DurationHistogram; 4],
    failed: [u64; 4],
    /// Times of the jobs that encrypt a write, and that decrypt a part of a read, with their wait for a thread.
    pub(super) sealed: DurationHistogram,
    pub(super) opened: DurationHistogram,
    /// Times from a flush's place in the stream until it is durable on a quorum.
    pub(super) flushed: DurationHistogram,
    /// Times from a question for a guest's read to a replica's answer.
    pub(super) answered: DurationHistogram,
}

impl UpstairsFigures {
    /// A request arrives.
    pub(super) fn begin(&mut self, ticket: Ticket, request: &GuestRequest) {
        if let Some(kind) = GuestRequestKind::of(request) {
            self.open.insert(ticket, (kind, self.now));
        }
    }

    /// A reply is sent.
    pub(super) fn end(&mut self, ticket: Ticket, is_error: bool) {
        let Some((kind, since)) = self.open.remove(&ticket) else {
            return; // of a kind that is not counted
        };
        self.replied[kind as usize].add(self.now.since(since));
        self.failed[kind as usize] += u64::from(is_error);
    }
}

/// The number of a fact that holds or not.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

impl Upstairs {
    /// Adds state, requests, flushes and replicas to a sheet. Costs a pass over the replicas.
    pub(super) fn describe_all(&self, now: Time, sheet: &mut StatusSheet) {
        self.describe_facts(sheet);
        self.describe_requests(sheet);
        self.describe_stages(sheet);
        self.describe_stream(sheet);
        self.describe_mirrors(now, sheet);
        self.describe_sweeps(sheet);
    }

    /// The stages that have been reached, and how long they took.
    pub(super) fn stage_status(&self) -> Vec<StageStatus> {
        let figures = &self.figures;
        let requests = KINDS.iter().zip(&figures.replied);
        let requests = requests.map(|(kind, times)| (format!("{kind} request"), times));
        let stages = [
            ("encryption by a job", &figures.sealed),
            ("decryption by a job", &figures.opened),
            ("read of a replica", &figures.answered),
            ("flush on a quorum", &figures.flushed),
        ];
        let stages = stages.map(|(name, times)| (name.to_owned(), times));
        let mirrors = self.mirrors.iter();
        let acks = mirrors.map(|it| (format!("write or flush of {}", it.node), &it.acks));
        let all = requests.chain(stages).chain(acks);
        let reached = all.filter(|(_, times)| times.count() > 0);
        let status = |(name, times): (String, &DurationHistogram)| StageStatus {
            name,
            count: times.count(),
            p50: times.quantile(0.5),
            p99: times.quantile(0.99),
            max: times.max(),
        };
        reached.map(status).collect()
    }

    fn describe_sweeps(&self, sheet: &mut StatusSheet) {
        let mut rows = Vec::new();
        for sweep in self.sweep_status() {
            let labels = || vec![("sweep", sweep.kind.name().to_owned())];
            for (name, about, value) in [
                (
                    "volume_sweep_looked_blocks",
                    "Blocks that the sweep has looked at",
                    sweep.looked,
                ),
                (
                    "volume_sweep_changed_blocks",
                    "Blocks that the sweep wrote; of a repair, damaged reads",
                    sweep.changed,
                ),
                (
                    "volume_sweep_failed_blocks",
                    "Blocks that no replica could deliver",
                    sweep.failed,
                ),
            ] {
                sheet.metric(name, about, labels(), MetricValue::Gauge(value as f64));
            }
            rows.push(vec![
                sweep.kind.name().to_owned(),
                format!("{} of {}", thousands(sweep.looked), thousands(sweep.blocks)),
                thousands(sweep.changed),
                thousands(sweep.failed),
                sweep.reason,
                sweep.needed_by.join(", "),
            ]);
        }
        if !rows.is_empty() {
            let columns = &[
                "sweep",
                "blocks looked at",
                "written",
                "failed",
                "waits for",
                "needed by snapshots",
            ];
            sheet.table("Sweeps over all blocks", columns, rows);
        }
        let about = "Bytes read from the parent of the volume";
        sheet.counter(
            "volume_parent_read_bytes_total",
            about,
            self.parent_reads.bytes,
        );
    }

    fn describe_facts(&self, sheet: &mut StatusSheet) {
        let geometry = &self.options.geometry;
        let phase = match &self.phase {
            ActivationPhase::Inactive => "inactive".to_owned(),
            ActivationPhase::Asking { .. } => "asks replicas for their generation".to_owned(),
            ActivationPhase::Attaching { .. } => "attaches to replicas".to_owned(),
            ActivationPhase::Reconciling { .. } => "makes replicas equal".to_owned(),
            ActivationPhase::Active => "active".to_owned(),
            ActivationPhase::Closing => "closing".to_owned(),
            ActivationPhase::Deposed(by) => format!("deposed by generation {by}"),
        };
        sheet.fact("state", phase);
        sheet.fact("volume", geometry.volume.to_string());
        sheet.fact("generation", thousands(u64::from(self.generation)));
        let size = format!(
            "{} blocks of {} bytes",
            thousands(geometry.blocks),
            thousands(u64::from(geometry.block_length))
        );
        sheet.fact("size", size);
        let active = self.active_mirrors().count();
        let replicas = format!(
            "{active} of {} active, {} needed",
            self.mirrors.len(),
            self.options.quorum
        );
        sheet.fact("replicas", replicas);
        sheet.fact("snapshots", thousands(self.snapshots.len() as u64));
        let about = "1 if guests are served";
        sheet.gauge("volume_is_active", about, flag(self.is_active()));
        let about = "1 if as many replicas have everything as a flush needs";
        sheet.gauge("volume_has_quorum", about, flag(self.has_quorum()));
        let generation = f64::from(self.generation);
        sheet.gauge("volume_generation", "Generation", generation);
        let length = geometry.blocks as f64 * f64::from(geometry.block_length);
        sheet.gauge("volume_size_bytes", "Size of the volume", length);
        let count = self.snapshots.len() as f64;
        sheet.gauge("volume_snapshots", "Snapshots", count);
    }

    fn describe_requests(&self, sheet: &mut StatusSheet) {
        let figures = &self.figures;
        for (at, (name, about)) in [
            (
                "volume_read_seconds",
                "Time from a read request to its reply",
            ),
            (
                "volume_write_seconds",
                "Time from a write request to its reply: with FUA durable on a quorum, else after waiting for memory",
            ),
            (
                "volume_flush_seconds",
                "Time from a flush request to its reply, durable on a quorum",
            ),
            (
                "volume_trim_seconds",
                "Time from a trim request to its reply",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            sheet.durations(name, about, &figures.replied[at]);
        }
        for (kind, count) in KINDS.iter().zip(figures.failed) {
            let labels = vec![("kind", (*kind).to_owned())];
            let about = "Requests that were answered with an error";
            let value = MetricValue::Counter(count as f64);
            sheet.metric("volume_failed_replies_total", about, labels, value);
        }
        let [read, written] = self.bytes;
        sheet.counter("volume_read_bytes_total", "Bytes read by guests", read);
        let about = "Bytes written by guests";
        sheet.counter("volume_written_bytes_total", about, written);
        let about = "Requests without a reply";
        sheet.gauge(
            "volume_requests_under_way",
            about,
            figures.open.len() as f64,
        );
        sheet.chart(
            "Requests of guests",
            &[
                ("reads", "volume_read_seconds", LinePart::Rate),
                ("writes", "volume_write_seconds", LinePart::Rate),
                ("flushes", "volume_flush_seconds", LinePart::Rate),
            ],
        );
        sheet.chart(
            "Bytes of guests",
            &[
                ("read", "volume_read_bytes_total", LinePart::Rate),
                ("written", "volume_written_bytes_total", LinePart::Rate),
            ],
        );
        let (half, most) = (LinePart::Quantile(0.5), LinePart::Quantile(0.99));
        sheet.chart(
            "Latency",
            &[
                ("read, median", "volume_read_seconds", half),
                ("read, 99 %", "volume_read_seconds", most),
                ("write, 99 %", "volume_write_seconds", most),
                ("flush, median", "volume_flush_seconds", half),
                ("flush, 99 %", "volume_flush_seconds", most),
            ],
        );
    }

    fn describe_stages(&self, sheet: &mut StatusSheet) {
        let figures = &self.figures;
        for (name, about, durations) in [
            (
                "volume_seal_seconds",
                "Time of a job that encrypts a write, with its wait for a thread; short writes need none",
                &figures.sealed,
            ),
            (
                "volume_open_seconds",
                "Time of a job that decrypts a part of a read, with its wait for a thread; short reads need none",
                &figures.opened,
            ),
            (
                "volume_replica_read_seconds",
                "Time from asking a replica for a part of a read, the last time, to its answer",
                &figures.answered,
            ),
            (
                "volume_quorum_seconds",
                "Time from a flush's place in the stream, of a guest or in the background, to durable on a quorum",
                &figures.flushed,
            ),
        ] {
            sheet.durations(name, about, durations);
        }
        let most = LinePart::Quantile(0.99);
        sheet.chart(
            "Stages, 99 %",
            &[
                ("encryption", "volume_seal_seconds", most),
                ("decryption", "volume_open_seconds", most),
                ("read of a replica", "volume_replica_read_seconds", most),
                ("written by a replica", "volume_replica_ack_seconds", most),
                ("durable on a quorum", "volume_quorum_seconds", most),
            ],
        );
    }

    fn describe_stream(&self, sheet: &mut StatusSheet) {
        for (name, about, value) in [
            (
                "volume_retained_bytes",
                "Bytes of writes that are kept until they are durable and with every replica in session",
                self.items.bytes() as u64,
            ),
            (
                "volume_retained_bytes_limit",
                "Bytes of writes with which further ones wait",
                self.options.retained_bytes_max as u64,
            ),
            (
                "volume_kept_bytes",
                "Bytes of writes that are kept for a replica that is away",
                self.kept.bytes().0 as u64,
            ),
            (
                "volume_kept_bytes_limit",
                "Bytes of kept writes above which a replica is compared with another one instead",
                self.kept.bytes().1 as u64,
            ),
            (
                "volume_waiting_writes",
                "Writes and trims that wait for memory, a quorum or a locked range",
                self.waiting.len() as u64,
            ),
            (
                "volume_last_flush",
                "Number of the last flush",
                self.flushes.last(),
            ),
            (
                "volume_durable_flush",
                "Number of the last flush that is durable on a quorum",
                self.flushes.durable(),
            ),
        ] {
            sheet.gauge(name, about, value as f64);
        }
        sheet.chart(
            "Writes kept until they are durable",
            &[("bytes", "volume_retained_bytes", LinePart::Level)],
        );
        sheet.chart(
            "Writes kept for a replica that is away",
            &[("bytes", "volume_kept_bytes", LinePart::Level)],
        );
    }

    /// Items of the stream that a replica in session has not acknowledged.
    fn lag(&self, mirror: &Mirror) -> u64 {
        if mirror.is_in_session() {
            self.items.last().saturating_sub(mirror.applied_item)
        } else {
            0
        }
    }

    fn describe_mirrors(&self, now: Time, sheet: &mut StatusSheet) {
        let mut rows = Vec::new();
        for (at, mirror) in self.mirrors.iter().enumerate() {
            let left = self.repairs.get(&at).map_or(0, Repair::chunks_left);
            let writes_left = self.writes_left(at);
            self.describe_mirror(mirror, (left, writes_left), sheet);
            let silent = now.since(mirror.heard_at.min(now));
            rows.push(vec![
                mirror.node.to_string(),
                mirror.state.name().to_owned(),
                mirror.reason.clone(),
                thousands(mirror.flushed),
                thousands(self.lag(mirror)),
                thousands(left),
                thousands(writes_left),
                format!("{:.1} s ago", silent.as_secs_f64()),
            ]);
        }
        let columns = &[
            "replica",
            "state",
            "reason",
            "durable flush",
            "lag (items)",
            "chunks to repair",
            "writes to repeat",
            "last message",
        ];
        sheet.table("Replicas", columns, rows);
        sheet.chart(
            "Items that replicas have not acknowledged",
            &[("items", "volume_replica_lag_items", LinePart::Level)],
        );
        let chunks = "volume_replica_repair_chunks";
        sheet.chart("Chunks to repair", &[("chunks", chunks, LinePart::Level)]);
    }

    fn describe_mirror(
        &self,
        mirror: &Mirror,
        (chunks_left, writes_left): (u64, u64),
        sheet: &mut StatusSheet,
    ) {
        let labels = || vec![("replica", mirror.node.to_string())];
        let is_active = mirror.state == MirrorState::Active;
        let is_repairing = mirror.state == MirrorState::Repairing;
        for (name, about, value) in [
            (
                "volume_replica_is_active",
                "1 if the replica has everything",
                flag(is_active),
            ),
            (
                "volume_replica_repairing",
                "1 while what the replica missed is copied to it",
                flag(is_repairing),
            ),
            (
                "volume_replica_lag_items",
                "Writes and flushes that the replica has not acknowledged",
                self.lag(mirror) as f64,
            ),
            (
                "volume_replica_repair_chunks",
                "Chunks left to compare in the repair under way",
                chunks_left as f64,
            ),
            (
                "volume_replica_repair_writes",
                "Kept writes left to send in the repair under way",
                writes_left as f64,
            ),
        ] {
            sheet.metric(name, about, labels(), MetricValue::Gauge(value));
        }
        let [repairs, repaired] = mirror.repairs;
        for (name, about, count) in [
            ("volume_replica_repairs_total", "Repairs begun", repairs),
            (
                "volume_replica_replays_total",
                "Repairs begun that send kept writes and compare nothing",
                mirror.replays,
            ),
            (
                "volume_replica_repaired_blocks_total",
                "Blocks copied by repairs",
                repaired,
            ),
            (
                "volume_replica_resent_messages_total",
                "Messages sent again",
                mirror.resent,
            ),
            (
                "volume_replica_damaged_reads_total",
                "Parts of reads that the replica could not deliver intact",
                mirror.damaged,
            ),
        ] {
            sheet.metric(name, about, labels(), MetricValue::Counter(count as f64));
        }
        let acks = MetricValue::Durations(Box::new(mirror.acks.clone()));
        let about = "Time from sending a write or flush to the replica's acknowledgement that it is written";
        sheet.metric("volume_replica_ack_seconds", about, labels(), acks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{BlockNumber, BlockSpan};
    use std::time::Duration;

    #[test]
    fn requests_are_counted_from_arrival_to_reply() {
        let mut figures = UpstairsFigures::default();
        let span = BlockSpan {
            first: BlockNumber(0),
            count: 1,
        };
        figures.begin(Ticket(1), &GuestRequest::Read(span));
        figures.begin(Ticket(2), &GuestRequest::Flush);
        figures.begin(Ticket(3), &GuestRequest::Status);
        assert_eq!(figures.open.len(), 2, "a question for the status is none");
        figures.now = Time::ZERO + Duration::from_millis(5);
        figures.end(Ticket(1), false);
        figures.end(Ticket(2), true);
        figures.end(Ticket(3), true);
        assert!(figures.open.is_empty());
        let counts = figures.replied.each_ref().map(DurationHistogram::count);
        assert_eq!((counts, figures.failed), ([1, 0, 1, 0], [0, 0, 1, 0]));
        assert_eq!(figures.replied[0].sum(), Duration::from_millis(5));
    }
}
