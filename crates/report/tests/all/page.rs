//! The page: what stands in it, that it loads nothing, that nothing in a history becomes markup.

use crate::synthetic::{self, SyntheticShape};
use seatrial_checker::{Component, Dependency, Finding, FindingStep, Validity, Verdict};
use seatrial_history::{History, Op, OpType, Process, Symbol, Value};
use seatrial_report::{Drawing, Excerpt, FindingFile, Report, finding_files, html};
use serde_json::{Value as Json, json};

const SMALL: SyntheticShape = SyntheticShape {
    operations: 3_000,
    processes: 10,
    seconds: 30,
    faults: 11,
};

fn page(history: &History, verdicts: &[Verdict]) -> String {
    let attributes = synthetic::attributes();
    let files = ["report.html", "history.sea", "n1.log"];
    let overview = synthetic::overview(history);
    let report = Report::new(&attributes, &overview, verdicts).in_folder("runs/kv/1", files);
    drawn(&report, history)
}

/// The page of a report of this history.
pub(crate) fn drawn(report: &Report<'_>, history: &History) -> String {
    html(report, &Drawing::read(report, history).unwrap())
}

/// The findings of these verdicts as files.
pub(crate) fn written(
    attributes: &Json,
    history: &History,
    verdicts: &[Verdict],
) -> Vec<FindingFile> {
    let overview = synthetic::overview(history);
    let report = Report::new(attributes, &overview, verdicts);
    finding_files(&report, &Excerpt::read(&report, history).unwrap())
}

/// The figures that the page's script draws.
fn figures(page: &str) -> Json {
    let begin = page.find("id=\"figures\">").unwrap() + "id=\"figures\">".len();
    let length = page[begin..].find("</script>").unwrap();
    serde_json::from_str(&page[begin..begin + length]).unwrap()
}

/// The page without the insides of its scripts and styles.
fn markup(page: &str) -> String {
    let mut markup = String::new();
    let mut rest = page;
    while let Some(begin) = ["<script", "<style"]
        .iter()
        .filter_map(|tag| rest.find(tag))
        .min()
    {
        let end = begin + rest[begin..].find('>').unwrap() + 1;
        let name = if rest[begin..].starts_with("<script") {
            "</script>"
        } else {
            "</style>"
        };
        markup.push_str(&rest[..end]);
        rest = &rest[end + rest[end..].find(name).unwrap()..];
        markup.push_str(name);
        rest = &rest[name.len()..];
    }
    markup + rest
}

