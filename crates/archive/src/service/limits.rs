//! The bounds of the service.

use crate::service::message::MESSAGE_LENGTH_MAX;
use std::time::Duration;

/// The bounds of the service; each is named in refusals.
///
/// What clients can make it hold, beside their connections: `replay_bytes_max` and one message of `data_bytes_min`, or one
/// block, for each replay (all of it waits to be sent, so the driver's bound for that holds too), `record_bytes_max` and one
/// batch, 64 answers for each session, and what `reads_max` jobs that read and one job for each claim hold for
/// the time of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Sessions.
    pub sessions_max: usize,
    /// Recordings that one session may record at a time.
    pub claims_per_session_max: usize,
    /// Recordings that are being recorded.
    pub claims_max: usize,
    /// Replays that one session may have open.
    pub replays_per_session_max: usize,
    /// Replays that may be open, besides one of each session.
    pub replays_max: usize,
    /// Requests for the catalog that wait for the one under way.
    pub controls_max: usize,
    /// Bytes of frames of one claim that wait to be written.
    pub record_window_bytes: u32,
    /// The same of all claims together. A batch that passes it is dropped and has to be sent again.
    pub record_bytes_max: usize,
    /// Bytes of frames of one batch.
    pub batch_bytes_max: u32,
    /// The largest window of one replay.
    pub replay_window_bytes_max: u32,
    /// The windows of one session's replays together.
    pub session_window_bytes_max: u32,
    /// A window that is smaller is not granted.
    pub replay_window_bytes_min: u32,
    /// Bytes of all replays that were sent and that no credit was given for since. Beyond, a replay is read for only when
    /// nothing of it is under way, so replays that nobody takes from slow others down and stop none.
    pub replay_bytes_max: u64,
    /// Bytes at which a data message is sent even if more is at hand.
    pub data_bytes: usize,
    /// The same beyond `replay_bytes_max`.
    pub data_bytes_min: usize,
    /// Jobs that read for replays at a time; the others wait their turn. Below the number of the driver's threads, so that
    /// what is recorded never waits for what is replayed.
    pub reads_max: usize,
    /// Bytes of the words of a refusal that is kept for when its request comes again.
    pub refusal_length_max: usize,
    /// Recordings in one answer to a list.
    pub list_count_max: u32,
    /// A session that is silent for so long ends.
    pub session_timeout: Duration,
    /// When all sessions are taken, one that records nothing and has taken nothing of its replays for so long makes room.
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
    /// The usual bounds, but an eighth of `memory` bytes each for what is recorded and for what is replayed.
    pub fn within(memory: usize) -> ServiceLimits {
        ServiceLimits {
            record_bytes_max: memory / 8,
            replay_bytes_max: memory as u64 / 8,
            ..ServiceLimits::default()
        }
    }
}
