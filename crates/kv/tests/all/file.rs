//! A replica on a real file.

use crate::node::LocalNode;
use seatrial_files::Files;
use seatrial_kv_protocol::{Answer, Outcome, Transaction};
use seatrial_machine::{Storage, Ticket};
use std::path::Path;
use std::sync::Arc;

fn start(path: &Path, life: u8) -> LocalNode {
    let storage: Arc<dyn Storage> = Arc::new(Files);
    LocalNode::start(&storage, path, None, u64::from(life)).unwrap()
}

/// Appends to the list and reads it.
fn append(node: &mut LocalNode, value: &[u8]) -> Vec<Vec<u8>> {
    let mut transaction = Transaction::new();
    transaction.append(b"list", value).unwrap();
    transaction.read(b"list").unwrap();
    let Outcome::Ok(answers) = node.answer(transaction).unwrap() else {
        panic!("an append fails")
    };
    let Some(Answer::List(list)) = answers.iter().nth(1) else {
        panic!("{answers:?}")
    };
    list.iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn restarts_continue_the_journal_and_a_torn_write_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("log");
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for life in 0..5_u8 {
        let mut node = start(folder.path(), life);
        for value in 0..3 {
            expected.push(vec![life, value]);
            assert_eq!(append(&mut node, &[life, value]), expected);
        }
        let whole = std::fs::read(path).unwrap().len();
        let mut torn = Transaction::new();
        torn.append(b"list", b"its write is torn").unwrap();
        node.ask(Ticket(1), torn).unwrap();
        drop(node);
        let mut bytes = std::fs::read(path).unwrap();
        assert!(bytes.len() > whole + 1 + usize::from(life) * 17);
        bytes.truncate(whole + 1 + usize::from(life) * 17);
        std::fs::write(path, bytes).unwrap();
    }
}
