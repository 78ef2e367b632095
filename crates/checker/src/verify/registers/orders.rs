//! Replays orders of transactions on registers: who reads must see what is there.

use crate::verify::clock::Clock;
use crate::verify::table::{Event, NONE, State, Table};

/// What a register holds.
#[derive(Clone, Copy)]
struct Register {
    /// Who left that behind; [`NONE`]: it holds nothing yet.
    writer: u32,
    /// Where in the order that was.
    place: u32,
    value: i64,
}

impl Register {
    fn state(&self) -> State {
        State((self.writer != NONE).then_some(self.value))
    }
}

/// All registers while an order is replayed.
struct Story<'a> {
    table: &'a Table,
    /// By key: what was committed last.
    registers: Vec<Register>,
    /// By key: who wrote it last without having committed at that time, and what.
    own: Vec<(u32, i64)>,
    /// By transaction: where it took its snapshot.
    begun: Vec<u32>,
    /// By transaction: did it commit?
    done: Vec<bool>,
    /// By transaction: did anybody read from it?
    seen: Vec<bool>,
}

/// Carries transactions out in this order. Each stands there once (`serializable`), or first where it takes its snapshot and
/// then where it commits.
pub(super) fn replay(
    table: &Table,
    axiom: &str,
    follows: &str,
    places: &[u64],
) -> Result<(), String> {
    let is_serial = axiom == "serializable";
    let is_first_committer =
        axiom == "snapshot-isolation" || axiom == "parallel-snapshot-isolation";
    let mut story = Story::new(table);
    let mut clock = Clock::new(table, follows);
    for (number, place) in table.at_all(places)?.into_iter().zip(0..) {
        let (one, events) = table.get(number);
        let index = one.index;
        if one.is_fail() {
            return Err(format!("op {index} failed, and stands in the order"));
        }
        let is_first = story.begun[number as usize] == NONE;
        if is_first {
            story.begun[number as usize] = place;
            story.read(number, index, &events)?;
            clock.begin(&one);
        }
        if is_first && !is_serial {
            continue;
        }
        if std::mem::replace(&mut story.done[number as usize], true) {
            return Err(format!("op {index} takes place again"));
        }
        clock.end(&one)?;
        if is_first_committer && story.is_overwritten(number, &events) {
            return Err(format!("op {index} overwrites what it cannot see"));
        }
        story.commit(number, place, &events);
    }
    story.end()
}

impl Story<'_> {
    fn new(table: &Table) -> Story<'_> {
        let unborn = Register {
            writer: NONE,
            place: 0,
            value: 0,
        };
        Story {
            table,
            registers: vec![unborn; table.key_count()],
            own: vec![(NONE, 0); table.key_count()],
            begun: vec![NONE; table.len()],
            done: vec![false; table.len()],
            seen: vec![false; table.len()],
        }
    }

    /// Does it read what it wrote itself, else what was committed last?
    fn read(&mut self, number: u32, index: u64, events: &[Event]) -> Result<(), String> {
        for event in events {
            let (writer, own) = self.own[event.key as usize];
            if let Some(value) = event.written() {
                self.own[event.key as usize] = (number, value);
            } else if writer == number && event.read() != Some(State(Some(own))) {
                return Err(format!("op {index} contradicts itself"));
            } else if writer != number {
                let register = self.registers[event.key as usize];
                if event.read() != Some(register.state()) {
                    let key = self.table.name(event.key);
                    return Err(format!("op {index} reads another version of key {key}"));
                }
                if register.writer != NONE {
                    self.seen[register.writer as usize] = true;
                }
            }
        }
        Ok(())
    }

    /// Did somebody commit a version of what it writes since it took its snapshot?
    fn is_overwritten(&self, number: u32, events: &[Event]) -> bool {
        let begun = self.begun[number as usize];
        let mut writes = events.iter().filter(|event| event.written().is_some());
        writes.any(|event| {
            let register = self.registers[event.key as usize];
            register.writer != NONE && register.place > begun
        })
    }

    fn commit(&mut self, writer: u32, place: u32, events: &[Event]) {
        for event in events {
            if let Some(value) = event.written() {
                self.registers[event.key as usize] = Register {
                    writer,
                    place,
                    value,
                };
            }
        }
    }

    /// Did all commit that took place? One of unknown outcome did when somebody read from it, and only then.
    fn end(&self) -> Result<(), String> {
        for (number, one) in self.table.all().enumerate() {
            let index = one.index;
            let has_begun = self.begun[number] != NONE;
            if has_begun != self.done[number] || one.is_ok() && !has_begun {
                return Err(format!("op {index} is missing in the order"));
            }
            if has_begun && !one.is_ok() && !self.seen[number] {
                return Err(format!(
                    "op {index} stands in the order, and nothing says that it took place"
                ));
            }
        }
        Ok(())
    }
}
