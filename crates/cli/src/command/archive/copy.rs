//! `seatrial archive copy`: blocks as they are, at the same positions, from where the copy ends.

use super::entry::{Entry, thousands};
use super::folder;
use super::interrupt::Interrupt;
use super::moment;
use super::place::Place;
use super::remote::{self, Next, Pieces, Remote};
use crate::args::CopyArguments;
use crate::exit::Exit;
use crate::output::say;
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use seatrial_archive::file::Files;
use seatrial_archive::service::{
    CopySource, CopyTarget, ListFilter, ReplayBound, ReplayFrom, ReplayRequest,
};
use seatrial_archive::{Archive, Bound, Cursor, Origin, Pause, Recording, RecordingId};
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the source is looked at for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often it is looked at for new recordings.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Blocks or pieces of one recording before the others have their turn.
const TURN_BLOCKS: usize = 64;

/// Where recordings are copied from.
enum Origins {
    Folder(PathBuf),
    Server(SocketAddr, Box<Remote>),
}

impl Origins {
    fn new(place: &Place) -> Result<Origins> {
        Ok(match place {
            Place::Folder(path) => {
                folder::view(path)?;
                Origins::Folder(path.clone())
            }
            Place::Server(address) => {
                Origins::Server(*address, Box::new(remote::connect(*address)?))
            }
        })
    }

    /// How a copy calls its source: the same at every call.
    fn name(&self) -> Result<String> {
        Ok(match self {
            Origins::Folder(path) => path.canonicalize()?.display().to_string(),
            Origins::Server(address, _) => format!("tcp://{address}"),
        })
    }

    /// The recordings that are wanted: all, when none is named.
    fn recordings(&mut self, wanted: &[String]) -> Result<Vec<Recording>> {
        match self {
            Origins::Folder(path) => {
                let catalog = folder::view(path)?;
                if wanted.is_empty() {
                    return Ok(catalog.recordings().cloned().collect());
                }
                let find = |wanted: &String| folder::find(&catalog, wanted, path).cloned();
                wanted.iter().map(find).collect()
            }
            Origins::Server(address, remote) => {
                let found = if wanted.is_empty() {
                    remote.list(&ListFilter::default())?
                } else {
                    let find = |wanted: &String| remote::find(remote, wanted, *address);
                    wanted.iter().map(find).collect::<Result<_>>()?
                };
                Ok(found
                    .iter()
                    .map(remote::entry)
                    .map(|Entry(recording)| recording)
                    .collect())
            }
        }
    }

    /// Its blocks from where the copy ends.
    fn blocks(&self, id: RecordingId, target: &CopyTarget, follow: bool) -> Result<Blocks> {
        match self {
            Origins::Folder(path) => {
                let bound = if follow { Bound::Follow } else { Bound::End };
                let origin = Origin::Position(target.from());
                let cursor = Cursor::open(Arc::new(Files), path, id, origin, bound)?;
                Ok(Blocks::Folder(Box::new(cursor)))
            }
            Origins::Server(address, _) => {
                let request = ReplayRequest {
                    recording: id.0,
                    from: ReplayFrom::Position(target.from().0),
                    bound: if follow {
                        ReplayBound::Follow
                    } else {
                        ReplayBound::End
                    },
                    window_bytes: u32::MAX,
                    is_eager: false,
                };
                Ok(Blocks::Server(Pieces::play(*address, request)?))
            }
        }
    }
}

/// The blocks of one recording, in order.
enum Blocks {
    Folder(Box<Cursor>),
    Server(Pieces),
}

/// One recording on its way.
struct Copying {
    from: RecordingId,
    blocks: Blocks,
    target: CopyTarget,
    reached: bool,
}

impl Copying {
    /// Copies some blocks; false when there are none.
    fn turn(&mut self) -> Result<bool> {
        let mut count = 0;
        while count < TURN_BLOCKS && !self.reached && self.next()? {
            count += 1;
        }
        self.target.tick(moment::now())?;
        Ok(count > 0)
    }

    fn next(&mut self) -> Result<bool> {
        match &mut self.blocks {
            Blocks::Folder(cursor) => {
                let Some(block) = cursor.next_block()? else {
                    self.reached = cursor.pause() == Pause::Reached;
                    return Ok(false);
                };
                let (bytes, position) = block.stored();
                self.target.append(position, bytes, moment::now())?;
            }
            Blocks::Server(pieces) => match pieces.next(Duration::ZERO)? {
                Next::Piece(piece) => {
                    for block in piece.blocks() {
                        let position = seatrial_archive::Position(block.position);
                        self.target.append(position, block.bytes, moment::now())?;
                    }
                }
                Next::Nothing => return Ok(false),
                Next::End => {
                    self.reached = true;
                    return Ok(false);
                }
            },
        }
        Ok(true)
    }

