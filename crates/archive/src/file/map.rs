//! Views of files without a copy. The only file of this crate with unsafe code.

#[cfg(target_os = "linux")]
pub(super) use linux::map;

/// Nowhere else can pages be brought in with an error instead of a signal.
#[cfg(not(target_os = "linux"))]
pub(super) fn map(
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

    /// Pages are brought in by this many bytes at a time, and as many again are asked for ahead. Large enough that a disk
    /// reads in one go and that the calls cost nothing; small enough for a few to stay in a processor's last cache.
    const WINDOW_LENGTH: usize = 4 << 20;
    /// So many windows are remembered as brought in: readers of one view that do not wait for each other's system calls.
    const WINDOWS_REMEMBERED: usize = 8;
    /// The unit in which remembered ranges are counted; every page is a multiple.
    const UNIT: usize = 4096;

    // A remembered window is its number above two counts of units, of 16 bits each.
    const _: () = assert!(WINDOW_LENGTH / UNIT < 1 << 16);

    /// A mapped file. Touching a page that the medium cannot give, or that is behind the file's end, would be a signal
    /// (SIGBUS), so every page is brought in with MADV_POPULATE_READ first, by windows, and then a failure is an error.
    ///
    /// Its downside: what was brought in may be dropped by the kernel when memory is short, and then be brought in again by
    /// touch. Only the last few windows are believed to be there, so a reader has to lag behind its own call for such a
    /// page to be in question.
    #[derive(Debug)]
    struct Map {
        map: Mmap,
        /// Windows brought in lately, each at its number modulo the length: number << 32 | from << 16 | to, in units within
        /// the window; `to` is 0 where nothing is remembered.
        windows: [AtomicU64; WINDOWS_REMEMBERED],
    }

    /// Maps the first `length` bytes, or says that reading is the way.
    pub(in crate::file) fn map(file: &File, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        if length == 0 || isize::try_from(length).is_err() {
            return Ok(None);
        }
        let mut options = MmapOptions::new();
        options.len(length);
        #[expect(unsafe_code, reason = "a mapping's bytes may be changed by others")]
        // SAFETY: files of blocks only grow at their end. What is written below the end that a reader was told of is never
        // changed, and files are shortened by a copy that takes their name. Someone else who scribbles in them is met with
        // checksums: readers take what they find for numbers and bytes only, whatever they are.
        let map = unsafe { options.map(file) }?;
        match map.advise_range(Advice::PopulateRead, 0, 1) {
            // Linux before 5.14 does not know this advice.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            // The first page fails: told when it is asked for.
            Ok(()) | Err(_) => {}
        }
        // Only a hint: twice the usual read-ahead, and pages behind may go first.
        let _ = map.advise(Advice::Sequential);
        Ok(Some(Arc::new(Map {
            map,
            windows: Default::default(),
        })))
    }

    impl Mapped for Map {
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
                self.bring_in(window, at, stop)?;
                at = stop;
            }
            Ok(&self.map[start..end])
        }
    }

    impl Map {
        /// Brings in the bytes `start..end` of one window, and the rest of it if it is there.
        fn bring_in(&self, window: usize, start: usize, end: usize) -> io::Result<()> {
            let base = window * WINDOW_LENGTH;
            let from = (start - base) / UNIT;
            let to = (end - base).div_ceil(UNIT);
            let slot = &self.windows[window % WINDOWS_REMEMBERED];
            // Relaxed: the pages are the kernel's business; a stale answer costs a call.
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
                // Something in the window is not there: the end of a file that grows, or a bad page that nobody asked for.
                self.populate(base + from * UNIT, end)?;
                to
            };
            // What touches the range that is known already lengthens it.
            let joined = mine && known.0 <= from as u64 && from as u64 <= known.1;
            let from = if joined { known.0 } else { from as u64 };
            let word = (window as u64) << 32 | from << 16 | reached as u64;
            slot.store(word, Ordering::Relaxed);
            Ok(())
        }

        /// Brings in the pages of `start..end`.
        fn populate(&self, start: usize, end: usize) -> io::Result<()> {
            loop {
                match self
                    .map
                    .advise_range(Advice::PopulateRead, start, end - start)
                {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(EFAULT) => {
                        // The kernel's word for a page that cannot be had: behind the end, or unreadable.
                        return Err(io::Error::other(format!(
                            "bytes {start} to {end} cannot be brought into memory: the file is shorter, or the medium fails"
                        )));
                    }
                    other => return other,
                }
            }
        }
    }

    /// "Bad address": what populating answers where touching would have raised SIGBUS.
    const EFAULT: i32 = 14;
}
