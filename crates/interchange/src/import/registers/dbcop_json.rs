//! The JSON of dbcop's main branch: one object with `data`, an array of sessions, each an array of transactions
//! `{"events": […], "committed": true}`, where an event is `{"Write": {"variable": 1, "version": 2}}` or `{"Read": …}`.
//!
//! A read's version `null` is the initial state. Other members (`params`, `info`, `start`, `end`) are ignored.

use super::bytes::Bytes;
use super::json_tokens::{JsonTokens, first_name};
use super::{Initial, InputFault};
use crate::import::SourcePosition;
use seatrial_history::OpType;
use seatrial_history::TransactionSink;
use std::io::Read;

/// Reads such a text.
pub(super) struct DbcopJson {
    initial: Initial,
    state: DocumentPlace,
    session: u64,
    /// Transactions so far.
    count: u64,
    /// Does the first element of the array come next?
    first: bool,
    first_session: bool,
    buffer: Vec<u8>,
}

/// The context of the next byte.
#[derive(Clone, Copy)]
enum DocumentPlace {
    Start,
    /// Between sessions.
    Sessions,
    /// Between transactions of a session.
    Transactions,
    End,
}

impl DbcopJson {
    pub(super) fn new(initial: Option<i64>) -> DbcopJson {
        DbcopJson {
            initial: Initial { value: initial },
            state: DocumentPlace::Start,
            session: 0,
            count: 0,
            first: true,
            first_session: true,
            buffer: Vec::new(),
        }
    }

    /// Passes the next transaction to `sink`.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
        let mut json = JsonTokens { input };
        loop {
            match self.state {
                DocumentPlace::Start => {
                    json.expect(b'{')?;
                    let mut first = true;
                    loop {
                        if !json.more(b'}', &mut first)? {
                            return Err(json.fault("this object has no `data`"));
                        }
                        json.name(&mut self.buffer)?;
                        if self.buffer == b"data" {
                            break;
                        }
                        json.skip(&mut self.buffer, 0)?;
                    }
                    json.expect(b'[')?;
                    self.state = DocumentPlace::Sessions;
                }
                DocumentPlace::Sessions => {
                    if json.more(b']', &mut self.first_session)? {
                        json.expect(b'[')?;
                        self.first = true;
                        self.state = DocumentPlace::Transactions;
                        continue;
                    }
                    let mut first = false;
                    while json.more(b'}', &mut first)? {
                        json.name(&mut self.buffer)?;
                        if self.buffer == b"data" {
                            return Err(json.fault("`data` comes twice"));
                        }
                        json.skip(&mut self.buffer, 0)?;
                    }
                    self.state = DocumentPlace::End;
                }
                DocumentPlace::Transactions => {
                    if json.more(b']', &mut self.first)? {
                        json.peek()?;
                        *place = json.input.place();
                        self.transaction(&mut json, sink)?;
                        self.count += 1;
                        return Ok(true);
                    }
                    self.session += 1;
                    self.state = DocumentPlace::Sessions;
                }
                DocumentPlace::End => {
                    json.over()?;
                    return Ok(false);
                }
            }
        }
    }

    fn transaction<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        json: &mut JsonTokens<'_, R>,
        sink: &mut S,
    ) -> Result<(), InputFault> {
        let place = json.input.place();
        let fault = |problem: &str| InputFault {
            place,
            problem: problem.to_owned(),
        };
        json.expect(b'{')?;
        sink.begin(self.session, None);
        let (mut events, mut committed) = (false, None);
        let mut first = true;
        while json.more(b'}', &mut first)? {
            json.name(&mut self.buffer)?;
            match &self.buffer[..] {
                b"events" if events => return Err(json.fault("`events` comes twice")),
                b"events" => {
                    events = true;
                    json.expect(b'[')?;
                    let mut first = true;
                    while json.more(b']', &mut first)? {
                        self.event(json, sink)?;
                    }
                }
                b"committed" => committed = Some(json.truth()?),
                _ => json.skip(&mut self.buffer, 0)?,
            }
        }
        if !events {
            return Err(fault("this transaction has no `events`"));
        }
        let outcome = match committed {
            Some(true) => OpType::Ok,
            Some(false) => OpType::Fail,
            None => return Err(fault("this transaction has no `committed`")),
        };
        sink.end(outcome).map_err(|problem| fault(&problem))
    }

    fn event<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        json: &mut JsonTokens<'_, R>,
        sink: &mut S,
    ) -> Result<(), InputFault> {
        json.peek()?;
        let place = json.input.place();
        let fault = |problem: &str| InputFault {
            place,
            problem: problem.to_owned(),
        };
        json.expect(b'{')?;
        json.name(&mut self.buffer)?;
        let writes = match &self.buffer[..] {
            b"Read" => false,
            b"Write" => true,
            _ => return Err(fault("an event is neither `Read` nor `Write`")),
        };
        json.expect(b'{')?;
        let (mut variable, mut version) = (None, None);
        let mut first = true;
        while json.more(b'}', &mut first)? {
            json.name(&mut self.buffer)?;
            match &self.buffer[..] {
                b"variable" => variable = Some(natural(json, "a variable")?),
                b"version" if json.null()? => version = None,
                b"version" => version = Some(natural(json, "a version")?),
                _ => json.skip(&mut self.buffer, 0)?,
            }
        }
        json.expect(b'}')?;
        let variable = variable.ok_or_else(|| fault("this event has no `variable`"))?;
        if !writes {
            let seen = version.and_then(|version| self.initial.seen(version));
            sink.read(variable, seen);
            return Ok(());
        }
        let version = version.ok_or_else(|| fault("this write has no `version`"))?;
        let writes = self.initial.writes(version, self.count == 0);
        if writes.map_err(|problem| fault(&problem))? {
            sink.write(variable, version);
        }
        Ok(())
    }
}

/// A number that is not negative.
fn natural<R: Read>(json: &mut JsonTokens<'_, R>, what: &str) -> Result<i64, InputFault> {
    json.peek()?;
    let place = json.input.place();
    let number = json.int(what)?;
    if number < 0 {
        let problem = format!("{what} is negative");
        return Err(InputFault { place, problem });
    }
    Ok(number)
}

/// Does a text begin in this format?
pub(super) fn is_dbcop_json(first: &[u8]) -> bool {
    let has = |name: &[u8]| first.windows(name.len()).any(|part| part == name);
    match first_name(first) {
        Some(b"params") => has(b"\"n_variable\"") || has(b"\"n_node\""),
        Some(b"data") => has(b"\"events\""),
        Some(b"info" | b"start" | b"end") => has(b"\"data\"") || has(b"\"params\""),
        _ => false,
    }
}
