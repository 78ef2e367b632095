//! `seatrial archive replay`: messages of a recording to standard output.

use super::folder;
use super::interrupt::Interrupt;
use super::moment;
use super::place::Place;
use super::printer::{Form, Printer, Shown};
use crate::args::ReplayArguments;
use crate::exit::Exit;
use anyhow::{Context as _, Result, ensure};
use seatrial_archive::Position;
use seatrial_archive::file::Files;
use seatrial_archive::{Bound, Cursor, Origin, Pause, ReplayBlock};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

/// How often a folder is looked at for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that wait to be printed.
const OUT_LENGTH: usize = 256 << 10;

/// Carries the verb out.
pub(super) fn run(arguments: &ReplayArguments) -> Result<Exit> {
    let form = Form::parse(&arguments.output)?;
    let place = Place::parse(&arguments.archive)?;
    let origin = origin(arguments)?;
    let out = BufWriter::with_capacity(OUT_LENGTH, io::stdout().lock());
    let mut printer = Printer::new(form, out);
    let interrupt = Interrupt::listen(|| {})?;
    let path = place.folder()?;
    let catalog = folder::view(path)?;
    let recording = folder::find(&catalog, &arguments.recording, path)?;
    if let Some(number) = arguments.from_message {
        let (id, next) = (recording.id, recording.end.message);
        ensure!(
            number <= next || arguments.follow,
            "{place}: recording {id} ends before message {next}, number {number} was asked for"
        );
    }
    let bound = match (arguments.to, arguments.follow) {
        (Some(position), _) => Bound::To(Position(position)),
        (None, true) => Bound::Follow,
        (None, false) => Bound::End,
    };
    let cursor = Cursor::open(Arc::new(Files), path, recording.id, origin, bound)
        .with_context(|| place.to_string())?;
    let replay = Replay {
        cursor,
        left: arguments.count,
        follow: arguments.follow,
    };
    let printed = replay.print(&mut printer, &interrupt);
    match printed.and_then(|()| Ok(printer.flush()?)) {
        // Whoever reads has seen enough (`| head`).
        Err(error) if is_broken_pipe(&error) => Ok(Exit::Valid),
        result => result.map(|()| Exit::Valid),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Where to begin.
fn origin(arguments: &ReplayArguments) -> Result<Origin> {
    Ok(
        match (arguments.from, &arguments.from_time, arguments.from_message) {
            (Some(position), ..) => Origin::Position(Position(position)),
            (_, Some(time), _) => Origin::Time(moment::parse(time, moment::now())?),
            (.., Some(number)) => Origin::Message(number),
            (None, None, None) => Origin::Start,
        },
    )
}

/// A replay of a folder's recording.
struct Replay {
    cursor: Cursor,
    /// Messages that may still be printed.
    left: Option<u64>,
    follow: bool,
}

impl Replay {
    fn print(mut self, printer: &mut Printer<impl Write>, interrupt: &Interrupt) -> Result<()> {
        while !interrupt.told() && self.left != Some(0) {
            if let Some(block) = self.cursor.next_block()? {
                print_block(&block, &mut self.left, printer)?;
                continue;
            }
            if self.cursor.pause() == Pause::Reached || !self.follow {
                break;
            }
            printer.flush()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

/// Prints the messages of a block, as many as are left.
fn print_block(
    block: &ReplayBlock<'_>,
    left: &mut Option<u64>,
    printer: &mut Printer<impl Write>,
) -> io::Result<()> {
    for (number, message) in (block.first_message()..).zip(block.messages()) {
        if let Some(left) = left {
            let Some(fewer) = left.checked_sub(1) else {
                break;
            };
            *left = fewer;
        }
        printer.print(&Shown {
            position: message.position.0,
            number,
            time: block.time(),
            flags: message.flags as u8,
            message: message.payload,
        })?;
    }
    Ok(())
}
