//! The replay of orders of transactions on registers: each read must see the current state.

use crate::dense_number::{OrderPlace, TransactionNumber};
use crate::order_clock::OrderClock;
use crate::transaction_table::{MicroAccess, RegisterState, TransactionTable};

/// The state of a register.
#[derive(Clone, Copy)]
struct Register {
    /// The transaction that wrote it; `None` for the initial state.
    writer: Option<TransactionNumber>,
    /// The place of that write in the order.
    place: u32,
    value: i64,
}

impl Register {
    fn state(&self) -> RegisterState {
        RegisterState(self.writer.map(|_| self.value))
    }
}

/// The state of all registers during a replay.
struct RegisterReplay<'a> {
    table: &'a TransactionTable,
    /// By key: the last committed write.
    registers: Vec<Register>,
    /// By key: the last transaction that wrote it, committed or not, and the value.
    own: Vec<(Option<TransactionNumber>, i64)>,
    /// By transaction: the place of its snapshot, once it took it.
    begun: Vec<Option<OrderPlace>>,
    /// By transaction: did it commit?
    done: Vec<bool>,
    /// By transaction: was it read from?
    seen: Vec<bool>,
}

/// Executes transactions in this order. Each occurs once (`serializable`), or first for its snapshot and then for its
/// commit.
pub(super) fn replay(
    table: &TransactionTable,
    axiom: &str,
    follows: &str,
    places: &[u64],
) -> Result<(), String> {
    let is_serial = axiom == "serializable";
    let is_first_committer =
        axiom == "snapshot-isolation" || axiom == "parallel-snapshot-isolation";
    let mut registers = RegisterReplay::new(table);
    let mut clock = OrderClock::new(table, follows);
    for (number, place) in table.at_all(places)?.into_iter().zip(0..) {
        let (one, events) = table.get(number);
        let index = one.index;
        if one.is_fail() {
            return Err(format!("op {index} failed, and stands in the order"));
        }
        let is_first = registers.begun[number as usize].is_none();
        if is_first {
            registers.begun[number as usize] = Some(OrderPlace::new(place));
            registers.read(number, index, &events)?;
            clock.begin(&one);
        }
        if is_first && !is_serial {
            continue;
        }
        if std::mem::replace(&mut registers.done[number as usize], true) {
            return Err(format!("op {index} takes place again"));
        }
        clock.end(&one)?;
        if is_first_committer && registers.is_overwritten(number, &events) {
            return Err(format!("op {index} overwrites what it cannot see"));
        }
        registers.commit(number, place, &events);
    }
    registers.end()
}

impl RegisterReplay<'_> {
    fn new(table: &TransactionTable) -> RegisterReplay<'_> {
        let initial = Register {
            writer: None,
            place: 0,
            value: 0,
        };
        RegisterReplay {
            table,
            registers: vec![initial; table.key_count()],
            own: vec![(None, 0); table.key_count()],
            begun: vec![None; table.len()],
            done: vec![false; table.len()],
            seen: vec![false; table.len()],
        }
    }

    /// Checks that each of its reads sees its own last write, otherwise the last committed one.
    fn read(&mut self, number: u32, index: u64, events: &[MicroAccess]) -> Result<(), String> {
        let reader = Some(TransactionNumber::new(number));
        for event in events {
            let (writer, own) = self.own[event.key as usize];
            if let Some(value) = event.written() {
                self.own[event.key as usize] = (reader, value);
            } else if writer == reader && event.read() != Some(RegisterState(Some(own))) {
                return Err(format!("op {index} contradicts itself"));
            } else if writer != reader {
                let register = self.registers[event.key as usize];
                if event.read() != Some(register.state()) {
                    let key = self.table.name(event.key);
                    return Err(format!("op {index} reads another version of key {key}"));
                }
                if let Some(writer) = register.writer {
                    self.seen[writer.get() as usize] = true;
                }
            }
        }
        Ok(())
    }

    /// Was a version of a key that it writes committed since it took its snapshot?
    fn is_overwritten(&self, number: u32, events: &[MicroAccess]) -> bool {
        let begun = self.begun[number as usize];
        let mut writes = events.iter().filter(|event| event.written().is_some());
        writes.any(|event| {
            let register = self.registers[event.key as usize];
            register.writer.is_some() && Some(OrderPlace::new(register.place)) > begun
        })
    }

    fn commit(&mut self, writer: u32, place: u32, events: &[MicroAccess]) {
        for event in events {
            if let Some(value) = event.written() {
                self.registers[event.key as usize] = Register {
                    writer: Some(TransactionNumber::new(writer)),
                    place,
                    value,
                };
            }
        }
    }

    /// Checks that all transactions that took place committed. One of unknown outcome must if it was read from, and only
    /// then.
    fn end(&self) -> Result<(), String> {
        assert!(
            self.registers
                .iter()
                .filter_map(|one| one.writer)
                .all(|writer| self.done[writer.get() as usize]),
            "a register has a version that was not committed"
        );
        for (number, one) in self.table.all().enumerate() {
            let index = one.index;
            let has_begun = self.begun[number].is_some();
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
