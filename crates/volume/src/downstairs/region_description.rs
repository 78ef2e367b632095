//! A replica's description of itself for its status page and metrics.

use super::Downstairs;
use seatrial_machine::{LinePart, StatusSheet, thousands};

impl Downstairs {
    /// Adds its generation, flushes, log and session to a sheet. Costs O(1).
    pub(super) fn describe_all(&self, sheet: &mut StatusSheet) {
        let region = &self.region;
        let session = self.session.as_ref();
        sheet.fact("volume", self.options.geometry.volume.to_string());
        sheet.fact("generation", thousands(u64::from(region.grant.generation)));
        sheet.fact("has everything up to flush", thousands(region.mark.flush));
        sheet.fact(
            "upstairs",
            session.map_or("none".to_owned(), |it| it.upstairs.to_string()),
        );
        let has_session = f64::from(u8::from(session.is_some()));
        let (used, length) = self.used_bytes();
        for (name, about, value) in [
            (
                "region_has_session",
                "1 if the replica serves an upstairs",
                has_session,
            ),
            (
                "region_generation",
                "The largest generation that was granted",
                f64::from(region.grant.generation),
            ),
            (
                "region_flush",
                "The last flush up to which the replica has everything",
                region.mark.flush as f64,
            ),
            (
                "region_used_bytes",
                "Bytes of blocks that are in use",
                used as f64,
            ),
            ("region_log_bytes", "Bytes of the log", length as f64),
            (
                "region_unwritten_bytes",
                "Bytes of the log that are not written yet",
                (self.log.position() - self.log.written()) as f64,
            ),
            (
                "region_reads_under_way",
                "Reads of the upstairs that were not answered",
                (self.reads.len() + self.unwritten.len()) as f64,
            ),
        ] {
            sheet.gauge(name, about, value);
        }
        let about = "Bytes that were appended to the log, of all starts";
        sheet.counter("region_appended_bytes_total", about, self.log.position());
        sheet.chart(
            "Log: bytes appended a second",
            &[("appended", "region_appended_bytes_total", LinePart::Rate)],
        );
        sheet.chart(
            "Bytes in use, bytes of the log",
            &[
                ("in use", "region_used_bytes", LinePart::Level),
                ("log", "region_log_bytes", LinePart::Level),
            ],
        );
    }
}
