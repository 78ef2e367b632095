//! Timestamps of log lines.

use chrono::{Datelike as _, NaiveDate, NaiveDateTime};

/// Places the lines of logs on the clock of a history: reads the timestamp of each line, if it has one of the usual forms.
///
/// | form | example | written by |
/// | --- | --- | --- |
/// | ISO 8601, RFC 3339 | `2026-11-27T15:26:55.123Z`, `2026-11-27 15:26:55,123` | PostgreSQL, Java, Rust, systemd |
/// | the same in JSON | `{"level":"info","ts":"2026-11-27T15:26:55.123Z",…}` | etcd, Go's zap and slog |
/// | with slashes | `2026/11/27 15:26:55.123456` | Go's log, NATS, nginx |
/// | day, month, year | `27 Nov 2026 15:26:55.123` | Redis |
/// | syslog | `Nov 27 15:26:55` | syslog; the year is that of the run |
/// | glog | `I1127 15:26:55.123456` | Go's and C++'s glog |
/// | seconds, ms, µs or ns since 1970 | `1764257215.123`, `{"ts":1764257215.123}` | zap, Bunyan |
///
/// A timestamp without a zone is in the local time of the node, which the log does not name. Nodes start with the run, so the
/// first such timestamp of a log decides how many quarters of an hour its zone is away.
#[derive(Clone, Debug)]
pub struct LogClock {
    /// Nanoseconds since 1970 when the history's clock was zero.
    started: i64,
    /// The year in which that was.
    year: i32,
    /// The zone of the log that is read, in nanoseconds; `None` before its first timestamp without a zone.
    zone: Option<i64>,
}

