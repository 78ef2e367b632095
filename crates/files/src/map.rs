//! Mapped views of files, without a copy. The only file of this crate with unsafe code.

#[cfg(target_os = "linux")]
pub(crate) use linux::map;

/// Only Linux can populate pages with an error instead of a signal, so other systems read.
#[cfg(not(target_os = "linux"))]
pub(crate) fn map(
    _: &std::fs::File,
    _: u64,
) -> std::io::Result<Option<std::sync::Arc<dyn seatrial_machine::Mapped>>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
mod linux {
    use memmap2::{Advice, Mmap, MmapOptions};
    use seatrial_machine::Mapped;
    use std::fs::File;
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Bytes populated at a time; the same number is requested ahead. Large enough for sequential disk reads and for the
    /// cost of the calls to vanish; small enough for a few windows to stay in a processor's last-level cache.
    const WINDOW_LENGTH: usize = 4 << 20;
    /// Number of windows remembered as populated: this many readers of one view, at different places, avoid each other's
    /// system calls.
    const WINDOWS_REMEMBERED: usize = 8;
    /// The unit in which remembered ranges are counted; every page is a multiple.
    const UNIT: usize = 4096;

    // A remembered window is packed into 64 bits: its number (32 bits), then two counts of units (16 bits each).
    const _: () = assert!(WINDOW_LENGTH / UNIT < 1 << 16);
    // The table's slot is the window's number modulo its length, and units must not straddle windows.
    const _: () = assert!(WINDOWS_REMEMBERED > 0 && WINDOW_LENGTH.is_multiple_of(UNIT));

    /// A mapped file. Touching a page that the medium cannot return, or that is past the end of the file, would raise
    /// SIGBUS. Therefore every page is populated with MADV_POPULATE_READ first, a window at a time, and a failure of that
    /// call is an ordinary error.
    ///
    /// Limitation: under memory pressure the kernel may evict a populated page, and a later touch reads it again without
    /// the check. Only the last few windows are assumed to be resident, which keeps that interval short.
    #[derive(Debug)]
    struct FileMapping {
        map: Mmap,
        /// Windows populated lately, each in the slot of its number modulo the length: number << 32 | from << 16 | to, in
        /// units within the window; `to` is 0 in an empty slot.
        windows: [AtomicU64; WINDOWS_REMEMBERED],
    }

    /// Maps the first `length` bytes. `None` if the file cannot be mapped safely and has to be read.
    pub(crate) fn map(file: &File, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        if length == 0 || isize::try_from(length).is_err() {
            return Ok(None);
        }
        let mut options = MmapOptions::new();
        options.len(length);
        #[expect(unsafe_code, reason = "a mapping's bytes may be changed by others")]
        // SAFETY: files of blocks only grow at their end. Bytes below the end that a reader knows of are never changed, and
        // files are shortened by renaming a copy over them. If another program changes the bytes, checksums find it:
        // readers interpret them as integers and byte strings only, for which every bit pattern is valid.
        let map = unsafe { options.map(file) }?;
        match map.advise_range(Advice::PopulateRead, 0, 1) {
            // Linux before 5.14 does not know this advice.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            // Failing to populate the first page is reported when a reader asks for it.
            Ok(()) | Err(_) => {}
        }
        // Only a hint: twice the usual read-ahead, and pages already read are evicted first.
        let _ = map.advise(Advice::Sequential);
        assert_eq!(map.len(), length, "the view has the length asked for");
        Ok(Some(Arc::new(FileMapping {
            map,
            windows: Default::default(),
        })))
    }

    impl Mapped for FileMapping {
        fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]> {
            let bounds = usize::try_from(offset)
                .ok()
                .and_then(|start| Some((start, start.checked_add(length)?)))
                .filter(|&(_, end)| end <= self.map.len());
            let (start, end) = bounds.ok_or(io::ErrorKind::UnexpectedEof)?;
            let mut at = start;
            while at < end {
                let window = at / WINDOW_LENGTH;
                let stop = end.min((window + 1) * WINDOW_LENGTH);
                assert!(at < stop, "each round populates at least one byte");
                self.populate_window(window, at, stop)?;
                at = stop;
            }
            Ok(&self.map[start..end])
        }
    }

    impl FileMapping {
        /// Populates the bytes `start..end`, which lie in one window, and the rest of the window if the file has it.
        fn populate_window(&self, window: usize, start: usize, end: usize) -> io::Result<()> {
            let base = window * WINDOW_LENGTH;
            assert!(base <= start && end <= base + WINDOW_LENGTH);
            let from = (start - base) / UNIT;
            let to = (end - base).div_ceil(UNIT);
            let slot = &self.windows[window % WINDOWS_REMEMBERED];
            // Relaxed: no other memory depends on this word, and a stale value only costs a system call.
            let word = slot.load(Ordering::Relaxed);
            let known = (word >> 16 & 0xffff, word & 0xffff);
            let mine = word >> 32 == window as u64 && known.1 > 0;
            if mine && known.0 <= from as u64 && to as u64 <= known.1 {
                return Ok(());
            }
            let last = self.map.len().min(base + WINDOW_LENGTH);
            let reached = if self.populate(base + from * UNIT, last).is_ok() {
                // The next window is read from the medium while this one is used.
                let ahead = WINDOW_LENGTH.min(self.map.len() - last);
                let _ = self.map.advise_range(Advice::WillNeed, last, ahead);
                (last - base).div_ceil(UNIT)
            } else {
                // Part of the window is missing: the file ends in it (it may grow), or it has a bad page that the caller did
                // not ask for. Only the bytes asked for decide whether this is an error.
                self.populate(base + from * UNIT, end)?;
                to
            };
            // A range that overlaps or touches the remembered one extends it; any other replaces it.
            let joined = mine && known.0 <= from as u64 && from as u64 <= known.1;
            let from = if joined { known.0 } else { from as u64 };
            let word = (window as u64) << 32 | from << 16 | reached as u64;
            slot.store(word, Ordering::Relaxed);
            Ok(())
        }

        /// Populates the pages of `start..end`; an error if one of them cannot be read.
        fn populate(&self, start: usize, end: usize) -> io::Result<()> {
            loop {
                match self
                    .map
                    .advise_range(Advice::PopulateRead, start, end - start)
                {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(EFAULT) => {
                        // How the kernel reports a page past the end of the file, or one that the medium cannot return.
                        return Err(io::Error::other(format!(
                            "cannot map bytes {start} to {end}: the file is shorter, or the medium cannot be read there"
                        )));
                    }
                    other => return other,
                }
            }
        }
    }

    /// "Bad address": the error of MADV_POPULATE_READ where touching the page would raise SIGBUS.
    const EFAULT: i32 = 14;
}
