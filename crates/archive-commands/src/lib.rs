//! The commands `seatrial archive`: recordings on the command line, in a folder or on a server.
//!
//! [`ArchiveArguments`] is the part of the command line, made by clap; [`run`] carries the verb out. What a command prints and
//! how it ends is that of the whole program (`seatrial_terminal`).
//!
//! ```text
//!                        ┌─► local ──► Archive, Cursor (crate archive)
//!  verb ──► ArchivePlace ┤
//!                        └─► remote ──► RemoteArchive (crate archive-service), over a link of the host
//! ```
//!
//! # Reading order
//!
//! `lib.rs`, `archive_arguments.rs`, `archive_place.rs` (a folder or a server), `local.rs` and `remote.rs` (what both can do),
//! `entry.rs` (a recording as text and JSON), `moment.rs` (times), then a file for each verb: `record.rs` with `messages.rs` (the
//! input), `replay.rs` with `printer.rs` (the output), `list.rs`, `verify.rs`, `checksum.rs`, `repair.rs`, `copy.rs`, `serve.rs`,
//! `manage.rs` (the others).
//!
//! # What is absent
//!
//! - No byte of an archive or of its protocol: `seatrial_archive` and `seatrial_archive_service` have them.
//! - No history, checker or suite: an archive knows only messages.
//! - No colour and no other way to the screen than `seatrial_terminal`, but for messages that are replayed (`printer.rs`) and
//!   bars of progress.

mod archive_arguments;
mod archive_place;
mod checksum;
mod copy;
mod entry;
mod list;
mod local;
mod manage;
mod messages;
mod moment;
mod printer;
mod record;
mod remote;
mod repair;
mod replay;
mod serve;
mod verify;

use anyhow::Result;
use archive_arguments::ArchiveVerb;
use seatrial_host::SecretKey;
use seatrial_terminal::Exit;

pub use archive_arguments::ArchiveArguments;

/// Carries a verb of `seatrial archive` out.
pub fn run(arguments: &ArchiveArguments) -> Result<Exit> {
    let key = arguments.key_file.as_deref();
    let key = key.map(SecretKey::read_and_warn).transpose()?;
    remote::use_key(key.clone());
    match &arguments.verb {
        ArchiveVerb::Record(arguments) => record::run(arguments),
        ArchiveVerb::Replay(arguments) => replay::run(arguments),
        ArchiveVerb::List(arguments) => list::list(arguments),
        ArchiveVerb::Describe(arguments) => list::describe(arguments),
        ArchiveVerb::Verify(arguments) => verify::run(arguments),
        ArchiveVerb::Checksum(arguments) => checksum::run(arguments),
        ArchiveVerb::RepairCatalog(arguments) => repair::run(arguments),
        ArchiveVerb::Compact(arguments) => manage::compact(arguments),
        ArchiveVerb::Copy(arguments) => copy::run(arguments),
        ArchiveVerb::Serve(arguments) => serve::run(arguments, key),
        ArchiveVerb::Truncate(arguments) => manage::truncate(arguments),
        ArchiveVerb::Purge(arguments) => manage::purge(arguments),
        ArchiveVerb::Detach(arguments) => manage::detach(arguments),
        ArchiveVerb::Attach(arguments) => manage::attach(arguments),
        ArchiveVerb::Delete(arguments) => manage::delete(arguments),
        ArchiveVerb::Label(arguments) => manage::label(arguments),
    }
}
