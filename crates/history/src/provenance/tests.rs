use super::*;
use serde_json::json;

#[test]
fn provenance_is_read_from_attributes_and_written_back() {
    let attributes =
        json!({"name": "x", "workload": "queue", "options": {"model": "SI", "rate": 7}});
    let plain = Provenance::of_attributes(&attributes);
    assert!(plain.is_plain() && !plain.is_timeless() && !plain.is_unended());
    let worse = plain.timeless().unended();
    assert!(!worse.is_plain() && worse.is_timeless() && worse.is_unended());
    let mut again = json!({});
    worse.add_to(&mut again);
    let expected = json!({
        "times": "none", "end": "missing", "workload": "queue", "options": {"model": "SI"}
    });
    assert_eq!(again, expected);
    assert_eq!(Provenance::of_attributes(&again), worse);
}
