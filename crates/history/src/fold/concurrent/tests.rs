use super::super::fold_linear;
use super::*;
use crate::Chunk;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A chunk that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("chunk {0} is broken")]
struct BrokenChunk(u64);

/// A hundred empty chunks that can be damaged.
struct DamagedChunks {
    damaged: Vec<u64>,
    /// The highest chunk asked for.
    highest: AtomicU64,
}

impl Chunks for DamagedChunks {
    type Error = BrokenChunk;
    fn chunk_count(&self) -> u64 {
        100
    }
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, BrokenChunk> {
        self.highest.fetch_max(number, Ordering::Relaxed);
        if self.damaged.contains(&number) {
            return Err(BrokenChunk(number));
        }
        Ok(Some(&buffer.chunk))
    }
}

/// Counts chunks; the first chunk to be reduced is slow.
#[derive(Default)]
struct SlowStart<'a> {
    started: AtomicU64,
    highest: Option<&'a AtomicU64>,
    /// The highest chunk that the others had read when the slow one was done.
    ahead: AtomicU64,
    panics_at: Option<u64>,
}

impl Fold for SlowStart<'_> {
    type Accumulator = u64;
    type Output = u64;
    fn start(&self) -> u64 {
        0
    }
    fn reduce(&self, count: &mut u64, _: &Chunk) -> ControlFlow<()> {
        let started = self.started.fetch_add(1, Ordering::Relaxed);
        assert_ne!(Some(started), self.panics_at, "as asked for");
        if started == 0 {
            std::thread::sleep(Duration::from_millis(100));
            let highest = self
                .highest
                .map_or(0, |highest| highest.load(Ordering::Relaxed));
            self.ahead.store(highest, Ordering::Relaxed);
        }
        *count += 1;
        ControlFlow::Continue(())
    }
    fn combine(&self, count: &mut u64, later: u64) -> ControlFlow<()> {
        *count += later;
        ControlFlow::Continue(())
    }
    fn finish(&self, count: u64) -> u64 {
        count
    }
}

fn numbers(damaged: &[u64]) -> DamagedChunks {
    DamagedChunks {
        damaged: damaged.to_vec(),
        highest: AtomicU64::new(0),
    }
}

#[test]
fn a_slow_chunk_bounds_how_far_the_others_go() {
    let chunks = numbers(&[]);
    let fold = SlowStart {
        highest: Some(&chunks.highest),
        ..SlowStart::default()
    };
    assert_eq!(fold_concurrent(&chunks, &fold, 3), Ok(100));
    let ahead = fold.ahead.load(Ordering::Relaxed);
    assert!(
        (1..3 * WAITING_PER_THREAD_MAX + 3).contains(&ahead),
        "{ahead}"
    );
}

#[test]
fn the_first_damaged_chunk_is_reported() {
    for threads in [1, 2, 4] {
        let chunks = numbers(&[40, 41, 42, 99]);
        let fold = SlowStart::default();
        assert_eq!(
            fold_concurrent(&chunks, &fold, threads),
            Err(BrokenChunk(40))
        );
    }
    let error = fold_linear(&numbers(&[7]), &SlowStart::default());
    assert_eq!(error, Err(BrokenChunk(7)));
}

#[test]
fn a_panic_of_a_fold_ends_all_threads() {
    for panics_at in [0, 1, 50] {
        let result = std::panic::catch_unwind(|| {
            let fold = SlowStart {
                panics_at: Some(panics_at),
                ..SlowStart::default()
            };
            fold_concurrent(&numbers(&[]), &fold, 3)
        });
        assert!(result.is_err());
    }
}
