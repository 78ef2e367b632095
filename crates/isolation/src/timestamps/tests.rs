#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::expect;
use seatrial_history::OpType;
use seatrial_history::{Stamp, Stamps, TransactionSink};
use seatrial_interchange::import::registers::TransactionReader;
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A transaction of the simulated database.
#[derive(Clone, Debug)]
struct Transaction {
    session: u64,
    start: i64,
    commit: i64,
    does: Vec<StampedEvent>,
}

#[derive(Clone, Debug)]
struct StampedEvent {
    key: i64,
    what: What,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Write(i64),
    Append(i64),
    Read(Option<i64>),
    ReadList(Vec<i64>),
}

/// What a key holds: a register is a list of which the last element counts.
fn state(transactions: &[Transaction], reader: usize, key: i64, snapshots: bool) -> Vec<i64> {
    let at = &transactions[reader];
    let mut writers: Vec<usize> = (0..transactions.len())
        .filter(|&other| other != reader)
        .filter(|&other| {
            let commit = transactions[other].commit;
            if snapshots {
                commit <= at.start
            } else {
                commit < at.commit
            }
        })
        .collect();
    writers.sort_by_key(|&other| transactions[other].commit);
    let events = writers
        .into_iter()
        .flat_map(|other| &transactions[other].does);
    let events = events.filter(|event| event.key == key);
    let written = events.filter_map(|event| match event.what {
        What::Write(value) | What::Append(value) => Some(value),
        _ => None,
    });
    written.collect()
}

/// Does the definition hold? Every stamp is used once.
fn holds(transactions: &[Transaction], level: TimestampLevel) -> bool {
    let snapshots = level.has_snapshots();
    let mut last: BTreeMap<u64, &Transaction> = BTreeMap::new();
    for (number, one) in transactions.iter().enumerate() {
        let mut own: Vec<(i64, What)> = Vec::new();
        for event in &one.does {
            let written = state(transactions, number, event.key, snapshots);
            let mine = own.iter().filter(|(key, _)| *key == event.key);
            let writes = mine.filter_map(|(_, what)| match what {
                What::Write(value) | What::Append(value) => Some(*value),
                _ => None,
            });
            let all: Vec<i64> = written.into_iter().chain(writes).collect();
            let right = match &event.what {
                What::Read(value) => *value == all.last().copied(),
                What::ReadList(elements) => *elements == all,
                _ => true,
            };
            if !right {
                return false;
            }
            own.push((event.key, event.what.clone()));
        }
        let writes = |one: &Transaction| -> Vec<i64> {
            let writes = one.does.iter();
            let writes = writes.filter(|it| matches!(it.what, What::Write(_) | What::Append(_)));
            writes.map(|event| event.key).collect()
        };
        let overlaps = transactions.iter().enumerate().any(|(other, two)| {
            other != number
                && one.start < two.commit
                && two.start < one.commit
                && writes(one).iter().any(|key| writes(two).contains(key))
        });
        if snapshots && overlaps {
            return false;
        }
        if let Some(before) = last.insert(one.session, one)
            && level.has_sessions()
        {
            let place = if snapshots { one.start } else { one.commit };
            if before.commit > place {
                return false;
            }
        }
    }
    true
}

/// A history of a database with snapshots; `lists` are appended to.
fn database(lists: bool, rng: &mut Rng) -> Vec<Transaction> {
    let count = 1 + rng.index(8);
    let mut stamps: Vec<i64> = (0..2 * count as i64).collect();
    for at in (1..stamps.len()).rev() {
        // Mostly near their places, so that not everything overlaps.
        let other = at - rng.index(at.min(3) + 1);
        stamps.swap(at, other);
    }
    let mut transactions: Vec<Transaction> = (0..count)
        .map(|number| {
            let (one, two) = (stamps[2 * number], stamps[2 * number + 1]);
            Transaction {
                session: rng.below(3),
                start: one.min(two),
                commit: one.max(two),
                does: Vec::new(),
            }
        })
        .collect();
    transactions.sort_by_key(|one| one.commit);
    let snapshots = rng.chance(0.7);
    let mut value = 1;
    for number in 0..count {
        for _ in 0..rng.index(5) {
            let key = rng.below(3).cast_signed();
            let what = if rng.chance(0.4) {
                value += 1;
                if lists {
                    What::Append(value)
                } else {
                    What::Write(value)
                }
            } else {
                let mut all = state(&transactions, number, key, snapshots);
                let own = transactions[number]
                    .does
                    .iter()
                    .filter(|event| event.key == key);
                all.extend(own.filter_map(|event| match event.what {
                    What::Write(value) | What::Append(value) => Some(value),
                    _ => None,
                }));
                if lists {
                    What::ReadList(all)
                } else {
                    What::Read(all.last().copied())
                }
            };
            transactions[number].does.push(StampedEvent { key, what });
        }
    }
    // One wrong read in some of them.
    if rng.chance(0.3) {
        let number = rng.index(count);
        for event in &mut transactions[number].does {
            match &mut event.what {
                What::Read(seen) => *seen = rng.chance(0.7).then(|| 2 + rng.below(6).cast_signed()),
                What::ReadList(seen) => drop(seen.pop()),
                _ => {}
            }
        }
    }
    transactions.sort_by_key(|one| one.start / 2);
    transactions
}

