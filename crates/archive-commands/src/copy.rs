//! `seatrial archive copy`: blocks as they are, at the same positions, from where the copy ends.

use crate::archive_arguments::CopyArguments;
use crate::archive_place::ArchivePlace;
use crate::entry::RecordingEntry;
use crate::local;
use crate::moment;
use crate::remote::{self, ALIVE_INTERVAL, NextPiece, Pieces, Remote};
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use seatrial_archive::{
    Archive, Cursor, CursorBound, Origin, Pause, Position, Recording, RecordingId,
};
use seatrial_archive_service::{
    CopyError, CopySource, CopyTarget, ListFilter, PushTarget, RefusalCode, RemoteError,
    ReplayBound, ReplayRequest,
};
use seatrial_blocks::file::ReadFiles;
use seatrial_machine::counted;
use seatrial_terminal::{Exit, Interrupt, say};
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the source is looked at for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often it is looked at for new recordings.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// So long a copy waits for one before it that the server takes for alive, longer than a session may be silent …
const CLAIM_PATIENCE: Duration = Duration::from_secs(15);
/// … and how often it asks.
const CLAIM_INTERVAL: Duration = Duration::from_millis(200);
/// Blocks or pieces of one recording before the others have their turn.
const TURN_BLOCKS: usize = 64;

/// Where recordings are copied from.
enum Origins {
    Folder(PathBuf),
    Server(SocketAddr, Box<Remote>),
}

impl Origins {
    fn new(place: &ArchivePlace) -> Result<Origins> {
        Ok(match place {
            ArchivePlace::Folder(path) => {
                local::view(path)?;
                Origins::Folder(path.clone())
            }
            ArchivePlace::Server(address) => {
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
                let view = local::look(path)?;
                let catalog = &view.catalog;
                let find = |wanted: &String| local::find(catalog, wanted, path).cloned();
                let found: Vec<Recording> = match wanted {
                    [] => catalog.recordings().cloned().collect(),
                    _ => wanted.iter().map(find).collect::<Result<_>>()?,
                };
                for (id, problem) in view.problems {
                    if found.iter().any(|recording| recording.id == id) {
                        return Err(problem).with_context(|| format!("recording {id}"));
                    }
                }
                Ok(found)
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
                    .map(|RecordingEntry(recording)| recording)
                    .collect())
            }
        }
    }