/// Zones differ by multiples of this.
const QUARTER: i64 = 900 * SECOND;
const SECOND: i64 = 1_000_000_000;
/// Characters at the beginning of a line that are searched for a timestamp.
const SEARCHED: usize = 96;
/// Characters of a JSON line that are searched for its time.
const JSON_SEARCHED: usize = 512;
/// Names of times in JSON.
const JSON_NAMES: [&str; 6] = [
    "\"ts\":",
    "\"time\":",
    "\"timestamp\":",
    "\"@timestamp\":",
    "\"t\":",
    "\"Time\":",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A timestamp as it is written: nanoseconds since 1970 of what the clock on the wall shows, and its zone if there is one.
type Written = (i64, Option<i64>);

impl LogClock {
    /// A clock for logs of a run whose history began this many nanoseconds after 1970.
    pub fn new(started: i64) -> LogClock {
        let begin = chrono::DateTime::from_timestamp_nanos(started);
        LogClock {
            started,
            year: begin.year(),
            zone: None,
        }
    }

    /// Begins another log, whose zone is not known.
    pub fn begin(&mut self) {
        self.zone = None;
    }

    /// The time of a line in nanoseconds since the history began; `None` if it has no timestamp of a known form.
    pub fn time_of(&mut self, line: &str) -> Option<i64> {
        let (wall, zone) = self.written(line)?;
        let zone = match zone {
            Some(zone) => zone,
            None => *self.zone.get_or_insert_with(|| {
                let away = wall.saturating_sub(self.started);
                away.saturating_add(QUARTER / 2).div_euclid(QUARTER) * QUARTER
            }),
        };
        wall.checked_sub(zone)?.checked_sub(self.started)
    }

    fn written(&self, line: &str) -> Option<Written> {
        let line = line.trim_start();
        if line.starts_with('{') {
            return self.of_json(head(line, JSON_SEARCHED));
        }
        let head = head(line, SEARCHED);
        self.of_text(head)
    }

    /// The value of the field of a JSON object that names its time.
    fn of_json(&self, line: &str) -> Option<Written> {
        let value = JSON_NAMES.iter().find_map(|name| {
            let at = line.find(name)? + name.len();
            Some(line[at..].trim_start())
        })?;
        match value.strip_prefix('"') {
            Some(text) => self.of_text(text),
            None => epoch(value),
        }
    }

    fn of_text(&self, text: &str) -> Option<Written> {
        let bare = text.trim_start_matches(['[', '(']);
        if let Some(found) = epoch(bare).or_else(|| self.glog(bare)) {
            return Some(found);
        }
        // Each place where a date may begin: a digit or a capital letter after something else.
        let bytes = text.as_bytes();
        (0..bytes.len()).find_map(|at| {
            let begins = at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
            let may = begins && (bytes[at].is_ascii_digit() || bytes[at].is_ascii_uppercase());
            let rest = may.then(|| &text[at..])?;
            year_first(rest)
                .or_else(|| day_first(rest))
                .or_else(|| self.syslog(rest))
        })
    }

    /// `Nov 27 15:26:55`.
    fn syslog(&self, text: &str) -> Option<Written> {
        let mut text = TimestampReader(text);
        let month = text.month()?;
        text.spaces()?;
        let day = text.number(1, 2)?;
        text.spaces()?;
        let (time, nanoseconds) = text.time()?;
        self.in_run(month, day, time, nanoseconds)
    }

    /// `I1127 15:26:55.123456`.
    fn glog(&self, text: &str) -> Option<Written> {
        let rest = text.strip_prefix(['I', 'W', 'E', 'F', 'D'])?;
        let mut text = TimestampReader(rest);
        let (month, day) = (text.number(2, 2)?, text.number(2, 2)?);
        text.spaces()?;
        let (time, nanoseconds) = text.time()?;
        self.in_run(month, day, time, nanoseconds)
    }

    /// A date without a year: the one nearest to the run.
    fn in_run(
        &self,
        month: u32,
        day: u32,
        time: (u32, u32, u32),
        nanoseconds: u32,
    ) -> Option<Written> {
        let years = [self.year - 1, self.year, self.year + 1];
        let walls = years
            .iter()
            .filter_map(|year| wall((*year, month, day), time, nanoseconds));
        let nearest = walls.min_by_key(|wall| wall.abs_diff(self.started))?;
        Some((nearest, None))
    }
}

/// The first characters of a text.
fn head(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `2026-11-27T15:26:55.123+01:00`, `2026/11/27 15:26:55`.
fn year_first(text: &str) -> Option<Written> {
    let mut text = TimestampReader(text);
    let year = text.number(4, 4)?;
    let separator = if text.skip("-") { "-" } else { "/" };
    if separator == "/" {
        text.expect("/")?;
    }
    let month = text.number(2, 2)?;
    text.expect(separator)?;
    let day = text.number(2, 2)?;
    if !text.skip("T") {
        text.spaces()?;
    }
    let (time, nanoseconds) = text.time()?;
    let wall = wall((year as i32, month, day), time, nanoseconds)?;
    Some((wall, text.zone()))
}

/// `27 Nov 2026 15:26:55.123`.
fn day_first(text: &str) -> Option<Written> {
    let mut text = TimestampReader(text);
    let day = text.number(1, 2)?;
    if !text.skip(" ") {
        text.expect("/")?;
    }
    let month = text.month()?;
    if !text.skip(" ") {
        text.expect("/")?;
    }
    let year = text.number(4, 4)?;
    if !text.skip(" ") {
        text.expect(":")?;
    }
    let (time, nanoseconds) = text.time()?;
    let wall = wall((year as i32, month, day), time, nanoseconds)?;
    Some((wall, text.zone()))
}

/// Seconds since 1970 with or without a fraction, or milliseconds, microseconds, nanoseconds, by their number of digits.
fn epoch(text: &str) -> Option<Written> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match digits {
        10 => SECOND,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    let whole: i64 = text[..digits].parse().ok()?;
    let mut rest = TimestampReader(&text[digits..]);
    let fraction = if unit == SECOND { rest.fraction() } else { 0 };
    if rest.0.starts_with(|next: char| next.is_alphanumeric()) {
        return None;
    }
    let nanoseconds = whole.checked_mul(unit)?.checked_add(fraction.into())?;
    Some((nanoseconds, Some(0)))
}

/// Nanoseconds since 1970 of a date and a time.
fn wall(date: (i32, u32, u32), time: (u32, u32, u32), nanoseconds: u32) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(date.0, date.1, date.2)?;
    let time: NaiveDateTime = date.and_hms_nano_opt(time.0, time.1, time.2, nanoseconds)?;
    time.and_utc().timestamp_nanos_opt()
}

/// The rest of a text that is read from its beginning.
struct TimestampReader<'t>(&'t str);

