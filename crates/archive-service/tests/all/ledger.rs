//! The messages that clients recorded and replayed, and their comparison.

use seatrial_archive_service::{BatchPlace, ReplayPiece};
use std::collections::BTreeMap;

/// A replayed message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplayedCopy {
    position: u64,
    payload: Vec<u8>,
}

/// One recording: the messages submitted in each life of its recorder, and the confirmed ones.
#[derive(Debug, Default)]
struct RecordingLog {
    lives: Vec<Vec<Vec<u8>>>,
    confirmed: BTreeMap<u64, (u64, Vec<u8>)>,
}

/// Everything that clients observed.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    logs: BTreeMap<u64, RecordingLog>,
    /// Per replay: recording, and the messages by number.
    replays: BTreeMap<u64, (u64, BTreeMap<u64, ReplayedCopy>)>,
    pub(crate) confirmed: u64,
    pub(crate) replayed: u64,
}

impl Ledger {
    /// A recorder has claimed a recording, for the first time or in another life.
    pub(crate) fn claimed(&mut self, recording: u64) {
        self.logs
            .entry(recording)
            .or_default()
            .lives
            .push(Vec::new());
    }

    /// A recorder has submitted messages.
    pub(crate) fn submitted(&mut self, recording: u64, messages: &[Vec<u8>]) {
        let log = self.logs.entry(recording).or_default();
        if let Some(life) = log.lives.last_mut() {
            life.extend_from_slice(messages);
        }
    }

    /// The service has confirmed messages.
    pub(crate) fn confirm(
        &mut self,
        recording: u64,
        place: &BatchPlace,
        messages: &[Vec<u8>],
    ) -> Result<(), String> {
        let log = self.logs.entry(recording).or_default();
        let mut position = place.position;
        for (number, message) in (place.first_message..).zip(messages) {
            let known = log.confirmed.insert(number, (position, message.clone()));
            if known.is_some() {
                return Err(format!(
                    "message {number} of {recording} was confirmed twice"
                ));
            }
            self.confirmed += 1;
            // Frames are contiguous within a block; only the position of the first one is reported.
            position = u64::MAX;
        }
        Ok(())
    }

    /// Adds the next piece of a replay.
    pub(crate) fn replayed(
        &mut self,
        replay: u64,
        recording: u64,
        piece: &ReplayPiece,
    ) -> Result<(), String> {
        let (_, heard) = self
            .replays
            .entry(replay)
            .or_insert_with(|| (recording, BTreeMap::new()));
        for message in piece.messages() {
            if let Some((&last, _)) = heard.last_key_value()
                && message.number != last + 1
            {
                let number = message.number;
                return Err(format!("replay {replay}: message {number} behind {last}"));
            }
            let position = message.position;
            let payload = message.payload.to_vec();
            heard.insert(message.number, ReplayedCopy { position, payload });
            self.replayed += 1;
        }
        Ok(())
    }

    /// Number of messages of a replay.
    pub(crate) fn heard(&self, replay: u64) -> usize {
        self.replays
            .get(&replay)
            .map_or(0, |(_, heard)| heard.len())
    }

    /// Position and contents of every message of a replay.
    pub(crate) fn messages(&self, replay: u64) -> Vec<(u64, Vec<u8>)> {
        let heard = self
            .replays
            .get(&replay)
            .into_iter()
            .flat_map(|(_, heard)| heard.values());
        heard
            .map(|message| (message.position, message.payload.clone()))
            .collect()
    }

    /// Compares everything with `replay`, a complete replay of its recording.
    pub(crate) fn check(&self, replay: u64) -> Result<(), String> {
        let Some((recording, all)) = self.replays.get(&replay) else {
            return Ok(()); // empty
        };
        if let Some((first, _)) = all.first_key_value()
            && *first != 0
        {
            return Err(format!("recording {recording} begins with message {first}"));
        }
        let log = &self.logs[recording];
        check_confirmed(*recording, log, all)?;
        check_order(*recording, log, all)?;
        for (other, (of, heard)) in &self.replays {
            if of != recording {
                continue;
            }
            for (number, message) in heard {
                if all.get(number) != Some(message) {
                    let end = all.get(number).map(|message| message.position);
                    let position = message.position;
                    return Err(format!(
                        "replay {other} of {recording}: message {number} at {position} differs from the final one, at {end:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Checks that each confirmed message is at its reported position.
fn check_confirmed(
    recording: u64,
    log: &RecordingLog,
    all: &BTreeMap<u64, ReplayedCopy>,
) -> Result<(), String> {
    for (number, (position, payload)) in &log.confirmed {
        let Some(heard) = all.get(number) else {
            return Err(format!(
                "message {number} of {recording} was confirmed and is lost"
            ));
        };
        if heard.payload != *payload {
            return Err(format!("message {number} of {recording} differs"));
        }
        if *position != u64::MAX && heard.position != *position {
            return Err(format!(
                "message {number} of {recording} is at {}, was confirmed at {position}",
                heard.position
            ));
        }
    }
    Ok(())
}

/// Checks that the recording consists of a prefix of the messages of each life.
fn check_order(
    recording: u64,
    log: &RecordingLog,
    all: &BTreeMap<u64, ReplayedCopy>,
) -> Result<(), String> {
    let mut lives = log.lives.iter();
    let mut life = [].iter();
    for (number, heard) in all {
        loop {
            let ahead = life.clone().next();
            if ahead == Some(&heard.payload) {
                life.next();
                break;
            }
            let Some(next) = lives.next() else {
                let text = String::from_utf8_lossy(&heard.payload);
                let text = text.trim_end_matches('.');
                return Err(format!(
                    "message {number} of {recording}, {text:?}, is there twice or out of order"
                ));
            };
            life = next.iter();
        }
    }
    Ok(())
}