fn gathered(transactions: &[Transaction]) -> Timestamped {
    let mut gathered = Timestamped::default();
    for one in transactions {
        let [start, commit] = [one.start, one.commit].map(|physical| Stamp {
            physical,
            logical: 0,
        });
        gathered.begin(one.session, Some(Stamps { start, commit }));
        for event in &one.does {
            match &event.what {
                What::Write(value) => gathered.write(event.key, *value),
                What::Append(element) => gathered.append(event.key, *element),
                What::Read(value) => gathered.read(event.key, *value),
                What::ReadList(elements) => gathered.read_list(event.key, elements),
            }
        }
        gathered.end(OpType::Ok).unwrap();
    }
    gathered
}

#[test]
fn the_replay_finds_what_the_definition_forbids() {
    let histories = seatrial_farm::histories(3_000);
    let mut rng = Rng::from_seed(2025);
    let mut counts = [[0_u64; 2]; 4];
    for round in 0..histories {
        let transactions = database(round % 3 == 0, &mut rng);
        let gathered = gathered(&transactions);
        for (number, level) in TimestampLevel::ALL.into_iter().enumerate() {
            let expected = holds(&transactions, level);
            let verdict = Timestamps::new(level).check_transactions(&gathered);
            let valid = verdict.valid == Validity::Valid;
            assert_eq!(
                valid, expected,
                "round {round}, {level:?}: {transactions:#?}\n{verdict:#?}"
            );
            assert_eq!(valid, verdict.findings.is_empty());
            counts[number][usize::from(valid)] += 1;
        }
    }
    let least = histories / 20;
    assert!(
        counts.as_flattened().iter().all(|&count| count > least),
        "{counts:?}"
    );
}

