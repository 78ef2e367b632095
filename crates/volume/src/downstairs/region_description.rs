//! The description of a replica for its status page and metrics.

use super::Downstairs;
use seatrial_machine::{DurationHistogram, LinePart, StatusSheet, Time, thousands};
use std::collections::VecDeque;

/// Counts and durations since the start, for the description.
#[derive(Debug, Default)]
pub(super) struct DownstairsFigures {
    /// The time of the turn.
    pub(super) now: Time,
    /// Ends of the appends with a sync that are under way, and when they began.
    syncing: VecDeque<(u64, Time)>,
    syncs: DurationHistogram,
    /// Times from a question for slots to its answer.
    pub(super) reads: DurationHistogram,
    /// Reads of slots that failed.
    pub(super) failed_reads: u64,
    /// Blocks of the log, and bytes of them.
    blocks: u64,
    written_bytes: u64,
    /// Bytes of slots that were appended again to free the head of the log.
    pub(super) moved_bytes: u64,
    pub(super) maps: u64,
    pub(super) failed_maps: u64,
    pub(super) sessions: u64,
    /// Messages that were refused: of a session that has ended, of another volume, of an older generation.
    pub(super) refused: u64,
}

impl DownstairsFigures {
    /// A block was appended, up to `end`.
    pub(super) fn appended(&mut self, length: u64, end: u64, is_synced: bool) {
        self.blocks += 1;
        self.written_bytes += length;
        if is_synced {
            self.syncing.push_back((end, self.now));
        }
    }

    /// The log is durable up to here.
    pub(super) fn synced(&mut self, durable: u64) {
        while let Some((_, since)) = self.syncing.pop_front_if(|it| it.0 <= durable) {
            self.syncs.add(self.now.since(since));
        }
    }
}

impl Downstairs {
    /// Adds session, log, reads and upkeep to a sheet. Costs a pass over the zones of the log.
    pub(super) fn describe_all(&self, sheet: &mut StatusSheet) {
        self.describe_facts(sheet);
        self.describe_log(sheet);
        self.describe_upkeep(sheet);
        self.describe_reads(sheet);
    }

    fn describe_facts(&self, sheet: &mut StatusSheet) {
        let geometry = &self.options.geometry;
        let session = match &self.session {
            Some(session) => format!(
                "{}, {} messages carried out",
                session.upstairs,
                thousands(session.applied)
            ),
            None => "none".to_owned(),
        };
        sheet.fact("session of", session);
        sheet.fact("volume", geometry.volume.to_string());
        let generation = self.region.grant.generation;
        sheet.fact("generation", thousands(u64::from(generation)));
        sheet.fact("last complete flush", thousands(self.region.mark.flush));
        let size = format!(
            "{} blocks of {} bytes",
            thousands(geometry.blocks),
            thousands(u64::from(geometry.block_length))
        );
        sheet.fact("size", size);
        for damage in self.damaged.iter().take(8) {
            sheet.fact("damaged at the start", damage.clone());
        }
        let about = "1 while an upstairs has a session";
        let has_session = f64::from(u8::from(self.session.is_some()));
        sheet.gauge("region_has_session", about, has_session);
        let about = "Largest generation that was granted";
        sheet.gauge("region_generation", about, f64::from(generation));
        let about = "Number of the last flush that includes everything";
        sheet.gauge("region_flush", about, self.region.mark.flush as f64);
        let snapshots = self.region.snapshots.len() as f64;
        sheet.gauge("region_snapshots", "Snapshots", snapshots);
        let about = "Pieces of the folder that were damaged at the start";
        sheet.gauge("region_damaged", about, self.damaged.len() as f64);
        let figures = &self.figures;
        let about = "Sessions begun";
        sheet.counter("region_sessions_total", about, figures.sessions);
        let about = "Messages refused: of an ended session, another volume or an older generation";
        sheet.counter("region_refused_total", about, figures.refused);
    }

    fn describe_log(&self, sheet: &mut StatusSheet) {
        let (used, kept) = self.used_bytes();
        let position = self.log.position();
        for (name, about, value) in [
            ("region_log_bytes", "Bytes of the log", kept),
            (
                "region_used_bytes",
                "Bytes of slots in use, of the volume and its snapshots",
                used,
            ),
            (
                "region_unsynced_bytes",
                "Bytes at the end of the log that are not durable yet",
                position - self.log.durable(),
            ),
        ] {
            sheet.gauge(name, about, value as f64);
        }
        let figures = &self.figures;
        let about = "Blocks appended to the log; each has the slots of a message";
        sheet.counter("region_log_blocks_total", about, figures.blocks);
        let about = "Bytes appended to the log";
        sheet.counter("region_appended_bytes_total", about, figures.written_bytes);
        let about = "Time from an append with a sync to its report by the disk";
        sheet.durations("region_sync_seconds", about, &figures.syncs);
        sheet.chart(
            "Bytes written",
            &[
                ("log", "region_appended_bytes_total", LinePart::Rate),
                (
                    "moved by cleaning",
                    "region_moved_bytes_total",
                    LinePart::Rate,
                ),
            ],
        );
        sheet.chart(
            "Log",
            &[
                ("log", "region_log_bytes", LinePart::Level),
                ("in use", "region_used_bytes", LinePart::Level),
            ],
        );
    }

    fn describe_upkeep(&self, sheet: &mut StatusSheet) {
        let upkeep = &self.upkeep;
        let activity = upkeep.activity();
        sheet.fact("upkeep", activity);
        let about = "Bytes of the log's head that are read to move what is in use";
        sheet.gauge("region_cleaning_bytes", about, upkeep.to_clean() as f64);
        let about = "Bytes of the log after the newest map file, which a start reads";
        let after_map = self.log.position() - upkeep.map();
        sheet.gauge("region_replay_bytes", about, after_map as f64);
        let figures = &self.figures;
        let about = "Bytes of slots appended again to free the head of the log";
        sheet.counter("region_moved_bytes_total", about, figures.moved_bytes);
        let about = "Map files written";
        sheet.counter("region_maps_total", about, figures.maps);
        let about = "Map files that could not be written";
        sheet.counter("region_maps_failed_total", about, figures.failed_maps);
        sheet.chart(
            "Log that a start reads",
            &[("bytes", "region_replay_bytes", LinePart::Level)],
        );
    }

    fn describe_reads(&self, sheet: &mut StatusSheet) {
        let figures = &self.figures;
        let about = "Time from a question for slots to its answer";
        sheet.durations("region_read_seconds", about, &figures.reads);
        let about = "Reads of slots that failed";
        sheet.counter("region_failed_reads_total", about, figures.failed_reads);
        let about = "Reads under way";
        let open = self.reads.len() + self.unwritten.len();
        sheet.gauge("region_reads_under_way", about, open as f64);
        let (half, most) = (LinePart::Quantile(0.5), LinePart::Quantile(0.99));
        sheet.chart(
            "Latency of the disk",
            &[
                ("sync, median", "region_sync_seconds", half),
                ("sync, 99 %", "region_sync_seconds", most),
                ("read, median", "region_read_seconds", half),
                ("read, 99 %", "region_read_seconds", most),
            ],
        );
    }
}
