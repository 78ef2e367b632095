//! Requests about keys, and what the replies say. Keys and values are base64 in the gateway's JSON, 64-bit integers are text, and
//! fields of a reply that are zero, false or empty are left out.

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use seatrial_suite::KeyText;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A key with its value, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    /// The value; `None` if there is no such key.
    pub(crate) value: Option<String>,
    /// The key, for reads of several.
    pub(crate) key: String,
    /// The revision of its last change; 0 if there is no such key.
    pub(crate) revision: i64,
}

impl KeyText for KeyEntry {
    fn key(&self) -> &str {
        &self.key
    }

    fn text(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

/// A key or value of a request.
#[derive(Clone, Debug)]
pub(crate) struct SentText<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for SentText<'a> {
    fn from(text: &'a str) -> SentText<'a> {
        SentText(Cow::Borrowed(text))
    }
}

impl Serialize for SentText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0.as_bytes(), &STANDARD))
    }
}

/// A key or value of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReadText(String);

impl<'de> Deserialize<'de> for ReadText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReadText, D::Error> {
        struct Base64Text;
        impl Visitor<'_> for Base64Text {
            type Value = ReadText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text in base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ReadText, E> {
                let error = |reason: &dyn fmt::Display| E::custom(format!("{text:?}: {reason}"));
                let bytes = STANDARD.decode(text).map_err(|reason| error(&reason))?;
                let text = String::from_utf8(bytes).map_err(|reason| error(&reason))?;
                Ok(ReadText(text))
            }
        }
        deserializer.deserialize_str(Base64Text)
    }
}

/// A 64-bit integer: text in requests, text or a number in replies. Unsigned ones have the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Integer(pub(crate) i64);

impl Serialize for Integer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Integer, D::Error> {
        struct IntegerText;
        impl Visitor<'_> for IntegerText {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer of 64 bits, or its text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Integer, E> {
                let signed = text.parse::<i64>();
                let any = signed.or_else(|_| text.parse::<u64>().map(u64::cast_signed));
                any.map(Integer)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number.cast_signed()))
            }
        }
        deserializer.deserialize_any(IntegerText)
    }
}

// --- requests

/// A read of one key or of an interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RangeRequest<'a> {
    key: SentText<'a>,
    serializable: bool,
    #[serde(flatten)]
    interval: Option<KeyInterval>,
}

/// What a read of an interval has besides its first key.
#[derive(Clone, Debug, Serialize)]
struct KeyInterval {
    range_end: SentText<'static>,
    limit: Integer,
    sort_target: &'static str,
    sort_order: &'static str,
}

/// Reads one key.
pub(crate) fn range(key: &str, is_serializable: bool) -> RangeRequest<'_> {
    RangeRequest {
        key: key.into(),
        serializable: is_serializable,
        interval: None,
    }
}

/// Reads the keys with a prefix, the oldest first, at most `limit` (0: all).
pub(crate) fn range_prefix(prefix: &str, limit: i64, is_serializable: bool) -> RangeRequest<'_> {
    RangeRequest {
        interval: Some(KeyInterval {
            range_end: SentText(Cow::Owned(end_of(prefix))),
            limit: Integer(limit),
            sort_target: "CREATE",
            sort_order: "ASCEND",
        }),
        ..range(prefix, is_serializable)
    }
}

/// The first key after all with this prefix, which ends with an ASCII character.
fn end_of(prefix: &str) -> String {
    let (rest, last) = prefix.split_at(prefix.len() - 1);
    let last = last.as_bytes()[0];
    assert!(
        last.is_ascii() && last < 0x7f,
        "{prefix:?} has an end that is text"
    );
    format!("{rest}{}", char::from(last + 1))
}

/// A write of one key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PutRequest<'a> {
    key: SentText<'a>,
    value: SentText<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Integer>,
}

/// Writes one key.
pub(crate) fn put<'a>(key: &'a str, value: &'a str) -> PutRequest<'a> {
    PutRequest {
        key: key.into(),
        value: value.into(),
        lease: None,
    }
}

