//! Requests about keys, and what the replies say. Keys and values are base64 in the gateway's JSON, 64-bit integers are text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seatrial_suite::KeyText;
use serde_json::{Value as Json, json};

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

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

fn decode(json: &Json) -> Result<String, String> {
    let bytes = STANDARD.decode(json.as_str().unwrap_or_default());
    let bytes = bytes.map_err(|error| format!("{json}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("{json}: {error}"))
}

/// A 64-bit integer of a reply; one that is missing is 0.
pub(crate) fn integer(json: &Json) -> i64 {
    match json {
        Json::String(text) => text.parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// Reads one key.
pub(crate) fn range(key: &str, is_serializable: bool) -> Json {
    json!({"key": encode(key), "serializable": is_serializable})
}

/// Reads the keys with a prefix, the oldest first, at most `limit` (0: all).
pub(crate) fn range_prefix(prefix: &str, limit: i64, is_serializable: bool) -> Json {
    json!({
        "key": encode(prefix),
        "range_end": encode(&end_of(prefix)),
        "limit": limit.to_string(),
        "sort_target": "CREATE",
        "sort_order": "ASCEND",
        "serializable": is_serializable,
    })
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

/// Writes one key.
pub(crate) fn put(key: &str, value: &str) -> Json {
    json!({"key": encode(key), "value": encode(value)})
}

/// The same with a lease, whose end deletes the key.
pub(crate) fn put_leased(key: &str, value: &str, lease: i64) -> Json {
    json!({"key": encode(key), "value": encode(value), "lease": lease.to_string()})
}

/// A comparison that holds if the key was not changed since it was read.
pub(crate) fn unchanged(entry: &KeyEntry) -> Json {
    json!({
        "key": encode(&entry.key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": entry.revision.to_string(),
    })
}

/// A comparison of a value.
pub(crate) fn has_value(key: &str, value: &str) -> Json {
    json!({"key": encode(key), "target": "VALUE", "result": "EQUAL", "value": encode(value)})
}

/// A transaction: if all comparisons hold, all operations take place.
pub(crate) fn transaction(compare: &[Json], success: &[Json]) -> Json {
    json!({"compare": compare, "success": success})
}

/// A read as an operation of a transaction.
pub(crate) fn reading(range: &Json) -> Json {
    json!({ "request_range": range })
}

/// A write as an operation of a transaction.
pub(crate) fn writing(put: &Json) -> Json {
    json!({ "request_put": put })
}

/// A deletion as an operation of a transaction.
pub(crate) fn deleting(key: &str) -> Json {
    json!({"request_delete_range": {"key": encode(key)}})
}

/// Did the comparisons of a transaction hold?
pub(crate) fn succeeded(reply: &Json) -> bool {
    reply["succeeded"].as_bool().unwrap_or(false)
}

/// The revision of a reply's header.
pub(crate) fn revision(reply: &Json) -> i64 {
    integer(&reply["header"]["revision"])
}

/// The entries of a reply to a read.
pub(crate) fn entries(reply: &Json) -> Result<Vec<KeyEntry>, String> {
    let found = reply["kvs"].as_array().map_or(&[][..], Vec::as_slice);
    let entry = |one: &Json| {
        Ok(KeyEntry {
            key: decode(&one["key"])?,
            value: Some(decode(&one["value"])?),
            revision: integer(&one["mod_revision"]),
        })
    };
    found.iter().map(entry).collect()
}

/// The entry of `key` in a reply to a read of it.
pub(crate) fn entry(key: &str, reply: &Json) -> Result<KeyEntry, String> {
    let found = entries(reply)?.into_iter().next();
    Ok(found.unwrap_or_else(|| KeyEntry {
        key: key.to_owned(),
        ..KeyEntry::default()
    }))
}

/// The entries of these keys in the reply to a transaction that reads each.
pub(crate) fn entries_of(keys: &[String], reply: &Json) -> Result<Vec<KeyEntry>, String> {
    let responses = reply["responses"].as_array().map_or(&[][..], Vec::as_slice);
    if responses.len() != keys.len() {
        return Err(format!(
            "{} responses to {} reads",
            responses.len(),
            keys.len()
        ));
    }
    let pairs = keys.iter().zip(responses);
    pairs
        .map(|(key, response)| entry(key, &response["response_range"]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_etcd_are_read() {
        // etcd 3.4.23: a transaction that reads two keys, one of which exists.
        let reply = json!({
            "header": {"cluster_id": "1", "member_id": "2", "revision": "7", "raft_term": "2"},
            "succeeded": true,
            "responses": [
                {"response_range": {"header": {"revision": "7"}, "kvs": [
                    {"key": "YQ==", "create_revision": "2", "mod_revision": "5", "version": "3", "value": "MSwy"}
                ], "count": "1"}},
                {"response_range": {"header": {"revision": "7"}}}
            ]
        });
        let keys = ["a".to_owned(), "b".to_owned()];
        let entries = entries_of(&keys, &reply).expect("entries");
        assert_eq!(
            (entries[0].revision, entries[0].numbers()),
            (5, Ok(vec![1, 2]))
        );
        assert_eq!(
            (entries[1].revision, entries[1].numbers()),
            (0, Ok(Vec::new()))
        );
        assert_eq!(entries[1].key, "b");
        assert!(succeeded(&reply) && revision(&reply) == 7);
        assert!(
            !succeeded(&json!({"header": {}})),
            "a field that is false is left out"
        );
        assert!(entries_of(&keys[..1], &reply).is_err());
        assert!(entry("a", &json!({"kvs": [{"key": "!"}]})).is_err());
    }

    #[test]
    fn prefixes_end_before_the_next_key() {
        assert_eq!(end_of("set/7/"), "set/70");
        assert!(entries(&json!({})).expect("none").is_empty());
        let odd = KeyEntry {
            value: Some("x".into()),
            ..KeyEntry::default()
        };
        assert!(odd.number(0).is_err() && odd.numbers().is_err());
    }
}