    fn json(&self) -> Value {
        json!({
            "recording": self.target.recording().0,
            "from_recording": self.from.0,
            "messages": self.target.messages(),
            "bytes": self.target.bytes(),
            "position": self.target.end().0,
        })
    }
}

/// A copy into a folder.
struct Copy<'a> {
    arguments: &'a CopyArguments,
    from: Origins,
    name: String,
    to: &'a Path,
    archive: Archive,
    copying: Vec<Copying>,
}

/// Carries the verb out.
pub(super) fn run(arguments: &CopyArguments) -> Result<Exit> {
    let (from, to) = (Place::parse(&arguments.from)?, Place::parse(&arguments.to)?);
    let to_folder = to.folder()?;
    let origins = Origins::new(&from)?;
    let interrupt = Interrupt::listen(|| {})?;
    let mut copy = Copy {
        arguments,
        name: origins.name().with_context(|| from.to_string())?,
        from: origins,
        to: to_folder,
        archive: folder::open(to_folder)?,
        copying: Vec::new(),
    };
    let outcome = copy.run(&interrupt);
    // Also after an error: what was copied is kept, and the next call goes on from there.
    let copied: Vec<Value> = copy.copying.iter().map(Copying::json).collect();
    for one in copy.copying {
        one.target
            .stop(moment::now())
            .with_context(|| to.to_string())?;
    }
    outcome.with_context(|| format!("{from} to {to}"))?;
    if arguments.json {
        say!(
            "{:#}",
            json!({"from": from.to_string(), "to": to.to_string(), "recordings": copied})
        );
    } else {
        for one in copied {
            say!(
                "recording {} of {from} to {}: {} messages, {} bytes; the copy ends at {}",
                one["from_recording"],
                one["recording"],
                thousands(one["messages"].as_u64().unwrap_or_default()),
                thousands(one["bytes"].as_u64().unwrap_or_default()),
                one["position"]
            );
        }
    }
    Ok(Exit::Valid)
}

impl Copy<'_> {
    /// Until all is copied, or the user says so.
    fn run(&mut self, interrupt: &Interrupt) -> Result<()> {
        let mut listed = Instant::now();
        self.begin_new()?;
        let bar = self.bar();
        while !interrupt.told() {
            let mut busy = false;
            for one in &mut self.copying {
                busy |= one
                    .turn()
                    .with_context(|| format!("recording {}", one.from))?;
            }
            if let Some(bar) = &bar {
                bar.set_position(self.copying.iter().map(|one| one.target.bytes()).sum());
            }
            if !self.arguments.follow && self.copying.iter().all(|one| one.reached) {
                break;
            }
            if self.arguments.follow && listed.elapsed() >= LIST_INTERVAL {
                listed = Instant::now();
                self.begin_new()?;
            }
            if !busy {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// Begins with the recordings that are wanted and not on their way.
    fn begin_new(&mut self) -> Result<()> {
        for recording in self.from.recordings(&self.arguments.recording)? {
            if !self.copying.iter().any(|one| one.from == recording.id) {
                let one = self.begin(&recording);
                self.copying
                    .push(one.with_context(|| format!("recording {}", recording.id))?);
            }
        }
        Ok(())
    }

    /// Goes on with the copy of a recording, or makes one.
    fn begin(&mut self, recording: &Recording) -> Result<Copying> {
        let source = CopySource::folder(&self.name, recording);
        let storage = Arc::new(Files);
        let target =
            CopyTarget::begin(storage, self.to, &mut self.archive, &source, moment::now())?;
        let blocks = self
            .from
            .blocks(recording.id, &target, self.arguments.follow)?;
        Ok(Copying {
            from: recording.id,
            blocks,
            target,
            reached: false,
        })
    }

    /// On a terminal, if wanted.
    fn bar(&self) -> Option<ProgressBar> {
        (!self.arguments.quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::no_length();
            if let Ok(style) =
                ProgressStyle::with_template(" {spinner} {bytes} copied, {bytes_per_sec}")
            {
                bar.set_style(style);
            }
            bar
        })
    }
}
