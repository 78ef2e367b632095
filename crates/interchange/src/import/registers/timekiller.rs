//! TimeKiller's JSON (Chronos, Aion): an array of transactions
//! `{"tid": 67, "sid": 19, "sts": {"p": 16, "l": 6}, "cts": {"p": 17, "l": 0}, "ops": [{"t": "w", "k": 7, "v": 2}]}`.
//!
//! `sts` and `cts` are the database's timestamps of the snapshot and of the commit. `t` is `w`, `r`, `a` (append) or one
//! of these words in full, in any case. A read without `v`, or with `null`, saw the initial state; so does one of 0,
//! unless the options name another initial value. Session and transaction may be texts; numbers may be written as
//! texts. Transactions of a session stand in its order.

use super::bytes::Bytes;
use super::draft::{DraftAccessKind, TransactionDraft};
use super::json_tokens::{JsonTokens, first_name};
use super::{Initial, InputFault};
use crate::import::SourcePosition;
use seatrial_history::FixedMap;
use seatrial_history::OpType;
use seatrial_history::{Stamp, Stamps, TransactionSink};
use std::io::Read;

/// The initial value of a key.
const INITIAL: i64 = 0;
/// Sessions with names at most.
const NAMES_MAX: usize = 1 << 20;
/// The number of the first session with a name.
const NAMED: u64 = 1 << 40;

