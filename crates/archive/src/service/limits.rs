//! The bounds of the service.

use crate::service::message::MESSAGE_LENGTH_MAX;
use std::time::Duration;

/// The bounds of the service; each is named in refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Sessions.
    pub sessions_max: usize,
    /// Recordings that one session may record at a time.
    pub claims_per_session_max: usize,
    /// Replays that one session may have open.
    pub replays_per_session_max: usize,
    /// Replays that may be open.
    pub replays_max: usize,
    /// Requests for the catalog that wait for the one under way.
    pub controls_max: usize,
    /// Bytes of frames of one claim that wait to be written.
    pub record_window_bytes: u32,
    /// Bytes of frames of one batch.
    pub batch_bytes_max: u32,
    /// The largest window of one replay.
    pub replay_window_bytes_max: u32,
    /// The windows of one session's replays together.
    pub session_window_bytes_max: u32,
    /// A window that is smaller is not granted.
    pub replay_window_bytes_min: u32,
    /// Bytes at which a data message is sent even if more is at hand.
    pub data_bytes: usize,
    /// Recordings in one answer to a list.
    pub list_count_max: u32,
    /// A session that is silent for so long ends.
    pub session_timeout: Duration,
}

impl Default for ServiceLimits {
    fn default() -> ServiceLimits {
        ServiceLimits {
            sessions_max: 1_024,
            claims_per_session_max: 64,
            replays_per_session_max: 64,
            replays_max: 1_024,
            controls_max: 256,
            record_window_bytes: 4 << 20,
            batch_bytes_max: (MESSAGE_LENGTH_MAX - (1 << 20)) as u32,
            replay_window_bytes_max: 4 << 20,
            session_window_bytes_max: 32 << 20,
            replay_window_bytes_min: 64 << 10,
            data_bytes: 256 << 10,
            list_count_max: 256,
            session_timeout: Duration::from_secs(10),
        }
    }
}
