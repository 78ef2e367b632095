//! Encoding of numbers, registers and lists in the store.

use seatrial_kv_protocol::{Answer, Transaction, TransactionError};

/// Encodes a number as decimal text, so that logs are readable.
pub(crate) fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Decodes a number of [`decimal`].
pub(crate) fn number(bytes: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("invalid number {bytes:?} in the store"))
}

/// A number in a register, with the bytes that a comparison needs: `None` if the register does not exist.
#[derive(Clone, Debug)]
pub(crate) struct RegisterCell {
    pub(crate) value: i64,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl RegisterCell {
    /// Decodes a read; `absent` is the value of a register that was never written.
    pub(crate) fn new(answer: &Answer<'_>, absent: i64) -> Result<RegisterCell, String> {
        let value = match answer {
            Answer::Absent => absent,
            Answer::Register(bytes) => number(bytes)?,
            other => return Err(format!("{other:?} is not a register")),
        };
        let bytes = bytes(answer);
        Ok(RegisterCell { value, bytes })
    }

    /// Adds to the transaction: add to the number, if the register is unchanged since it was read.
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
        other => Err(format!("{other:?} is not a list")),
    }
}
