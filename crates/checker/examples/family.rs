//! Families of histories by which checkers of isolation are compared: a store that is strictly serializable, sessions
//! that invoke, take effect at one moment and return, and values that count up, each written once.
//!
//! ```text
//! cargo run --release -p seatrial-checker --example family -- W 1000000 plume > w.txt
//! cargo run --release -p seatrial-checker --example family -- B 16000 b.sea --seed 3
//! cargo run --release -p seatrial-checker --example family -- W 1000000 plume --violate --by-session > bad.txt
//! ```
//!
//! | family | count | sessions | keys | a transaction |
//! | --- | --- | --- | --- | --- |
//! | W | events | 50 | count / 50, at least 1,000 | 1 to 15 reads and writes, half of them reads |
//! | B | transactions | 20 | 10,000 | the same |
//! | R | transactions | 20 | 10,000 | the same, each write after a read of its key |
//! | N | transactions | 20 | 1,000 | as B, no key twice |
//!
//! `--sessions`, `--keys`, `--length` (the most) and `--reads` (a share) change that. `plume` is Plume's text in the order
//! of effects, or session after session with `--by-session`, to standard output; `edn`, and a file with the ending `.sea`,
//! are histories with invocations and completions.
//!
//! `--violate` plants, after nine tenths, one session that writes two keys twice and another that sees the second write of
//! one key and after it the first of the other: no order of commits explains that, whatever the level.

#![allow(clippy::print_stderr, reason = "standard output is the history's")]

use seatrial_history::{
    HistoryWriter, Key, Mop, Observed, Op, OpType, Process, Value, WriterOptions,
};
use seatrial_machine::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Nanoseconds from an invocation to the effect, from there to the return, and from there to the next, on average.
const STEP_NS: u64 = 1_000_000;

/// What to make.
struct Plan {
    family: char,
    count: u64,
    path: String,
    sessions: u64,
    keys: u64,
    length_max: u64,
    reads: f64,
    seed: u64,
    violate: bool,
    by_session: bool,
}

impl Plan {
    fn of(arguments: &[String]) -> Result<Plan, String> {
        let [family, count, path, options @ ..] = arguments else {
            return Err("usage: family W|B|R|N COUNT plume|edn|FILE.sea [--OPTION VALUE]…".into());
        };
        let number = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| format!("{text} is no number"))
        };
        let count = number(count)?;
        let (sessions, keys) = match family.as_str() {
            "W" => (50, (count / 50).max(1_000)),
            "B" | "R" => (20, 10_000),
            "N" => (20, 1_000),
            _ => return Err(format!("there is no family {family}; there are W, B, R, N")),
        };
        let mut plan = Plan {
            family: family.chars().next().unwrap_or('W'),
            count,
            path: path.clone(),
            sessions,
            keys,
            length_max: 15,
            reads: 0.5,
            seed: 1,
            violate: false,
            by_session: false,
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value = || options.next().ok_or(format!("{option} needs a value"));
            match option.as_str() {
                "--sessions" => plan.sessions = number(value()?)?.max(1),
                "--keys" => plan.keys = number(value()?)?.max(2),
                "--length" => plan.length_max = number(value()?)?.max(1),
                "--reads" => plan.reads = value()?.parse().map_err(|_| "--reads takes a share")?,
                "--seed" => plan.seed = number(value()?)?,
                "--violate" => plan.violate = true,
                "--by-session" => plan.by_session = true,
                _ => return Err(format!("there is no option {option}")),
            }
        }
        if plan.family == 'N' && plan.length_max > plan.keys {
            return Err("no key twice: there must be as many keys as reads and writes".into());
        }
        Ok(plan)
    }
}

/// A read or write of a key.
#[derive(Clone, Copy)]
struct Event {
    is_write: bool,
    key: u64,
    /// What is written, or was read; 0 is the initial state.
    value: u64,
}

/// What a session does next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Invoke,
    Effect,
    Return,
}

/// The store and its sessions.
struct Store {
    plan: Plan,
    rng: Rng,
    values: Vec<u64>,
    next: u64,
    /// By session: the transaction under way.
    running: Vec<Vec<Event>>,
    events: BinaryHeap<Reverse<(u64, u64, Phase)>>,
    /// Transactions and events invoked so far.
    transactions: u64,
    told: u64,
    /// Keys of the violation, and the values of the first writes; how far it has come.
    planted: [u64; 4],
    stage: u32,
}