/// The same with a lease, whose end deletes the key.
pub(crate) fn put_leased<'a>(key: &'a str, value: &'a str, lease: Integer) -> PutRequest<'a> {
    PutRequest {
        lease: Some(lease),
        ..put(key, value)
    }
}

/// What must hold of a key for a transaction to take place.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TxnCondition<'a> {
    key: SentText<'a>,
    result: &'static str,
    #[serde(flatten)]
    target: ComparedTo<'a>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "target")]
enum ComparedTo<'a> {
    #[serde(rename = "MOD")]
    Revision { mod_revision: Integer },
    #[serde(rename = "VALUE")]
    Value { value: SentText<'a> },
}

/// Holds if the key was not changed since it was read.
pub(crate) fn unchanged(entry: &KeyEntry) -> TxnCondition<'_> {
    TxnCondition {
        key: entry.key.as_str().into(),
        result: "EQUAL",
        target: ComparedTo::Revision {
            mod_revision: Integer(entry.revision),
        },
    }
}

/// Holds if the key has this value.
pub(crate) fn has_value<'a>(key: &'a str, value: &'a str) -> TxnCondition<'a> {
    TxnCondition {
        key: key.into(),
        result: "EQUAL",
        target: ComparedTo::Value {
            value: value.into(),
        },
    }
}

/// An operation of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum KeyOperation<'a> {
    /// A read.
    #[serde(rename = "request_range")]
    Range(RangeRequest<'a>),
    /// A write.
    #[serde(rename = "request_put")]
    Put(PutRequest<'a>),
    /// A deletion.
    #[serde(rename = "request_delete_range")]
    Delete {
        /// Of this key.
        key: SentText<'a>,
    },
}

/// A deletion as an operation of a transaction.
pub(crate) fn deleting(key: &str) -> KeyOperation<'_> {
    KeyOperation::Delete { key: key.into() }
}

/// A transaction: if all comparisons hold, all operations take place.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TxnRequest<'a> {
    pub(crate) compare: &'a [TxnCondition<'a>],
    pub(crate) success: &'a [KeyOperation<'a>],
}

// --- replies

/// What each reply begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ReplyHeader {
    /// The member that answered.
    pub(crate) member_id: Integer,
    /// The revision of the store.
    pub(crate) revision: Integer,
}

/// The reply to a write.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PutReply {
    pub(crate) header: ReplyHeader,
}

/// The reply to a read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeReply {
    kvs: Vec<ReadPair>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReadPair {
    key: ReadText,
    value: ReadText,
    mod_revision: Integer,
}

/// The reply to a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnReply {
    pub(crate) header: ReplyHeader,
    /// Did the comparisons hold?
    pub(crate) succeeded: bool,
    responses: Vec<OperationReply>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OperationReply {
    response_range: RangeReply,
}

impl RangeReply {
    /// The entries, in the order of the reply.
    pub(crate) fn entries(self) -> Vec<KeyEntry> {
        let entry = |pair: ReadPair| KeyEntry {
            key: pair.key.0,
            value: Some(pair.value.0),
            revision: pair.mod_revision.0,
        };
        self.kvs.into_iter().map(entry).collect()
    }

    /// The entry of `key`, which was read.
    pub(crate) fn entry(self, key: &str) -> KeyEntry {
        let found = self.entries().into_iter().next();
        found.unwrap_or_else(|| KeyEntry {
            key: key.to_owned(),
            ..KeyEntry::default()
        })
    }
}

