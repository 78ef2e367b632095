//! The guide matches the program: its plans run, its messages are the real ones, its tables are complete.

use super::{environment, plan, schedule};
use crate::plan_source::PlanSource;
use seatrial_generator::Generator;
use seatrial_machine::FaultInfo;
use seatrial_plan::{KINDS, MODIFIERS};

const GUIDE: &str = include_str!("../../../../../docs/guide/plans.md");

/// Language and text of each block of code.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let parts: Vec<&str> = GUIDE.split("\n```").collect();
    let blocks = parts.iter().skip(1).step_by(2);
    blocks
        .map(|block| block.split_once('\n').unwrap())
        .collect()
}

#[test]
fn its_plans_run() {
    let mut count = 0;
    for (language, text) in blocks() {
        let planned = match language {
            "toml" => plan(text),
            _ => continue,
        };
        count += 1;
        let lines = schedule(planned.generator(environment()).limit(200));
        assert!(lines.len() > 40, "{text}\n{lines:#?}");
    }
    assert!(count >= 3);
}

#[test]
fn its_messages_are_said() {
    let blocks = blocks();
    let mut count = 0;
    for pair in blocks.windows(2) {
        if let [("toml wrong", text), ("text", message)] = pair {
            let source = PlanSource {
                file: "plan.toml",
                text,
            };
            let error = source.plan(&super::VOCABULARY).unwrap_err();
            assert_eq!(error.to_string(), message.trim_end());
            count += 1;
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn it_explains_every_word() {
    const OTHERS: [&str; 50] = [
        "weight",
        "threads",
        "default",
        "for",
        "keys",
        "threads_per_key",
        "distribution",
        "writes_per_key",
        "txn_length",
        "kinds",
        "interval",
        "targets",
        "schedule",
        "recovery",
        "value",
        "key",
        "fields",
        "process",
        "at",
        "int",
        "uniform",
        "zipf",
        "exponential",
        "skew",
        "choice",
        "counter",
        "cas",
        "txn",
        "word",
        "nil",
        "seed",
        "concurrency",
        "nodes",
        "time",
        "ops",
        "timeout",
        "checkers",
        "model",
        "stop_on_violation",
        "accept_undecided",
        "name",
        "description",
        "test",
        "initial",
        "rows",
        "state",
        "operation",
        "argument",
        "result",
        "next",
    ];
    for word in KINDS.iter().chain(&MODIFIERS).chain(&OTHERS) {
        assert!(
            GUIDE.contains(&format!("`{word}`")),
            "{word} is not explained"
        );
    }
}

#[test]
fn the_page_on_faults_has_every_fault_with_its_words() {
    const PAGE: &str = include_str!("../../../../../docs/guide/faults.md");
    let section = PAGE
        .split("## ")
        .find(|it| it.starts_with("Faults in plans"));
    let rows = section.unwrap().lines();
    for info in FaultInfo::all() {
        let name = format!("`{}`", info.name);
        let row = rows
            .clone()
            .find(|row| row.starts_with('|') && row.contains(&name));
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        let subject = match info {
            _ if info.takes_node() => "`node`",
            _ if info.takes_links() => "`links`",
            _ => "",
        };
        let keys = info
            .parameters
            .iter()
            .map(|number| format!("`{}`", number.plan_key));
        let keys: Vec<String> = keys.collect();
        let end = format!("| {subject} | {} |", keys.join(", ")).replace("  ", " ");
        assert!(row.ends_with(&end), "{row} does not end with {end}");
    }
}
