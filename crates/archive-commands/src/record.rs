//! `seatrial archive record`: standard input or a file into a recording.

use crate::archive_arguments::RecordArguments;
use crate::archive_place::ArchivePlace;
use crate::entry;
use crate::local::FolderRecorder;
use crate::messages::{self, Event, Splitter};
use crate::remote::RemoteRecorder;
use anyhow::{Context as _, Result};
use seatrial_machine::counted;
use seatrial_terminal::{Exit, Interrupt, complain, say};
use serde_json::json;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// How far a recording has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Messages written by this command.
    pub(crate) written: u64,
    /// Those of them that its durability level has made durable.
    pub(crate) durable: u64,
    /// Where the recording ends.
    pub(crate) position: u64,
}

/// What messages are recorded into.
pub(crate) trait MessageRecorder {
    /// The number of the recording.
    fn id(&self) -> u64;
    /// Takes a message in; it may wait for others.
    fn push(&mut self, message: &[u8]) -> Result<()>;
    /// Writes what waits.
    fn flush(&mut self) -> Result<()>;
    /// When [`MessageRecorder::tick`] is due, if it is.
    fn due(&self) -> Option<Duration>;
    /// Makes durable what is due.
    fn tick(&mut self) -> Result<()>;
    /// How far it has come.
    fn reached(&self) -> Reached;
    /// Writes what waits, makes all durable, ends the recording.
    fn stop(self: Box<Self>) -> Result<Reached>;
}

/// Carries the verb out.
pub(crate) fn run(arguments: &RecordArguments) -> Result<Exit> {
    let durability = entry::parse_durability(arguments.durability.as_deref().unwrap_or("group"))?;
    let place = ArchivePlace::parse(&arguments.archive)?;
    let (events, sender) = messages::read(arguments.file.as_deref())?;
    let _interrupt = Interrupt::listen(move || {
        let _ = sender.send(Event::Interrupted); // without a receiver, the recording has ended
    })?;
    let mut recorder: Box<dyn MessageRecorder> = match &place {
        ArchivePlace::Folder(folder) => {
            Box::new(FolderRecorder::new(folder, arguments, durability)?)
        }
        ArchivePlace::Server(address) => {
            Box::new(RemoteRecorder::new(*address, arguments, durability)?)
        }
    };
    let id = recorder.id();
    complain!("recording {id} of {place}");
    let mut acknowledged = recorder.reached();
    let outcome = record(arguments, &events, &mut *recorder, &mut acknowledged);
    // Also after an error: what came before it is recorded.
    let stopped = recorder
        .stop()
        .with_context(|| format!("recording {id} of {place}"));
    outcome?;
    let reached = stopped?;
    acknowledge(arguments, reached, &mut acknowledged);
    if arguments.json && !arguments.acknowledge {
        say!(
            "{}",
            json!({
                "recording": id,
                "messages": reached.written,
                "position": reached.position,
            })
        );
    } else if !arguments.acknowledge {
        say!(
            "recording {id}: {}, ends at {}",
            counted(reached.written, "message"),
            reached.position
        );
    }
    Ok(Exit::Valid)
}

/// Until the input ends or the user says so.
fn record(
    arguments: &RecordArguments,
    events: &Receiver<Event>,
    recorder: &mut dyn MessageRecorder,
    acknowledged: &mut Reached,
) -> Result<()> {
    let mut splitter = Splitter::new(arguments.framed);
    loop {
        let event = match events.try_recv() {
            Ok(event) => event,
            Err(TryRecvError::Disconnected) => Event::End,
            Err(TryRecvError::Empty) => {
                // The input makes a pause: nothing that was read waits longer.
                recorder.flush()?;
                acknowledge(arguments, recorder.reached(), acknowledged);
                let Some(event) = next(events, recorder.due()) else {
                    recorder.tick()?;
                    acknowledge(arguments, recorder.reached(), acknowledged);
                    continue;
                };
                event
            }
        };
        match event {
            Event::Bytes(bytes) => splitter.feed(&bytes, |message| recorder.push(message))?,
            Event::End => return splitter.end(|message| recorder.push(message)),
            // A line without its end is not recorded: it may be incomplete.
            Event::Interrupted => return Ok(()),
            Event::Failed(error) => return Err(error).context("the input cannot be read"),
        }
        acknowledge(arguments, recorder.reached(), acknowledged);
    }
}

/// The next event; nothing when it does not come in time.
fn next(events: &Receiver<Event>, due: Option<Duration>) -> Option<Event> {
    let Some(due) = due else {
        return Some(events.recv().unwrap_or(Event::End));
    };
    match events.recv_timeout(due) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Event::End),
    }
}

/// Prints the progress of the recording, if asked for and changed.
fn acknowledge(arguments: &RecordArguments, reached: Reached, printed: &mut Reached) {
    if !arguments.acknowledge || reached == *printed {
        return;
    }
    *printed = reached;
    let Reached {
        written,
        durable,
        position,
    } = reached;
    if arguments.json {
        say!(
            "{}",
            json!({"written": written, "durable": durable, "position": position})
        );
    } else {
        say!("written {written} durable {durable} position {position}");
    }
}
