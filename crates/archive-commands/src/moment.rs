//! Moments as people type and read them; stored ones are nanoseconds since 1970, UTC.

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, NaiveDate, NaiveTime};
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Now.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_nanos() as u64
}

/// `2026-11-21T09:30:00.25Z`, without the fraction, the seconds or the time of day too (`Z` may be missing: it is UTC
/// anyway); or how long before `now`: `90s`, `15m`, `2h`, `7d`.
pub(crate) fn parse(text: &str, now: u64) -> Result<u64> {
    parts(text, now).with_context(|| {
        format!(
            "{text:?} is no time; a time is 2026-11-21T09:30:00Z, or how long ago: 90s, 15m, 2h, 7d"
        )
    })
}

fn parts(text: &str, now: u64) -> Result<u64> {
    for (unit, seconds) in [('s', 1), ('m', 60), ('h', 3_600), ('d', DAY)] {
        if let Some(count) = text.strip_suffix(unit) {
            let ago = number(count, u64::MAX)?
                .saturating_mul(seconds)
                .saturating_mul(SECOND);
            return Ok(now.saturating_sub(ago));
        }
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let [year, month, day] = date.split('-').collect::<Vec<_>>()[..] else {
        bail!("a date has three parts")
    };
    let (year, month, day) = (number(year, 9_999)?, number(month, 12)?, number(day, 31)?);
    let date = NaiveDate::from_ymd_opt(year as i32, month as u32, day as u32);
    let date = date.context("there is no such day")?;
    let midnight = date.and_time(NaiveTime::MIN).and_utc().timestamp();
    let midnight = u64::try_from(midnight).context("not a day since 1970")?;
    let (hour, rest) = time.split_once(':').context("hours and minutes")?;
    let (minute, second) = rest.split_once(':').unwrap_or((rest, "0"));
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let minutes = number(hour, 23)? * 60 + number(minute, 59)?;
    let seconds = midnight + minutes * 60 + number(second, 60)?;
    ensure!(fraction.len() <= 9, "nanoseconds have nine digits");
    let fraction = number(&format!("{fraction:0<9}"), SECOND - 1)?;
    let nanoseconds = seconds
        .checked_mul(SECOND)
        .and_then(|whole| whole.checked_add(fraction));
    nanoseconds.context("too late to be stored")
}

/// Digits alone, up to `max`.
fn number(text: &str, max: u64) -> Result<u64> {
    ensure!(
        text.bytes().all(|byte| byte.is_ascii_digit()),
        "{text:?} is no number"
    );
    let number = text.parse().context("no number")?;
    ensure!(number <= max, "{number} is too large");
    Ok(number)
}

/// `2026-11-21T09:30:00.250000Z`: to the microsecond, which is what clocks of several machines can at best agree on.
pub(crate) fn show(time: u64) -> String {
    formatted(time, "%Y-%m-%dT%H:%M:%S%.6fZ")
}

/// `2026-11-21T09:30:00Z`, for tables.
pub(crate) fn show_seconds(time: u64) -> String {
    formatted(time, "%Y-%m-%dT%H:%M:%SZ")
}

/// Every stored time is before the year 2555, so chrono knows its day.
fn formatted(time: u64, format: &str) -> String {
    let (seconds, fraction) = (time / SECOND, time % SECOND);
    let time = DateTime::from_timestamp(seconds as i64, fraction as u32).unwrap_or_default();
    time.format(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn shown_times_are_accepted_as_input() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..10_000 {
            let time = rng.word() / 1_000 * 1_000;
            assert_eq!(parse(&show(time), 0).unwrap(), time, "{}", show(time));
        }
        assert_eq!(show(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            show(1_795_253_400_250_000_000),
            "2026-11-21T09:30:00.250000Z"
        );
        assert_eq!(show_seconds(951_782_400 * SECOND), "2000-02-29T00:00:00Z");
    }

    #[test]
    fn short_forms_and_ages() {
        let whole = parse("2026-11-21T09:30:00Z", 0).unwrap();
        assert_eq!(parse("2026-11-21T09:30", 0).unwrap(), whole);
        assert_eq!(parse("2026-11-21 09:30:00", 0).unwrap(), whole);
        assert_eq!(
            parse("2026-11-21", 0).unwrap(),
            whole - (9 * 60 + 30) * 60 * SECOND
        );
        assert_eq!(parse("90s", 100 * SECOND).unwrap(), 10 * SECOND);
        assert_eq!(parse("2h", 3 * 3_600 * SECOND).unwrap(), 3_600 * SECOND);
        assert_eq!(parse("7d", SECOND).unwrap(), 0, "not before 1970");
    }

    #[test]
    fn malformed_times_are_refused() {
        for text in [
            "",
            "now",
            "s",
            "-5m",
            "2026-13-01",
            "2026-02-29",
            "1969-12-31",
            "2026-11-21T24:00",
            "2026-11-21T09",
            "2026-11-21T09:30:00.1234567890",
            "9999-01-01",
            "2026-11-21T9:3:x",
            "99999999999999999999d",
            "2554-12-31",
        ] {
            let error = parse(text, 0).unwrap_err();
            assert!(format!("{error:#}").contains("is no time"), "{text}");
        }
    }
}
