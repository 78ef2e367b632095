//! Limits of the service: sessions, replays, recordings, jobs, bytes.

use crate::message::MESSAGE_LENGTH_MAX;
use std::time::Duration;

/// The bounds of the service; each is named in refusals.
///
/// The memory that clients can make it use, beside their connections: `replay_bytes_max` and one message of
/// `data_bytes_min`, or one block, for each replay (all of it waits to be sent, so the driver's bound for that holds too);
/// `record_bytes_max` and one batch; 64 answers for each session; and for the time of one message, the buffers of
/// `reads_max` reading jobs and of one job for each claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// Maximum number of recordings that one session records at a time.
    pub claims_per_session_max: usize,
    /// Maximum number of live recordings.
    pub claims_max: usize,
    /// Maximum number of open replays of one session.
    pub replays_per_session_max: usize,
    /// Maximum number of open replays, besides one of each session.
    pub replays_max: usize,
    /// Maximum number of catalog requests that wait for the current one.
    pub controls_max: usize,
    /// Maximum number of bytes of frames of one claim that wait to be written.
    pub record_window_bytes: u32,
    /// The same for all claims together. A batch above it is dropped and has to be sent again.
    pub record_bytes_max: usize,
    /// Maximum number of bytes of frames of one batch.
    pub batch_bytes_max: u32,
    /// The largest window of one replay, in bytes.
    pub replay_window_bytes_max: u32,
    /// Maximum total of the windows of one session's replays, in bytes.
    pub session_window_bytes_max: u32,
    /// The smallest window of a replay, in bytes.
    pub replay_window_bytes_min: u32,
    /// Bytes in flight of all replays: sent, without credit since. Above it, a replay is read for only when none of its
    /// bytes are in flight, so clients that do not receive slow other replays down but stop none.
    pub replay_bytes_max: u64,
    /// Length of a data message at which it is sent, even if more is at hand.
    pub data_bytes: usize,
    /// The same above `replay_bytes_max`.
    pub data_bytes_min: usize,
    /// Maximum number of concurrent reading jobs of replays; others wait in turn. Below the number of the driver's threads,
    /// so that recording never waits for replays.
    pub reads_max: usize,
    /// Maximum length in bytes of the text of a refusal that is kept in case its request is repeated.
    pub refusal_length_max: usize,
    /// Maximum number of recordings in one answer to a list.
    pub list_count_max: u32,
    /// A session that is silent for this long ends.
    pub session_timeout: Duration,
    /// If all sessions are in use, one that records nothing and has received nothing of its replays for this long is ended.
    pub stall_min: Duration,
}

impl Default for ServiceLimits {
    fn default() -> ServiceLimits {
        ServiceLimits {
            sessions_max: 2_048,
            claims_per_session_max: 64,
            claims_max: 1_024,
            replays_per_session_max: 64,
            replays_max: 2_048,
            controls_max: 256,
            record_window_bytes: 4 << 20,
            record_bytes_max: 32 << 20,
            batch_bytes_max: (MESSAGE_LENGTH_MAX - (1 << 20)) as u32,
            replay_window_bytes_max: 4 << 20,
            session_window_bytes_max: 16 << 20,
            replay_window_bytes_min: 64 << 10,
            replay_bytes_max: 32 << 20,
            data_bytes: 256 << 10,
            data_bytes_min: 32 << 10,
            reads_max: 3,
            refusal_length_max: 256,
            list_count_max: 256,
            session_timeout: Duration::from_secs(10),
            stall_min: Duration::from_secs(2),
        }
    }
}

impl ServiceLimits {
    /// The default bounds, with an eighth of `memory` bytes each for recording and for replays.
    pub fn within(memory: usize) -> ServiceLimits {
        ServiceLimits {
            record_bytes_max: memory / 8,
            replay_bytes_max: memory as u64 / 8,
            ..ServiceLimits::default()
        }
    }
}
