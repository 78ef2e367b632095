//! Transactions: operations on keys, executed completely or not at all.

use crate::message::{
    ABSENT, HEADER_LENGTH, KEY_LENGTH_MAX, MESSAGE_LENGTH_MAX, MessageError, MessageHeader,
    MessageKind, OPEN_END, OPERATIONS_MAX, SCAN_MAX, StoreFields, VALUE_LENGTH_MAX,
};
use seatrial_machine::FieldReader;

/// Codes of the kinds of operations.
const READ: u8 = 1;
const WRITE: u8 = 2;
const APPEND: u8 = 3;
const COMPARE_AND_SET: u8 = 4;
const DELETE: u8 = 5;
const SCAN: u8 = 6;
const AT: u8 = 7;

/// One operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Read a key.
    Read {
        /// The key.
        key: &'a [u8],
    },
    /// Write a register.
    Write {
        /// The register.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Append an element to a list.
    Append {
        /// The list.
        key: &'a [u8],
        /// The new element.
        value: &'a [u8],
    },
    /// Write a register if it has an expected value; otherwise the transaction fails.
    CompareAndSet {
        /// The register.
        key: &'a [u8],
        /// The expected value; `None`: the key must not exist.
        expected: Option<&'a [u8]>,
        /// Its new value.
        value: &'a [u8],
    },
    /// Remove a key, if it exists.
    Delete {
        /// The register or list.
        key: &'a [u8],
    },
    /// Read the first keys of a range, in order.
    Scan {
        /// The first key of the range.
        from: &'a [u8],
        /// The first key after the range; `None`: it has no end.
        to: Option<&'a [u8]>,
        /// Number of keys, 1 to [`SCAN_MAX`]; the answer may hold fewer (see [`KeyRange::is_cut`](crate::KeyRange::is_cut)).
        limit: u16,
    },
    /// The first operation of a transaction that only reads: it reads the state at this index of the log.
    At {
        /// One of the indices that the status of the node has ([`ReplicaStatus::readable`](crate::ReplicaStatus::readable)).
        index: u64,
    },
}

impl<'a> Operation<'a> {
    /// The key of the operation; the first one of a scan's range.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Operation::Read { key }
            | Operation::Write { key, .. }
            | Operation::Append { key, .. }
            | Operation::CompareAndSet { key, .. }
            | Operation::Delete { key } => key,
            Operation::Scan { from, .. } => from,
            Operation::At { .. } => &[],
        }
    }

    /// Is it a read or scan, or does it say what is read?
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Operation::Read { .. } | Operation::Scan { .. } | Operation::At { .. }
        )
    }
}

/// Why an operation cannot be added to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// A key of more than [`KEY_LENGTH_MAX`] bytes.
    #[error("key of {0} bytes, at most {KEY_LENGTH_MAX} are allowed")]
    KeyLength(usize),
    /// A value of more than [`VALUE_LENGTH_MAX`] bytes.
    #[error("value of {0} bytes, at most {VALUE_LENGTH_MAX} are allowed")]
    ValueLength(usize),
    /// More than [`OPERATIONS_MAX`] operations.
    #[error("a transaction holds at most {OPERATIONS_MAX} operations")]
    Operations,
    /// A scan of no key, or of more than [`SCAN_MAX`].
    #[error("scan of {0} keys, 1 to {SCAN_MAX} are allowed")]
    ScanLimit(usize),
    /// More than [`MESSAGE_LENGTH_MAX`] bytes in all.
    #[error("transaction of {0} bytes, at most {MESSAGE_LENGTH_MAX} are allowed")]
    Length(usize),
}

/// Operations that are executed completely or not at all, in order. Kept in the encoding of the message, so sending copies
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    message: Vec<u8>,
    operations: u16,
}

impl Default for Transaction {
    fn default() -> Transaction {
        Transaction::new()
    }
}

impl Transaction {
    /// A transaction without operations; it commits without answers.
    pub fn new() -> Transaction {
        let mut message = Vec::with_capacity(64);
        message.extend_from_slice(&[0; HEADER_LENGTH]);
        Transaction {
            message,
            operations: 0,
        }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        usize::from(self.operations)
    }

