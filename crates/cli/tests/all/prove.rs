//! The list of published findings. Running them is in `tests/databases`.

use crate::{error, json, run, stdout};

#[test]
fn published_findings_are_listed_with_their_sources() {
    let text = stdout(&run(0, &["prove"]));
    let listed = json(&run(0, &["prove", "--json"]));
    let listed = listed["proofs"].as_array().unwrap();
    assert!(listed.len() >= 5, "{text}");
    for proof in listed {
        for field in ["name", "claim", "source"] {
            let part = proof[field].as_str().unwrap();
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    error(
        &["prove", "postgres-write-skw"],
        &["did you mean `postgres-write-skew`?"],
    );
    error(&["prove", "--all", "postgres-write-skew"], &["--all"]);
}