/// Checks that every element is closed in order and every attribute is quoted. Fewer rules than HTML has: what this
/// accepts, browsers read alike.
pub(crate) fn assert_well_formed(page: &str) {
    const EMPTY: [&str; 6] = ["meta", "path", "polygon", "rect", "line", "!DOCTYPE"];
    let markup = markup(page);
    let mut open: Vec<&str> = Vec::new();
    let mut rest = markup.as_str();
    while let Some(begin) = rest.find('<') {
        assert!(
            !rest[..begin].contains('>'),
            "a stray > in {:?}",
            &rest[..begin]
        );
        let end = begin + rest[begin..].find('>').expect("an element is not closed");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        assert!(!tag.contains('<'), "a stray < in <{tag}>");
        let name = tag.split([' ', '/', '\n']).next().unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes it");
        } else if !EMPTY.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

/// Nothing that a browser would load or follow out of the folder.
pub(crate) fn assert_needs_nothing(page: &str) {
    let markup = markup(page);
    assert_loads_nothing(&markup);
    assert!(markup.contains("default-src 'none'"), "the policy");
    // The licence and the banner of the chart library name where it comes from; nothing else names any address.
    assert_eq!(addresses(page), ["https://github.com/leeoni"]);
}

/// What addresses a text names.
fn addresses(text: &str) -> Vec<&str> {
    let found = text.match_indices("://");
    found
        .map(|(at, _)| &text[at.saturating_sub(5)..at + 20])
        .collect()
}

/// A picture that is whole, and needs nothing else; it names what it is written in.
pub(crate) fn assert_picture(picture: &str) {
    assert_well_formed(picture);
    assert_loads_nothing(&markup(picture));
    assert_eq!(addresses(picture), ["\"http://www.w3.org/2000/s"]);
}

/// No element of this markup loads anything or leads out of the folder.
fn assert_loads_nothing(markup: &str) {
    let inside = |rest: &str| rest.split('>').next().unwrap().to_owned();
    let tags: Vec<String> = markup.split('<').skip(1).map(inside).collect();
    for tag in &tags {
        for word in [" src=", " srcset=", " on", "style=", "url("] {
            // A quoted attribute may say anything.
            let unquoted: String = tag.split('"').step_by(2).collect();
            assert!(!unquoted.contains(word), "{word} in <{tag}>");
        }
        let name = tag.split(' ').next().unwrap();
        assert!(
            !["link", "img", "iframe", "object", "base", "form"].contains(&name),
            "<{tag}>"
        );
        if let Some((_, rest)) = tag.split_once("href=\"") {
            assert!(
                rest.starts_with("./") || rest.starts_with('#'),
                "<{tag}> leads out"
            );
        }
    }
}

#[test]
fn every_kind_of_report_is_a_page() {
    let history = synthetic::history(1, SMALL);
    let (transactions, anomalies) = synthetic::transactions();
    let unknown = synthetic::linearizable().unknown("too many states");
    let many = synthetic::history(
        2,
        SyntheticShape {
            faults: 700,
            seconds: 300,
            ..SMALL
        },
    );
    let timeless =
        History::from_unindexed(vec![Op::invoke(Process::Client(0), "read", Value::Nil)]);
    let cases: [(&History, Vec<Verdict>, &str); 7] = [
        (
            &history,
            vec![synthetic::linearizable()],
            "Valid: linearizable",
        ),
        (
            &history,
            vec![synthetic::stale_read(&history)],
            "Not linearizable",
        ),
        (&history, vec![unknown], "too many states"),
        (&transactions, anomalies, "Not strict-serializable"),
        (
            &many,
            vec![synthetic::linearizable()],
            "The first 500 of 700 faults are drawn.",
        ),
        (
            &History::default(),
            Vec::new(),
            "no checker ran on this history",
        ),
        (
            &timeless,
            vec![synthetic::stats()],
            "there is nothing to draw",
        ),
    ];
    for (history, verdicts, expected) in cases {
        let page = page(history, &verdicts);
        assert!(page.contains(expected), "{expected}");
        assert_well_formed(&page);
        if page.contains("id=\"figures\"") {
            assert_needs_nothing(&page);
        }
    }
}

#[test]
fn an_anomaly_shows_its_operations() {
    let (history, verdicts) = synthetic::transactions();
    let page = page(&history, &verdicts);
    for expected in [
        "<b>G2-item</b> <span>T1 (op 3) and T2 (op 4) each missed what the other appended.</span>",
        "<p class=\"explanation\">T1 read key 2 = [] before T2&#39;s append of 1;",
        "<b>1 G2-item</b> Write skew",
        "<b>2 lost updates</b>",
        "What still holds: snapshot-isolation.",
        "<a href=\"#op-0-3\">op 3</a> <span class=\"relation rw\">rw</span> <a href=\"#op-0-4\">op 4</a>: T1 read key 2",
        "<span id=\"op-0-3\" class=\"ok\">3      0.002000  0  ok      txn  [[:append 1 1] [:r 2 []]]</span>",
        "<svg class=\"cycle\"",
        "<svg class=\"intervals\"",
        "Shown: 2 of 2 explained anomalies, of 5 found.",
        "seatrial check runs/kv/1/history.sea",
        "<a href=\"./n1.log\">n1.log</a>",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    for link in page
        .split("href=\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(
            page.contains(&format!("id=\"{link}\"")),
            "{link} leads nowhere"
        );
    }
}

#[test]
fn figures_tell_the_history() {
    let history = synthetic::history(1, SMALL);
    let figures = figures(&page(&history, &[synthetic::linearizable()]));
    let completed = history
        .iter()
        .filter(|op| op.process.is_client() && !op.is_invoke())
        .count();
    let count = |list: &Json| list.as_array().unwrap().len();
    for column in ["time", "latency", "class", "operation"] {
        assert_eq!(count(&figures["points"][column]), completed, "{column}");
    }
    assert_eq!(count(&figures["faults"]), 11);
    let rates = figures["rates"].as_array().unwrap().iter();
    let counted: u64 = rates
        .flat_map(|rate| rate["counts"].as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(
        counted, completed as u64,
        "every completion is in one window"
    );
    let names = figures["functions"].as_array().unwrap();
    assert_eq!(count(&figures["quantiles"]["by_function"]), names.len());
    let windows = count(&figures["quantiles"]["all"][0]);
    assert!((12..=151).contains(&windows), "{windows}");
    let quantiles: Vec<&Vec<Json>> = figures["quantiles"]["all"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_array().unwrap())
        .collect();
    for window in 0..windows {
        let values: Vec<Option<u64>> = quantiles.iter().map(|line| line[window].as_u64()).collect();
        assert!(
            values.is_sorted(),
            "median ≤ 95 % ≤ 99 % ≤ slowest: {values:?}"
        );
    }
}

/// What an attacker would write into a history.
const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'<!-- ]]> &lt; {{x}} \u{2028}\u{202e}";

/// Hostile text wherever a history has text.
fn hostile_history() -> History {
    let name = Symbol::intern(HOSTILE).unwrap();
    let text = Value::text(HOSTILE);
    let map = Value::Map([(text.clone(), Value::Word(name))].into());
    let mut ops = Vec::new();
    for number in 0..40 {
        let time = number * 1_000_000;
        let invocation = Op {
            time,
            ..Op::invoke(Process::Client(number as u64), name, map.clone())
        };
        let kind = [OpType::Ok, OpType::Fail, OpType::Info][number as usize % 3];
        let completion = invocation.complete(kind, map.clone());
        let completion = completion
            .with("error", text.clone())
            .with("node", text.clone());
        let fault = ["kill", "restart"][number as usize % 2];
        let fault = Op {
            kind: OpType::Info,
            time,
            ..Op::invoke(Process::Named(name), fault, text.clone())
        };
        ops.extend([invocation, completion, fault.clone(), fault]);
    }
    ops.push(Op::invoke(Process::NEMESIS, name, text.clone()).with("error", text));
    History::from_unindexed(ops)
}

/// Hostile text wherever a verdict has text.
fn hostile_verdict() -> Verdict {
    let name = Symbol::intern(HOSTILE).unwrap().as_str();
    let mut verdict = Verdict::valid("list-append").unknown(HOSTILE);
    verdict.model = Some(HOSTILE.to_owned());
    verdict.valid = Validity::Invalid;
    verdict.anomalies = [(name, 3)].into();
    verdict.not = vec![name];
    verdict.details = json!({HOSTILE: HOSTILE, "holds": HOSTILE}).into();
    verdict.details.holds = Some(vec![HOSTILE]);
    let step = |from, to, relation| FindingStep {
        from,
        to,
        relation,
        reason: HOSTILE.to_owned(),
    };
    verdict.findings = vec![Finding {
        anomaly: name,
        summary: format!("{HOSTILE}\n{HOSTILE}"),
        operations: (0..12).collect(),
        steps: vec![step(1, 5, name), step(5, 1, "rw")],
        linearization: None,
    }];
    verdict
}

#[test]
fn nothing_in_a_history_becomes_markup() {
    let attributes = json!({
        "suite": HOSTILE, "workload": HOSTILE, "seed": HOSTILE, "bug": HOSTILE, "started": HOSTILE,
        "command": HOSTILE, "nodes": [HOSTILE], "faults": [HOSTILE],
        "options": {HOSTILE: HOSTILE, "deep": {HOSTILE: [HOSTILE]}},
    });
    let (history, verdicts) = (hostile_history(), [hostile_verdict()]);
    let overview = synthetic::overview(&history);
    let report = Report::new(&attributes, &overview, &verdicts).warn(HOSTILE);
    let page = drawn(&report.in_folder(HOSTILE, [HOSTILE, "a.sea"]), &history);
    assert_well_formed(&page);
    assert_needs_nothing(&page);
    assert_eq!(
        page.matches("<script").count(),
        3,
        "the figures and two scripts"
    );
    assert!(!page.contains("<img"), "no element of the history's making");
    assert!(
        !page.contains(['\u{202e}', '\u{2028}']),
        "no reversed text, no hidden line"
    );
    assert!(
        page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"),
        "it is shown as text"
    );
    let functions = &figures(&page)["functions"];
    assert_eq!(functions[0], HOSTILE, "the figures keep their meaning");
}

#[test]
fn a_long_history_is_sampled_and_says_so() {
    let shape = SyntheticShape {
        operations: 200_000,
        processes: 50,
        seconds: 100,
        faults: 40,
    };
    let history = synthetic::history(3, shape);
    let page = page(&history, &[synthetic::linearizable()]);
    assert!(page.contains("A sample: 30,000 of 200,000 operations that completed."));
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let figures = figures(&page);
    let class = figures["points"]["class"].as_array().unwrap();
    let infos = class
        .iter()
        .filter(|class| class.as_u64().unwrap() % 3 == 2)
        .count();
    let all = history
        .iter()
        .filter(|op| op.process.is_client() && op.is_info())
        .count();
    assert_eq!(infos, all, "every unknown operation is drawn");
}

#[test]
fn long_values_and_many_findings_are_bounded() {
    let long = Value::text("x".repeat(100_000));
    let mut ops = Vec::new();
    for number in 0..100 {
        let invocation = Op::invoke(Process::Client(number), "read", long.clone());
        ops.extend([
            invocation.clone(),
            invocation.complete(OpType::Ok, long.clone()),
        ]);
    }
    let history = History::from_unindexed(ops);
    let mut verdict = synthetic::linearizable();
    verdict.valid = Validity::Invalid;
    verdict.anomalies = [("internal", 5_000)].into();
    let finding = Finding {
        anomaly: "internal",
        summary: "s".repeat(1_000_000),
        operations: (0..200).collect(),
        steps: Vec::new(),
        linearization: None,
    };
    verdict.findings = vec![finding; 80];
    let page = page(&history, &[verdict]);
    assert!(page.contains("Shown: 60 of 80 explained anomalies, of 5,000 found."));
    assert!(page.len() < 2_500_000, "{} bytes", page.len());
}

#[test]
fn findings_are_files_that_need_nothing() {
    let (history, mut verdicts) = synthetic::transactions();
    let dependency = |(from, to, relation)| Dependency { from, to, relation };
    let dependencies = [(3, 4, "rw"), (4, 3, "rw"), (6, 7, "wr"), (7, 3, "realtime")];
    verdicts[1].components = vec![Component {
        transactions: 12,
        operations: vec![3, 4, 6, 7],
        dependencies: dependencies.map(dependency).into(),
        left_out: 2,
    }];
    let attributes = synthetic::attributes();
    let files = written(&attributes, &history, &verdicts);
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    let expected = [
        "G2-item/1.svg",
        "G1c-realtime/1.svg",
        "G1c-realtime.txt",
        "G2-item.txt",
        "components/1.svg",
    ];
    assert_eq!(names, expected);
    for file in files
        .iter()
        .filter(|file| file.contents.starts_with("<svg"))
    {
        assert_picture(&file.contents);
    }
    let component = &files[4].contents;
    let title = "A component of 12 transactions, 4 of them shown; 2 arrows left out";
    assert!(component.contains(title), "{component}");
    assert_eq!(component.matches("<polygon").count(), 4);
    assert_eq!(component.matches("<g class=\"node").count(), 4);
    // A cycle too long for a circle has a row for each operation.
    let long = |number: u64| FindingStep {
        from: number,
        to: (number + 1) % 20,
        relation: "ww",
        reason: "because".into(),
    };
    let operation = |number: u64| Op {
        index: number,
        ..Op::invoke(Process::Client(number), "txn", Value::Nil)
    };
    let history = History::from_ops((0..20).map(operation).collect());
    verdicts[1].findings[0].steps = (0..20).map(long).collect();
    verdicts[1].components.clear();
    let files = written(&attributes, &history, &verdicts);
    assert_eq!(files[0].contents.matches("<g class=\"node").count(), 20);
}

#[test]
fn hostile_findings_stay_text() {
    let history = hostile_history();
    let attributes = json!({});
    let verdicts = [hostile_verdict()];
    let files = written(&attributes, &history, &verdicts);
    assert!(!files.is_empty());
    for file in &files {
        let plain = file
            .name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-./".contains(letter));
        assert!(plain && !file.name.contains(".."), "{}", file.name);
        if file.contents.starts_with("<svg") {
            assert_picture(&file.contents);
        }
    }
}
