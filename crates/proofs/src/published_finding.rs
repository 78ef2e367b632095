//! A published finding, its two tests, and what they have shown.

use crate::installed::InstalledServer;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A published finding, and the two tests that show it.
#[derive(Debug)]
pub struct PublishedFinding {
    /// Its name: lower case, with hyphens.
    pub name: &'static str,
    /// What was published, in a sentence.
    pub claim: &'static str,
    /// Where.
    pub source: &'static str,
    /// Names of the servers that it needs, as in [`SERVERS`](crate::SERVERS).
    pub(crate) servers: &'static [&'static str],
    /// The words after `seatrial test` that both tests share, the suite first.
    pub(crate) common: &'static str,
    /// The test that finds it.
    pub hit: FindingTest,
    /// The test that finds nothing.
    pub control: FindingTest,
}

impl PublishedFinding {
    /// The servers that it needs and that are not installed.
    pub fn missing(&self) -> Vec<&'static InstalledServer> {
        let needed = self.servers.iter().map(|name| InstalledServer::named(name));
        needed.filter(|server| server.path().is_none()).collect()
    }

    /// The suite of its tests.
    pub fn suite(&self) -> &'static str {
        let mut words = self.common.split_whitespace();
        words.next().expect("the table names a suite")
    }

    /// The words of one of its tests after `seatrial test`.
    pub fn words(&self, test: &FindingTest) -> Vec<&'static str> {
        let all = [self.common, test.words];
        all.into_iter().flat_map(str::split_whitespace).collect()
    }
}

/// One test: in what it differs from the other, and what it must show.
#[derive(Debug)]
pub struct FindingTest {
    /// The setting that the two tests of a proof differ in.
    pub setting: &'static str,
    /// The words that set it.
    pub(crate) words: &'static str,
    /// What must come out.
    pub expected: ExpectedVerdict,
}

/// What a test must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVerdict {
    /// An invalid history, with at least one of these anomalies.
    AnyOf(&'static [&'static str]),
    /// An invalid history, with this anomaly and no other.
    Only(&'static str),
    /// A valid history.
    Valid,
}

impl fmt::Display for ExpectedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedVerdict::AnyOf(names) => f.write_str(&names.join(" or ")),
            ExpectedVerdict::Only(name) => write!(f, "{name}, no other anomaly"),
            ExpectedVerdict::Valid => f.write_str("valid"),
        }
    }
}

impl ExpectedVerdict {
    /// Does what was seen agree?
    pub fn compare(&self, seen: &Seen) -> Reproduction {
        let Some(valid) = seen.valid else {
            return Reproduction::Unknown;
        };
        let has = |name: &&str| seen.anomalies.contains_key(*name);
        let agrees = match self {
            ExpectedVerdict::Valid => valid,
            ExpectedVerdict::AnyOf(names) => !valid && names.iter().any(has),
            ExpectedVerdict::Only(name) => !valid && has(name) && seen.anomalies.len() == 1,
        };
        if agrees {
            Reproduction::AsPublished
        } else {
            Reproduction::Different
        }
    }
}

/// How what was seen compares with what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reproduction {
    /// As expected.
    AsPublished,
    /// The test ended without a verdict.
    Unknown,
    /// Something else.
    Different,
}

/// What a test has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its verdict; `None` is unknown.
    pub valid: Option<bool>,
    /// How often each anomaly was found.
    pub anomalies: BTreeMap<String, u64>,
    /// Operations of clients.
    pub operations: u64,
    /// From start to verdict.
    pub time: Duration,
    /// The run folder, with its report.
    pub folder: PathBuf,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found: Vec<String> = self
            .anomalies
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        match self.valid {
            Some(true) => f.write_str("valid")?,
            Some(false) if found.is_empty() => f.write_str("invalid")?,
            Some(false) => f.write_str(&found.join(", "))?,
            None => f.write_str("unknown")?,
        }
        let seconds = self.time.as_secs_f64();
        write!(f, " in {} operations, {seconds:.1} s", self.operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(valid: Option<bool>, anomalies: &[(&str, u64)]) -> Seen {
        let owned = |&(name, count): &(&str, u64)| (name.to_owned(), count);
        Seen {
            valid,
            anomalies: anomalies.iter().map(owned).collect(),
            operations: 1_000,
            time: Duration::from_millis(8_250),
            folder: PathBuf::new(),
        }
    }

    #[test]
    fn only_what_was_published_agrees() {
        use Reproduction::{AsPublished, Different, Unknown};
        let skew = ExpectedVerdict::Only("G2-item");
        let lost = ExpectedVerdict::AnyOf(&["lost-update", "G-single"]);
        let rows = [
            (ExpectedVerdict::Valid, Some(true), &[][..], AsPublished),
            (
                ExpectedVerdict::Valid,
                Some(false),
                &[("G2-item", 1)],
                Different,
            ),
            (ExpectedVerdict::Valid, None, &[], Unknown),
            (skew, Some(false), &[("G2-item", 1)], AsPublished),
            (skew, Some(true), &[], Different),
            (skew, Some(false), &[("G2-item", 1), ("G1a", 1)], Different),
            (skew, Some(false), &[("G1a", 1)], Different),
            (skew, None, &[("G2-item", 1)], Unknown),
            (
                lost,
                Some(false),
                &[("G-single", 3), ("G1a", 1)],
                AsPublished,
            ),
            (lost, Some(false), &[("G1a", 1)], Different),
        ];
        for (expected, valid, anomalies, agreement) in rows {
            let seen = seen(valid, anomalies);
            assert_eq!(expected.compare(&seen), agreement, "{expected}: {seen}");
        }
    }

    #[test]
    fn what_was_seen_is_one_line() {
        let text = seen(Some(false), &[("G-single", 3), ("G2-item", 17)]).to_string();
        assert_eq!(text, "3 G-single, 17 G2-item in 1000 operations, 8.2 s");
        assert_eq!(
            seen(None, &[]).to_string(),
            "unknown in 1000 operations, 8.2 s"
        );
    }
}
