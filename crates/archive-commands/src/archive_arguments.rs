//! The arguments of `archive`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `seatrial archive`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "ARCHIVE is a folder, or tcp://HOST:PORT where `seatrial archive serve` listens. RECORDING is a number, \
or the label of the newest recording that has it.\n\
Exit status: 0 done, 1 damage or a difference was found (verify, checksum), 254 error.\n\
Example: journalctl -f | seatrial archive record logs --label journal, then \
seatrial archive replay logs journal --follow"
)]
pub struct ArchiveArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ArchiveVerb,
    /// File with the key that server and clients share, 16 to 4,096 bytes; connections without it are refused.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// The verbs.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ArchiveVerb {
    /// Record messages from standard input: each line is one.
    Record(RecordArguments),
    /// Print the messages of a recording, from the past and live.
    Replay(ReplayArguments),
    /// List recordings.
    List(ListArguments),
    /// Show a recording's details and files.
    Describe(RecordingArguments),
    /// Check every byte; report file, offset, expected and actual value of damage.
    Verify(VerifyArguments),
    /// Print a checksum of the messages of each recording, or compare those of two archives.
    Checksum(ChecksumArguments),
    /// Rebuild a damaged or lost catalog from its readable events and the files.
    RepairCatalog(RepairCatalogArguments),
    /// Compact the catalog.
    Compact(PlaceArguments),
    /// Copy recordings from one archive into another; resumes an interrupted copy.
    Copy(CopyArguments),
    /// Serve an archive over TCP.
    Serve(ServeArguments),
    /// Truncate a recording.
    Truncate(TruncateArguments),
    /// Remove old segments.
    Purge(BeforeArguments),
    /// Detach old segments from a recording; their files stay.
    Detach(BeforeArguments),
    /// Attach detached segments again.
    Attach(RecordingArguments),
    /// Remove a recording.
    Delete(RecordingArguments),
    /// Change the label of a recording.
    Label(LabelArguments),
}

/// An archive.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArguments {
    /// A folder, or tcp://HOST:PORT.
    pub(crate) archive: String,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A recording of an archive.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordingArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Its number or label.
    pub(crate) recording: String,
}

/// `seatrial archive record`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Ends with the input, or with Ctrl-C; everything read by then is recorded.\n\
Examples:\n\
  tail -F app.log | seatrial archive record logs --label app --durability group:20\n\
  seatrial archive record logs --extend app --file more.txt\n\
  producer | seatrial archive record tcp://127.0.0.1:7600 --label orders --framed --durability batch"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch on the command line"
)]
pub(crate) struct RecordArguments {
    /// A folder, created when missing, or tcp://HOST:PORT.
    pub(crate) archive: String,
    /// Label of the new recording.
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "extend",
        default_value = ""
    )]
    pub(crate) label: String,
    /// Extend this recording, by number or label, instead of beginning a new one.
    #[arg(long, value_name = "RECORDING")]
    pub(crate) extend: Option<String>,
    /// Durability: what a power failure may lose: none (unsynced data), `group[:MS[:BYTES]]` (the last milliseconds), batch
    /// (nothing that was acknowledged) [default: group:20].
    #[arg(long, value_name = "LEVEL", conflicts_with = "extend")]
    pub(crate) durability: Option<String>,
    /// Add a CRC-32C to each message, in addition to that of its block.
    #[arg(long)]
    pub(crate) frame_checksum: bool,
    /// Length of a segment in bytes.
    #[arg(long, value_name = "BYTES", conflicts_with = "extend")]
    pub(crate) segment_length: Option<u64>,
    /// Read this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Messages are framed by a length of 4 bytes, little-endian [default: each line is a message].
    #[arg(long)]
    pub(crate) framed: bool,
    /// Print a line after each write: messages written, messages durable, position.
    #[arg(long)]
    pub(crate) acknowledge: bool,
    /// One JSON document on standard output instead of text; with --acknowledge, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `seatrial archive replay`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "TIME is 2026-11-21T09:30:00Z (seconds and time of day optional), or an age: 90s, 15m, 2h, 7d.\n\
