//! What a history made by hand may have wrong.

use crate::chunk::{Unstorable, measure};
use crate::history::UNPAIRED;
use crate::pair::OpenInvocations;
use crate::{History, Op, OpType, Process};

/// The first thing that is wrong with a history, with the operation's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Indices must rise.
    #[error("operation {index} comes after operation {previous}")]
    Order {
        /// The index that does not rise.
        index: u64,
        /// The one before.
        previous: u64,
    },
    /// A process does one thing at a time.
    #[error(
        "operation {index}: process {process} invokes while its operation {running} is running"
    )]
    DoubleInvoke {
        /// The second invocation.
        index: u64,
        /// Who.
        process: Process,
        /// The first invocation.
        running: u64,
    },
    /// What was not begun cannot end.
    #[error("operation {index}: process {process} completes ({}) what it did not invoke", kind.name())]
    NotRunning {
        /// The completion.
        index: u64,
        /// Who.
        process: Process,
        /// How.
        kind: OpType,
    },
    /// Indices must count from 0 without gaps.
    #[error("operation {index} is at position {position} of a history without gaps")]
    Gap {
        /// Its index.
        index: u64,
        /// How many operations come before it.
        position: u64,
    },
    /// Times must not go back.
    #[error("operation {index}: time {time} comes after time {previous}")]
    Time {
        /// Its index.
        index: u64,
        /// Its time in nanoseconds.
        time: i64,
        /// The highest time before.
        previous: i64,
    },
    /// Too many for memory; a test file, and a view of it, has room.
    #[error("{0} operations, of which a history in memory holds 4,294,967,294")]
    TooMany(usize),
    /// No test file can hold it, nor can a fold read it.
    #[error("operation {index} cannot be stored: {reason}")]
    Unstorable {
        /// Its index.
        index: u64,
        /// Why.
        reason: Unstorable,
    },
}

/// Where the indices of a history come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indices {
    /// If no operation has one (all are 0, as [`Op::invoke`] makes them), they are assigned, else kept.
    #[default]
    Guess,
    /// Each operation keeps its own; they must rise, with or without gaps.
    Keep,
    /// Each operation keeps its own, which must be its position: 0, 1, 2, …
    Dense,
    /// Each operation gets its position.
    Assign,
}

/// What is asked of the times of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Nothing, as in Jepsen: clocks of other programs may go back.
    #[default]
    Keep,
    /// They must not go back; operations without a time (-1) are passed over.
    Rise,
}

/// What is asked of who invokes and completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Nothing: the second invocation of a busy process takes the place of the first, which stays without completion; a
    /// completion without invocation has none. For histories that are incomplete.
    Lenient,
    /// No process invokes while it is busy, and nothing completes that was not invoked, as Jepsen demands.
    #[default]
    Strict,
}

/// How a history is made of operations from anywhere. By default what Jepsen does: indices are assigned if there are
/// none, times are taken as they are, and pairs must be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Where indices come from.
    pub indices: Indices,
    /// What is asked of times.
    pub times: Times,
    /// What is asked of pairs.
    pub pairing: Pairing,
}

impl HistoryOptions {
    /// Gives or checks indices.
    fn index(self, ops: &mut [Op]) -> Result<(), HistoryError> {
        let assigns = match self.indices {
            Indices::Assign => true,
            Indices::Guess => ops.iter().all(|op| op.index == 0),
            Indices::Keep | Indices::Dense => false,
        };
        let mut previous = None;
        for (position, op) in ops.iter_mut().enumerate() {
            let position = position as u64;
            if assigns {
                op.index = position;
            }
            let index = op.index;
            if self.indices == Indices::Dense && index != position {
                return Err(HistoryError::Gap { index, position });
            }
            rise(index, &mut previous)?;
        }
        Ok(())
    }

    fn check_times(self, ops: &[Op]) -> Result<(), HistoryError> {
        if self.times == Times::Keep {
            return Ok(());
        }
        let mut previous = i64::MIN;
        for &Op { index, time, .. } in ops.iter().filter(|op| op.time != -1) {
            if time < previous {
                return Err(HistoryError::Time {
                    index,
                    time,
                    previous,
                });
            }
            previous = time;
        }
        Ok(())
    }
}

/// Fails unless `index` is above the one before, which it becomes.
fn rise(index: u64, previous: &mut Option<u64>) -> Result<(), HistoryError> {
    match previous.replace(index) {
        Some(previous) if index <= previous => Err(HistoryError::Order { index, previous }),
        _ => Ok(()),
    }
}

