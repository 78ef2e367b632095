//! One road: whatever the source, the options and the checkers, a history has one answer. Each test is a disagreement of the
//! eight routes that there were (R1 to R21).

use super::{Scratch, command, error, json, run, stderr, stdout};
use seatrial_history::{HistoryWriter, Key, Mop, Op, OpType, Process, Value};
use serde_json::Value as Json;
use std::fmt::Write as _;
use std::fs;

/// What must agree: all of a results document but times, reasons of choice, and warnings.
const FIELDS: [&str; 12] = [
    "valid",
    "model",
    "proof",
    "undecided",
    "operations",
    "events",
    "counts",
    "faults",
    "anomalies",
    "not",
    "also_not",
    "holds",
];

/// The exit status and the fields of one check.
fn answer(words: &[&str]) -> (i32, Json) {
    let output = command(&[&["check", "--json"], words].concat())
        .output()
        .unwrap();
    let status = output.status.code().unwrap();
    assert!((0..=2).contains(&status), "{words:?}: {}", stderr(&output));
    let document = json(&output);
    let fields = FIELDS
        .iter()
        .map(|name| ((*name).to_owned(), document[*name].clone()));
    (status, fields.collect::<serde_json::Map<_, _>>().into())
}

/// The same answer by every option that changes only what is written, or how the file is read.
fn agree(scratch: &Scratch, file: &str, checkers: &str, is_test: bool) -> (i32, Json) {
    let chosen = json(&command(&["check", "--json", file]).output().unwrap());
    let plain = answer(&[file]);
    let path = |name: &str| scratch.path(name);
    let (page, folder) = (path("agree.html"), path("agree-findings"));
    let _ = fs::remove_dir_all(&folder);
    let with_stats = format!("stats,{checkers}");
    let mut others: Vec<Vec<&str>> = vec![
        vec!["--checker", checkers],
        vec!["--report", &page],
        vec!["--findings", &folder],
        vec!["--threads", "1"],
        vec!["--threads", "3"],
    ];
    // Counts of successes belong to every check of a test of ours, and to no other unless they are asked for.
    if chosen["checkers"]["stats"].is_object() {
        others.push(vec!["--checker", &with_stats]);
    }
    if is_test {
        others.push(vec!["--follow"]);
        others.push(vec!["--salvage"]);
        others.push(vec!["--record"]);
    }
    for options in others {
        let words = [&options[..], &[file]].concat();
        assert_eq!(answer(&words), plain, "{options:?} on {file}");
    }
    plain
}

/// The same answer after an import, and after an export back to EDN.
fn agree_everywhere(scratch: &Scratch, name: &str, text: &str, checkers: &str) -> (i32, Json) {
    let path = |end: &str| scratch.path(&format!("{name}.{end}"));
    let (edn, sea, again) = (path("edn"), path("sea"), path("again.edn"));
    fs::write(&edn, text).unwrap();
    run(0, &["import", &edn, "-o", &sea]);
    run(0, &["export", &sea, "-o", &again]);
    let first = agree(scratch, &edn, checkers, false);
    assert_eq!(
        agree(scratch, &sea, checkers, true),
        first,
        "imported {name}"
    );
    assert_eq!(
        agree(scratch, &again, checkers, false),
        first,
        "exported {name}"
    );
    first
}

/// A stale read: allowed by serializability, not in real time.
const STALE: &str = "{:process 0 :type :invoke :f :txn :value [[:append 1 1]] :time 1}
{:process 0 :type :ok :f :txn :value [[:append 1 1]] :time 2}
{:process 1 :type :invoke :f :txn :value [[:r 1 nil]] :time 3}
{:process 1 :type :ok :f :txn :value [[:r 1 []]] :time 4}
{:process 1 :type :invoke :f :txn :value [[:r 1 nil]] :time 5}
{:process 1 :type :ok :f :txn :value [[:r 1 [1]]] :time 6}
";

fn with_header(header: &str, text: &str) -> String {
    format!(";; seatrial {header}\n{text}")
}

