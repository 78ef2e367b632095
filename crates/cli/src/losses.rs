//! Which parts of a history are missing.

use seatrial_checker::Missing;
use seatrial_history::{History, Provenance, REPAIRED, SALVAGED, Salvaged};
use serde_json::{Value as Json, json};

/// Most gaps that are named one by one.
const NAMED_MAX: usize = 3;

/// What a damaged file lacks; `orphans` completions were left out because their invocations are missing.
pub(crate) fn of_salvaged(salvaged: &Salvaged, orphans: usize) -> Option<Missing> {
    let missing = salvaged.missing();
    let mut named: Vec<String> = missing
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    if missing.len() > NAMED_MAX {
        named.push(format!("{} more gaps", missing.len() - NAMED_MAX));
    }
    let orphans = match orphans {
        0 => String::new(),
        1 => "; 1 completion without its invocation was left out".to_owned(),
        many => format!("; {many} completions without their invocations were left out"),
    };
    let what = format!("{}{orphans}", named.join(", "));
    (!missing.is_empty()).then(|| Missing::anywhere(what))
}

/// The places of a damaged file that hold no whole block, for people.
pub(crate) fn damages(salvaged: &Salvaged) -> Vec<String> {
    let damaged = salvaged.damaged().iter().map(|damaged| {
        let (from, to) = (damaged.bytes.start, damaged.bytes.end);
        format!("bytes {from} to {to} are damaged: {}", damaged.reason)
    });
    damaged.collect()
}

/// What a history lacks that was written from another which was damaged, or whose writer never came to an end.
pub(crate) fn of_attributes(attributes: &Json) -> Option<Missing> {
    of_salvage(attributes).or_else(|| {
        let is_unended = Provenance::of_attributes(attributes).is_unended();
        is_unended.then(|| of_unsealed(attributes))
    })
}

/// What a file lacks that was salvaged from another.
fn of_salvage(attributes: &Json) -> Option<Missing> {
    let gaps = attributes[SALVAGED]["missing"].as_array()?.len();
    let what = format!("{gaps} gaps, see `seatrial show --attributes`");
    (gaps > 0).then(|| Missing::anywhere(what))
}

/// What was cut off a file by repairs.
pub(crate) fn of_repairs(attributes: &Json) -> Option<String> {
    let repairs = attributes[REPAIRED].as_array()?;
    let cut = repairs.iter().map(|repair| {
        let (bytes, offset) = (&repair["bytes"], &repair["offset"]);
        let reason = repair["reason"].as_str().unwrap_or("not known");
        format!("a repair cut {bytes} bytes off at {offset}: {reason}")
    });
    let cut: Vec<String> = cut.collect();
    (!cut.is_empty()).then(|| cut.join("; "))
}

/// The missing end of a test whose file was never sealed and ends with a whole block. Bytes that a repair cut off were
/// recorded; without a repair, nothing is known to have been.
pub(crate) fn of_unsealed(attributes: &Json) -> Missing {
    match of_repairs(attributes) {
        Some(cut) => Missing::damaged_end(cut),
        None => Missing::end("the test file was never sealed"),
    }
}

/// The end of a foreign history in which clients are still at work when it ends: Jepsen completes every operation, so
/// it was cut.
pub(crate) fn of_end(history: &History) -> Option<Missing> {
    let ops = history.iter().enumerate();
    let open = ops.filter(|(_, op)| op.is_invoke() && op.process.is_client());
    match open.filter(|(at, _)| history.pair(*at).is_none()).count() {
        0 => None,
        1 => Some(Missing::end("1 invocation has no completion")),
        many => Some(Missing::end(format!(
            "{many} invocations have no completion"
        ))),
    }
}

/// A sentence for people about operations that are missing.
pub(crate) fn warning(missing: &Missing) -> String {
    format!("operations of this history are missing: {}", missing.what())
}

/// For the document of `--json`; null when nothing is missing.
pub(crate) fn json(missing: &[Missing]) -> Json {
    let all: Vec<&str> = missing.iter().map(Missing::what).collect();
    match &all[..] {
        [] => Json::Null,
        all => json!(all.join("; ")),
    }
}
