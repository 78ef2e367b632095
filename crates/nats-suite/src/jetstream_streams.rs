//! The streams of a test: which there are, how they are created, and whether they have formed.
//!
//! | workloads | stream | subjects |
//! | --- | --- | --- |
//! | `log`, `set` | `data` | `data.log.KEY`, `data.set.KEY` |
//! | `queue`, `total-queue` | `data`, with the pull consumer `workers`, whose messages are acknowledged one each | `data.queue` |
//! | `unique-ids` | `data` | `data.ids` |
//! | `register`, `cas-register` | `KV_registers`, a key-value bucket without a history | `$KV.registers.KEY` |

use crate::nats_connection::{NatsConnection, NatsError};
use seatrial_history::Key;
use seatrial_runner::ClientError;
use serde_json::{Value as Json, json};
use std::time::Duration;

/// The stream of all but registers.
pub(crate) const DATA: &str = "data";
/// The stream of the bucket `registers`.
pub(crate) const REGISTERS: &str = "KV_registers";
/// The consumer of the queue.
pub(crate) const WORKERS: &str = "workers";
/// The subject of the queue.
pub(crate) const QUEUE: &str = "data.queue";
/// The subject of unique ids.
pub(crate) const IDS: &str = "data.ids";

pub(crate) fn set_subject(key: &Key) -> String {
    format!("data.set.{key}")
}

pub(crate) fn log_subject(key: &Key) -> String {
    format!("data.log.{key}")
}

pub(crate) fn register_subject(key: &Key) -> String {
    format!("$KV.registers.{key}")
}

/// A subject of a stream that no operation reads.
pub(crate) fn unread_subject(stream: &str) -> &'static str {
    if stream == REGISTERS {
        "$KV.registers.unread"
    } else {
        "data.unread"
    }
}

/// The streams of a workload; those of all workloads for a plan (`None`).
pub(crate) fn streams(workload: Option<&str>) -> &'static [&'static str] {
    match workload {
        Some("register" | "cas-register") => &[REGISTERS],
        Some(_) => &[DATA],
        None => &[DATA, REGISTERS],
    }
}

fn configuration(stream: &str, replicas: u32) -> Json {
    let mut all = json!({
        "name": stream,
        "subjects": [if stream == REGISTERS { "$KV.registers.>" } else { "data.>" }],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": true,
    });
    if stream == REGISTERS {
        // As NATS' clients create a bucket.
        all["max_msgs_per_subject"] = 1.into();
        all["allow_rollup_hdrs"] = true.into();
        all["deny_delete"] = true.into();
    }
    all
}

/// A message that was delivered and not acknowledged is delivered again after this: later than the operation that had taken it
/// can still acknowledge it.
fn acknowledgement_limit(timeout: Duration) -> Duration {
    timeout + Duration::from_secs(1)
}

/// Creates the streams of a workload, unless they are there.
pub(crate) async fn create(
    connection: &NatsConnection,
    workload: Option<&str>,
    replicas: u32,
    timeout: Duration,
) -> Result<(), NatsError> {
    for stream in streams(workload) {
        let subject = format!("STREAM.CREATE.{stream}");
        connection
            .api(&subject, &configuration(stream, replicas))
            .await?;
    }
    if matches!(workload, None | Some("queue" | "total-queue")) {
        let limit = u64::try_from(acknowledgement_limit(timeout).as_nanos()).unwrap_or(u64::MAX);
        let consumer = json!({
            "durable_name": WORKERS,
            "filter_subject": QUEUE,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": limit,
            "max_ack_pending": -1,
            "replay_policy": "instant",
        });
        let request = json!({"stream_name": DATA, "config": consumer});
        let subject = format!("CONSUMER.DURABLE.CREATE.{DATA}.{WORKERS}");
        connection.api(&subject, &request).await?;
    }
    Ok(())
}

/// Does each stream have a leader, and all of its replicas the same messages?
pub(crate) async fn formed(
    connection: &NatsConnection,
    workload: Option<&str>,
    replicas: u32,
) -> Result<(), ClientError> {
    for stream in streams(workload) {
        let info = connection
            .api(&format!("STREAM.INFO.{stream}"), &json!({}))
            .await?;
        if replicas > 1 {
            is_replicated(&info["cluster"], replicas)
                .map_err(|reason| format!("stream {stream}: {reason}"))?;
        }
    }
    Ok(())
}

/// Does a description of a stream's servers have a leader and all of its followers, up to date?
fn is_replicated(cluster: &Json, replicas: u32) -> Result<(), String> {
    if cluster["leader"].as_str().unwrap_or_default().is_empty() {
        return Err("no leader".into());
    }
    let followers = cluster["replicas"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let current = followers
        .iter()
        .filter(|follower| follower["current"] == true && follower["offline"] != true);
    let current = current.count() + 1;
    if current < replicas as usize {
        return Err(format!("{current} of {replicas} replicas are current"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_formed_when_all_replicas_are_current() {
        let cluster = json!({"leader": "n1", "replicas": [
            {"name": "n2", "current": true, "active": 5},
            {"name": "n3", "current": false, "offline": true},
        ]});
        let error = is_replicated(&cluster, 3).unwrap_err();
        assert_eq!(error, "2 of 3 replicas are current");
        assert_eq!(is_replicated(&cluster, 1), Ok(()));
        assert!(is_replicated(&json!({"name": "seatrial"}), 3).is_err());
        assert!(is_replicated(&Json::Null, 3).is_err());
    }

    #[test]
    fn buckets_have_one_message_for_each_key() {
        assert_eq!(configuration(REGISTERS, 3)["max_msgs_per_subject"], 1);
        assert_eq!(configuration(DATA, 3)["max_msgs_per_subject"], Json::Null);
        assert_eq!(configuration(DATA, 5)["num_replicas"], 5);
        assert_eq!(streams(Some("log")), [DATA]);
        assert_eq!(streams(None).len(), 2);
    }
}
