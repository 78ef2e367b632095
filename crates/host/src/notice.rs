//! What a server says about its clients, at a bounded rate.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Where a server's notices go: one line each, which may quote what a client sent. The caller escapes what must not reach a
/// terminal.
pub type Report = fn(fmt::Arguments<'_>);

/// One line of a kind at most this often; the next says how many were left out.
const INTERVAL: Duration = Duration::from_secs(1);

/// Passes notices on, at most one a second of each kind: an attack fills no log.
#[derive(Debug)]
pub(crate) struct Notices {
    report: Report,
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    said: Instant,
    left_out: u64,
}

impl Notices {
    pub(crate) fn new(report: Report) -> Notices {
        Notices {
            report,
            kinds: BTreeMap::new(),
        }
    }

    /// Says it, or counts it.
    pub(crate) fn say(&mut self, kind: &'static str, text: fmt::Arguments<'_>) {
        self.say_at(Instant::now(), kind, text);
    }

    fn say_at(&mut self, now: Instant, kind: &'static str, text: fmt::Arguments<'_>) {
        let left_out = match self.kinds.get_mut(kind) {
            Some(known) if now.duration_since(known.said) < INTERVAL => {
                known.left_out += 1;
                return;
            }
            Some(known) => known.left_out,
            None => 0,
        };
        let said = Kind {
            said: now,
            left_out: 0,
        };
        self.kinds.insert(kind, said);
        if left_out > 0 {
            (self.report)(format_args!("{text} ({left_out} more like this since)"));
        } else {
            (self.report)(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn one_line_of_a_kind_a_second() {
        let mut notices = Notices::new(|text| SAID.with_borrow_mut(|it| it.push(text.to_string())));
        let began = Instant::now();
        for millisecond in 0..2_500 {
            let now = began + Duration::from_millis(millisecond);
            notices.say_at(now, "closed", format_args!("{millisecond} closed"));
        }
        notices.say_at(began, "refused", format_args!("another kind"));
        let said = SAID.take();
        let expected = [
            "0 closed",
            "1000 closed (999 more like this since)",
            "2000 closed (999 more like this since)",
            "another kind",
        ];
        assert_eq!(said, expected);
    }
}
