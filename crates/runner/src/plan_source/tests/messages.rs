//! Error messages of invalid plans: position, error and remedy.

#![expect(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::{VOCABULARY, read};
use crate::plan_source::PlanSource;
use expect_test::{Expect, expect};
use seatrial_plan::Vocabulary;
use seatrial_plan::document::TEXT_LENGTH_MAX;
use std::fmt::Write as _;

fn wrong(text: &str) -> String {
    match read(text) {
        Ok(plan) => panic!("this is no mistake: {text}\n{}", plan.outline()),
        Err(error) => error.to_string(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better")]
fn check(texts: &[&str], expected: Expect) {
    let mut said = String::new();
    for text in texts {
        let _ = writeln!(said, "{}", wrong(text));
    }
    expected.assert_eq(&said);
}

#[test]
fn words_that_are_not_known() {
    check(
        &[
            "seqeunce = []",
            "f = 'read'\nlimt = 3",
            "[[phases]]\nf = 'a'\n[[phases]]\nmix = [{ f = 'a', wieght = 2 }]",
            "f = 'a'\nweight = 2",
            "frobnicate = 1",
            "workload = 'regster'",
            "f = 'a'\n[test]\nmodle = 'x'",
            "f = 'a'\nfaults = ['kil']",
            "f = 'a'\nfaults = ['kil:majority']",
            "f = 'a'\nfaults = ['kill:bridge']",
            "f = 'a'\nfaults = { kinds = ['kill'], schedule = 'intervals' }",
            "heal = ['kill:one']",
            "f = 'a'\non = 'client'",
            "f = 'a'\nvalue = { zpif = 3 }",
            "f = 'txn'\nvalue = { txn = [['append', 1, 2], ['read', 1]] }",
            "fault = 'cut'\nlinsk = []",
        ],
        expect![[r#"
            plan:1:1: unknown key "seqeunce"; did you mean "sequence"?
            plan:2:1: unknown key "limt"; did you mean "limit"?
            plan:4:19: phases[1].mix[0]: unknown key "wieght"; did you mean "weight"?
            plan:2:1: unknown key "weight"
            plan:1:1: unknown key "frobnicate"
            plan:1:12: workload: unknown workload "regster"; did you mean "register"?
            plan:3:1: test: unknown key "modle"; did you mean "model"?
            plan:2:11: faults[0]: unknown kind of faults "kil"; did you mean "kill"?
            plan:2:11: faults[0]: unknown kind of faults "kil"; did you mean "kill"?
            plan:2:11: faults[0]: fault kill has no target "bridge" (available: one, minority, minority-third, majority, primaries, all, random)
            plan:2:41: faults.schedule: unknown fault schedule "intervals"; did you mean "interval"?
            plan:1:9: heal[0]: must be a kind of faults without targets: `heal` ends all faults of a kind
            plan:2:6: on: unknown group of threads "client"; did you mean "clients"?
            plan:2:11: value: unknown key "zpif"; did you mean "zipf"?
            plan:2:37: value.txn[1][0]: unknown micro-operation "read" (available: r, append, w)
            plan:1:1: missing key `links`: a list of links such as ["n1", "n2"]
        "#]],
    );
}

#[test]
fn values_that_do_not_fit() {
    check(
        &[
            "",
            "name = 'x'",
            "f = 3",
            "f = '@sleep'",
            "f = ''",
            "f = 'a'\nlimit = -1",
            "f = 'a'\nlimit = 1.5",
            "f = 'a'\nlimit = 10_000_000_000_000_000_000",
            "f = 'a'\nrepeat = 'yes'",
            "f = 'a'\nrate = 0",
            "f = 'a'\nrate = 1\nstagger = 1",
            "f = 'a'\nlimit = 1\nonce = true",
            "f = 'a'\nstagger = '5 parsecs'",
            "f = 'a'\ndelay_til = '0s'",
            "f = 'a'\nuntil_ok = 1",
            "f = 'a'\non = [5, 3]",
            "f = 'a'\nonly = ['x', 3]",
            "f = 'a'\nf_map = { a = '' }",
            "f = 'a'\nkey = { choice = [1, true] }",
            "f = 'a'\nvalue = { int = [4, 0] }",
            "f = 'a'\nvalue = { choice = [] }",
            "f = 'a'\nvalue = { counter = 7 }",
            "f = 'a'\nvalue = { zipf = 0 }",
            "f = 'a'\nvalue = { zipf = 1_000_000_000_000 }",
            "f = 'a'\nvalue = { int = 1, counter = true }",
            "f = 'a'\nvalue = { cas = [1, 'x'] }",
            "f = 'a'\nvalue = { txn = [['w', 1]] }",
            "f = 'a'\nvalue = { txn = [], length = 3 }",
            "f = 'a'\nvalue = { txn = [['r', 1]], length = [1, 1_000_000_000] }",
            "f = 'a'\nvalue = {}",
            "f = 'a'\nvalue = 1979-05-27",
        ],
        expect![[r#"
            plan:1:1: the node has no kind; it must have one of the keys f, workload, last_of, sequence, phases, mix, any, shortest_any, flip_flop, reserve, each_thread, each_process, sequential_keys, concurrent_keys, cycle_times, sleep, log, fault, heal, of, nothing
            plan:1:1: the node has no kind; it must have one of the keys f, workload, last_of, sequence, phases, mix, any, shortest_any, flip_flop, reserve, each_thread, each_process, sequential_keys, concurrent_keys, cycle_times, sleep, log, fault, heal, of, nothing
            plan:1:5: f: must be a name of 1 to 256 bytes that does not begin with @, not 3
            plan:1:5: f: must be a name of 1 to 256 bytes that does not begin with @, not "@sleep"
            plan:1:5: f: must be a name of 1 to 256 bytes that does not begin with @, not ""
            plan:2:9: limit: must be a whole number, 0 or greater, not -1
            plan:2:9: limit: must be a whole number, 0 or greater, not 1.5
            plan:2:9: a whole number must be from -9223372036854775808 to 9223372036854775807
            plan:2:10: repeat: must be true (endless) or a whole number, 0 or greater, not "yes"
            plan:2:8: rate: must be a number above 0 and up to 1000000000, not 0
            plan:1:1: both `rate` and `stagger`: a rate of 100 is a stagger of 10ms
            plan:1:1: both `limit` and `once`
            plan:2:11: stagger: must be a time such as "10s", "1.5m" or "250ms", or a number of seconds, up to a year, not "5 parsecs"
            plan:2:13: delay_til: must be a time above 0, not "0s"
            plan:2:12: until_ok: must be true or false, not 1
            plan:2:6: on: must be "clients", "nemesis", or the first and the last of the clients, [0, 9999] at most
            plan:2:14: only[1]: must be a name of 1 to 256 bytes that does not begin with @, not 3
            plan:2:15: f_map.a: must be a name of 1 to 256 bytes that does not begin with @, not ""
            plan:2:22: key.choice[1]: must be a key: a whole number, text, or a table that draws one: int, choice, counter, uniform, zipf, exponential, not true
            plan:2:17: value.int: must be a list of two whole numbers, the smaller first, not [4, 0]
            plan:2:20: value.choice: must be a list of at least one value, not an empty list
            plan:2:21: value.counter: must be true (a counter of this operation), or the name of a shared counter, not 7
            plan:2:18: value.zipf: must be a whole number from 1 to 1000000, not 0
            plan:2:18: value.zipf: must be a whole number from 1 to 1000000, not 1000000000000
            plan:2:9: value: both `int` and `counter`: a value has one of them
            plan:2:21: value.cas[1]: must be a whole number, or a table that draws one: int, choice, counter, uniform, zipf, exponential, not "x"
            plan:2:18: value.txn[0]: must be a micro-operation: ["r", key], ["append", key, value] or ["w", key, value], not a list
            plan:2:17: value.txn: must be a list of at least one micro-operation when a length is given, not an empty list
            plan:2:42: value.length[1]: must be a whole number from 0 to 1000, not 1000000000
            plan:2:9: value: the table has no kind of value; it must have one of the keys int, choice, counter, uniform, zipf, exponential, cas, txn, word, nil
            plan:2:9: dates are not supported; put text in quotes
        "#]],
    );
}

#[test]
fn nodes_that_make_no_sense() {
    check(
        &[
            "f = 'a'\nmix = []",
            "sequence = { f = 'a' }",
            "sequence = [{ f = 'a' }, 'b']",
            "flip_flop = [{ f = 'a' }]",
            "mix = [{ f = 'a', weight = 0 }]",
            "mix = [{ f = 'a', weight = -3 }]",
            "reserve = [{ threads = 2, f = 'a' }]",
            "reserve = [{ f = 'a' }]\ndefault = { f = 'b' }",
            "reserve = [{ threads = 100_000, f = 'a' }]\ndefault = { f = 'b' }",
            "concurrent_keys = { f = 'a' }",
            "concurrent_keys = { f = 'a' }\nthreads_per_key = 0",
            "sequential_keys = { f = 'a' }\nkeys = 'all'",
            "sequential_keys = { f = 'a' }\nkeys = [1.5]",
            "cycle_times = [{ f = 'a' }]",
            "cycle_times = [{ f = 'a', for = 0 }]",
            "nothing = false",
            "faults = { interval = '1s' }",
            "faults = ['kill', 'kill']",
            "f = 'a'\nfaults = { kinds = ['kill'], recovery = '1s' }",
            "f = 'a'\nfaults = { kinds = ['kill'], targets = ['n0'] }",
            "f = 'a'\nfaults = { kinds = ['kill'], targets = ['c1'] }",
            "fault = 'kill'",
            "fault = 'kill'\nnode = 'n99999999999'",
            "fault = 'cut'\nlinks = [['n1']]",
            "fault = 'heal'\nnode = 'n1'",
            "fault = 'kill'\nnode = 'n1'\nbits = 3",
            "fault = 'skew'\nnode = 'n1'\noffset_ms = 9_000_000_000_000",
            "heal = []",
            "heal = false",
            "workload = 'bank'\nkeys = 3",
            "workload = 'list-append'\nkeys = 1_000_000_000",
            "workload = 'list-append'\ndistribution = 'zipf:99'",
            "workload = 'list-append'\ntxn_length = [0, 3]",
            "f = 'a'\nvalue = { zipf = 3, skew = 11 }",
            "f = 'a'\nvalue = { int = 3, skew = 1 }",
            "mix = [{ f = 'a', value = { zipf = 600_000 } }, { f = 'b', key = { zipf = 600_000 } }]",
        ],
        expect![[r#"
            plan:1:1: both `f` and `mix`: a node has one kind; nest one in the other
            plan:1:12: sequence: must be a list of nodes, not a table
            plan:1:26: sequence[1]: must be a node (a table with the key of a kind), not "b"
            plan:1:13: flip_flop: must be a list of two nodes, not a list
            plan:1:28: mix[0].weight: must be a whole number from 1 to 1000000000, not 0
            plan:1:28: mix[0].weight: must be a whole number from 1 to 1000000000, not -3
            plan:1:1: missing key `default`: the node of all other threads
            plan:1:12: reserve[0]: missing key `threads`: the number of reserved threads
            plan:1:24: reserve[0].threads: must be a whole number from 1 to 10000, not 100000
            plan:1:1: missing key `threads_per_key`: the number of threads that share a key
            plan:2:19: threads_per_key: must be a whole number from 1 to 10000, not 0
            plan:2:8: keys: must be a number of keys, the first and the last key ({ from = 10, to = 19 }), or a list of whole numbers and texts, not "all"
            plan:2:9: keys[0]: must be a key: a whole number or text, not 1.5
            plan:1:16: cycle_times[0]: missing key `for`: the duration of its turn
            plan:1:33: cycle_times[0].for: must be a time above 0, not 0
            plan:1:11: nothing: must be true, not false
            plan:1:10: faults: missing key `kinds`: a list of kinds of faults
            plan:1:19: faults[1]: duplicate kind of faults "kill"
            plan:2:41: faults.recovery: requires `for`: recovery is the time for which the node continues after the end of the faults
            plan:2:41: faults.targets[0]: must be a node such as "n1", or a client such as "c0", not "n0"
            plan:2:41: faults.targets[0]: must be a node such as "n1", not "c1"
            plan:1:1: missing key `node`: a node such as "n1"
            plan:2:8: node: must be a node such as "n1", or a client such as "c0", not "n99999999999"
            plan:2:10: links[0]: must be a link such as ["n1", "n2"]: from the first to the second, not a list
            plan:2:1: unknown key "node"; did you mean "model"?
            plan:3:1: unknown key "bits"
            plan:3:13: offset_ms: must be a whole number from -1000000000000 to 1000000000000, not 9000000000000
            plan:1:8: heal: must be a list of at least one kind of faults, not an empty list
            plan:1:8: heal: must be true (everything) or a list of kinds of faults, not false
            plan:1:12: workload: the workload bank has no keys
            plan:2:8: keys: must be a whole number from 1 to 1000000, not 1000000000
            plan:2:16: distribution: must be uniform, zipf, zipf:SKEW (such as zipf:0.99, from 0.01 to 10), or exponential, not "zipf:99"
            plan:2:15: txn_length[0]: must be a whole number from 1 to 1000, not 0
            plan:2:28: value.skew: must be a number from 0.01 to 10, not 11
            plan:2:20: value: unknown key "skew" (available: int, choice, counter, uniform, zipf, exponential, cas, txn, word, nil)
            plan:1:1: the zipf distributions of the plan have 1200000 keys together, more than 1000000
        "#]],
    );
}

#[test]
fn options_have_their_bounds() {
    check(
        &[
            "f = 'a'\ntest = 3",
            "f = 'a'\n[test]\nconcurrency = 1_000_000_000",
            "f = 'a'\n[test]\nconcurrency = 0",
            "f = 'a'\n[test]\nnodes = 1_000_000_000",
            "f = 'a'\n[test]\nseed = 4",
            "f = 'a'\n[test]\nseed = '+4'",
            "f = 'a'\n[test]\nseed = '12345678123456781'",
            "f = 'a'\n[test]\ntime = '2 years'",
            "f = 'a'\n[test]\ntime = 0",
            "f = 'a'\n[test]\nrate = inf",
            "f = 'a'\n[test]\ncheckers = []",
            "f = 'a'\n[test]\nmodel = []",
        ],
        expect![[r#"
            plan:2:8: test: must be a table of options, not 3
            plan:3:15: test.concurrency: must be a whole number from 1 to 10000, not 1000000000
            plan:3:15: test.concurrency: must be a whole number from 1 to 10000, not 0
            plan:3:9: test.nodes: must be a whole number from 1 to 1000, not 1000000000
            plan:3:8: test.seed: must be text of up to 16 hexadecimal digits, such as "91c4", not 4
            plan:3:8: test.seed: must be text of up to 16 hexadecimal digits, such as "91c4", not "+4"
            plan:3:8: test.seed: must be text of up to 16 hexadecimal digits, such as "91c4", not "12345678123456781"
            plan:3:8: test.time: must be a time such as "10s", "1.5m" or "250ms", or a number of seconds, up to a year, not "2 years"
            plan:3:8: test.time: must be a time above 0, not 0
            plan:3:8: test.rate: must be a number above 0 and up to 1000000000, not inf
            plan:3:12: test.checkers: must be a list of at least one name, not an empty list
            plan:3:9: test.model: must be a name, not an empty list
        "#]],
    );
    // Great, but nothing is allocated for it.
    for text in [
        "f = 'a'\nrepeat = true\nlimit = 1_000_000_000_000_000_000",
        "f = 'a'\n[test]\nops = 9_000_000_000_000_000_000",
    ] {
        assert!(read(text).is_ok());
    }
}

#[test]
fn advice_is_given_about_likely_mistakes() {
    let mut said = String::new();
    for text in [
        "f = 'a'\nrepeat = true",
        "workload = 'bank'",
        "[[phases]]\nworkload = 'bank'\n[[phases]]\nf = 'a'",
        "[[phases]]\nworkload = 'bank'\nfaults = ['kill']\n[[phases]]\nf = 'a'\n[test]\ntime = 3",
        "mix = [{ f = 'a', repeat = true }, { f = 'b' }]\nlimit = 10",
        "mix = [{ f = 'a', repeat = true, until_ok = true }]\nlimit = 10",
        "sequential_keys = { f = 'a' }",
        "shortest_any = [{ workload = 'bank' }, { faults = ['kill'] }]",
        "each_thread = { sequence = [{ f = 'a' }], cycle = true }",
    ] {
        for advice in super::plan(text).advice() {
            let _ = writeln!(said, "{} {advice}", advice.at);
        }
    }
    expect![[r#"
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
        0 phases[0]: never ends, so the nodes after it never run; give it a limit or time_limit
        0 phases[0]: never ends, so the nodes after it never run; give it a limit or time_limit
        35 mix[1]: runs once in the whole mix; set repeat = true to repeat it
        7 mix[0]: until_ok never ends inside a mix, which forwards no completions
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
        0 the plan never ends; set test.time or test.ops, or a time_limit or limit in it
    "#]]
    .assert_eq(&said);
    for text in [
        "f = 'a'\nrepeat = true\n[test]\nops = 3",
        "workload = 'bank'\ntime_limit = 3",
        "[[phases]]\nworkload = 'bank'\nlimit = 3\n[[phases]]\nworkload = 'bank'\n[test]\ntime = 3",
        "mix = [{ f = 'a', repeat = 3 }, { f = 'b', limit = 1 }]",
        "sequence = [{ f = 'a', repeat = true, until_ok = true }, { f = 'b' }]",
        "sequential_keys = { f = 'a' }\nkeys = 3",
        "shortest_any = [{ workload = 'bank' }, { f = 'a' }]",
        "flip_flop = [{ f = 'a', repeat = true }, { f = 'b', repeat = 3 }]",
        "workload = 'bank'\nrepeat = 3",
        "workload = 'bank'\nfaults = { kinds = ['kill'], for = 3 }",
    ] {
        assert_eq!(super::plan(text).advice(), [], "{text}");
    }
}

#[test]
fn text_that_is_not_toml() {
    check(
        &[
            "f = ",
            "f = 'a'\nf = 'b'",
            "f = 'a'\n[test]\nseed = '4",
            "= 3",
            "f = 'a'\n[[f]]",
        ],
        expect![[r#"
            plan:1:5: this is not TOML: string values must be quoted, expected literal string
            plan:2:1: this is not TOML: duplicate key
            plan:3:10: this is not TOML: invalid literal string, expected `'`
            plan:1:1: this is not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
            plan:2:3: this is not TOML: duplicate key
        "#]],
    );
}

#[test]
fn json_is_refused_with_what_to_write() {
    let mut said = String::new();
    for text in [r#"{"f": "read", "limit": 3}"#, " \n {\"f\": \"read\"}", "{"] {
        let _ = writeln!(said, "{}", read(text).expect_err(text));
    }
    expect![[r#"
        plan:1:1: a plan is written in TOML, and this looks like JSON: write `name = value` in place of `"name": value`, without the outer braces
        plan:2:2: a plan is written in TOML, and this looks like JSON: write `name = value` in place of `"name": value`, without the outer braces
        plan:1:1: a plan is written in TOML, and this looks like JSON: write `name = value` in place of `"name": value`, without the outer braces
    "#]]
    .assert_eq(&said);
}

#[test]
fn depth_and_size_have_bounds() {
    let nested = |depth: usize, open: &str, close: &str, core: &str| {
        format!("{}{core}{}", open.repeat(depth), close.repeat(depth))
    };
    // As deep as may be, with everything around each node, on the small stack of a test.
    let node = "limit = 9, stagger = 0, delay = 0, delay_til = 1, time_limit = 9, cycle = 2, f_map = { a = 'b' }, \
                only = ['b'], except = ['c'], until_ok = true, process_limit = 9, concurrency_limit = 3, \
                synchronize = true, on = 'clients', of = ";
    let open = format!("{{{node}");
    let deep = format!("of = {}", nested(30, &open, "}", "{ f = 'b' }"));
    let plan = read(&deep).unwrap();
    let lines = super::schedule(plan.generator(super::environment()));
    assert!(lines.len() > 1, "{lines:?}");
    let mut said = String::new();
    for (depth, open, close) in [
        (33, "{of=", "}"),
        (100_000, "[", "]"),
        (100_000, "{of=", "}"),
        (50_000, "a.", ""),
    ] {
        let text = format!("of = {}", nested(depth, open, close, "{f='a'}"));
        let text = if open == "a." {
            format!("{}a = 1", open.repeat(depth))
        } else {
            text
        };
        let mut error = read(&text).unwrap_err();
        error.problem.path.clear();
        let _ = writeln!(said, "{error}");
    }
    let many = format!("sequence = [{}]", "{f='a'},".repeat(20_000));
    let _ = writeln!(said, "{}", read(&many).unwrap_err());
    let long = format!("# {}\nf = 'a'", "x".repeat(TEXT_LENGTH_MAX));
    let _ = writeln!(said, "{}", read(&long).unwrap_err());
    expect![[r#"
        plan:1:130: the plan is nested more than 32 nodes deep
        plan:1:86: this is not TOML: cannot recurse further; max recursion depth met
        plan:1:326: this is not TOML: cannot recurse further; max recursion depth met
        plan:1:1: this is not TOML: recursion limit
        plan:1:80005: sequence[9999]: the plan has more than 10000 nodes
        plan:1:1: the plan has 1048586 bytes, more than 1048576
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_system_knows_its_own_words() {
    let vocabulary = Vocabulary {
        workloads: &["register"],
        functions: Some(&["read", "write", "cas", "txn"]),
    };
    let read = |text| {
        let source = PlanSource {
            file: "kv.toml",
            text,
        };
        source.plan(&vocabulary)
    };
    assert!(read("mix = [{ f = 'read' }, { workload = 'register' }]").is_ok());
    expect![[r#"
        kv.toml:1:14: mix[0].f: unknown operation "raed"; did you mean "read"?
        kv.toml:1:12: workload: unknown workload "list-append" (available: register)
    "#]]
    .assert_eq(&format!(
        "{}\n{}\n",
        read("mix = [{ f = 'raed' }]").unwrap_err(),
        read("workload = 'list-append'").unwrap_err()
    ));
    assert_eq!(VOCABULARY.functions, None);
}

#[test]
fn columns_are_counted_in_characters() {
    let error = read("name = 'Prüfung éü'\n# …\nmix = [{ name = 'éü', f = 'a', limit = 'é' }]");
    expect![[r#"plan:3:40: mix[0].limit: must be a whole number, 0 or greater, not "é""#]]
        .assert_eq(&error.unwrap_err().to_string());
}

#[test]
fn tables_of_data_types() {
    let row = "state = 'a', operation = 'f'";
    let texts = [
        "f = 'a'\nmodel = 3".to_owned(),
        "f = 'a'\n[model]\nrows = []".to_owned(),
        "f = 'a'\n[model]\ninital = 'a'\nrows = []".to_owned(),
        "f = 'a'\n[model]\ninitial = 'a'\nrows = []".to_owned(),
        "f = 'a'\n[model]\ninitial = 'a'\nrows = [3]".to_owned(),
        format!("f = 'a'\n[model]\ninitial = 'a'\nrows = [{{ {row} }}]"),
        format!("f = 'a'\n[model]\ninitial = 'a'\nrows = [{{ {row}, nxt = 'a' }}]"),
        format!("f = 'a'\n[model]\ninitial = ''\nrows = [{{ {row}, next = 'a' }}]"),
        format!("f = 'a'\n[model]\ninitial = 'a'\nrows = [{{ {row}, next = 3 }}]"),
        format!(
            "f = 'a'\n[model]\ninitial = 'a'\nrows = [\n{{ {row}, argument = {{ uniform = 3 }}, next = 'a' }}]"
        ),
    ];
    check(
        &texts.each_ref().map(String::as_str),
        expect![[r#"
            plan:2:9: model: must be a table with `initial` and `rows`, not 3
            plan:2:1: model: missing key `initial`: the first state
            plan:3:1: model: unknown key "inital"; did you mean "initial"?
            plan:4:8: model.rows: must be a list of at least one row, not an empty list
            plan:4:9: model.rows[0]: must be a row: a table with `state`, `operation` and `next`, not 3
            plan:4:9: model.rows[0]: missing key `next`: a name
            plan:4:41: model.rows[0]: unknown key "nxt"; did you mean "next"?
            plan:3:11: model.initial: must be a name, not ""
            plan:4:48: model.rows[0].next: must be a name, not 3
            plan:5:44: model.rows[0].argument: must be one value, not a drawn one: uniform of 3
        "#]],
    );
}
