//! What transactions write into a store whose values are texts, decided from what was read.

use seatrial_history::{Key, Mop, Observed, Transfer, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A key of such a store as it was read. Numbers are in decimal digits, lists are numbers with commas between them.
pub trait KeyText {
    /// The key.
    fn key(&self) -> &str;

    /// Its value; `None` if there is none.
    fn text(&self) -> Option<&str>;

    /// The value as a number; `absent` if there is none. The error is a value that is no number.
    fn number(&self, absent: i64) -> Result<i64, String> {
        self.text()
            .map_or(Ok(absent), |text| number_in(self.key(), text))
    }

    /// The value as a list of numbers. The error is a value that is none.
    fn numbers(&self) -> Result<Vec<i64>, String> {
        self.text()
            .map_or(Ok(Vec::new()), |text| numbers_in(self.key(), text))
    }
}

/// What a transaction writes, and its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyChange {
    /// Keys and their new values.
    pub writes: Vec<(String, String)>,
    /// The value of the completed operation; `None`: that of its invocation.
    pub value: Option<Value>,
}

impl KeyChange {
    /// These writes.
    pub fn put(
        writes: impl IntoIterator<Item = (String, String)>,
        value: Option<Value>,
    ) -> KeyChange {
        KeyChange {
            writes: writes.into_iter().collect(),
            value,
        }
    }

    /// The effect of micro-operations on the keys that were read; `name` is the store's key of one in the history, `is_list` says
    /// whether values are lists. The error: a key was not read, or its value cannot be.
    pub fn of_transaction(
        mops: &[Mop],
        read: &[impl KeyText],
        name: impl Fn(&Key) -> String,
        is_list: bool,
    ) -> Result<KeyChange, String> {
        let texts = read.iter().map(|one| {
            let text = one.text().map(str::to_owned);
            (one.key(), text)
        });
        let mut state: BTreeMap<&str, Option<String>> = texts.collect();
        let mut writes = BTreeMap::new();
        let mut seen = Vec::with_capacity(mops.len());
        for mop in mops {
            let name = name(mop.key());
            let text = state
                .get_mut(name.as_str())
                .ok_or_else(|| format!("{name} was not read"))?;
            let new = match mop {
                Mop::Read { key, .. } => {
                    let observed = match text {
                        None => Observed::Nil,
                        Some(text) if is_list => Observed::List(numbers_in(&name, text)?.into()),
                        Some(text) => Observed::Register(number_in(&name, text)?),
                    };
                    seen.push(Mop::Read {
                        key: key.clone(),
                        observed,
                    });
                    continue;
                }
                Mop::Append { element, .. } => match text {
                    Some(list) => format!("{list},{element}"),
                    None => element.to_string(),
                },
                Mop::Write { value, .. } => value.to_string(),
            };
            *text = Some(new.clone());
            writes.insert(name, new);
            seen.push(mop.clone());
        }
        Ok(KeyChange::put(writes, Some(Value::Txn(Arc::from(seen)))))
    }

    /// A transfer between the two accounts that were read; an account without a value has `opening`. The error: there is not
    /// enough in the first.
    pub fn of_transfer(
        transfer: &Transfer,
        read: &[impl KeyText],
        opening: i64,
    ) -> Result<KeyChange, String> {
        let [from, to] = read else {
            return Err("an account is missing".into());
        };
        let rest = from.number(opening)? - transfer.amount;
        if rest < 0 {
            return Err("insufficient funds".into());
        }
        let sum = to.number(opening)? + transfer.amount;
        let writes = [(from, rest), (to, sum)];
        let writes = writes.map(|(account, sum)| (account.key().to_owned(), sum.to_string()));
        Ok(KeyChange::put(writes, None))
    }
}

fn number_in(key: &str, text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| format!("{key}: {text:?} is no number"))
}

fn numbers_in(key: &str, text: &str) -> Result<Vec<i64>, String> {
    text.split(',').map(|word| number_in(key, word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl KeyText for (&str, Option<&str>) {
        fn key(&self) -> &str {
            self.0
        }

        fn text(&self) -> Option<&str> {
            self.1
        }
    }

    #[test]
    fn micro_operations_see_those_before_them() {
        let read = |key| Mop::Read {
            key: Key::Int(key),
            observed: Observed::Nil,
        };
        let append = |key, element| Mop::Append {
            key: Key::Int(key),
            element,
        };
        let executed = |mops: &[Mop]| {
            let entries = [("data/1", Some("4")), ("data/2", None)];
            KeyChange::of_transaction(mops, &entries, |key| format!("data/{key}"), true)
        };
        let mops = [read(1), append(1, 5), read(1), read(2), append(1, 6)];
        let change = executed(&mops).expect("a change");
        assert_eq!(change.writes, [("data/1".to_owned(), "4,5,6".to_owned())]);
        let value = change.value.expect("a value").to_string();
        assert_eq!(
            value,
            "[[:r 1 [4]] [:append 1 5] [:r 1 [4 5]] [:r 2 nil] [:append 1 6]]"
        );
        assert!(executed(&[read(9)]).is_err());
    }
}