impl History {
    /// A history of operations that were made by hand, or by another program. What is wrong with them is told with the
    /// operation's index, and with its position where it has none.
    ///
    /// ```
    /// use seatrial_history::{History, HistoryOptions, Op, OpType, Process, Value};
    ///
    /// let write = Op::invoke(Process::Client(0), "write", Value::Int(3));
    /// let ok = write.complete(OpType::Ok, Value::Int(3));
    /// let history = History::from_any(vec![write.clone(), ok], HistoryOptions::default())?;
    /// assert_eq!(history.completion(0).unwrap().index, 1);
    ///
    /// let error = History::from_any(vec![write.clone(), write], HistoryOptions::default());
    /// let said = error.unwrap_err().to_string();
    /// assert_eq!(said, "operation 1: process 0 invokes while its operation 0 is running");
    /// # Ok::<(), seatrial_history::HistoryError>(())
    /// ```
    pub fn from_any(mut ops: Vec<Op>, options: HistoryOptions) -> Result<History, HistoryError> {
        if ops.len() >= UNPAIRED as usize {
            return Err(HistoryError::TooMany(ops.len()));
        }
        options.index(&mut ops)?;
        options.check_times(&ops)?;
        if options.pairing == Pairing::Strict {
            check_pairs(&ops)?;
        }
        Ok(History::from_ops(ops))
    }

    /// The history of these operations, if it is one that a test could have recorded; see [`History::validate`].
    pub fn strict(ops: Vec<Op>) -> Result<History, HistoryError> {
        check(&ops)?;
        Ok(History::from_ops(ops))
    }

    /// Could a test have recorded this? Indices rise, no process invokes while it is busy, nothing completes that was
    /// not invoked, and everything can be stored. Pairing itself is lenient; histories from other programs, and those
    /// that were filtered, need not pass.
    pub fn validate(&self) -> Result<(), HistoryError> {
        check(self.ops())
    }
}

fn check(ops: &[Op]) -> Result<(), HistoryError> {
    let mut previous = None;
    for op in ops {
        rise(op.index, &mut previous)?;
    }
    check_pairs(ops)?;
    for op in ops {
        let index = op.index;
        measure(op).map_err(|reason| HistoryError::Unstorable { index, reason })?;
    }
    Ok(())
}

