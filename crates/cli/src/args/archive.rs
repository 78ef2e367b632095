//! What can be typed after `archive`.

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
pub(crate) struct ArchiveArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ArchiveVerb,
    /// Key that server and clients share, 16 to 4,096 bytes in a file; neither talks to one that does not know it.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// The verbs.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ArchiveVerb {
    /// Record messages from standard input: each line is one.
    Record(RecordArguments),
    /// Print the messages of a recording, past ones and those to come.
    Replay(ReplayArguments),
    /// List recordings.
    List(ListArguments),
    /// Tell all about one recording and its files.
    Describe(RecordingArguments),
    /// Check every byte; tell file, position, expected and found value of damage.
    Verify(VerifyArguments),
    /// Print a checksum of the messages of each recording, or compare those of two archives.
    Checksum(ChecksumArguments),
    /// Make a damaged or lost catalog again, from what can still be read of it and from the files.
    RepairCatalog(RepairCatalogArguments),
    /// Make the catalog as short as it can be.
    Compact(PlaceArguments),
    /// Copy recordings from one archive into another; goes on where an earlier copy ended.
    Copy(CopyArguments),
    /// Serve an archive over TCP.
    Serve(ServeArguments),
    /// Cut the end of a recording off.
    Truncate(TruncateArguments),
    /// Remove old segments.
    Purge(BeforeArguments),
    /// Take old segments out of a recording; their files stay.
    Detach(BeforeArguments),
    /// Take detached segments in again.
    Attach(RecordingArguments),
    /// Remove a recording.
    Delete(RecordingArguments),
    /// Give a recording another label.
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
    after_help = "Ends with the input, or with Ctrl-C; what was read until then is recorded.\n\
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
    /// A folder, made when missing, or tcp://HOST:PORT.
    pub(crate) archive: String,
    /// Label of the new recording.
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "extend",
        default_value = ""
    )]
    pub(crate) label: String,
    /// Go on with this recording, by number or label, instead of a new one.
    #[arg(long, value_name = "RECORDING")]
    pub(crate) extend: Option<String>,
    /// What a loss of power may take: none (what was not written back), `group[:MS[:BYTES]]` (the last milliseconds), batch
    /// (nothing that was acknowledged as written) [default: group:20].
    #[arg(long, value_name = "LEVEL", conflicts_with = "extend")]
    pub(crate) durability: Option<String>,
    /// A CRC-32C for each message besides that of its block.
    #[arg(long)]
    pub(crate) frame_checksum: bool,
    /// Begin the next segment after so many bytes.
    #[arg(long, value_name = "BYTES", conflicts_with = "extend")]
    pub(crate) segment_length: Option<u64>,
    /// Read this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Each message has its length before it, 4 bytes, little-endian; without it, each line is a message.
    #[arg(long)]
    pub(crate) framed: bool,
    /// After each write a line with how many messages are written, how many of them durable, and the position.
    #[arg(long)]
    pub(crate) acknowledge: bool,
    /// One JSON document on standard output instead of text; with --acknowledge, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `seatrial archive replay`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "TIME is 2026-11-21T09:30:00Z (also without seconds or the time of day), or how long ago: 90s, 15m, 2h, 7d.\n\
Examples:\n\
  seatrial archive replay logs app --from-time 15m | grep ERROR\n\
  seatrial archive replay logs app --follow --output json"
)]
pub(crate) struct ReplayArguments {
    /// A folder, or tcp://HOST:PORT.
    pub(crate) archive: String,
    /// Number or label.
    pub(crate) recording: String,
    /// Begin with the first message at or behind this position.
    #[arg(long, value_name = "POSITION", group = "begin")]
    pub(crate) from: Option<u64>,
    /// Begin with the first batch that was written at this time or later.
    #[arg(long, value_name = "TIME", group = "begin")]
    pub(crate) from_time: Option<String>,
    /// Begin with this message, counted from 0.
    #[arg(long, value_name = "N", group = "begin")]
    pub(crate) from_message: Option<u64>,
    /// End before the message at this position.
    #[arg(long, value_name = "POSITION", conflicts_with = "follow")]
    pub(crate) to: Option<u64>,
    /// Print at most this many messages.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// At the end, wait for more, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// lines; framed (4 bytes of length before each, as record --framed reads); json (an object a line); raw (back to
    /// back).
    #[arg(short, long, value_name = "FORM", default_value = "lines")]
    pub(crate) output: String,
}

/// `seatrial archive list`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A time is 2026-11-21T09:30:00Z, or how long ago: 90s, 15m, 2h, 7d.\n\
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
    /// Only recordings of which something was recorded at this time or later.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only recordings that were begun at this time or before.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only recordings that hold this position.
    #[arg(long, value_name = "POSITION")]
    pub(crate) position: Option<u64>,
}

/// `seatrial archive verify`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 every byte is as it was written, 1 damage was found (also when it was repaired), 254 error.\n\
Example: seatrial archive verify logs, then seatrial archive verify logs 3 --repair"
)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Number or label [default: all].
    pub(crate) recording: Option<String>,
    /// Cut each damaged recording off where its damage begins; what is cut off is kept in files beside it.
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
    after_help = "The catalog as it was is kept as catalog.damaged. Recordings that no readable event tells of are found by \
their files and have no label then; what was detached, or deleted while the event of that is lost, may come back.\n\
Exit status: 0 the catalog was whole and is left alone, 1 it was damaged and was made again, 254 error.\n\
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
    after_help = "Exit status: 0 printed, or all alike; 1 a difference (--against); 254 error.\n\
Example: seatrial archive checksum logs --against /backup/logs"
)]
pub(crate) struct ChecksumArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Number or label [default: all].
    pub(crate) recording: Option<String>,
    /// Compare with this archive: each recording with its copy or its original, else with that of the same number.
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) against: Option<String>,
}

/// `seatrial archive copy`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A copy remembers where it came from. The same command again goes on where the last one ended, however it ended.\n\
Example: seatrial archive copy tcp://127.0.0.1:7600 /backup/logs --follow"
)]
pub(crate) struct CopyArguments {
    /// The archive to copy from: a folder, or tcp://HOST:PORT.
    pub(crate) from: String,
    /// The archive to copy to: a folder, made when missing, or tcp://HOST:PORT.
    pub(crate) to: String,
    /// Only this recording, by number or label; may be given several times.
    #[arg(long, value_name = "RECORDING")]
    pub(crate) recording: Vec<String>,
    /// At the end, wait for more, until Ctrl-C.
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
    after_help = "Ends with Ctrl-C or SIGTERM. Without --key-file every client that reaches the address may do everything. The key \
authenticates a connection when it begins; nothing is encrypted.\n\
Examples:\n\
  seatrial archive serve logs --listen 127.0.0.1:7600\n\
  head -c 32 /dev/urandom | base64 > key, then seatrial archive serve logs --key-file key"
)]
pub(crate) struct ServeArguments {
    /// A folder, made when missing.
    pub(crate) archive: PathBuf,
    /// Address and port to listen on; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7600")]
    pub(crate) listen: SocketAddr,
    /// Mebibytes that all clients together can make the server hold, at least 64.
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) memory: u32,
}

/// `seatrial archive truncate`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: seatrial archive truncate logs app --to 1048576")]
pub(crate) struct TruncateArguments {
    #[command(flatten)]
    pub(crate) recording: RecordingArguments,
    /// Keep messages whose frames start before this position.
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
