//! Atomic replacement of files: a file gets its name when it is complete and durable.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes the file at `path` with `fill`: under the name `PATH.partial`, then syncs it, renames it, and syncs the folder. When
/// this returns `Ok`, a power failure loses neither contents nor name; at any time before, `path` has its old contents. After an
/// error the partial file is removed.
///
/// A symbolic link stays and the file that it names is replaced. A file that is not regular (a terminal, a pipe) is written to
/// directly.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        let mut file = BufWriter::new(File::create(path)?);
        fill(&mut file)?;
        return file.flush();
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let partial = partial_of(&path);
    let written = File::create(&partial).and_then(|file| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.flush()
    });
    let kept = written.and_then(|()| keep_whole(&partial, &path));
    if kept.is_err() {
        // The error of the write is more useful than an error of this removal.
        let _ = fs::remove_file(&partial);
    }
    kept
}

/// The name of an incomplete file: `PATH.partial`.
pub fn partial_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    path.with_file_name(name)
}

/// Renames the complete file `partial` to `path`, which may exist: contents first, then the name, both durable.
pub fn keep_whole(partial: &Path, path: &Path) -> io::Result<()> {
    File::open(partial)?.sync_all()?;
    fs::rename(partial, path)?;
    sync_folder_of(path)
}

/// Creates a folder and its missing parents, and makes their names durable.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|it| !it.as_os_str().is_empty()) {
        create_folder(parent)?;
    }
    match fs::create_dir(folder) {
        // Another program created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made?,
    }
    sync_folder_of(folder)
}

/// Syncs the folder that contains `path`.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A temporary folder with the folder `a/b` in it.
    fn scratch() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        create_folder(&folder.path().join("a/b")).unwrap();
        folder
    }

    #[test]
    fn a_file_is_whole_or_what_it_was() {
        let folder = scratch();
        let path = folder.path().join("a/b/results.json");
        write_whole(&path, |out| out.write_all(b"first")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        let failed = write_whole(&path, |out| {
            out.write_all(&vec![7; 100_000])?;
            assert_eq!(fs::read(&path).unwrap(), b"first");
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        // Left over from a program that was killed.
        fs::write(partial_of(&path), [9; 1_000]).unwrap();
        write_whole(&path, |out| out.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = scratch();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        write_whole(Path::new("/dev/null"), |out| out.write_all(b"gone")).unwrap();
    }
}
