//! The disk of a node that can lose its power.

use seatrial_host::{JournalFlush, LoopDisk};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A file system of a node's own, mounted on its folder. Its calls block, so they run on threads of their own.
#[derive(Debug)]
pub(crate) struct NodePower {
    state: Arc<Mutex<PowerState>>,
    image: PathBuf,
}

#[derive(Debug)]
struct PowerState {
    disk: LoopDisk,
    /// Has the power been cut, so that the file system has to be mounted again?
    is_off: bool,
}

impl NodePower {
    /// Mounts an empty file system of this kind on the folder; its image is the file beside it.
    pub(crate) fn new(kind: &str, folder: &Path) -> io::Result<NodePower> {
        let image = folder.with_added_extension("image");
        let disk = LoopDisk::new(kind, LoopDisk::LENGTH, &image, folder)?;
        let state = PowerState {
            disk,
            is_off: false,
        };
        Ok(NodePower {
            state: Arc::new(Mutex::new(state)),
            image,
        })
    }

    /// Makes durable what the node has written.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        let synced = self.run(|state| state.disk.sync().map(|()| true)).await;
        synced.map(|_| ())
    }

    /// Cuts the power of a node whose process has ended: what it had not synced is lost. False if it is off already.
    pub(crate) async fn cut(&self) -> io::Result<bool> {
        self.run(|state| {
            if state.is_off {
                return Ok(false);
            }
            state.disk.cut(JournalFlush::Nothing)?;
            state.is_off = true;
            Ok(true)
        })
        .await
    }

    /// Gives the power back, if it is off.
    pub(crate) async fn restore(&self) -> io::Result<bool> {
        self.run(|state| {
            if !state.is_off {
                return Ok(false);
            }
            state.disk.unmount()?;
            state.disk.mount()?;
            state.is_off = false;
            Ok(true)
        })
        .await
    }

    async fn run(
        &self,
        act: impl FnOnce(&mut PowerState) -> io::Result<bool> + Send + 'static,
    ) -> io::Result<bool> {
        let state = Arc::clone(&self.state);
        let acted = tokio::task::spawn_blocking(move || {
            act(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
        });
        acted.await.map_err(io::Error::other)?
    }
}

impl Drop for NodePower {
    fn drop(&mut self) {
        // The disk, which unmounts itself afterwards, has it open.
        let _ = fs::remove_file(&self.image);
    }
}
