//! Which archive is meant: a folder, or a server.

use anyhow::{Context as _, Result, bail};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

/// Where an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArchivePlace {
    /// In this folder.
    Folder(PathBuf),
    /// On the server at this address (`seatrial archive serve`).
    Server(SocketAddr),
}

impl ArchivePlace {
    /// A path, or `tcp://HOST:PORT`.
    pub(crate) fn parse(text: &str) -> Result<ArchivePlace> {
        if let Some(address) = text.strip_prefix("tcp://") {
            let mut found = address.to_socket_addrs().with_context(|| {
                format!("{text}: not an address; an address is tcp://HOST:PORT")
            })?;
            let address = found
                .next()
                .with_context(|| format!("{text}: leads nowhere"))?;
            return Ok(ArchivePlace::Server(address));
        }
        if let Some((scheme, _)) = text.split_once("://") {
            bail!("{text}: {scheme} is not spoken; an archive is a folder or tcp://HOST:PORT");
        }
        if text.is_empty() {
            bail!("an archive is a folder or tcp://HOST:PORT, not an empty name");
        }
        Ok(ArchivePlace::Folder(PathBuf::from(text)))
    }

    /// The folder, for verbs that work on files.
    pub(crate) fn folder(&self) -> Result<&Path> {
        match self {
            ArchivePlace::Folder(path) => Ok(path),
            ArchivePlace::Server(_) => {
                bail!("{self}: this works on files; run it where the folder is")
            }
        }
    }
}

impl fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchivePlace::Folder(path) => path.display().fmt(f),
            ArchivePlace::Server(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ArchivePlace;
    use std::path::PathBuf;

    #[test]
    fn folders_and_addresses() {
        assert_eq!(
            ArchivePlace::parse("a/b:c").unwrap(),
            ArchivePlace::Folder(PathBuf::from("a/b:c"))
        );
        let server = ArchivePlace::parse("tcp://127.0.0.1:7600").unwrap();
        assert_eq!(
            server,
            ArchivePlace::Server("127.0.0.1:7600".parse().unwrap())
        );
        assert_eq!(server.to_string(), "tcp://127.0.0.1:7600");
        for text in ["tcp://127.0.0.1", "tcp://", "http://127.0.0.1:1", ""] {
            assert!(ArchivePlace::parse(text).is_err(), "{text}");
        }
    }
}