#[test]
fn r1_the_model_of_the_run_is_the_model_of_every_route() {
    let scratch = Scratch::new("routes-1");
    let header = r#"{"workload":"list-append","options":{"model":"serializable"}}"#;
    let text = with_header(header, STALE);
    let (status, document) = agree_everywhere(&scratch, "lists", &text, "list-append");
    assert_eq!(
        (status, &document["model"]),
        (0, &Json::from("serializable"))
    );
    // A model on the command line goes before it.
    let edn = scratch.path("lists.edn");
    assert_eq!(answer(&["--model", "strict-serializable", &edn]).0, 1);
    let proof = scratch.path("proof.json");
    let certified = answer(&["--certificate", &proof, &scratch.path("lists.sea")]);
    assert_eq!(certified, (status, document));
    run(0, &["check", "--verify", &proof, &edn]);
    let registers = text
        .replace(":append", ":w")
        .replace("list-append", "rw-register");
    let registers = registers
        .replace("[:r 1 []]", "[:r 1 nil]")
        .replace("[1]", "1");
    let (status, document) = agree_everywhere(&scratch, "registers", &registers, "rw-register");
    assert_eq!(
        (status, &document["model"]),
        (0, &Json::from("serializable"))
    );
    let inferred = ["--infer", "wfr-keys", &scratch.path("registers.edn")];
    assert_eq!(answer(&inferred), (status, document));
}

