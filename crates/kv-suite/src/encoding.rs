//! Numbers, registers and lists as the store keeps them.

use seatrial_kv::{Answer, Transaction, TransactionError};

/// Numbers are kept as decimal text, so that a person can read a log.
pub(crate) fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The number that [`decimal`] wrote.
pub(crate) fn number(bytes: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("the store answered {bytes:?} where a number was written"))
}

/// A number in a register, and the bytes that a comparison with it needs: `None` when the register is absent.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) value: i64,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Cell {
    /// What was read; `absent` stands for a register that was never written.
    pub(crate) fn new(answer: &Answer<'_>, absent: i64) -> Result<Cell, String> {
        let value = match answer {
            Answer::Absent => absent,
            Answer::Register(bytes) => number(bytes)?,
            other => return Err(format!("{other:?} is no register")),
        };
        let bytes = bytes(answer);
        Ok(Cell { value, bytes })
    }

    /// Puts into the transaction: add to the number, if the register is still what was read.
    pub(crate) fn add(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        amount: i64,
    ) -> Result<(), TransactionError> {
        let new = decimal(self.value + amount);
        transaction.compare_and_set(key, self.bytes.as_deref(), &new)
    }
}

/// The bytes in a register.
pub(crate) fn bytes(answer: &Answer<'_>) -> Option<Vec<u8>> {
    match answer {
        Answer::Register(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

/// The numbers of a list.
pub(crate) fn list(answer: &Answer<'_>) -> Result<Vec<i64>, String> {
    match answer {
        Answer::Absent => Ok(Vec::new()),
        Answer::List(list) => list.iter().map(number).collect(),
        other => Err(format!("{other:?} is no list")),
    }
}