impl TimestampReader<'_> {
    fn skip(&mut self, what: &str) -> bool {
        let rest = self.0.strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, what: &str) -> Option<()> {
        self.skip(what).then_some(())
    }

    fn spaces(&mut self) -> Option<()> {
        let rest = self.0.trim_start_matches(' ');
        let found = rest.len() < self.0.len();
        self.0 = rest;
        found.then_some(())
    }

    /// A number of `min` to `max` digits.
    fn number(&mut self, min: usize, max: usize) -> Option<u32> {
        let digits = self
            .0
            .bytes()
            .take(max)
            .take_while(u8::is_ascii_digit)
            .count();
        let number = self.0[..digits].parse().ok();
        self.0 = &self.0[digits..];
        number.filter(|_| digits >= min)
    }

    fn month(&mut self) -> Option<u32> {
        let at = MONTHS.iter().position(|name| self.skip(name))?;
        Some(at as u32 + 1)
    }

    /// `15:26:55.123`: the time, and the fraction in nanoseconds.
    fn time(&mut self) -> Option<((u32, u32, u32), u32)> {
        let hour = self.number(2, 2)?;
        self.expect(":")?;
        let minute = self.number(2, 2)?;
        self.expect(":")?;
        let second = self.number(2, 2)?;
        Some(((hour, minute, second), self.fraction()))
    }

    /// The digits after a point or a comma, in nanoseconds; 0 without.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.0.strip_prefix(['.', ',']) else {
            return 0;
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.0 = &rest[digits..];
        let kept = &rest[..digits.min(9)];
        let value: u32 = kept.parse().unwrap_or(0);
        value * 10_u32.pow(9 - kept.len() as u32)
    }

    /// `Z`, ` UTC`, `+01:00`, `-0330`: nanoseconds east of Greenwich; `None` if there is no zone, or only a name.
    fn zone(&mut self) -> Option<i64> {
        self.skip(" ");
        for name in ["Z", "UTC", "GMT"] {
            if self.skip(name) {
                return Some(0);
            }
        }
        let sign = if self.skip("+") {
            1
        } else {
            self.expect("-")?;
            -1
        };
        let hours = self.number(2, 2)?;
        self.skip(":");
        let minutes = self.number(2, 2).unwrap_or(0);
        Some(sign * i64::from(hours * 60 + minutes) * 60 * SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27T15:26:00Z.
    const STARTED: i64 = 1_795_793_160 * SECOND;

    fn millisecond(line: &str) -> Option<i64> {
        let time = LogClock::new(STARTED).time_of(line)?;
        Some(time / 1_000_000)
    }

    #[test]
    fn the_usual_forms() {
        for line in [
            "2026-11-27T15:26:55.123Z INFO started",
            "2026-11-27T15:26:55.123456+00:00 info",
            "2026-11-27T16:26:55.123+01:00 info",
            "2026-11-27T11:56:55.123-0330 info",
            "2026-11-27 15:26:55.123 UTC [77] LOG:  checkpoint starting",
            "[2026-11-27 15:26:55,123] INFO [Broker id=1]",
            "2026-11-27 15:26:55,123 [myid:1] - INFO",
            "{\"level\":\"warn\",\"ts\":\"2026-11-27T15:26:55.123Z\",\"msg\":\"slow\"}",
            "{\"level\":\"warn\",\"ts\":1795793215.123,\"msg\":\"slow\"}",
            "{\"level\":\"warn\", \"time\": 1795793215123}",
            "[7] 2026/11/27 15:26:55.123456 [INF] ready",
            "1234:M 27 Nov 2026 15:26:55.123 * Ready",
            "Nov 27 15:26:55.123 host db[7]: ready",
            "I1127 15:26:55.123456 7 main.cc:3] ready",
            "1795793215.123 ready",
            "1795793215123 ready",
        ] {
            assert_eq!(millisecond(line), Some(55_123), "{line}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for line in [
            "",
            "ready",
            "{\"level\":\"info\"}",
            "12345 67",
            "1795793215abc",
            "2026-13-27 15:26:55",
            "2026-11-27",
            "Nov",
            "99 Nov 2026 15:26:55",
            "Novv 27 15:26:55",
            "2026-11-27T25:00:00Z",
            "ä2026é",
        ] {
            assert_eq!(millisecond(line), None, "{line}");
        }
    }

    #[test]
    fn a_zone_that_is_not_written_is_found_once_per_log() {
        let mut clock = LogClock::new(STARTED);
        // Two hours east, before the run by a second; then an hour into the run.
        assert_eq!(clock.time_of("2026/11/27 17:25:59 a"), Some(-SECOND));
        assert_eq!(clock.time_of("2026/11/27 18:26:01 b"), Some(3_601 * SECOND));
        clock.begin();
        assert_eq!(clock.time_of("2026/11/27 15:26:01 c"), Some(SECOND));
    }

    #[test]
    fn a_date_without_year_at_the_turn_of_the_year() {
        // 2026-12-31T23:59:59Z.
        let mut clock = LogClock::new(1_798_761_599 * SECOND);
        assert_eq!(clock.time_of("Jan  1 00:00:01 x"), Some(2 * SECOND));
    }

    /// Lines of all sorts of bytes neither panic nor take long.
    #[test]
    fn any_text_is_read() {
        let mut state = 7_u64;
        let letters: Vec<char> = "0123456789-/:.,TZ +UNov[]{}\"tsäI".chars().collect();
        let mut clock = LogClock::new(STARTED);
        for _ in 0..20_000 {
            let line: String = (0..40)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    letters[(state >> 33) as usize % letters.len()]
                })
                .collect();
            clock.begin();
            let _ = clock.time_of(&line);
        }
    }
}
