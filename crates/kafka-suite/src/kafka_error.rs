//! Why a request has no result, and which errors are definite.

use kafka_protocol::error::ResponseError;
use seatrial_suite::StoreRefusal;
use thiserror::Error;

/// Why a request has no result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum KafkaError {
    /// It was not sent: there is no connection, or it cannot be encoded.
    #[error("{0}")]
    NotSent(String),
    /// The client's own broker knows no leader of the partition.
    #[error("partition {0} has no leader")]
    NoLeader(i32),
    /// The connection was lost, or the answer cannot be read.
    #[error("{0}")]
    Lost(String),
    /// No answer in time.
    #[error("timed out")]
    Late,
    /// The broker's error.
    #[error("{error} ({})", .error.code())]
    Refused {
        error: ResponseError,
        /// The offset of the message that it concerns; negative if the broker gave it none.
        offset: i64,
    },
}

/// Errors of a broker that has appended nothing: the checks of `KafkaApis.handleProduceRequest`,
/// `ReplicaManager.appendToLocalLog`, `Partition.appendRecordsToLeader` and `UnifiedLog.analyzeAndValidateRecords` (Kafka
/// 3.9) before the message is written.
///
/// Absent: REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND, which the broker sends of messages that it has written and
/// that others may have by now; KAFKA_STORAGE_ERROR and UNKNOWN_SERVER_ERROR, which may come in the middle of a write.
const REFUSALS: [ResponseError; 13] = [
    ResponseError::CorruptMessage,
    ResponseError::UnknownTopicOrPartition,
    ResponseError::NotLeaderOrFollower,
    ResponseError::MessageTooLarge,
    ResponseError::InvalidTopicException,
    ResponseError::RecordListTooLarge,
    ResponseError::NotEnoughReplicas,
    ResponseError::InvalidRequiredAcks,
    ResponseError::TopicAuthorizationFailed,
    ResponseError::ClusterAuthorizationFailed,
    ResponseError::InvalidTimestamp,
    ResponseError::UnsupportedVersion,
    ResponseError::InvalidRecord,
];

impl KafkaError {
    /// Did the request certainly not take place, and never will?
    ///
    /// A refusal with an offset is of a message that is in the leader's log: with `acks=all` the broker that waits for its
    /// followers answers NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION when it loses the partition meanwhile, and keeps
    /// the offset in the answer (`DelayedProduce.tryComplete` sets the error alone). The new leader may have the message.
    pub(crate) fn is_definite(&self) -> bool {
        match self {
            KafkaError::NotSent(_) | KafkaError::NoLeader(_) => true,
            KafkaError::Refused { error, offset } => *offset < 0 && REFUSALS.contains(error),
            KafkaError::Lost(_) | KafkaError::Late => false,
        }
    }

    /// The refusal of a message.
    pub(crate) fn of_write(&self) -> StoreRefusal {
        if self.is_definite() {
            StoreRefusal::failed(self)
        } else {
            StoreRefusal::unknown(self)
        }
    }

    /// The refusal of a request that changes nothing.
    pub(crate) fn of_read(&self) -> StoreRefusal {
        StoreRefusal::failed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(error: ResponseError, offset: i64) -> KafkaError {
        KafkaError::Refused { error, offset }
    }

    #[test]
    fn what_was_appended_is_never_a_definite_failure() {
        for error in REFUSALS {
            assert!(refused(error, -1).is_definite(), "{error}");
            assert!(!refused(error, 0).is_definite(), "{error}");
            assert!(matches!(
                refused(error, 7).of_write(),
                StoreRefusal::Unknown(_)
            ));
        }
    }

    #[test]
    fn other_errors_leave_the_outcome_open() {
        for error in [
            ResponseError::RequestTimedOut,
            ResponseError::NotEnoughReplicasAfterAppend,
            ResponseError::KafkaStorageError,
            ResponseError::UnknownServerError,
            ResponseError::NetworkException,
            ResponseError::Unknown(999),
        ] {
            assert!(!refused(error, -1).is_definite(), "{error}");
            assert!(matches!(
                refused(error, -1).of_read(),
                StoreRefusal::Failed(_)
            ));
        }
        assert!(!KafkaError::Late.is_definite());
        assert!(!KafkaError::Lost("reset".into()).is_definite());
        assert!(KafkaError::NotSent("refused".into()).is_definite());
        assert!(KafkaError::NoLeader(2).is_definite());
    }

    #[test]
    fn errors_have_their_names_and_codes() {
        let error = refused(ResponseError::NotEnoughReplicas, -1);
        assert_eq!(error.to_string(), "NotEnoughReplicas (19)");
        assert_eq!(
            KafkaError::NoLeader(2).to_string(),
            "partition 2 has no leader"
        );
    }
}
