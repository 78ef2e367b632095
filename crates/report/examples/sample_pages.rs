//! Writes sample pages into a folder, to look at them: `cargo run -p seatrial-report --example sample_pages -- DIR`.

#[path = "../tests/all/synthetic.rs"]
mod synthetic;

use seatrial_checker::Verdict;
use seatrial_history::History;
use seatrial_report::{Drawing, Report, html, text};
use std::path::Path;
use synthetic::SyntheticShape;

fn main() -> std::io::Result<()> {
    let folder = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "sample-pages".to_owned());
    std::fs::create_dir_all(&folder)?;
    let small = SyntheticShape {
        operations: 3_000,
        processes: 10,
        seconds: 30,
        faults: 11,
    };
    let history = synthetic::history(1, small);
    page(
        &folder,
        "valid",
        &history,
        &[synthetic::linearizable(), synthetic::stats()],
    )?;
    page(
        &folder,
        "stale",
        &history,
        &[synthetic::stale_read(&history), synthetic::stats()],
    )?;
    let unknown = synthetic::linearizable()
        .unknown("key 7 has more than 1,000,000 states; the rest is valid");
    page(&folder, "unknown", &history, &[unknown])?;
    let (history, verdicts) = synthetic::transactions();
    page(&folder, "transactions", &history, &verdicts)?;
    let many = synthetic::history(
        2,
        SyntheticShape {
            faults: 150,
            seconds: 300,
            operations: 20_000,
            ..small
        },
    );
    page(&folder, "faults", &many, &[synthetic::linearizable()])?;
    page(&folder, "empty", &History::default(), &[])?;
    let large = synthetic::history(
        3,
        SyntheticShape {
            operations: 100_000,
            processes: 50,
            seconds: 60,
            faults: 20,
        },
    );
    page(&folder, "large", &large, &[synthetic::linearizable()])?;
    if std::env::args().nth(2).is_some() {
        let huge = synthetic::history(
            4,
            SyntheticShape {
                operations: 1_000_000,
                processes: 100,
                seconds: 600,
                faults: 100,
            },
        );
        page(&folder, "huge", &huge, &[synthetic::linearizable()])?;
    }
    Ok(())
}

fn page(folder: &str, name: &str, history: &History, verdicts: &[Verdict]) -> std::io::Result<()> {
    let attributes = synthetic::attributes();
    let files = [
        "report.html",
        "history.sea",
        "results.json",
        "n1.log",
        "n2.log",
        "n3.log",
    ];
    let overview = synthetic::overview(history);
    let report = Report::new(&attributes, &overview, verdicts)
        .in_folder("runs/kv/2026-11-21T09-14-03-91c4", files);
    print!("{}", text(&report, true));
    let drawing = Drawing::read(&report, history).map_err(std::io::Error::other)?;
    let page = html(&report, &drawing);
    println!(" {name}: {} bytes\n", page.len());
    std::fs::write(Path::new(folder).join(format!("{name}.html")), page)
}