Examples:\n\
  seatrial archive replay logs app --from-time 15m | grep ERROR\n\
  seatrial archive replay logs app --follow --output json"
)]
pub(crate) struct ReplayArguments {
    /// A folder, or tcp://HOST:PORT.
    pub(crate) archive: String,
    /// Number or label.
    pub(crate) recording: String,
    /// Start at the first message at or after this position.
    #[arg(long, value_name = "POSITION", group = "begin")]
    pub(crate) from: Option<u64>,
    /// Start at the first batch written at this time or later.
    #[arg(long, value_name = "TIME", group = "begin")]
    pub(crate) from_time: Option<String>,
    /// Start at this message, counted from 0.
    #[arg(long, value_name = "N", group = "begin")]
    pub(crate) from_message: Option<u64>,
    /// Stop before the message at this position.
    #[arg(long, value_name = "POSITION", conflicts_with = "follow")]
    pub(crate) to: Option<u64>,
    /// Print at most this many messages.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Wait for new messages at the end, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Output format: lines; framed (4 bytes of length before each, as record --framed reads); json (an object per
    /// line); raw (no separator).
    #[arg(short, long, value_name = "FORM", default_value = "lines")]
    pub(crate) output: String,
}

/// `seatrial archive list`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A time is 2026-11-21T09:30:00Z, or an age: 90s, 15m, 2h, 7d.\n\
Examples: seatrial archive list logs --label app --at 2026-11-21T09:30:00Z\n          seatrial archive list logs --since 2h --until 30m"
)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Only recordings whose label contains this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Only recordings that were recorded at this time.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["since", "until"])]
    pub(crate) at: Option<String>,
    /// Only recordings with messages recorded at this time or later.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only recordings that were begun at this time or before.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only recordings that contain this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) position: Option<u64>,
}

/// `seatrial archive verify`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 no damage, 1 damage found (also when repaired), 254 error.\n\
Example: seatrial archive verify logs, then seatrial archive verify logs 3 --repair"
)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Number or label [default: all].
    pub(crate) recording: Option<String>,
    /// Truncate each damaged recording where its damage begins; the rest is kept in files beside it.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Threads [default: one per core].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `seatrial archive repair-catalog`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The damaged catalog is kept as catalog.damaged. Recordings without a readable event are found by their \
files and lose their label; detached segments, and deleted recordings whose event is lost, may reappear.\n\
Exit status: 0 the catalog was whole and is unchanged, 1 it was damaged and was rebuilt, 254 error.\n\
Example: seatrial archive repair-catalog logs"
)]
pub(crate) struct RepairCatalogArguments {
    /// A folder that no process records into.
    pub(crate) archive: String,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `seatrial archive checksum`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 printed, or all equal; 1 a difference (--against); 254 error.\n\
Example: seatrial archive checksum logs --against /backup/logs"
)]
pub(crate) struct ChecksumArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Number or label [default: all].
    pub(crate) recording: Option<String>,
    /// Compare with this archive: each recording with its copy or original, else with the same number.
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) against: Option<String>,
}

/// `seatrial archive copy`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A copy remembers its origin: the same command again resumes it, however the last one ended.\n\
Example: seatrial archive copy tcp://127.0.0.1:7600 /backup/logs --follow"
)]
pub(crate) struct CopyArguments {
    /// The archive to copy from: a folder, or tcp://HOST:PORT.
    pub(crate) from: String,
    /// The archive to copy to: a folder, created when missing, or tcp://HOST:PORT.
    pub(crate) to: String,
    /// Copy only this recording, by number or label; may be repeated.
    #[arg(long, value_name = "RECORDING")]
    pub(crate) recording: Vec<String>,
    /// Wait for new messages at the end, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One JSON document on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `seatrial archive serve`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Ends with Ctrl-C or SIGTERM. Without --key-file any client that reaches the address has full access. The key \
authenticates a connection when it opens; nothing is encrypted.\n\
Examples:\n\
  seatrial archive serve logs --listen 127.0.0.1:7600\n\
  head -c 32 /dev/urandom | base64 > key, then seatrial archive serve logs --key-file key"
)]
pub(crate) struct ServeArguments {
    /// A folder, created when missing.
    pub(crate) archive: PathBuf,
    /// Address and port to listen on; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7600")]
    pub(crate) listen: SocketAddr,
    /// Memory for all clients together, in MiB, at least 64.
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) memory: u32,
}

/// `seatrial archive truncate`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial archive truncate logs app --to 1048576")]
pub(crate) struct TruncateArguments {
    #[command(flatten)]
    pub(crate) recording: RecordingArguments,
    /// Keep the messages whose frames start before this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) to: u64,
}

/// `seatrial archive purge` and `detach`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial archive purge logs app --before 1073741824")]
pub(crate) struct BeforeArguments {
    #[command(flatten)]
    pub(crate) recording: RecordingArguments,
    /// Segments that end at or before this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) before: u64,
}

/// `seatrial archive label`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial archive label logs 3 app-2026-11")]
pub(crate) struct LabelArguments {
    #[command(flatten)]
    pub(crate) recording: RecordingArguments,
    /// The new label.
    pub(crate) label: String,
}
