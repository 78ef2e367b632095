//! `seatrial archive`: recordings on the command line, in a folder or on a server.

mod checksum;
mod copy;
mod entry;
mod folder;
mod list;
mod manage;
mod messages;
mod moment;
mod place;
mod printer;
mod record;
mod remote;
mod repair;
mod replay;
mod serve;
mod verify;

use crate::args::{ArchiveArguments, ArchiveVerb};
use crate::exit::Exit;
use anyhow::Result;
use seatrial_host::SecretKey;

/// Carries the verb out.
pub(crate) fn run(arguments: &ArchiveArguments) -> Result<Exit> {
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