    /// Is there no operation?
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// The operations, in order.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(&self.message, self.operations)
    }

    /// Reads `key`.
    pub fn read(&mut self, key: &[u8]) -> Result<(), TransactionError> {
        self.put(READ, key, &[])
    }

    /// Writes `value` into the register `key`.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), TransactionError> {
        self.put(WRITE, key, &[Some(value)])
    }

    /// Appends `value` to the list `key`.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), TransactionError> {
        self.put(APPEND, key, &[Some(value)])
    }

    /// Writes `value` into the register `key` if it has the value `expected` (does not exist, for `None`); otherwise the whole
    /// transaction fails.
    pub fn compare_and_set(
        &mut self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<(), TransactionError> {
        self.put(COMPARE_AND_SET, key, &[expected, Some(value)])
    }

    /// Removes `key`, if it exists.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), TransactionError> {
        self.put(DELETE, key, &[])
    }

    /// Reads the first `limit` keys of `from..to`, in order; `None`: the range has no end.
    pub fn scan(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<(), TransactionError> {
        if let Some(to) = to
            && to.len() > KEY_LENGTH_MAX
        {
            return Err(TransactionError::KeyLength(to.len()));
        }
        if limit == 0 || limit > SCAN_MAX {
            return Err(TransactionError::ScanLimit(limit));
        }
        self.begin(SCAN, from, 4 + to.map_or(0, <[u8]>::len))?;
        let length = to.map_or(OPEN_END, |to| to.len() as u16);
        self.message.extend_from_slice(&length.to_le_bytes());
        self.message.extend_from_slice(to.unwrap_or(&[]));
        self.message
            .extend_from_slice(&(limit as u16).to_le_bytes());
        Ok(())
    }

    /// Reads the state at this index of the log instead of the present one. Must be the first operation, and only reads may
    /// follow.
    pub fn at(&mut self, index: u64) -> Result<(), TransactionError> {
        self.begin(AT, &[], 8)?;
        self.message.extend_from_slice(&index.to_le_bytes());
        Ok(())
    }

    /// Encodes one operation; on an error the transaction is unchanged.
    fn put(
        &mut self,
        kind: u8,
        key: &[u8],
        values: &[Option<&[u8]>],
    ) -> Result<(), TransactionError> {
        let lengths = values.iter().flatten().map(|value| value.len());
        if let Some(length) = lengths.clone().find(|&length| length > VALUE_LENGTH_MAX) {
            return Err(TransactionError::ValueLength(length));
        }
        self.begin(kind, key, 4 * values.len() + lengths.sum::<usize>())?;
        for value in values {
            let length = value.map_or(ABSENT, |value| value.len() as u32);
            self.message.extend_from_slice(&length.to_le_bytes());
            self.message.extend_from_slice(value.unwrap_or(&[]));
        }
        Ok(())
    }

    /// Encodes kind and key of an operation that `more` bytes follow; on an error the transaction is unchanged.
    fn begin(&mut self, kind: u8, key: &[u8], more: usize) -> Result<(), TransactionError> {
        if key.len() > KEY_LENGTH_MAX {
            return Err(TransactionError::KeyLength(key.len()));
        }
        if self.len() == OPERATIONS_MAX {
            return Err(TransactionError::Operations);
        }
        let length = self.message.len() + 3 + key.len() + more;
        if length > MESSAGE_LENGTH_MAX {
            return Err(TransactionError::Length(length));
        }
        self.message.push(kind);
        self.message
            .extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.message.extend_from_slice(key);
        self.operations += 1;
        Ok(())
    }

    /// The message to send.
    pub fn into_message(mut self, session: u64, request: u64) -> Vec<u8> {
        let header = MessageHeader {
            kind: MessageKind::Request,
            code: 0,
            count: self.operations,
            detail: 0,
            first: session,
            second: request,
        };
        self.message[..HEADER_LENGTH].copy_from_slice(&header.encode());
        self.message
    }
}

/// The operations of a request, decoded one by one. Ends after the first error; bytes after the last operation are an error.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    cursor: FieldReader<'a>,
    left: u16,
    ended: bool,
}

