//! What clients recorded and replayed, and whether that fits together.

use seatrial_archive_service::{BatchPlace, ReplayPiece};
use std::collections::BTreeMap;

/// A message as it was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    position: u64,
    payload: Vec<u8>,
}

/// One recording: what was handed over by each life of its recorder, and what was confirmed.
#[derive(Debug, Default)]
struct Log {
    lives: Vec<Vec<Vec<u8>>>,
    confirmed: BTreeMap<u64, (u64, Vec<u8>)>,
}

/// What is known from the outside.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    logs: BTreeMap<u64, Log>,
    /// Per replay: recording, and the messages by number.
    replays: BTreeMap<u64, (u64, BTreeMap<u64, Heard>)>,
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

    /// A recorder has handed messages over.
    pub(crate) fn handed_over(&mut self, recording: u64, messages: &[Vec<u8>]) {
        let log = self.logs.entry(recording).or_default();
        if let Some(life) = log.lives.last_mut() {
            life.extend_from_slice(messages);
        }
    }

    /// They are confirmed.
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
            // Within a block frames follow each other; only the first one's position is told.
            position = u64::MAX;
        }
        Ok(())
    }

    /// A piece of a replay, which continues it.
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
            heard.insert(message.number, Heard { position, payload });
            self.replayed += 1;
        }
        Ok(())
    }

    /// How many messages a replay has brought.
    pub(crate) fn heard(&self, replay: u64) -> usize {
        self.replays
            .get(&replay)
            .map_or(0, |(_, heard)| heard.len())
    }

    /// Position and contents of every message that a replay has brought.
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

    /// Judges everything by `replay`, a replay of all of its recording from the start.
    pub(crate) fn judge(&self, replay: u64) -> Result<(), String> {
        let Some((recording, all)) = self.replays.get(&replay) else {
            return Ok(()); // nothing is in it
        };
        if let Some((first, _)) = all.first_key_value()
            && *first != 0
        {
            return Err(format!("recording {recording} begins with message {first}"));
        }
        let log = &self.logs[recording];
        judge_confirmed(*recording, log, all)?;
        judge_order(*recording, log, all)?;
        for (other, (of, heard)) in &self.replays {
            if of != recording {
                continue;
            }
            for (number, message) in heard {
                if all.get(number) != Some(message) {
                    let end = all.get(number).map(|message| message.position);
                    let position = message.position;
                    return Err(format!(
                        "replay {other} of {recording}: message {number} at {position} is not what is there in the end, at {end:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Everything confirmed is there, where it was said to be.
fn judge_confirmed(recording: u64, log: &Log, all: &BTreeMap<u64, Heard>) -> Result<(), String> {
    for (number, (position, payload)) in &log.confirmed {
        let Some(heard) = all.get(number) else {
            return Err(format!(
                "message {number} of {recording} was confirmed and is lost"
            ));
        };
        if heard.payload != *payload {
            return Err(format!("message {number} of {recording} is another one"));
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

/// The recording is, life after life, the beginning of what was handed over in each.
fn judge_order(recording: u64, log: &Log, all: &BTreeMap<u64, Heard>) -> Result<(), String> {
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
