//! What reading transactions of other checkers costs: `cargo bench -p seatrial-interchange --bench transactions`. Without the
//! argument `--bench` everything runs once with tiny input. Nanoseconds of processor time per read or write, the least of
//! several rounds, from memory: passed to a counting sink, and as operations of a history. Linux only.

#[allow(dead_code, reason = "other benches measure with these histories")]
#[path = "../../history/benches/workload/mod.rs"]
mod workload;

use seatrial_history::OpType;
use seatrial_history::{Stamps, TransactionSink};
use seatrial_interchange::export::registers::{RegisterLayout, RegisterWriter};
use seatrial_interchange::import::registers::TransactionReader;
use seatrial_interchange::import::{FileOperations, Format, ImportOptions};
use seatrial_machine::Rng;
use std::fmt::Write as _;
use workload::{Rounds, best};

/// A sink that counts its calls.
#[derive(Default)]
struct Count {
    events: u64,
    transactions: u64,
}

impl TransactionSink for Count {
    fn begin(&mut self, _: u64, _: Option<Stamps>) {}
    fn read(&mut self, _: i64, _: Option<i64>) {
        self.events += 1;
    }
    fn write(&mut self, _: i64, _: i64) {
        self.events += 1;
    }
    fn append(&mut self, _: i64, _: i64) {
        self.events += 1;
    }
    fn read_list(&mut self, _: i64, _: &[i64]) {
        self.events += 1;
    }
    fn end(&mut self, _: OpType) -> Result<(), String> {
        self.transactions += 1;
        Ok(())
    }
}

/// Sessions of a history.
const SESSIONS: u64 = 50;

/// A history as text: 1 to 15 operations a transaction, half of them reads.
#[derive(Default)]
struct Texts {
    plume: String,
    awdit: String,
    timekiller: String,
}

fn texts(events: u64, by_session: bool, rng: &mut Rng) -> Texts {
    let mut texts = Texts::default();
    let (mut done, mut transaction) = (0, 0);
    texts.timekiller.push('[');
    while done < events {
        let session = if by_session {
            done * SESSIONS / events
        } else {
            rng.below(SESSIONS)
        };
        let (start, commit) = (4 * transaction, 4 * transaction + 2);
        let comma = if transaction > 0 { "," } else { "" };
        let _ = write!(
            texts.timekiller,
            r#"{comma}{{"tid":{transaction},"sid":{session},"sts":{{"p":{start},"l":0}},"cts":{{"p":{commit},"l":0}},"ops":["#
        );
        let length = 1 + rng.below(15);
        for number in 0..length {
            done += 1;
            let (f, key, value) = (*rng.pick(&['r', 'w']), rng.below(20_000), done);
            let _ = writeln!(texts.plume, "{f}({key},{value},{session},{transaction})");
            let _ = writeln!(texts.awdit, "{f} {key} {value}");
            let comma = if number > 0 { "," } else { "" };
            let _ = write!(
                texts.timekiller,
                r#"{comma}{{"t":"{f}","k":{key},"v":{value}}}"#
            );
        }
        texts.timekiller.push_str("]}\n");
        texts.awdit.push_str("-\n");
        transaction += 1;
    }
    texts.timekiller.push(']');
    texts
}

/// A row: the format, bytes and nanoseconds per read or write.
fn measure(name: &str, bytes: &[u8], format: Format, rounds: Rounds) {
    let options = ImportOptions::default();
    let (sink, count) = best(rounds, || {
        let mut count = Count::default();
        let mut reader = TransactionReader::open(name, bytes, format, options);
        while reader.advance(&mut count).expect("written by this bench") {}
        count
    });
    let (made, _) = best(rounds, || {
        let operations = FileOperations::open(name, bytes, Some(format), options);
        let operations = operations.expect("written by this bench");
        operations
            .map(|op| op.expect("written by this bench").index)
            .sum::<u64>()
    });
    let per_event = |seconds: f64| seconds * 1e9 / count.events as f64;
    println!(
        "{name:>20} {:6.1} bytes {:7.1} ns to a sink {:7.1} ns as operations   {} transactions",
        bytes.len() as f64 / count.events as f64,
        per_event(sink),
        per_event(made),
        count.transactions,
    );
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let events = if is_bench { 1_000_000 } else { 1_000 };
    let rounds = Rounds {
        count: if is_bench { 5 } else { 1 },
        seconds_min: if is_bench { 0.2 } else { 0.0 },
    };
    let mut rng = Rng::from_seed(1);
    println!("{events} reads and writes");
    let sorted = texts(events, true, &mut rng);
    measure(
        "plume, by session",
        sorted.plume.as_bytes(),
        Format::Plume,
        rounds,
    );
    let texts = texts(events, false, &mut rng);
    measure("plume", texts.plume.as_bytes(), Format::Plume, rounds);
    measure("awdit", texts.awdit.as_bytes(), Format::Awdit, rounds);
    measure(
        "timekiller",
        texts.timekiller.as_bytes(),
        Format::TimeKiller,
        rounds,
    );
    let mut writer = RegisterWriter::new(Vec::new(), RegisterLayout::Dbcop);
    let options = ImportOptions::default();
    let plume = texts.plume.as_bytes();
    let operations = FileOperations::open("plume", plume, Some(Format::Plume), options);
    for op in operations.expect("written by this bench") {
        let op = op.expect("written by this bench");
        writer.push(&op).expect("registers in a vector");
    }
    let bincode = writer.finish().expect("registers in a vector");
    measure("dbcop", &bincode, Format::Dbcop, rounds);
}
