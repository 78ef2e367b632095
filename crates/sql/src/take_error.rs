//! Why elements of a queue were not taken.

use seatrial_history::Value;
use seatrial_suite::StoreRefusal;

/// Why elements of the queue were not taken.
#[derive(Debug)]
pub(crate) enum TakeError {
    /// They were not.
    Refused(StoreRefusal),
    /// They may have been.
    Perhaps(Vec<i64>, String),
}

impl From<StoreRefusal> for TakeError {
    fn from(refusal: StoreRefusal) -> TakeError {
        TakeError::Refused(refusal)
    }
}

impl TakeError {
    /// The refusal of the operation, with the value that it may have returned.
    pub(crate) fn with(self, value: impl FnOnce(&[i64]) -> Value) -> StoreRefusal {
        match self {
            TakeError::Refused(refusal) => refusal,
            TakeError::Perhaps(elements, reason) => StoreRefusal::Perhaps(value(&elements), reason),
        }
    }

    /// The refusal of an operation that took these elements before.
    pub(crate) fn after(self, mut taken: Vec<i64>) -> StoreRefusal {
        match self {
            TakeError::Refused(refusal) if taken.is_empty() => refusal,
            TakeError::Refused(
                StoreRefusal::Failed(reason)
                | StoreRefusal::Unknown(reason)
                | StoreRefusal::Perhaps(_, reason),
            ) => StoreRefusal::Perhaps(Value::integers(&taken), reason),
            TakeError::Perhaps(elements, reason) => {
                taken.extend(elements);
                StoreRefusal::Perhaps(Value::integers(&taken), reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_taken_before_an_error_stay_taken() {
        let late = || TakeError::Refused(StoreRefusal::failed("deadlock"));
        assert_eq!(late().after(Vec::new()), StoreRefusal::failed("deadlock"));
        let refusal = late().after(vec![1, 2]);
        let expected = StoreRefusal::Perhaps(Value::integers(&[1, 2]), "deadlock".into());
        assert_eq!(refusal, expected);
        let refusal = TakeError::Perhaps(vec![3], "lost".into()).after(vec![1]);
        let expected = StoreRefusal::Perhaps(Value::integers(&[1, 3]), "lost".into());
        assert_eq!(refusal, expected);
    }
}