impl Store {
    fn new(plan: Plan) -> Store {
        let mut rng = Rng::from_seed(plan.seed);
        let starts = (0..plan.sessions).map(|session| {
            let time = rng.below(STEP_NS);
            Reverse((time, session, Phase::Invoke))
        });
        Store {
            events: starts.collect(),
            values: vec![0; plan.keys as usize],
            next: 0,
            running: vec![Vec::new(); plan.sessions as usize],
            transactions: 0,
            told: 0,
            planted: [0; 4],
            stage: if plan.violate { 0 } else { 4 },
            plan,
            rng,
        }
    }

    fn progress(&self) -> u64 {
        if self.plan.family == 'W' {
            self.told
        } else {
            self.transactions
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn write(&mut self, key: u64) -> Event {
        let value = self.fresh();
        Event {
            is_write: true,
            key,
            value,
        }
    }

    /// A transaction as it is invoked.
    fn invoke(&mut self, session: u64) {
        let length = 1 + self.rng.below(self.plan.length_max);
        let mut events: Vec<Event> = Vec::new();
        while (events.len() as u64) < length {
            let key = self.rng.below(self.plan.keys);
            if self.plan.family == 'N' && events.iter().any(|event| event.key == key) {
                continue;
            }
            let is_write = !self.rng.chance(self.plan.reads);
            let read = Event {
                is_write: false,
                key,
                value: 0,
            };
            if !is_write || self.plan.family == 'R' {
                events.push(read);
            }
            if is_write {
                let write = self.write(key);
                events.push(write);
            }
        }
        if self.plan.family == 'W' {
            // As many events as were asked for.
            events.truncate((self.plan.count - self.told) as usize);
        }
        self.transactions += 1;
        self.told += events.len() as u64;
        self.running[session as usize] = events;
    }

    /// Plants a part of the violation, if it is time.
    fn plant(&mut self, session: u64) {
        let [one, other, first, _] = self.planted;
        let events = |store: &mut Store| {
            let more = [one, other].map(|key| store.write(key));
            store.running[session as usize].extend(more);
            more.map(|event| event.value)
        };
        let read = |key, value| Event {
            is_write: false,
            key,
            value,
        };
        match self.stage {
            0 if self.progress() >= self.plan.count / 10 * 9 && session == 0 => {
                (self.planted[0], self.planted[1]) = (0, 1);
                self.stage = 1;
                self.plant(session);
            }
            1 if session == 0 => {
                self.planted[2] = events(self)[0];
                self.stage = 2;
            }
            2 if session == 0 => {
                self.planted[3] = events(self)[1];
                self.stage = 3;
            }
            3 if session != 0 => {
                let reads = [read(other, self.planted[3]), read(one, first)];
                let events = &mut self.running[session as usize];
                events.retain(|event| event.key != one && event.key != other);
                events.splice(0..0, reads);
                self.stage = 4;
            }
            _ => {}
        }
    }

    /// A transaction takes effect.
    fn effect(&mut self, session: u64) {
        for event in &mut self.running[session as usize] {
            let value = &mut self.values[event.key as usize];
            if event.is_write {
                *value = event.value;
            } else {
                event.value = *value;
            }
        }
        if self.stage < 4 {
            self.plant(session);
            // What was planted last is the state.
            for event in self.running[session as usize]
                .iter()
                .filter(|it| it.is_write)
            {
                self.values[event.key as usize] = event.value;
            }
        }
    }

    fn run(&mut self, sink: &mut Sink) -> io::Result<()> {
        while let Some(Reverse((time, session, phase))) = self.events.pop() {
            let next = match phase {
                Phase::Invoke => {
                    if self.progress() >= self.plan.count {
                        continue;
                    }
                    self.invoke(session);
                    sink.invoke(time, session, &self.running[session as usize])?;
                    Phase::Effect
                }
                Phase::Effect => {
                    self.effect(session);
                    sink.effect(session, &self.running[session as usize])?;
                    Phase::Return
                }
                Phase::Return => {
                    sink.complete(time, session, &self.running[session as usize])?;
                    Phase::Invoke
                }
            };
            let time = time + 1 + self.rng.below(2 * STEP_NS);
            self.events.push(Reverse((time, session, next)));
        }
        Ok(())
    }
}

/// Where it goes.
enum Sink {
    /// Plume's text; by session when that is asked for.
    Plume {
        out: Box<dyn Write>,
        sessions: Option<Vec<Vec<u8>>>,
        transactions: u64,
    },
    /// Operations so far.
    Edn(Box<dyn Write>, u64),
    Sea(Box<HistoryWriter>, u64),
}

impl Sink {
    fn create(plan: &Plan) -> io::Result<Sink> {
        let ending = Path::new(&plan.path).extension();
        if ending.is_some_and(|ending| ending == "sea") {
            let attributes = serde_json::json!({"name": format!("family {}", plan.family), "workload": "rw-register"});
            let options = WriterOptions::default();
            let writer = HistoryWriter::create_with(plan.path.as_ref(), &attributes, options);
            return Ok(Sink::Sea(Box::new(writer.map_err(io::Error::other)?), 0));
        }
        let out = Box::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        if plan.path == "edn" {
            return Ok(Sink::Edn(out, 0));
        }
        if plan.path != "plume" {
            return Err(io::Error::other(
                "the history goes to plume, edn or FILE.sea",
            ));
        }
        let sessions = plan
            .by_session
            .then(|| vec![Vec::new(); plan.sessions as usize]);
        Ok(Sink::Plume {
            out,
            sessions,
            transactions: 0,
        })
    }

    fn invoke(&mut self, time: u64, session: u64, events: &[Event]) -> io::Result<()> {
        self.push(time, OpType::Invoke, session, events)
    }

    fn complete(&mut self, time: u64, session: u64, events: &[Event]) -> io::Result<()> {
        self.push(time, OpType::Ok, session, events)
    }

    fn push(&mut self, time: u64, kind: OpType, session: u64, events: &[Event]) -> io::Result<()> {
        let (Sink::Edn(_, index) | Sink::Sea(_, index)) = self else {
            return Ok(());
        };
        *index += 1;
        let mops = events.iter().map(|event| {
            let (key, value) = (Key::Int(event.key.cast_signed()), event.value.cast_signed());
            let observed = match (kind, value) {
                (OpType::Invoke, _) | (_, 0) => Observed::Nil,
                (_, value) => Observed::Register(value),
            };
            if event.is_write {
                Mop::Write { key, value }
            } else {
                Mop::Read { key, observed }
            }
        });
        let op = Op::invoke(Process::Client(session), "txn", Value::Txn(mops.collect()));
        let op = Op {
            index: *index - 1,
            kind,
            time: time.cast_signed(),
            ..op
        };
        match self {
            Sink::Edn(out, _) => writeln!(out, "{op}"),
            Sink::Sea(writer, _) => writer.push(&op).map_err(io::Error::other),
            Sink::Plume { .. } => Ok(()),
        }
    }

    fn effect(&mut self, session: u64, events: &[Event]) -> io::Result<()> {
        let Sink::Plume {
            out,
            sessions,
            transactions,
        } = self
        else {
            return Ok(());
        };
        let out: &mut dyn Write = match sessions {
            Some(sessions) => &mut sessions[session as usize],
            None => out,
        };
        for event in events {
            let Event {
                is_write,
                key,
                value,
            } = event;
            let kind = if *is_write { 'w' } else { 'r' };
            writeln!(out, "{kind}({key},{value},{session},{transactions})")?;
        }
        *transactions += 1;
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Plume {
                mut out, sessions, ..
            } => {
                for session in sessions.iter().flatten() {
                    out.write_all(session)?;
                }
                out.flush()
            }
            Sink::Edn(mut out, _) => out.flush(),
            Sink::Sea(writer, _) => writer.seal().map(drop).map_err(io::Error::other),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::of(&arguments)?;
    let mut sink = Sink::create(&plan)?;
    let mut store = Store::new(plan);
    store.run(&mut sink)?;
    sink.finish()?;
    let planted = if store.plan.violate && store.stage == 4 {
        ", a violation"
    } else {
        ""
    };
    eprintln!(
        "{} transactions, {} events{planted}",
        store.transactions, store.told
    );
    Ok(())
}
