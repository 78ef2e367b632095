//! The store on a real file.

use seatrial_blocks::LogFile;
use seatrial_kv::{Answer, Outcome, Store, StoreOptions, Transaction};
use seatrial_machine::{Input, Machine, Output, Ticket, Time};
use std::path::Path;

/// A store and its file, driven as by the host: write, sync, report.
struct Node {
    store: Store,
    log: LogFile,
}

impl Node {
    fn start(path: &Path) -> Node {
        let mut log = LogFile::open_or_create(path).unwrap();
        let (store, report) = Store::boot(&log, StoreOptions::default()).unwrap();
        log.cut(report.recovery.end).unwrap();
        let mut node = Node { store, log };
        node.turn(Input::Wake);
        node
    }

    fn turn(&mut self, input: Input<Transaction>) -> Vec<Outcome> {
        let (mut out, mut outcomes) = (Vec::new(), Vec::new());
        self.store.turn(Time::ZERO, input, &mut out);
        for output in out {
            match output {
                Output::Append { bytes, ticket, .. } => {
                    self.log.append(&bytes).unwrap();
                    self.log.sync().unwrap();
                    outcomes.extend(self.turn(Input::Appended(ticket)));
                }
                Output::Reply(_, outcome) => outcomes.push(outcome),
                other => panic!("{other:?}"),
            }
        }
        outcomes
    }

    /// Appends to the list and reads it.
    fn append(&mut self, value: &[u8]) -> Vec<Vec<u8>> {
        let mut transaction = Transaction::new();
        transaction.append(b"list", value).unwrap();
        transaction.read(b"list").unwrap();
        let outcomes = self.turn(Input::Request(Ticket(1), transaction));
        let [Outcome::Ok(answers)] = &outcomes[..] else {
            panic!("{outcomes:?}")
        };
        let Some(Answer::List(list)) = answers.iter().nth(1) else {
            panic!("{answers:?}")
        };
        list.iter().map(<[u8]>::to_vec).collect()
    }
}

#[test]
fn restarts_continue_the_log_and_a_torn_write_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("log");
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for life in 0..5_u8 {
        let mut node = Node::start(path);
        for value in 0..3 {
            expected.push(vec![life, value]);
            assert_eq!(node.append(&[life, value]), expected);
        }
        let whole = std::fs::read(path).unwrap().len();
        node.append(b"its write is torn");
        drop(node);
        let mut bytes = std::fs::read(path).unwrap();
        bytes.truncate(whole + 1 + usize::from(life) * 17);
        std::fs::write(path, bytes).unwrap();
    }
}
