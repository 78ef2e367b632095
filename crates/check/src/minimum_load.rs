//! The least load under which a verdict of validity counts.

use seatrial_checker::{Overview, Validity, Verdict};
use seatrial_machine::{counted, thousands};
use serde_json::{Map, Value as Json, json};

/// The number of operations that must have completed `ok`. A history with fewer may be valid only because nothing happened: its
/// valid verdicts become unknown. What was found stays found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MinimumLoad {
    /// Operations of clients.
    pub ok: Option<u64>,
    /// Operations of clients per second of the history.
    pub rate: Option<f64>,
    /// Operations of each function that clients invoked.
    pub each: Option<u64>,
}

impl MinimumLoad {
    /// The name of the attribute of a test that has one.
    const ATTRIBUTE: &'static str = "min_ok";

    /// Adds what `--min-ok` takes: a number, or a rate as `50/s`. The error says what is expected.
    pub fn with_text(mut self, text: &str) -> Result<MinimumLoad, String> {
        let expected =
            || format!("expected a number above 0, or a rate such as 50/s, not `{text}`");
        if let Some(rate) = text.trim().strip_suffix("/s") {
            let rate: f64 = rate.trim().parse().map_err(|_| expected())?;
            if !(rate.is_finite() && rate > 0.0) {
                return Err(expected());
            }
            self.rate = Some(rate);
            return Ok(self);
        }
        let number: u64 = text.trim().parse().map_err(|_| expected())?;
        if number == 0 {
            return Err(expected());
        }
        self.ok = Some(number);
        Ok(self)
    }

    /// This minimum, and where it says nothing, that one.
    #[must_use]
    pub fn or(self, other: MinimumLoad) -> MinimumLoad {
        MinimumLoad {
            ok: self.ok.or(other.ok),
            rate: self.rate.or(other.rate),
            each: self.each.or(other.each),
        }
    }

    /// The minimum that the attributes of a test name.
    pub fn of_attributes(attributes: &Json) -> MinimumLoad {
        let field = &attributes[MinimumLoad::ATTRIBUTE];
        MinimumLoad {
            ok: field["ok"].as_u64(),
            rate: field["rate"].as_f64(),
            each: field["each"].as_u64(),
        }
    }

    /// Adds the minimum to the attributes of a test, if there is one.
    pub fn add_to(&self, attributes: &mut Map<String, Json>) {
        if *self != MinimumLoad::default() {
            let MinimumLoad { ok, rate, each } = self;
            let field = json!({"ok": ok, "rate": rate, "each": each});
            attributes.insert(MinimumLoad::ATTRIBUTE.to_owned(), field);
        }
    }

    /// What is missing to the minimum, in one line.
    pub fn shortfall(&self, overview: &Overview) -> Option<String> {
        let (all, by_function) = overview.counts();
        if let Some(min) = self.ok.filter(|min| all.ok < *min) {
            let (ok, min) = (counted(all.ok, "operation"), thousands(min));
            return Some(format!("{ok} ok, fewer than the minimum of {min}"));
        }
        let seconds = overview.seconds();
        let rate = if seconds > 0.0 {
            all.ok as f64 / seconds
        } else {
            0.0
        };
        if let Some(min) = self.rate.filter(|min| rate < *min) {
            return Some(format!(
                "{rate:.1} operations per second ok, fewer than the minimum of {min}"
            ));
        }
        let min = self.each?;
        let (name, counts) = by_function
            .into_iter()
            .find(|(_, counts)| counts.ok < min)?;
        let (ok, min) = (counted(counts.ok, "operation"), thousands(min));
        Some(format!(
            "{ok} `{name}` ok, fewer than the minimum of {min} of each function"
        ))
    }

    /// Makes valid verdicts unknown if there is a shortfall.
    pub(crate) fn apply(&self, verdicts: &mut [Verdict], overview: &Overview) {
        let Some(reason) = self.shortfall(overview) else {
            return;
        };
        for verdict in verdicts
            .iter_mut()
            .filter(|one| one.valid == Validity::Valid)
        {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason.clone());
        }
        assert!(
            verdicts.iter().all(|one| one.valid != Validity::Valid),
            "a verdict is valid below the minimum load"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ground;
    use seatrial_history::{History, Op, OpType, Process, Value};

    /// Two writes and one read that are ok, and a read that fails, within two seconds.
    fn overview() -> Overview {
        let mut ops = Vec::new();
        for (at, (f, kind)) in [
            ("write", OpType::Ok),
            ("write", OpType::Ok),
            ("read", OpType::Ok),
            ("read", OpType::Fail),
        ]
        .into_iter()
        .enumerate()
        {
            let op = Op::invoke(Process::Client(at as u64), f, Value::Int(1));
            let time = at as i64 * 500_000_000;
            ops.push(Op { time, ..op.clone() });
            ops.push(Op {
                time: time + 500_000_000,
                ..op.complete(kind, Value::Int(1))
            });
        }
        Overview::of(&History::from_unindexed(ops)).unwrap()
    }

    #[test]
    fn each_minimum_has_its_reason() {
        let overview = overview();
        let reason = |text: &str| {
            let minimum = MinimumLoad::default().with_text(text).unwrap();
            minimum.shortfall(&overview)
        };
        assert_eq!(reason("3"), None);
        assert!(reason("4").unwrap().contains("3 operations ok"));
        assert_eq!(reason("1.5/s"), None);
        assert!(
            reason("1.6/s")
                .unwrap()
                .contains("1.5 operations per second ok")
        );
        let each = |each| MinimumLoad {
            each: Some(each),
            ..MinimumLoad::default()
        };
        assert_eq!(each(1).shortfall(&overview), None);
        assert!(
            each(2)
                .shortfall(&overview)
                .unwrap()
                .contains("1 operation `read` ok")
        );
        for wrong in ["", "0", "-1", "x", "0/s", "nan/s", "1/m"] {
            assert!(MinimumLoad::default().with_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn valid_becomes_unknown_and_invalid_stays() {
        let mut invalid = Verdict::valid("set");
        invalid.valid = Validity::Invalid;
        invalid.anomalies = [("lost", 1)].into();
        let mut verdicts = [Verdict::valid("stats"), invalid];
        let ground = Ground {
            minimum: MinimumLoad::default().with_text("4").unwrap(),
            ..Ground::default()
        };
        ground.settle(&mut verdicts, &overview());
        assert!(
            matches!(&verdicts[0].valid, Validity::Unknown(reason) if reason.contains("minimum of 4"))
        );
        assert_eq!(verdicts[1].valid, Validity::Invalid);
    }

    #[test]
    fn attributes_keep_it() {
        let minimum = MinimumLoad {
            ok: Some(7),
            rate: None,
            each: Some(2),
        };
        let mut attributes = Map::new();
        minimum.add_to(&mut attributes);
        let attributes = Json::Object(attributes);
        assert_eq!(MinimumLoad::of_attributes(&attributes), minimum);
        let stricter = MinimumLoad::default().with_text("9").unwrap().or(minimum);
        assert_eq!((stricter.ok, stricter.each), (Some(9), Some(2)));
        assert_eq!(
            MinimumLoad::of_attributes(&Json::Null),
            MinimumLoad::default()
        );
    }
}
