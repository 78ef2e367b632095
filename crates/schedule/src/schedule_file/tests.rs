//! Files that are sound, and what is said of those that are not.

use super::*;

const SMALL: &str = r#"
title = "mine"
setup = ["create table t (v int)"]

[[schedule]]
name = "dirty-read"
anomaly = "G1a"
about = "T2 reads what T1 takes back"
steps = ["T1: begin", "T1: insert into t values (1);", "T2 seen: select v from t", "T1: rollback"]
final = "select v from t"
occurs = [{ shows = { seen = [[1]], final = [] } }]

[[published]]
system = "mine"
level = "all"
tested = "Mine 1"
occurs = ["G1a"]
"#;

#[test]
fn a_file_is_read() {
    let file = ScheduleFile::from_text("mine.toml", SMALL).unwrap();
    let schedule = &file.schedules[0];
    assert_eq!(schedule.setup, ["create table t (v int)"]);
    assert_eq!(schedule.steps[1].sql, "insert into t values (1)");
    assert_eq!(schedule.steps[2].label.as_deref(), Some("seen"));
    assert_eq!(sessions(&schedule.steps), ["T1", "T2"]);
    let shows = &schedule.occurs[0].shows;
    assert!(shows.contains(&("seen".into(), vec![vec!["1".into()]])));
    assert_eq!(file.published[0].occurs, ["G1a"]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (from, to, expected) in [
        (
            "title = \"mine\"\n",
            "",
            "mine.toml:1:1: missing key `title`",
        ),
        (
            "\"T1: begin\"",
            "\"begin\"",
            "mine.toml:9:10: schedule[0].steps[0]: must be SESSION: STATEMENT",
        ),
        ("T2 seen:", "T2 final:", "the label \"final\" is taken"),
        ("T2 seen:", "T2 saw:", "no step has the label \"seen\""),
        (
            "shows = {",
            "commits = [\"T1\"], shows = {",
            "the session \"T1\" has no step `commit`",
        ),
        (
            "seen = [[1]]",
            "seen = [[1.5]]",
            "must be a whole number or a text",
        ),
        (
            "occurs = [{",
            "occurs = [] # [{",
            "must be at least one table",
        ),
        (
            "occurs = [\"G1a\"]",
            "occurs = [\"G1\"]",
            "no schedule has the anomaly \"G1\"",
        ),
        (
            "name = \"dirty-read\"",
            "name = \"Dirty\"",
            "must be lower case letters",
        ),
        ("about =", "abot =", "missing key `about`"),
        ("final =", "finally =", "no step has the label \"final\""),
        ("tested =", "test =", "missing key `tested`"),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replacen(from, to, 1);
        let error = ScheduleFile::from_text("mine.toml", &text).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    let missing = ScheduleFile::open(Path::new("/nowhere/mine.toml")).unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/mine.toml: "));
}

#[test]
fn the_bundled_file_has_the_anomalies_of_hermitage() {
    let file = ScheduleFile::hermitage();
    let mut anomalies: Vec<&str> = file
        .schedules
        .iter()
        .map(|it| it.anomaly.as_str())
        .collect();
    anomalies.dedup();
    let expected = [
        "G0", "G1a", "G1b", "G1c", "OTV", "PMP", "P4", "G-single", "G2-item", "G2",
    ];
    assert_eq!(anomalies, expected);
    assert_eq!(file.published.len(), 7);
}
