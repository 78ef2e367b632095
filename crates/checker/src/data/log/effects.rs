//! The sends and polls of an operation.

use seatrial_history::chunk::{Tape, Token, ValueView};
use seatrial_history::{Key, LogMop, Value};

/// The functions of the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFunction {
    Send,
    Poll,
    /// Sends and polls.
    Txn,
    Assign,
    Subscribe,
}

impl LogFunction {
    pub(super) fn named(name: &str) -> Option<LogFunction> {
        Some(match name {
            "send" => LogFunction::Send,
            "poll" => LogFunction::Poll,
            "txn" => LogFunction::Txn,
            "assign" => LogFunction::Assign,
            "subscribe" => LogFunction::Subscribe,
            _ => return None,
        })
    }
}

/// A message that an operation sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentMessage {
    pub(super) partition: u32,
    pub(super) message: u32,
    pub(super) offset: Option<i64>,
}

/// Messages of one log, polled together: a range of [`LogEffects::polled`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PolledRun {
    pub(super) partition: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// What an operation sends and polls, in flat buffers that the next operation uses again.
#[derive(Clone, Debug, Default)]
pub(super) struct LogEffects {
    /// In the order of the operation.
    pub(super) sent: Vec<SentMessage>,
    /// Sorted by log; of one log in the order of the operation.
    pub(super) runs: Vec<PolledRun>,
    /// Offsets and values in turn, as they were polled.
    pub(super) polled: Vec<i64>,
    /// Is there a micro-operation that polls?
    pub(super) has_poll: bool,
}

/// Numbers logs and messages.
pub(super) trait MessageNumbers {
    fn partition(&mut self, key: &Key) -> u32;
    fn message(&mut self, partition: u32, value: i64) -> u32;
}

/// The value is not what a log's operation carries.
#[derive(Debug)]
pub(super) struct NotALog;

impl LogEffects {
    /// Replaces these effects by those of `value`, which only sends for `send` and only polls for `poll`.
    ///
    /// The usual shapes are read from the chunk as they are; a value of another shape is built first. Offsets below 0 are an
    /// error.
    pub(super) fn read(
        &mut self,
        f: LogFunction,
        value: ValueView<'_>,
        numbers: &mut impl MessageNumbers,
    ) -> Result<(), NotALog> {
        self.clear();
        match value {
            ValueView::Txn(mops) if mops.is_empty() => return Ok(()),
            ValueView::Other(tape) => {
                if self.read_tape(f, tape, numbers).is_none() {
                    self.clear();
                    self.read_value(f, &tape.to_value(), numbers)?;
                }
            }
            _ => return Err(NotALog),
        }
        let is_sorted = self.runs.is_sorted_by_key(|run| run.partition);
        if !is_sorted {
            // Stable: several polls of one log stay in their order.
            self.runs.sort_by_key(|run| run.partition);
        }
        let offsets = self.polled.iter().step_by(2);
        let sent = self.sent.iter().filter_map(|sent| sent.offset);
        let mut all = offsets.copied().chain(sent);
        if all.any(|offset| offset < 0) {
            return Err(NotALog);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.sent.clear();
        self.runs.clear();
        self.polled.clear();
        self.has_poll = false;
    }

    /// The usual shapes; `None` for any other.
    fn read_tape(
        &mut self,
        f: LogFunction,
        mut tape: Tape<'_>,
        numbers: &mut impl MessageNumbers,
    ) -> Option<()> {
        let Token::List(count) = tape.next()? else {
            return None;
        };
        for _ in 0..count {
            let Token::List(items) = tape.next()? else {
                return None;
            };
            let name = match tape.next()? {
                Token::Word(name) => name.as_str(),
                Token::Text(name) => name,
                _ => return None,
            };
            match (name, items) {
                ("send", 3) => {
                    let key = token_key(tape.next()?)?;
                    let (offset, value) = match tape.next()? {
                        Token::Int(value) => (None, value),
                        Token::Integers(&[offset, value]) | Token::Cas(offset, value) => {
                            (Some(offset), value)
                        }
                        _ => return None,
                    };
                    self.send(f, &key, offset, value, numbers);
                }
                ("poll", 1) => self.has_poll = true,
                ("poll", 2) => {
                    self.has_poll = true;
                    let Token::Map(logs) = tape.next()? else {
                        return None;
                    };
                    for _ in 0..logs {
                        let key = token_key(tape.next()?)?;
                        match tape.next()? {
                            Token::IntegerPairs(pairs) => self.poll(f, &key, numbers, |polled| {
                                polled.extend_from_slice(pairs);
                            }),
                            Token::List(0) => self.poll(f, &key, numbers, |_| {}),
                            _ => return None,
                        }
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn read_value(
        &mut self,
        f: LogFunction,
        value: &Value,
        numbers: &mut impl MessageNumbers,
    ) -> Result<(), NotALog> {
        for mop in value.as_log().ok_or(NotALog)? {
            match mop {
                LogMop::Send { key, offset, value } => self.send(f, &key, offset, value, numbers),
                LogMop::Poll { messages } => {
                    self.has_poll = true;
                    for (key, messages) in messages.into_iter().flatten() {
                        let pairs = messages.iter().flat_map(|&(offset, value)| [offset, value]);
                        self.poll(f, &key, numbers, |polled| polled.extend(pairs));
                    }
                }
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        f: LogFunction,
        key: &Key,
        offset: Option<i64>,
        value: i64,
        numbers: &mut impl MessageNumbers,
    ) {
        if f != LogFunction::Poll {
            let partition = numbers.partition(key);
            let message = numbers.message(partition, value);
            self.sent.push(SentMessage {
                partition,
                message,
                offset,
            });
        }
    }

    fn poll(
        &mut self,
        f: LogFunction,
        key: &Key,
        numbers: &mut impl MessageNumbers,
        add: impl FnOnce(&mut Vec<i64>),
    ) {
        if f != LogFunction::Send {
            let partition = numbers.partition(key);
            let start = self.polled.len() as u32;
            add(&mut self.polled);
            let end = self.polled.len() as u32;
            self.runs.push(PolledRun {
                partition,
                start,
                end,
            });
        }
    }

    /// The runs of each log that was polled, by log.
    pub(super) fn logs(&self) -> impl Iterator<Item = &[PolledRun]> {
        self.runs
            .chunk_by(|one, next| one.partition == next.partition)
    }
}

fn token_key(token: Token<'_>) -> Option<Key> {
    match token {
        Token::Int(number) => Some(Key::Int(number)),
        Token::Word(word) => Some(Key::Word(word)),
        Token::Text(text) => Some(Key::Text(text.into())),
        _ => None,
    }
}
