//! Warnings of a server about its connections, at a bounded rate.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Interval between two warnings of a kind; the second one says how many were omitted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Logs warnings about connections, at most one per second of each kind, so that an attack cannot fill the log. The text may
/// quote bytes of a client: the subscriber escapes control characters.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    kinds: BTreeMap<&'static str, NoticeKind>,
}

#[derive(Clone, Copy, Debug)]
struct NoticeKind {
    said: Instant,
    left_out: u64,
}

impl Notices {
    /// Logs a warning, or counts it as omitted.
    pub(crate) fn say(&mut self, kind: &'static str, text: fmt::Arguments<'_>) {
        self.say_at(Instant::now(), kind, text, |text| tracing::warn!("{text}"));
    }

    fn say_at(
        &mut self,
        now: Instant,
        kind: &'static str,
        text: fmt::Arguments<'_>,
        log: impl FnOnce(fmt::Arguments<'_>),
    ) {
        let left_out = match self.kinds.get_mut(kind) {
            Some(known) if now.duration_since(known.said) < INTERVAL => {
                known.left_out += 1;
                return;
            }
            Some(known) => known.left_out,
            None => 0,
        };
        let said = NoticeKind {
            said: now,
            left_out: 0,
        };
        self.kinds.insert(kind, said);
        if left_out > 0 {
            log(format_args!("{text} ({left_out} more like this since)"));
        } else {
            log(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn one_line_of_a_kind_a_second() {
        let (mut notices, mut said) = (Notices::default(), Vec::new());
        let began = Instant::now();
        for millisecond in 0..2_500 {
            let now = began + Duration::from_millis(millisecond);
            let text = format_args!("{millisecond} closed");
            notices.say_at(now, "closed", text, |text| said.push(text.to_string()));
        }
        let text = format_args!("another kind");
        notices.say_at(began, "refused", text, |text| said.push(text.to_string()));
        let expected = [
            "0 closed",
            "1000 closed (999 more like this since)",
            "2000 closed (999 more like this since)",
            "another kind",
        ];
        assert_eq!(said, expected);
    }
}