#[test]
fn r2_independent_keys_are_found_in_every_format() {
    let scratch = Scratch::new("routes-2");
    let set = "{:process 0 :type :invoke :f :add :value [1 7] :time 1}
{:process 0 :type :ok :f :add :value [1 7] :time 2}
{:process 1 :type :invoke :f :read :value [1 nil] :time 3}
{:process 1 :type :ok :f :read :value [1 #{7}] :time 4}
";
    let (status, _) = agree_everywhere(&scratch, "set", set, "set-full");
    assert_eq!(status, 0);
    let lock = "{:process 0 :type :invoke :f :acquire :value [1 nil] :time 1}
{:process 0 :type :ok :f :acquire :value [1 nil] :time 2}
{:process 1 :type :invoke :f :acquire :value [2 nil] :time 3}
{:process 1 :type :ok :f :acquire :value [2 nil] :time 4}
";
    let (status, _) = agree_everywhere(&scratch, "lock", lock, "mutex");
    assert_eq!(status, 0);
    // Transactions of two micro-operations are no tuples.
    let (edn, sea) = (scratch.path("two.edn"), scratch.path("two.sea"));
    fs::write(
        &edn,
        STALE.replace("[[:append 1 1]]", "[[:append 1 1] [:append 2 1]]"),
    )
    .unwrap();
    for verb in [vec!["check"], vec!["import", "-o", &sea]] {
        let words = [&verb[..], &["--keyed", &edn]].concat();
        error(
            &words,
            &["--keyed is for tuples [key value], and these are transactions"],
        );
    }
}

#[test]
fn r3_without_times_in_every_format() {
    let scratch = Scratch::new("routes-3");
    let path = |end: &str| scratch.path(&format!("tm.{end}"));
    fs::write(path("plume"), "w(1,1,0,0)\nr(1,0,1,1)\n").unwrap();
    let (plume, sea) = (path("plume"), path("sea"));
    run(0, &["import", &plume, "--format", "plume", "-o", &sea]);
    let first = answer(&["--format", "plume", &plume]);
    assert_eq!(first.0, 0);
    for end in ["edn", "jsonl"] {
        let (out, back) = (path(end), path(&format!("{end}.sea")));
        run(0, &["export", &sea, "-o", &out]);
        run(0, &["import", &out, "-o", &back]);
        for file in [&out, &back] {
            let (status, document) = answer(&[file]);
            for field in ["valid", "model", "not", "also_not", "anomalies"] {
                assert_eq!(document[field], first.1[field], "{field} of {file}");
            }
            assert_eq!(status, first.0);
        }
    }
}

#[test]
fn r4_the_checkers_of_the_plan_at_any_size() {
    let scratch = Scratch::new("routes-4");
    let header =
        r#"{"workload":"list-append","checkers":["g1"],"options":{"model":"serializable"}}"#;
    let (status, document) = agree_everywhere(&scratch, "plan", &with_header(header, STALE), "g1");
    assert_eq!((status, &document["model"]), (0, &Json::Null));
    let chosen = json(&run(0, &["check", "--json", &scratch.path("plan.sea")]));
    assert_eq!(chosen["chosen"], "g1: by the plan of the file");
}

#[test]
fn r5_all_operations_say_what_a_text_is_about() {
    let scratch = Scratch::new("routes-5");
    let transaction = |value: &str| {
        format!(
            "{{:process 0 :type :invoke :f :txn :value {value}}}\n{{:process 0 :type :ok :f :txn :value {value}}}\n"
        )
    };
    // More reads than a chunk holds, then writes: a list or a register? The end says.
    let mut text = transaction("[[:r :x nil]]").repeat(20_000);
    text += &transaction("[[:w :x 1]]");
    text += &transaction("[[:w :x 2] [:r :x 1]]");
    let file = scratch.path("reads-first.edn");
    fs::write(&file, &text).unwrap();
    let plain = answer(&[&file]);
    assert_eq!(
        (plain.0, &plain.1["anomalies"]["internal"]),
        (1, &Json::from(1))
    );
    assert_eq!(answer(&["--checker", "rw-register", &file]), plain);
    assert_eq!(answer(&["--report", &scratch.path("r.html"), &file]), plain);
    let proof = scratch.path("proof.json");
    assert_eq!(answer(&["--certificate", &proof, &file]), plain);
}

#[test]
fn r6_a_history_without_its_end_is_never_valid() {
    let scratch = Scratch::new("routes-6");
    let open = scratch.path("open.sea");
    // What a writer leaves that was killed.
    let attributes = serde_json::json!({"workload": "list-append"});
    let mut writer = HistoryWriter::create(open.as_ref(), &attributes).unwrap();
    for element in 1..=40 {
        let key = Key::Int(1);
        let append = Value::Txn([Mop::Append { key, element }].into());
        let op = Op::invoke(Process::Client(1), "txn", append);
        let op = Op {
            index: 2 * element as u64 - 2,
            time: 10 * element,
            ..op
        };
        writer.push(&op).unwrap();
        let done = op.complete(OpType::Ok, op.value.clone());
        writer
            .push(&Op {
                index: op.index + 1,
                time: op.time + 5,
                ..done
            })
            .unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let (status, document) = agree(&scratch, &open, "list-append", true);
    assert_eq!((status, &document["valid"]), (2, &Json::from("unknown")));
    for words in [
        vec![open.as_str()],
        vec!["--salvage", &open],
        vec!["--follow", &open],
    ] {
        let shown = stdout(&run(2, &[&["check"], &words[..]].concat()));
        assert!(shown.contains("never sealed"), "{words:?}: {shown}");
    }
    let proof = scratch.path("proof.json");
    run(254, &["check", "--certificate", &proof, &open]);
    assert!(!std::path::Path::new(&proof).exists());
    let edn = scratch.path("open.edn");
    run(0, &["export", &open, "-o", &edn]);
    assert_eq!(answer(&[&edn]).0, 2);
}

#[test]
fn r7_a_queue_is_checked_for_duplicates_however_it_is_recognised() {
    let scratch = Scratch::new("routes-7");
    let mut queue = String::new();
    for (process, (f, value)) in [("enqueue", "7"), ("dequeue", "nil"), ("dequeue", "nil")]
        .into_iter()
        .enumerate()
    {
        for (kind, value) in [("invoke", value), ("ok", "7")] {
            writeln!(
                queue,
                "{{:process {process} :type :{kind} :f :{f} :value {value}}}"
            )
            .unwrap();
        }
    }
    let (status, document) = agree_everywhere(&scratch, "queue", &queue, "queue,total-queue");
    assert_eq!(
        (status, &document["anomalies"]["duplicated"]),
        (1, &Json::from(1))
    );
    let path = |name: &str| scratch.path(name);
    let words = [
        "generate",
        "queue",
        "--ops",
        "400",
        "--anomaly",
        "duplicate-elements",
    ];
    let rest = [
        "--anomaly-rate",
        "0.02",
        "--seed",
        "2",
        "-o",
        &path("qd.sea"),
    ];
    run(0, &[&words[..], &rest].concat());
    let known = answer(&[&path("qd.sea")]);
    assert_eq!(known.0, 1);
    for end in ["edn", "json", "jsonl"] {
        let out = path(&format!("qd.{end}"));
        run(0, &["export", &path("qd.sea"), "-o", &out]);
        let (status, document) = answer(&[&out]);
        assert_eq!(
            (status, &document["anomalies"]),
            (1, &known.1["anomalies"]),
            "{end}"
        );
    }
    // A workload that is not ours is a hint.
    let foreign = with_header(r#"{"workload":"wr-register"}"#, STALE);
    fs::write(path("hint.edn"), foreign).unwrap();
    assert_eq!(answer(&[&path("hint.edn")]).0, 1);
}

#[test]
fn r8_counts_of_successes_belong_to_a_test_and_not_to_the_options() {
    let scratch = Scratch::new("routes-8");
    let lock = "{:process 0 :type :invoke :f :acquire :value nil :time 1}
{:process 0 :type :ok :f :acquire :value nil :time 2}
{:process 0 :type :invoke :f :release :value nil :time 3}
{:process 0 :type :fail :f :release :value nil :time 4}
";
    let text = with_header(r#"{"workload":"mutex"}"#, lock);
    let (status, document) = agree_everywhere(&scratch, "own", &text, "lock");
    assert_eq!((status, &document["valid"]), (2, &Json::from("unknown")));
    let (status, _) = agree_everywhere(&scratch, "foreign", lock, "mutex");
    assert_eq!(status, 0);
}

#[test]
fn r9_the_usual_model_of_a_workload_goes_with_its_checker() {
    let scratch = Scratch::new("routes-9");
    let lock = "{:process 0 :type :invoke :f :acquire :value nil :time 1}
{:process 0 :type :ok :f :acquire :value 1 :time 2}
{:process 0 :type :invoke :f :release :value nil :time 3}
{:process 0 :type :ok :f :release :value nil :time 4}
";
    for (workload, model) in [("lock", "fenced"), ("mutex", "owner-aware")] {
        let text = with_header(&format!(r#"{{"workload":"{workload}"}}"#), lock);
        let (_, document) = agree_everywhere(&scratch, workload, &text, "lock");
        assert_eq!(document["model"], model, "{workload}");
    }
}

#[test]
fn r10_without_a_checker_the_verdict_is_unknown_and_so_is_the_exit_status() {
    let scratch = Scratch::new("routes-10");
    let text = with_header(r#"{"workload":"list-append","checkers":["stats"]}"#, STALE);
    let (status, document) = agree_everywhere(&scratch, "counts", &text, "stats");
    assert_eq!((status, &document["valid"]), (0, &Json::from(true)));
    let odd = scratch.path("odd.edn");
    fs::write(
        &odd,
        "{:process 0 :type :invoke :f :jump :value 1}\n{:process 0 :type :ok :f :jump :value 1}\n",
    )
    .unwrap();
    let (status, document) = answer(&[&odd]);
    assert_eq!((status, &document["valid"]), (2, &Json::from("unknown")));
    assert_eq!(document["operations"], 1);
}

#[test]
fn r11_an_anomaly_that_two_checkers_find_is_counted_once() {
    let scratch = Scratch::new("routes-11");
    let generated = |workload: &str, anomaly: &str| {
        let file = scratch.path(&format!("{workload}.sea"));
        let words = ["generate", workload, "--ops", "400", "--seed", "2"];
        let rest = [
            "--anomaly",
            anomaly,
            "--anomaly-rate",
            "0.02",
            "-q",
            "-o",
            &file,
        ];
        run(0, &[&words[..], &rest].concat());
        file
    };
    let queue = generated("queue", "garbage-read");
    let one = answer(&["--checker", "queue", &queue]).1;
    let both = answer(&[&queue]).1;
    assert!(one["anomalies"]["unexpected"].as_u64() > Some(0));
    assert_eq!(
        both["anomalies"]["unexpected"],
        one["anomalies"]["unexpected"]
    );
    let lists = generated("list-append", "G1a");
    let one = answer(&["--checker", "list-append", &lists]).1;
    assert!(one["anomalies"]["G1a"].as_u64() > Some(0));
    for names in [
        "g1,list-append",
        "stats,g1,list-append",
        "list-append,list-append",
    ] {
        let both = answer(&["--checker", names, &lists]).1;
        assert_eq!(both["anomalies"]["G1a"], one["anomalies"]["G1a"], "{names}");
    }
}

/// JSON has names of members for keys of maps: integers come back as integers.
#[test]
fn r14_maps_of_integers_survive_json() {
    let scratch = Scratch::new("routes-14");
    let bank = "{:process 0 :type :invoke :f :read :value nil :time 1}
{:process 0 :type :ok :f :read :value {0 60, 1 40} :time 2}
{:process 0 :type :invoke :f :transfer :value {:from 0, :to 1, :amount 5} :time 3}
{:process 0 :type :ok :f :transfer :value {:from 0, :to 1, :amount 5} :time 4}
{:process 0 :type :invoke :f :read :value nil :time 5}
{:process 0 :type :ok :f :read :value {0 55, 1 45} :time 6}
{:process 0 :type :invoke :f :read :value nil :time 7}
{:process 0 :type :ok :f :read :value {0 55, 1 46} :time 8}
";
    let log = "{:process 0 :type :invoke :f :send :value [[:send 7 1]] :time 1}
{:process 0 :type :ok :f :send :value [[:send 7 [0 1]]] :time 2}
{:process 0 :type :invoke :f :send :value [[:send 7 2]] :time 3}
{:process 0 :type :ok :f :send :value [[:send 7 [1 2]]] :time 4}
{:process 1 :type :invoke :f :poll :value [[:poll]] :time 5}
{:process 1 :type :ok :f :poll :value [[:poll {7 [[1 2]]}]] :time 6}
";
    for (name, text, anomaly) in [("bank", bank, "wrong-total"), ("log", log, "lost-write")] {
        let path = |end: &str| scratch.path(&format!("{name}.{end}"));
        let (edn, lines, again) = (path("edn"), path("jsonl"), path("again.edn"));
        fs::write(&edn, text).unwrap();
        run(0, &["export", &edn, "-o", &lines]);
        run(0, &["export", &lines, "-o", &again]);
        let (status, document) = answer(&["--checker", name, &edn]);
        assert_eq!(status, 1, "{name}");
        assert!(document["anomalies"][anomaly].is_u64(), "{document}");
        for file in [lines, again] {
            let found = answer(&["--checker", name, &file]);
            assert_eq!(found, (status, document.clone()), "{file}");
        }
    }
}

#[test]
fn r15_counts_are_those_of_the_history_whatever_the_verdict() {
    let scratch = Scratch::new("routes-15");
    let file = scratch.path("odd.edn");
    let odd = STALE.replace("[[:append 1 1]]", "7");
    fs::write(&file, &odd).unwrap();
    for options in [
        vec![],
        vec!["--checker", "list-append"],
        vec!["--checker", "isolation"],
    ] {
        let (_, document) = answer(&[&options[..], &[&file]].concat());
        assert_eq!(document["operations"], 3, "{options:?}");
        assert_eq!(document["counts"]["ok"], 3, "{options:?}");
        assert_eq!(document["events"], 6, "{options:?}");
    }
    let nothing = "{:process 0 :type :invoke :f :txn :value [[:append 1 1]]}\n";
    fs::write(&file, nothing).unwrap();
    for options in [vec![], vec!["--checker", "list-append"]] {
        let words = [&["check"], &options[..], &[file.as_str()]].concat();
        let shown = stdout(&run(2, &words));
        assert!(shown.contains("no operation completed ok"), "{shown}");
    }
}

/// The document of a check without times and the file's name.
fn document(words: &[&str]) -> Json {
    let output = command(&[&["check", "--json"], words].concat())
        .output()
        .unwrap();
    let mut document = json(&output);
    for name in ["seconds", "file", "chosen"] {
        document.as_object_mut().unwrap().remove(name);
    }
    document
}

/// A test file with register operations of a simulated database; those of odd numbers have stale reads.
fn registers(scratch: &Scratch, number: u32) -> String {
    let file = scratch.path(&format!("registers-{number}.sea"));
    let seed = format!("{number:x}");
    let words = ["generate", "register", "--events", "600", "--keys", "4"];
    // With 100 clients, the default, a search may have no end.
    let words = [&words[..], &["--concurrency", "5", "--quiet"]].concat();
    let mut words = [&words[..], &["--seed", &seed, "-o", &file]].concat();
    if number % 2 == 1 {
        words.extend(["--anomaly", "stale-read", "--anomaly-at", "0.5"]);
    }
    run(0, &words);
    file
}

#[test]
fn r16_findings_of_registers_are_those_of_the_finished_file() {
    let scratch = Scratch::new("routes-16");
    for number in 0..12 {
        let file = registers(&scratch, number);
        let mut plain = document(&[&file]);
        let mut followed = document(&["--follow", &file]);
        assert_eq!(plain["valid"], number % 2 == 0, "{plain:#}");
        // What the algorithm was, and how many configurations it visited, is no part of the answer.
        for one in [&mut plain, &mut followed] {
            let checkers = one["checkers"].as_object_mut().unwrap();
            for checker in checkers.values_mut() {
                let details = checker["details"].as_object_mut().unwrap();
                let of_algorithm = [
                    "configurations",
                    "configurations_max",
                    "by_monitor",
                    "monitor",
                ];
                for name in of_algorithm.into_iter().chain(["search_reason"]) {
                    details.remove(name);
                }
            }
        }
        assert_eq!(followed, plain, "seed {number:x}");
    }
}

#[test]
fn r17_a_certificate_changes_no_verdict() {
    let scratch = Scratch::new("routes-17");
    let (proof, file) = (scratch.path("proof.json"), scratch.path("history.sea"));
    let levels = [
        "strict-serializable",
        "snapshot-isolation",
        "read-committed",
    ];
    for seed in 1..=24 {
        let workload = ["list-append", "rw-register"][seed % 2];
        let (seed, level) = (format!("{seed:x}"), levels[seed % 3]);
        let _ = fs::remove_file(&file);
        let words = ["generate", workload, "--events", "200", "--quiet"];
        let about = ["--isolation", level, "--seed", &seed, "-o", &file];
        run(0, &[&words[..], &about].concat());
        let plain = document(&[&file]);
        let mut proven = document(&["--certificate", &proof, &file]);
        assert!(
            proven["error"].is_null(),
            "{workload} {level} {seed}: {proven:#}"
        );
        proven.as_object_mut().unwrap().remove("certificate");
        let details = &mut proven["checkers"][workload]["details"];
        let status = details.as_object_mut().unwrap().remove("certificate");
        assert_eq!(status.unwrap()["holds"], true, "{workload} {level} {seed}");
        assert_eq!(proven, plain, "{workload} {level} {seed}");
        run(0, &["check", "--verify", &proof, &file]);
    }
}

#[test]
fn r20_every_route_says_how_to_read_a_damaged_file() {
    let scratch = Scratch::new("routes-20");
    let (file, page) = (scratch.path("damaged.sea"), scratch.path("page.html"));
    let words = ["generate", "list-append", "--events", "200000", "--quiet"];
    run(0, &[&words[..], &["-o", &file]].concat());
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    let routes: [&[&str]; 6] = [
        &[],
        &["--checker", "list-append"],
        &["--certificate", &page],
        &["--model", "serializable"],
        &["--report", &page],
        &["--follow"],
    ];
    for route in routes {
        let output = run(254, &[&["check"], route, &[&file]].concat());
        let message = stderr(&output);
        assert_eq!(
            message.matches("--salvage").count(),
            1,
            "{route:?}: {message}"
        );
        assert!(message.contains("(operations "), "{route:?}: {message}");
    }
    // The reason beside the findings is that of their checker, whichever checkers run.
    for checkers in ["stats,list-append", "list-append,stats", "list-append"] {
        let words = ["check", "--salvage", "--checker", checkers, &file];
        let shown = stdout(&run(2, &words));
        assert!(
            shown.contains("may explain what was found"),
            "{checkers}: {shown}"
        );
    }
}

#[test]
fn r18_a_level_that_holds_is_named() {
    let scratch = Scratch::new("routes-18");
    let file = scratch.path("valid.sea");
    run(
        0,
        &[
            "generate",
            "rw-register",
            "--ops",
            "60",
            "--seed",
            "1",
            "-o",
            &file,
        ],
    );
    for checker in ["rw-register", "isolation"] {
        for model in ["serializable", "snapshot-isolation"] {
            let (status, document) = answer(&["--checker", checker, "--model", model, &file]);
            assert_eq!(status, 0);
            let holds = document["holds"].as_array().unwrap();
            assert!(
                holds.contains(&Json::from(model)),
                "{checker} {model}: {holds:?}"
            );
        }
    }
}

#[test]
fn r19_a_file_that_cannot_be_read_costs_the_others_nothing() {
    let scratch = Scratch::new("routes-19");
    let (good, bad) = (scratch.path("good.edn"), scratch.path("bad.edn"));
    fs::write(&good, STALE).unwrap();
    fs::write(&bad, "{:process").unwrap();
    let output = run(254, &["check", "--json", &bad, &good]);
    let documents = json(&output);
    assert!(documents[0]["error"].is_string());
    assert_eq!(documents[1]["valid"], false);
}

#[test]
fn options_without_effect_are_errors() {
    let scratch = Scratch::new("routes-options");
    let (edn, sea) = (scratch.path("a.edn"), scratch.path("a.sea"));
    fs::write(&edn, STALE).unwrap();
    run(0, &["import", &edn, "-o", &sea]);
    for (words, message) in [
        (
            vec!["--checker", "stats", "--model", "nonsense"],
            "takes no model",
        ),
        (
            vec!["--infer", "wfr-keys"],
            "--infer has no effect on list-append",
        ),
        (vec!["--infer", "nonsense"], "nonsense"),
        (
            vec!["--all-keys"],
            "--all-keys has no effect on list-append",
        ),
        (vec!["--threads", "0"], "--threads"),
        (
            vec!["--limit", "0"],
            "--limit takes a time above 0 in seconds",
        ),
        (vec!["--memory", "lots"], "--memory takes a number of bytes"),
        (vec!["--keyed"], "these are transactions"),
    ] {
        for file in [&edn, &sea] {
            let all = [&["check"], &words[..], &[file.as_str()]].concat();
            error(&all, &[message]);
        }
    }
    let proof = scratch.path("proof.json");
    error(
        &["check", "--checker", "g1", "--certificate", &proof, &sea],
        &["--certificate has no effect on g1"],
    );
    error(
        &["check", "--follow", "--format", "porcupine", &sea],
        &["--follow is for test files"],
    );
    run(1, &["check", "--certificate", &proof, &sea]);
    error(
        &["check", "--verify", &proof, "--infer", "wfr-keys", &sea],
        &["cannot be used with"],
    );
}