/// Transactions of TimeKiller's format: session, start, commit, operations.
fn timekiller(transactions: &[(u64, i64, i64, &str)]) -> String {
    let lines = transactions.iter().map(|(session, start, commit, operations)| {
        let operations: Vec<String> = operations
            .split_whitespace()
            .map(|operation| {
                let (t, rest) = operation.split_at(1);
                let (key, value) = rest.split_once('=').unwrap();
                format!(r#"{{"t":"{t}","k":{key},"v":{value}}}"#)
            })
            .collect();
        let operations = operations.join(",");
        format!(
            r#"{{"sid":{session},"sts":{{"p":{start},"l":0}},"cts":{{"p":{commit},"l":0}},"ops":[{operations}]}}"#
        )
    });
    format!("[{}]", lines.collect::<Vec<_>>().join(",\n"))
}

#[test]
fn a_violation_is_explained_with_its_timestamps() {
    let text = timekiller(&[
        (1, 1, 4, "w1=10 r1=10 r1=11"),
        (2, 2, 6, "r1=null w1=20"),
        (1, 3, 7, "a2=1 r2=[1] r2=[]"),
        (3, 8, 8, "r1=10 r2=[1,2]"),
        (3, 8, 8, "r3=5 r2=[1]"),
    ]);
    let read = import::read(
        "a",
        text.as_bytes(),
        Format::TimeKiller,
        ImportOptions::default(),
    );
    let history = read.unwrap();
    let checker = Timestamps::default();
    let verdict = checker.check(&history);
    assert_eq!(verdict.valid, Validity::Invalid);
    let mut direct = Timestamped::default();
    let options = ImportOptions::default();
    let mut reader = TransactionReader::open("a", text.as_bytes(), Format::TimeKiller, options);
    while reader.advance(&mut direct).unwrap() {}
    let other = Timestamps::default().check_transactions(&direct);
    assert_eq!(other.findings, verdict.findings);
    let mut said = String::new();
    for finding in &verdict.findings {
        let (anomaly, summary) = (finding.anomaly, &finding.summary);
        writeln!(said, "{anomaly} {:?}: {summary}", finding.operations).unwrap();
    }
    expect![[r#"
        internal [1]: op 1 (1.0 to 4.0) read 11 of key 1, where it had 10 itself
        internal [5]: op 5 (3.0 to 7.0) read nothing of key 2, where it had [1] itself
        timestamp-conflict [1, 3]: op 1 (1.0 to 4.0) and op 3 (2.0 to 6.0) both wrote key 1 and overlapped in time
        timestamp-read [7, 3, 1]: op 7 (8.0 to 8.0) read 10 of key 1; by the timestamps it is 20, of op 3 (2.0 to 6.0); what it read was written by op 1 (1.0 to 4.0)
        timestamp-read [7, 5]: op 7 (8.0 to 8.0) read [1 2] of key 2; by the timestamps it is [1], of op 5 (3.0 to 7.0)
        timestamp-read [9]: op 9 (8.0 to 8.0) read 5 of key 3; by the timestamps it is nothing, which was not written yet
        timestamp-session [1, 5]: op 5 (3.0 to 7.0) follows op 1 (1.0 to 4.0) in its session, but not in the order of the timestamps
    "#]].assert_eq(&said);
}

#[test]
fn histories_without_timestamps_are_unknown() {
    let checker = Timestamps::new(TimestampLevel::Serializable);
    let reason = |text: &str| {
        let history =
            import::read("a", text.as_bytes(), Format::Edn, ImportOptions::default()).unwrap();
        checker.check(&history).reason.unwrap_or_default()
    };
    let stamps = ":start-stamp [4 0] :commit-stamp [3 9]";
    let txn = ":process 0 :type :ok :f :txn :value [[:w :x 1]]";
    assert_eq!(
        reason(&format!("{{{txn}}}")),
        "op 0 has no timestamps (start-stamp, commit-stamp)"
    );
    assert_eq!(
        reason(&format!("{{{txn} {stamps}}}")),
        "op 0 was committed before it started"
    );
    assert_eq!(
        reason("{:process 0 :type :ok :f :read :value 3}"),
        "op 0 is no transaction"
    );
    let fine = ":start-stamp [3 0] :commit-stamp [3 9]";
    assert_eq!(reason(&format!("{{{txn} {fine}}}")), "");
}

/// The answer on a history of these lines, `invoke` or another type with a value; stamps of successes rise with the lines.
fn answer_on(lines: &[(u64, &str, &str)]) -> (Validity, BTreeMap<&'static str, u64>) {
    let mut text = String::new();
    let mut open = BTreeSet::new();
    for (number, (process, kind, value)) in lines.iter().enumerate() {
        // A completion without an invocation before it gets one.
        if *kind == "invoke" {
            open.insert(*process);
        } else if !open.remove(process) {
            writeln!(
                text,
                "{{:process {process} :type :invoke :f :txn :value {value}}}"
            )
            .unwrap();
        }
        let stamps = match *kind {
            "ok" => format!(":start-stamp [{number} 0] :commit-stamp [{number} 1]"),
            _ => String::new(),
        };
        writeln!(
            text,
            "{{:process {process} :type :{kind} :f :txn :value {value} {stamps}}}"
        )
        .unwrap();
    }
    let history =
        import::read("a", text.as_bytes(), Format::Edn, ImportOptions::default()).unwrap();
    let verdict = Timestamps::default().check(&history);
    let chunks: &dyn ChunkSource = &history;
    let folded = chunks.fold(&GatherStamps).unwrap();
    let other = Timestamps::default().check_transactions(&folded);
    assert_eq!(
        (&other.valid, &other.anomalies),
        (&verdict.valid, &verdict.anomalies)
    );
    (verdict.valid, verdict.anomalies)
}

#[test]
fn reads_of_unknown_outcomes_are_undecided() {
    let is_undecided = |lines: &[(u64, &str, &str)]| {
        let (valid, anomalies) = answer_on(lines);
        assert!(anomalies.is_empty(), "{anomalies:?}");
        matches!(valid, Validity::Unknown(reason) if reason.contains("1 read of writes"))
    };
    let begun = (1, "invoke", "[[:w :x 7]]");
    let lost = (1, "info", "[[:w :x 7]]");
    let first = (0, "ok", "[[:w :x 1]]");
    let reads = (2, "ok", "[[:r :x 7]]");
    assert!(is_undecided(&[begun, first, lost, reads]));
    assert!(is_undecided(&[begun, first, reads]), "it never completes");
    // A failed write has no effect, and the other value was never written.
    let failed = (1, "fail", "[[:w :x 7]]");
    let wrong = |lines: &[(u64, &str, &str)]| answer_on(lines).1.get(SNAPSHOT).copied();
    assert_eq!(wrong(&[begun, first, failed, reads]), Some(1));
    assert_eq!(
        wrong(&[begun, first, lost, (2, "ok", "[[:r :x 8]]")]),
        Some(1)
    );
    // A list without what is unknown must be the state.
    let appended = (1, "info", "[[:append :l 7]]");
    let (one, two) = ((0, "ok", "[[:append :l 1]]"), (0, "ok", "[[:append :l 2]]"));
    assert!(is_undecided(&[
        appended,
        one,
        two,
        (2, "ok", "[[:r :l [1 7 2]]]")
    ]));
    assert_eq!(
        wrong(&[appended, one, two, (2, "ok", "[[:r :l [1 7]]]")]),
        Some(1)
    );
    // It need not have taken place.
    let (valid, _) = answer_on(&[begun, first, lost, (2, "ok", "[[:r :x 1]]")]);
    assert_eq!(valid, Validity::Valid);
}