    /// Its blocks from where the copy ends.
    fn blocks(&self, id: RecordingId, origin: Origin, follow: bool) -> Result<Blocks> {
        match self {
            Origins::Folder(path) => {
                let bound = if follow {
                    CursorBound::Follow
                } else {
                    CursorBound::End
                };
                let cursor = Cursor::open(Arc::new(ReadFiles), path, id, origin, bound)?;
                Ok(Blocks::Folder(Box::new(cursor)))
            }
            Origins::Server(address, _) => {
                let request = ReplayRequest {
                    recording: id.0,
                    from: remote::from(origin),
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

/// Where recordings are copied to.
enum Destination {
    Folder(PathBuf, Archive),
    Server(Box<Remote>),
}

impl Destination {
    fn new(place: &ArchivePlace) -> Result<Destination> {
        Ok(match place {
            ArchivePlace::Folder(path) => Destination::Folder(path.clone(), local::open(path)?),
            ArchivePlace::Server(address) => {
                Destination::Server(Box::new(remote::connect(*address)?))
            }
        })
    }

    /// Resumes the copy of a recording, or begins one.
    fn begin(&mut self, source: &CopySource) -> Result<CopyDestination, CopyError> {
        Ok(match self {
            Destination::Folder(path, archive) => {
                let files = Arc::new(ReadFiles);
                let target = CopyTarget::begin(files, path, archive, source, moment::now());
                CopyDestination::Folder(Box::new(target?))
            }
            Destination::Server(remote) => CopyDestination::Server(push(remote, source)?),
        })
    }

    /// Takes the next block.
    fn append(
        &mut self,
        target: &mut CopyDestination,
        position: Position,
        bytes: &[u8],
    ) -> Result<()> {
        match (self, target) {
            (Destination::Server(remote), CopyDestination::Server(target)) => {
                target.append(remote, position, bytes)?;
            }
            (_, CopyDestination::Folder(target)) => {
                target.append(position, bytes, moment::now())?;
            }
            _ => bail!("a copy in another place"),
        }
        Ok(())
    }

    /// What is to be done now and then, also while nothing comes.
    fn tick(&mut self, target: &mut CopyDestination, has_news: bool, is_due: bool) -> Result<()> {
        match (self, target) {
            (Destination::Server(remote), CopyDestination::Server(target)) => {
                if has_news || is_due {
                    target.settle(remote)?;
                }
            }
            (_, CopyDestination::Folder(target)) => target.tick(moment::now())?,
            _ => bail!("a copy in another place"),
        }
        Ok(())
    }

    /// What it recorded is stopped at once, also when it could not be said so before.
    fn end(self) -> Result<()> {
        if let Destination::Server(remote) = self {
            remote.goodbye()?;
        }
        Ok(())
    }

    /// Ends a copy for now.
    fn stop(&mut self, target: CopyDestination) -> Result<()> {
        match (self, target) {
            (Destination::Server(remote), CopyDestination::Server(target)) => {
                target.stop(remote)?
            }
            (_, CopyDestination::Folder(target)) => target.stop(moment::now())?,
            _ => bail!("a copy in another place"),
        };
        Ok(())
    }
}

/// Begins a copy in a server. One that was killed while it copied the same is waited for: the server ends its session when it
/// has been silent for some time.
fn push(remote: &mut Remote, source: &CopySource) -> Result<PushTarget, CopyError> {
    let began = Instant::now();
    loop {
        match PushTarget::begin(remote, source) {
            Err(CopyError::Target(RemoteError::Refused(refusal)))
                if refusal.code == RefusalCode::Recording && began.elapsed() < CLAIM_PATIENCE =>
            {
                std::thread::sleep(CLAIM_INTERVAL);
            }
            begun => return begun,
        }
    }
}

/// A copy that is being written.
enum CopyDestination {
    Folder(Box<CopyTarget>),
    Server(PushTarget),
}

impl CopyDestination {
    fn from(&self) -> Origin {
        match self {
            CopyDestination::Folder(target) => Origin::Position(target.from()),
            CopyDestination::Server(target) => target.from(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            CopyDestination::Folder(target) => target.bytes(),
            CopyDestination::Server(target) => target.bytes(),
        }
    }

    fn json(&self, from: RecordingId) -> Value {
        let (recording, messages, end) = match self {
            CopyDestination::Folder(target) => {
                (target.recording(), target.messages(), target.end())
            }
            CopyDestination::Server(target) => {
                (target.recording(), target.messages(), target.end())
            }
        };
        json!({
            "recording": recording.0,
            "from_recording": from.0,
            "messages": messages,
            "bytes": self.bytes(),
            "position": end.0,
        })
    }
}

/// One recording on its way.
struct Copying {
    from: RecordingId,
    blocks: Blocks,
    target: CopyDestination,
    reached: bool,
    /// When something was sent last.
    settled: Instant,
    /// Has anything come since?
    has_news: bool,
}

impl Copying {
    /// Copies some blocks; false when there are none.
    fn turn(&mut self, to: &mut Destination) -> Result<bool> {
        let mut count = 0;
        while count < TURN_BLOCKS && !self.reached && self.next(to)? {
            count += 1;
        }
        let is_due = self.settled.elapsed() >= ALIVE_INTERVAL;
        // While more comes at once, what was sent need not be waited for.
        let has_news = self.has_news && count < TURN_BLOCKS;
        to.tick(&mut self.target, has_news, is_due)?;
        if has_news || is_due {
            self.settled = Instant::now();
            self.has_news = false;
        }
        Ok(count > 0)
    }

    fn next(&mut self, to: &mut Destination) -> Result<bool> {
        match &mut self.blocks {
            Blocks::Folder(cursor) => {
                let Some(block) = cursor.next_block()? else {
                    self.reached = cursor.pause() == Pause::Reached;
                    return Ok(false);
                };
                let (bytes, position) = block.stored();
                to.append(&mut self.target, position, bytes)?;
            }
            Blocks::Server(pieces) => match pieces.next(Duration::ZERO)? {
                NextPiece::Piece(piece) => {
                    for block in piece.blocks() {
                        to.append(&mut self.target, Position(block.position), block.bytes)?;
                    }
                }
                NextPiece::Nothing => return Ok(false),
                NextPiece::End => {
                    self.reached = true;
                    return Ok(false);
                }
            },
        }
        self.has_news = true;
        Ok(true)
    }
}

/// Copies of recordings.
struct Copy<'a> {
    arguments: &'a CopyArguments,
    from: Origins,
    name: String,
    to: Destination,
    copying: Vec<Copying>,
}

/// Carries the verb out.
pub(crate) fn run(arguments: &CopyArguments) -> Result<Exit> {
    let (from, to) = (
        ArchivePlace::parse(&arguments.from)?,
        ArchivePlace::parse(&arguments.to)?,
    );
    ensure!(from != to, "{from}: an archive is not copied into itself");
    let origins = Origins::new(&from)?;
    let interrupt = Interrupt::listen(|| {})?;
    let mut copy = Copy {
        arguments,
        name: origins.name().with_context(|| from.to_string())?,
        from: origins,
        to: Destination::new(&to)?,
        copying: Vec::new(),
    };
    let outcome = copy.run(&interrupt);
    // Also after an error: what was copied is kept, and the next call resumes there.
    let mut copied = Vec::new();
    let mut stopped = Ok(());
    for mut one in copy.copying {
        let settled = copy.to.tick(&mut one.target, true, true);
        copied.push(one.target.json(one.from));
        let ended = settled.and_then(|()| copy.to.stop(one.target));
        stopped = stopped.and(ended.with_context(|| to.to_string()));
    }
    let ended = copy.to.end().with_context(|| to.to_string());
    outcome
        .and(stopped)
        .and(ended)
        .with_context(|| format!("{from} to {to}"))?;
    if arguments.json {
        say!(
            "{:#}",
            json!({"from": from.to_string(), "to": to.to_string(), "recordings": copied})
        );
    } else {
        for one in copied {
            say!(
                "recording {} of {from} to {}: {}, {}; the copy ends at {}",
                one["from_recording"],
                one["recording"],
                counted(one["messages"].as_u64().unwrap_or_default(), "message"),
                counted(one["bytes"].as_u64().unwrap_or_default(), "byte"),
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
        while !interrupt.is_requested() {
            let mut busy = false;
            for one in &mut self.copying {
                busy |= one
                    .turn(&mut self.to)
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

    /// Resumes the copy of a recording, or begins one.
    fn begin(&mut self, recording: &Recording) -> Result<Copying> {
        let source = CopySource::folder(&self.name, recording);
        let target = self.to.begin(&source)?;
        let blocks = self
            .from
            .blocks(recording.id, target.from(), self.arguments.follow)?;
        Ok(Copying {
            from: recording.id,
            blocks,
            target,
            reached: false,
            settled: Instant::now(),
            has_news: false,
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
