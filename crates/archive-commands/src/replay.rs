//! `seatrial archive replay`: messages of a recording to standard output.

use crate::archive_arguments::ReplayArguments;
use crate::archive_place::ArchivePlace;
use crate::entry::RecordingEntry;
use crate::local;
use crate::moment;
use crate::printer::{PrintFormat, Printer, Shown};
use crate::remote::{self, NextPiece, Pieces};
use anyhow::{Context as _, Result, ensure};
use seatrial_archive::{Cursor, CursorBound, Origin, Pause, ReplayBlock};
use seatrial_archive::{Position, Recording};
use seatrial_archive_service::{ReplayBound, ReplayRequest};
use seatrial_blocks::file::ReadFiles;
use seatrial_terminal::{Exit, Interrupt};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a folder is looked at for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that wait to be printed.
const OUT_LENGTH: usize = 256 << 10;

/// Carries the verb out.
pub(crate) fn run(arguments: &ReplayArguments) -> Result<Exit> {
    let form = PrintFormat::parse(&arguments.output)?;
    let place = ArchivePlace::parse(&arguments.archive)?;
    let origin = origin(arguments)?;
    let out = BufWriter::with_capacity(OUT_LENGTH, io::stdout().lock());
    let mut printer = Printer::new(form, out);
    let interrupt = Interrupt::listen(|| {})?;
    let printed = match &place {
        ArchivePlace::Folder(path) => {
            from_folder(arguments, path, origin, &mut printer, &interrupt)
        }
        ArchivePlace::Server(address) => {
            from_server(arguments, *address, origin, &mut printer, &interrupt)
        }
    };
    match printed.and_then(|()| Ok(printer.flush()?)) {
        // The reader has closed the pipe (`| head`).
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

/// Says so when a message is asked for that the recording has not come to.
fn check_message(arguments: &ReplayArguments, place: &str, recording: &Recording) -> Result<()> {
    if let Some(number) = arguments.from_message {
        let (id, next) = (recording.id, recording.end.message);
        ensure!(
            number <= next || arguments.follow,
            "{place}: recording {id} ends before message {next}, number {number} was asked for"
        );
    }
    Ok(())
}

/// Prints what a server sends.
fn from_server(
    arguments: &ReplayArguments,
    address: SocketAddr,
    origin: Origin,
    printer: &mut Printer<impl Write>,
    interrupt: &Interrupt,
) -> Result<()> {
    let place = format!("tcp://{address}");
    let found = remote::find(
        &mut remote::connect(address)?,
        &arguments.recording,
        address,
    )?;
    let RecordingEntry(recording) = remote::entry(&found);
    check_message(arguments, &place, &recording)?;
    let bound = match (arguments.to, arguments.follow) {
        // What is not there yet is not waited for.
        (Some(position), _) => ReplayBound::Position(position.min(recording.end.position.0)),
        (None, true) => ReplayBound::Follow,
        (None, false) => ReplayBound::End,
    };
    let request = ReplayRequest {
        recording: found.recording,
        from: remote::from(origin),
        bound,
        window_bytes: u32::MAX,
        is_eager: true,
    };
    let pieces = Pieces::play(address, request)?;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while !interrupt.is_requested() && left > 0 {
        match pieces.next(LOOK_INTERVAL).with_context(|| place.clone())? {
            NextPiece::End => break,
            NextPiece::Nothing => printer.flush()?,
            NextPiece::Piece(piece) => {
                for message in piece.messages().take(usize::try_from(left)?) {
                    left -= 1;
                    printer.print(&Shown {
                        position: message.position,
                        number: message.number,
                        time: message.time,
                        flags: message.flags as u8,
                        message: message.payload,
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// Prints what is in a folder.
fn from_folder(
    arguments: &ReplayArguments,
    path: &Path,
    origin: Origin,
    printer: &mut Printer<impl Write>,
    interrupt: &Interrupt,
) -> Result<()> {
    let catalog = local::view(path)?;
    let recording = local::find(&catalog, &arguments.recording, path)?;
    check_message(arguments, &path.display().to_string(), recording)?;
    let bound = match (arguments.to, arguments.follow) {
        (Some(position), _) => CursorBound::To(Position(position)),
        (None, true) => CursorBound::Follow,
        (None, false) => CursorBound::End,
    };
    let shown = || path.display().to_string();
    let mut cursor =
        Cursor::open(Arc::new(ReadFiles), path, recording.id, origin, bound).with_context(shown)?;
    let mut left = arguments.count;
    while !interrupt.is_requested() && left != Some(0) {
        if let Some(block) = cursor.next_block()? {
            print_block(&block, &mut left, printer)?;
            continue;
        }
        if cursor.pause() == Pause::Reached || !arguments.follow {
            break;
        }
        printer.flush()?;
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
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