impl TxnReply {
    /// The entries of these keys, each of which the transaction has read.
    pub(crate) fn entries_of(self, keys: &[String]) -> Result<Vec<KeyEntry>, String> {
        let count = self.responses.len();
        if count != keys.len() {
            return Err(format!("{count} responses to {} reads", keys.len()));
        }
        let pairs = keys.iter().zip(self.responses);
        let entries = pairs.map(|(key, response)| response.response_range.entry(key));
        Ok(entries.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn replies_of_etcd_are_read() {
        // etcd 3.4.23: a transaction that reads two keys, one of which exists.
        let reply = json!({
            "header": {"cluster_id": "1", "member_id": "13803658152347727308", "revision": "7", "raft_term": "2"},
            "succeeded": true,
            "responses": [
                {"response_range": {"header": {"revision": "7"}, "kvs": [
                    {"key": "YQ==", "create_revision": "2", "mod_revision": "5", "version": "3", "value": "MSwy"}
                ], "count": "1"}},
                {"response_range": {"header": {"revision": "7"}}}
            ]
        });
        let parsed = || from_value::<TxnReply>(reply.clone()).expect("a reply");
        let keys = ["a".to_owned(), "b".to_owned()];
        let entries = parsed().entries_of(&keys).expect("entries");
        assert_eq!(
            (entries[0].revision, entries[0].numbers()),
            (5, Ok(vec![1, 2]))
        );
        assert_eq!(
            (entries[1].revision, entries[1].numbers()),
            (0, Ok(Vec::new()))
        );
        assert_eq!(entries[1].key, "b");
        assert!(parsed().succeeded);
        let member = 13_803_658_152_347_727_308_u64;
        let (member_id, revision) = (Integer(member.cast_signed()), Integer(7));
        let header = ReplyHeader {
            member_id,
            revision,
        };
        assert_eq!(parsed().header, header);
        let failed: TxnReply = from_value(json!({"header": {}})).expect("a reply");
        assert!(!failed.succeeded, "a field that is false is left out");
        assert!(parsed().entries_of(&keys[..1]).is_err());
        for wrong in [
            json!({"kvs": [{"key": "!"}]}),
            json!({"kvs": [{"value": "/w=="}]}),
            json!({"kvs": [{"mod_revision": "x"}]}),
        ] {
            assert!(from_value::<RangeReply>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_are_what_etcd_expects() {
        let range_of_one = json!({"key": "YQ==", "serializable": true});
        assert_eq!(to_value(range("a", true)).expect("JSON"), range_of_one);
        let all = json!({
            "key": "cS8=", "range_end": "cTA=", "limit": "50", "sort_target": "CREATE",
            "sort_order": "ASCEND", "serializable": false,
        });
        assert_eq!(to_value(range_prefix("q/", 50, false)).expect("JSON"), all);
        let entry = KeyEntry {
            key: "a".into(),
            revision: 5,
            ..KeyEntry::default()
        };
        let transaction = TxnRequest {
            compare: &[unchanged(&entry), has_value("b", "1")],
            success: &[
                KeyOperation::Range(range("a", true)),
                KeyOperation::Put(put_leased("b", "2", Integer(9))),
                KeyOperation::Put(put("b", "")),
                deleting("a"),
            ],
        };
        let expected = json!({
            "compare": [
                {"key": "YQ==", "target": "MOD", "result": "EQUAL", "mod_revision": "5"},
                {"key": "Yg==", "target": "VALUE", "result": "EQUAL", "value": "MQ=="},
            ],
            "success": [
                {"request_range": range_of_one},
                {"request_put": {"key": "Yg==", "value": "Mg==", "lease": "9"}},
                {"request_put": {"key": "Yg==", "value": ""}},
                {"request_delete_range": {"key": "YQ=="}},
            ],
        });
        assert_eq!(to_value(transaction).expect("JSON"), expected);
    }

    #[test]
    fn prefixes_end_before_the_next_key() {
        assert_eq!(end_of("set/7/"), "set/70");
        let none: RangeReply = from_value(json!({})).expect("a reply");
        assert!(none.entries().is_empty());
        let odd = KeyEntry {
            value: Some("x".into()),
            ..KeyEntry::default()
        };
        assert!(odd.number(0).is_err() && odd.numbers().is_err());
    }
}