/// Reads such a text.
pub(super) struct TimeKiller {
    initial: Initial,
    state: ArrayPlace,
    /// Transactions so far.
    count: u64,
    draft: TransactionDraft,
    sessions: FixedMap<Box<[u8]>, u64>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrayPlace {
    Start,
    /// Between transactions; does the first come next?
    Transactions(bool),
    End,
}

/// What an operation carries.
#[derive(Clone, Copy)]
enum Carried {
    Nothing,
    Null,
    Int(i64),
    /// The number of elements in the draft.
    List(i64),
}

impl TimeKiller {
    pub(super) fn new(initial: Option<i64>) -> TimeKiller {
        TimeKiller {
            initial: Initial {
                value: Some(initial.unwrap_or(INITIAL)),
            },
            state: ArrayPlace::Start,
            count: 0,
            draft: TransactionDraft::default(),
            sessions: FixedMap::default(),
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
        if self.state == ArrayPlace::Start {
            json.expect(b'[')?;
            self.state = ArrayPlace::Transactions(true);
        }
        if let ArrayPlace::Transactions(mut first) = self.state {
            if json.more(b']', &mut first)? {
                self.state = ArrayPlace::Transactions(false);
                json.peek()?;
                *place = json.input.place();
                self.transaction(&mut json, sink)?;
                self.count += 1;
                return Ok(true);
            }
            self.state = ArrayPlace::End;
        }
        json.over()?;
        Ok(false)
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
        let (mut session, mut start, mut commit, mut operations) = (None, None, None, false);
        self.draft.clear();
        let mut first = true;
        while json.more(b'}', &mut first)? {
            json.name(&mut self.buffer)?;
            match &self.buffer[..] {
                b"sid" => session = Some(self.session(json)?),
                b"sts" => start = Some(self.stamp(json)?),
                b"cts" => commit = Some(self.stamp(json)?),
                b"ops" if operations => return Err(json.fault("`ops` comes twice")),
                b"ops" => {
                    operations = true;
                    json.expect(b'[')?;
                    let mut first = true;
                    while json.more(b']', &mut first)? {
                        self.operation(json)?;
                    }
                }
                _ => json.skip(&mut self.buffer, 0)?,
            }
        }
        let session = session.ok_or_else(|| fault("this transaction has no `sid`"))?;
        let start = start.ok_or_else(|| fault("this transaction has no `sts`"))?;
        let commit = commit.ok_or_else(|| fault("this transaction has no `cts`"))?;
        if !operations {
            return Err(fault("this transaction has no `ops`"));
        }
        if commit < start {
            return Err(fault(
                "this transaction commits (`cts`) before it starts (`sts`)",
            ));
        }
        sink.begin(session, Some(Stamps { start, commit }));
        self.draft.emit(sink);
        if !self.draft.is_small() {
            self.draft = TransactionDraft::default();
        }
        sink.end(OpType::Ok).map_err(|problem| fault(&problem))
    }

    fn session<R: Read>(&mut self, json: &mut JsonTokens<'_, R>) -> Result<u64, InputFault> {
        if json.peek()? != Some(b'"') {
            let place = json.input.place();
            let number = json.int("a session")?;
            let problem = format!("session {number} is negative");
            return u64::try_from(number).map_err(|_| InputFault { place, problem });
        }
        json.text(&mut self.buffer)?;
        let digits = str::from_utf8(&self.buffer).unwrap_or_default();
        if let Ok(number @ ..NAMED) = digits.parse() {
            return Ok(number);
        }
        if let Some(&number) = self.sessions.get(&self.buffer[..]) {
            return Ok(number);
        }
        if self.sessions.len() == NAMES_MAX {
            return Err(json.fault(format!("more than {NAMES_MAX} sessions with names")));
        }
        let number = NAMED + self.sessions.len() as u64;
        self.sessions.insert(self.buffer[..].into(), number);
        Ok(number)
    }

    fn stamp<R: Read>(&mut self, json: &mut JsonTokens<'_, R>) -> Result<Stamp, InputFault> {
        json.expect(b'{')?;
        let (mut physical, mut logical) = (None, None);
        let mut first = true;
        while json.more(b'}', &mut first)? {
            json.name(&mut self.buffer)?;
            match &self.buffer[..] {
                b"p" => physical = Some(self.number(json, "a timestamp")?),
                b"l" => logical = Some(self.number(json, "a timestamp")?),
                _ => json.skip(&mut self.buffer, 0)?,
            }
        }
        let physical = physical.ok_or_else(|| json.fault("this timestamp has no `p`"))?;
        let logical = logical.ok_or_else(|| json.fault("this timestamp has no `l`"))?;
        Ok(Stamp { physical, logical })
    }

    /// An integer, which may be written as text.
    fn number<R: Read>(
        &mut self,
        json: &mut JsonTokens<'_, R>,
        what: &str,
    ) -> Result<i64, InputFault> {
        if json.peek()? != Some(b'"') {
            return json.int(what);
        }
        let place = json.input.place();
        json.text(&mut self.buffer)?;
        let digits = str::from_utf8(&self.buffer).unwrap_or_default();
        digits.parse().map_err(|_| InputFault {
            place,
            problem: format!("{what} (an integer) is expected, found a text"),
        })
    }

    fn operation<R: Read>(&mut self, json: &mut JsonTokens<'_, R>) -> Result<(), InputFault> {
        json.peek()?;
        let place = json.input.place();
        let fault = |problem: String| InputFault { place, problem };
        json.expect(b'{')?;
        let (mut kind, mut key, mut carried) = (None, None, Carried::Nothing);
        let mut first = true;
        while json.more(b'}', &mut first)? {
            json.name(&mut self.buffer)?;
            match &self.buffer[..] {
                b"t" => {
                    json.text(&mut self.buffer)?;
                    self.buffer.make_ascii_lowercase();
                    kind = Some(match &self.buffer[..] {
                        b"r" | b"read" => DraftAccessKind::Read,
                        b"w" | b"write" => DraftAccessKind::Write,
                        b"a" | b"append" => DraftAccessKind::Append,
                        _ => return Err(fault("`t` is none of r, w, a".to_owned())),
                    });
                }
                b"k" => key = Some(self.number(json, "a key")?),
                b"v" if matches!(carried, Carried::Nothing) => carried = self.carried(json)?,
                b"v" => return Err(json.fault("`v` comes twice")),
                _ => json.skip(&mut self.buffer, 0)?,
            }
        }
        let kind = kind.ok_or_else(|| fault("this operation has no `t`".to_owned()))?;
        let key = key.ok_or_else(|| fault("this operation has no `k`".to_owned()))?;
        let added = match (kind, carried) {
            (DraftAccessKind::Read, Carried::Nothing | Carried::Null) => {
                self.draft.add(DraftAccessKind::ReadInitial, key, 0)
            }
            (DraftAccessKind::Read, Carried::Int(value)) => match self.initial.seen(value) {
                Some(value) => self.draft.add(DraftAccessKind::Read, key, value),
                None => self.draft.add(DraftAccessKind::ReadInitial, key, 0),
            },
            (DraftAccessKind::Read, Carried::List(count)) => {
                self.draft.add(DraftAccessKind::ReadList, key, count)
            }
            (DraftAccessKind::Append, Carried::Int(element)) => {
                self.draft.add(DraftAccessKind::Append, key, element)
            }
            (_, Carried::Int(value)) => match self.initial.writes(value, self.count == 0) {
                Ok(true) => self.draft.add(DraftAccessKind::Write, key, value),
                Ok(false) => Ok(()),
                Err(problem) => Err(problem),
            },
            _ => Err("a write's `v` is an integer".to_owned()),
        };
        added.map_err(fault)
    }

    fn carried<R: Read>(&mut self, json: &mut JsonTokens<'_, R>) -> Result<Carried, InputFault> {
        if json.null()? {
            return Ok(Carried::Null);
        }
        if json.peek()? != Some(b'[') {
            return Ok(Carried::Int(self.number(json, "a value")?));
        }
        json.expect(b'[')?;
        let mut count = 0;
        let mut first = true;
        while json.more(b']', &mut first)? {
            let element = self.number(json, "an element")?;
            let added = self.draft.element(element);
            added.map_err(|problem| json.fault(problem))?;
            count += 1;
        }
        Ok(Carried::List(count))
    }
}

/// Does a text begin in this format?
pub(super) fn is_timekiller(first: &[u8]) -> bool {
    let array = first.trim_ascii_start().first() == Some(&b'[');
    let name = first_name(first);
    array
        && matches!(
            name,
            Some(b"tid" | b"sid" | b"sts" | b"cts" | b"ops" | b"rtts")
        )
}
