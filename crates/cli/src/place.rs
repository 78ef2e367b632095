//! Where a result goes.

use anyhow::{Context as _, Result, ensure};
use seatrial_host::{keep_whole, partial_of};
use std::fs;
use std::path::{Path, PathBuf};

/// A file that appears under its name only when it is complete: written beside it as `NAME.partial`, renamed in the end,
/// removed when it is given up.
pub(crate) struct Place {
    path: PathBuf,
    partial: PathBuf,
    force: bool,
    kept: bool,
}

impl Place {
    /// A place for `path`, which must not exist unless with `force`.
    pub(crate) fn new(path: &Path, force: bool) -> Result<Place> {
        path.file_name().with_context(|| {
            let path = path.display();
            format!("{path}: not the name of a file")
        })?;
        let place = Place {
            path: path.to_owned(),
            partial: partial_of(path),
            force,
            kept: false,
        };
        place.free()?;
        // Left over from a program that was killed.
        let _ = fs::remove_file(&place.partial);
        Ok(place)
    }

    fn free(&self) -> Result<()> {
        let path = self.path.display();
        ensure!(
            self.force || fs::symlink_metadata(&self.path).is_err(),
            "{path}: exists already; --force overwrites it"
        );
        ensure!(!self.path.is_dir(), "{path}: is a folder");
        Ok(())
    }

    /// Where to write.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Gives the complete file its name; both are durable then.
    pub(crate) fn keep(mut self) -> Result<()> {
        self.free()?;
        keep_whole(&self.partial, &self.path).with_context(|| self.path.display().to_string())?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.partial);
        }
    }
}