impl<'a> Operations<'a> {
    /// Reads `count` operations from a whole request, header included.
    pub fn new(request: &'a [u8], count: u16) -> Operations<'a> {
        Operations {
            cursor: FieldReader::starting_at(request, HEADER_LENGTH),
            left: count,
            ended: false,
        }
    }

    /// Are all remaining operations reads? (A malformed one is not.)
    pub fn are_reads(&self) -> bool {
        self.clone().flatten().all(|operation| operation.is_read())
    }

    #[inline]
    fn decode(&mut self) -> Result<Operation<'a>, MessageError> {
        let offset = self.cursor.offset();
        let kind = self.cursor.byte("operation")?;
        let key = self.cursor.key()?;
        Ok(match kind {
            READ => Operation::Read { key },
            WRITE => Operation::Write {
                key,
                value: self.cursor.value()?,
            },
            APPEND => Operation::Append {
                key,
                value: self.cursor.value()?,
            },
            COMPARE_AND_SET => Operation::CompareAndSet {
                key,
                expected: self.cursor.optional_value()?,
                value: self.cursor.value()?,
            },
            DELETE => Operation::Delete { key },
            SCAN => Operation::Scan {
                from: key,
                to: self.cursor.end_key()?,
                limit: self.cursor.scan_limit()?,
            },
            AT if key.is_empty() => Operation::At {
                index: self.cursor.long("index")?,
            },
            other => {
                return Err(MessageError::Value {
                    field: "operation",
                    offset,
                    value: u64::from(other),
                });
            }
        })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, MessageError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.left == 0 {
            self.ended = true;
            return self.cursor.end().err().map(Err);
        }
        self.left -= 1;
        let operation = self.decode();
        self.ended = operation.is_err();
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn operations_come_back_in_order() {
        let mut transaction = Transaction::new();
        transaction.read(b"a").unwrap();
        transaction.write(b"", b"").unwrap();
        transaction.append(b"list", &[9; 300]).unwrap();
        transaction.compare_and_set(b"b", None, b"1").unwrap();
        transaction.compare_and_set(b"b", Some(b"1"), b"2").unwrap();
        transaction.delete(b"a").unwrap();
        transaction.scan(b"a", Some(b"c"), 1).unwrap();
        transaction.scan(b"", None, SCAN_MAX).unwrap();
        let operations: Vec<Operation<'_>> = transaction.operations().map(Result::unwrap).collect();
        let expected = [
            Operation::Read { key: b"a" },
            Operation::Write {
                key: b"",
                value: b"",
            },
            Operation::Append {
                key: b"list",
                value: &[9; 300],
            },
            Operation::CompareAndSet {
                key: b"b",
                expected: None,
                value: b"1",
            },
            Operation::CompareAndSet {
                key: b"b",
                expected: Some(b"1"),
                value: b"2",
            },
            Operation::Delete { key: b"a" },
            Operation::Scan {
                from: b"a",
                to: Some(b"c"),
                limit: 1,
            },
            Operation::Scan {
                from: b"",
                to: None,
                limit: SCAN_MAX as u16,
            },
        ];
        assert_eq!(operations, expected);
    }

    #[test]
    fn refused_operations_leave_the_transaction_unchanged() {
        let mut transaction = Transaction::new();
        transaction.read(b"a").unwrap();
        let before = transaction.clone();
        let key = [0; KEY_LENGTH_MAX + 1];
        let value = vec![0; VALUE_LENGTH_MAX + 1];
        let error = transaction.read(&key).unwrap_err();
        assert_eq!(error, TransactionError::KeyLength(KEY_LENGTH_MAX + 1));
        let error = transaction
            .compare_and_set(b"a", Some(&value), b"")
            .unwrap_err();
        assert_eq!(error, TransactionError::ValueLength(VALUE_LENGTH_MAX + 1));
        for limit in [0, SCAN_MAX + 1] {
            let error = transaction.scan(b"a", None, limit).unwrap_err();
            assert_eq!(error, TransactionError::ScanLimit(limit));
        }
        let error = transaction.scan(b"a", Some(&key), 1).unwrap_err();
        assert_eq!(error, TransactionError::KeyLength(KEY_LENGTH_MAX + 1));
        assert_eq!(transaction, before);
        let mut long = Transaction::new();
        while long.write(b"a", &value[..VALUE_LENGTH_MAX]).is_ok() {}
        assert!(long.into_message(1, 1).len() <= MESSAGE_LENGTH_MAX);
        for _ in 1..OPERATIONS_MAX {
            transaction.read(b"a").unwrap();
        }
        assert_eq!(transaction.read(b"a"), Err(TransactionError::Operations));
    }

    /// Every operation that decodes lies within the message; errors end the iteration.
    fn fuzz_one(request: &[u8], count: u16) {
        let mut operations = Operations::new(request, count);
        let mut length = HEADER_LENGTH;
        for operation in operations.by_ref() {
            let Ok(operation) = operation else { continue };
            length += 3 + operation.key().len();
            assert!(length <= request.len());
        }
        assert!(operations.next().is_none());
    }

    #[test]
    fn mutated_requests_never_panic() {
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let mut transaction = Transaction::new();
            for _ in 0..rng.below(5) {
                let value = vec![1; rng.index(20)];
                transaction.append(b"k", &value).unwrap();
                transaction.compare_and_set(b"k", None, &value).unwrap();
                transaction.delete(b"k").unwrap();
                transaction.scan(b"k", None, 7).unwrap();
                transaction.scan(b"k", Some(b"l"), 7).unwrap();
            }
            let count = transaction.operations + rng.below(2) as u16;
            let mut message = transaction.into_message(1, 1);
            for _ in 0..rng.below(4) {
                let at = rng.index(message.len());
                message[at] = *rng.pick(&[0, 1, 2, 4, 255, rng.clone().word() as u8]);
            }
            message.truncate(rng.index(message.len() * 2 + 1));
            fuzz_one(&message, count);
        }
    }
}