fn check_pairs(ops: &[Op]) -> Result<(), HistoryError> {
    let mut open = OpenInvocations::default();
    for (position, op) in ops.iter().enumerate() {
        let (index, process, kind) = (op.index, op.process, op.kind);
        match (kind, open.running(op)) {
            (OpType::Invoke, Some(running)) => {
                return Err(HistoryError::DoubleInvoke {
                    index,
                    process,
                    running: ops[running as usize].index,
                });
            }
            // The first half of what a nemesis does.
            (OpType::Info, None) if !process.is_client() => {}
            (OpType::Ok | OpType::Fail | OpType::Info, None) => {
                return Err(HistoryError::NotRunning {
                    index,
                    process,
                    kind,
                });
            }
            _ => {}
        }
        open.follow(position as u64, op);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    fn op(index: u64, process: Process, kind: OpType) -> Op {
        Op {
            index,
            kind,
            ..Op::invoke(process, "kill", Value::Nil)
        }
    }

    fn said(ops: &[(u64, Process, OpType)]) -> String {
        let ops = ops
            .iter()
            .map(|&(index, process, kind)| op(index, process, kind));
        match History::strict(ops.collect()) {
            Ok(history) => format!("{:?}", history.validate()),
            Err(error) => error.to_string(),
        }
    }

    const ONE: Process = Process::Client(1);
    const NEMESIS: Process = Process::NEMESIS;
    use OpType::{Fail, Info, Invoke, Ok as Done};

    #[test]
    fn what_a_test_records_is_valid() {
        assert_eq!(said(&[]), "Ok(())");
        assert_eq!(
            said(&[
                (3, ONE, Invoke),
                (5, NEMESIS, Info),
                (6, ONE, Done),
                (7, NEMESIS, Info),
                (8, NEMESIS, Info),
                (9, ONE, Invoke),
                (10, ONE, Info),
            ]),
            "Ok(())"
        );
    }

    #[test]
    fn errors_name_the_operation() {
        assert_eq!(
            said(&[(4, ONE, Invoke), (4, ONE, Done)]),
            "operation 4 comes after operation 4"
        );
        assert_eq!(
            said(&[
                (1, ONE, Invoke),
                (2, ONE, Done),
                (7, ONE, Invoke),
                (9, ONE, Invoke)
            ]),
            "operation 9: process 1 invokes while its operation 7 is running"
        );
        for (kind, name) in [(Done, "ok"), (Fail, "fail"), (Info, "info")] {
            assert_eq!(
                said(&[(2, Process::Client(3), Invoke), (3, ONE, kind)]),
                format!("operation 3: process 1 completes ({name}) what it did not invoke")
            );
        }
        assert_eq!(
            said(&[(0, NEMESIS, Done)]),
            "operation 0: process :nemesis completes (ok) what it did not invoke"
        );
    }

    #[test]
    fn what_no_file_can_hold_is_told() {
        let name: &'static str = "f".repeat(300).leak();
        let history = History::from_ops(vec![Op::invoke(ONE, name, Value::Nil)]);
        let error = history.validate().unwrap_err();
        assert!(error.to_string().contains("300 bytes"), "{error}");
    }

    fn made(
        options: HistoryOptions,
        ops: &[(u64, i64, Process, OpType)],
    ) -> Result<String, String> {
        let ops = ops.iter().map(|&(index, time, process, kind)| Op {
            time,
            ..op(index, process, kind)
        });
        let history = History::from_any(ops.collect(), options);
        let history = history.map_err(|error| error.to_string())?;
        let indices: Vec<u64> = history.iter().map(|op| op.index).collect();
        Ok(format!("{indices:?}"))
    }

    #[test]
    fn indices_are_kept_or_assigned() {
        let of = |indices| HistoryOptions {
            indices,
            ..HistoryOptions::default()
        };
        let none = [(0, -1, ONE, Invoke), (0, -1, ONE, Done)];
        let sparse = [(1 << 33, 7, ONE, Invoke), ((1 << 33) + 5, 8, ONE, Done)];
        for indices in [Indices::Guess, Indices::Assign] {
            assert_eq!(made(of(indices), &none), Ok("[0, 1]".into()));
        }
        let kept = Ok("[8589934592, 8589934597]".into());
        assert_eq!(made(of(Indices::Guess), &sparse), kept);
        assert_eq!(made(of(Indices::Keep), &sparse), kept);
        assert_eq!(made(of(Indices::Assign), &sparse), Ok("[0, 1]".into()));
        let gap = "operation 8589934592 is at position 0 of a history without gaps";
        assert_eq!(made(of(Indices::Dense), &sparse), Err(gap.into()));
        for indices in [Indices::Keep, Indices::Dense] {
            assert!(made(of(indices), &none).is_err());
        }
        assert_eq!(made(of(Indices::Dense), &none[..1]), Ok("[0]".into()));
        let mixed = [
            (0, -1, ONE, Invoke),
            (4, -1, ONE, Done),
            (2, -1, ONE, Invoke),
        ];
        let said = "operation 2 comes after operation 4";
        assert_eq!(made(of(Indices::Guess), &mixed), Err(said.into()));
    }

    #[test]
    fn times_and_pairs_are_checked_as_far_as_one_wants() {
        let rising = HistoryOptions {
            times: Times::Rise,
            ..HistoryOptions::default()
        };
        let back = [
            (3, 9, ONE, Invoke),
            (4, -1, NEMESIS, Info),
            (5, 8, ONE, Done),
        ];
        assert!(made(HistoryOptions::default(), &back).is_ok());
        let said = "operation 5: time 8 comes after time 9";
        assert_eq!(made(rising, &back), Err(said.into()));
        assert!(made(rising, &back[..2]).is_ok());
        let lenient = HistoryOptions {
            pairing: Pairing::Lenient,
            ..rising
        };
        let odd = [(3, 1, ONE, Done), (4, 1, ONE, Invoke), (5, 2, ONE, Invoke)];
        assert!(made(lenient, &odd).is_ok());
        let said = "operation 3: process 1 completes (ok) what it did not invoke";
        assert_eq!(made(rising, &odd), Err(said.into()));
        let said = "operation 5: process 1 invokes while its operation 4 is running";
        assert_eq!(made(rising, &odd[1..]), Err(said.into()));
    }
}
