//! Sources that are read ahead of the checkers, in threads of their own.

use seatrial_history::{Chunk, ChunkBuffer, ChunkSource, Chunks, Op, SourceError, Take};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Chunks that each reader of a [`ChunkReadAhead`] may have decoded and not handed over: 2 MB each, as a rule.
const AHEAD_MAX: usize = 2;
/// Encoded bytes from which a chunk is long: a reader then waits until there is only one that it has handed over.
const LONG_CHUNK: usize = 1 << 20;

/// A source whose chunks are read and decoded by threads of its own while the caller works on earlier ones.
///
/// The threads live for one round. Reader `r` of `n` decodes the chunks `r`, `r + n`, …; the caller takes from
/// one after another, so order needs no lock. Costs `n * (AHEAD_MAX + 2)` chunks of memory, or `2 * n` if they are long. When the
/// system gives no thread, the caller reads by itself.
#[derive(Debug)]
pub struct ChunkReadAhead<C> {
    chunks: Arc<C>,
    readers: usize,
}

/// What a reader hands over: a decoded chunk, none because there is no further one, or an error.
type Decoded<E> = Result<Option<ChunkBuffer>, E>;

/// A reader as the caller sees it: its chunks, and the way back for their memory.
type Reader<E> = (Receiver<Decoded<E>>, Sender<ChunkBuffer>);

impl<C: Chunks> ChunkReadAhead<C> {
    /// The same history, decoded by this many threads in addition to the caller's; with none, by the caller.
    pub fn new(chunks: Arc<C>, readers: usize) -> ChunkReadAhead<C> {
        ChunkReadAhead { chunks, readers }
    }

    /// What reader `number` does.
    fn read(
        &self,
        number: usize,
        readers: usize,
        full: &SyncSender<Decoded<C::Error>>,
        free: &Receiver<ChunkBuffer>,
    ) {
        assert!(number < readers, "a reader has no chunk of its own");
        let mut numbers = (number as u64..self.chunks.chunk_count()).step_by(readers);
        // Handed over and not back.
        let mut away = 0;
        let mut is_long = false;
        loop {
            let back = match free.try_recv() {
                // Taken in turn by the caller, which waits for none of this reader while it has two.
                Err(_) if is_long && away >= 2 => match free.recv() {
                    Ok(buffer) => Some(buffer),
                    Err(_) => return,
                },
                back => back.ok(),
            };
            away -= usize::from(back.is_some());
            let mut buffer = back.unwrap_or_default();
            let next = numbers.next();
            let read = match next.map(|number| self.chunks.read_chunk(number, &mut buffer)) {
                Some(Ok(Some(chunk))) => {
                    is_long = chunk.bytes().len() >= LONG_CHUNK;
                    away += 1;
                    Ok(Some(buffer))
                }
                Some(Err(error)) => Err(error),
                Some(Ok(None)) | None => Ok(None),
            };
            let is_last = !matches!(read, Ok(Some(_)));
            // Without a receiver the caller has stopped.
            if full.send(read).is_err() || is_last {
                return;
            }
        }
    }
}

impl<C: Chunks + ChunkSource> ChunkSource for ChunkReadAhead<C> {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let count = usize::try_from(self.chunks.chunk_count()).unwrap_or(usize::MAX);
        let wanted = self.readers.min(count.saturating_sub(1));
        if wanted == 0 {
            return self.chunks.round(take);
        }
        scope(|scope| {
            let mut readers: Vec<Reader<C::Error>> = Vec::new();
            for number in 0..wanted {
                let (full, decoded) = sync_channel(AHEAD_MAX);
                let (back, free) = channel();
                let read = move || self.read(number, wanted, &full, &free);
                if Builder::new().spawn_scoped(scope, read).is_err() {
                    // Those that run end once their receivers are dropped.
                    drop(readers);
                    return self.chunks.round(take);
                }
                readers.push((decoded, back));
            }
            assert_eq!(
                readers.len(),
                wanted,
                "chunks are taken from all readers in turn"
            );
            for (decoded, back) in readers.iter().cycle() {
                // A reader that panicked has hung up; the scope passes its panic on.
                let Ok(read) = decoded.recv() else { break };
                let Some(buffer) = read? else { break };
                if take(buffer.chunk()).is_break() {
                    break;
                }
                let _ = back.send(buffer);
            }
            drop(readers);
            Ok(())
        })
    }

    fn first(&self, look: &mut dyn FnMut(&Chunk)) -> Result<(), SourceError> {
        self.chunks.first(look)
    }

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        self.chunks.recall(positions)
    }
}

/// Takes a finished chunk from a producer, and leaves memory for the next one in its place; breaks when no more are needed.
pub type Give<'a> = dyn FnMut(&mut Chunk) -> ControlFlow<()> + 'a;

/// Yields the chunks that `produce` gives one after another, as of a text. With `ahead`, it runs in a thread of its own while the
/// caller works on earlier chunks, whose memory it gets back.
pub fn round_of(
    ahead: bool,
    produce: impl FnOnce(&mut Give<'_>) -> Result<(), SourceError> + Send,
    take: &mut Take<'_>,
) -> Result<(), SourceError> {
    if !ahead {
        return produce(&mut |chunk| take(chunk));
    }
    // Handed over through a slot, so that it is still here when the system gives no thread.
    let slot = Mutex::new(Some(produce));
    let produce = || slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    scope(|scope| {
        let (full, chunks) = sync_channel::<Chunk>(AHEAD_MAX);
        let (back, free) = channel::<Chunk>();
        let run = || -> Result<(), SourceError> {
            let (full, free) = (full, free);
            let Some(produce) = produce() else {
                return Ok(());
            };
            produce(&mut |chunk| {
                let empty = free.try_recv().unwrap_or_default();
                // Without a receiver the caller has stopped.
                match full.send(std::mem::replace(chunk, empty)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })
        };
        let Ok(producer) = Builder::new().spawn_scoped(scope, run) else {
            let produced = produce().map(|produce| produce(&mut |chunk| take(chunk)));
            return produced.unwrap_or(Ok(()));
        };
        while let Ok(chunk) = chunks.recv() {
            if take(&chunk).is_break() {
                break;
            }
            let _ = back.send(chunk);
        }
        // A producer that waits for room sees that there is no need for more.
        drop(chunks);
        producer.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{History, HistoryError, Process, Value};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn history(length: u64) -> History {
        let ops = (0..length).map(|number| {
            Op::invoke(
                Process::Client(number % 7),
                "read",
                Value::Int(number as i64),
            )
        });
        History::from_unindexed(ops.collect())
    }

    /// Fails at one chunk.
    struct FailingChunks(History, u64);

    impl Chunks for FailingChunks {
        type Error = HistoryError;
        fn chunk_count(&self) -> u64 {
            self.0.chunk_count()
        }
        fn read_chunk<'a>(
            &self,
            number: u64,
            buffer: &'a mut ChunkBuffer,
        ) -> Result<Option<&'a Chunk>, HistoryError> {
            if number == self.1 {
                let (index, previous) = (7, 7);
                return Err(HistoryError::Order { index, previous });
            }
            self.0.read_chunk(number, buffer)
        }
    }

    impl ChunkSource for FailingChunks {
        fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
            let mut buffer = ChunkBuffer::default();
            for number in 0..self.chunk_count() {
                if let Some(chunk) = self.read_chunk(number, &mut buffer)?
                    && take(chunk).is_break()
                {
                    break;
                }
            }
            Ok(())
        }
    }

    fn seen(source: &dyn ChunkSource, until: usize) -> Result<Vec<u64>, SourceError> {
        let mut all = Vec::new();
        source.round(&mut |chunk| {
            all.extend(chunk.ops().map(|op| op.index));
            if all.len() >= until {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    #[test]
    fn readers_ahead_keep_the_order_and_stop_when_asked() {
        let history = Arc::new(history(100_000));
        for readers in [0, 1, 2, 3, 9] {
            let source = ChunkReadAhead::new(Arc::clone(&history), readers);
            for until in [1, 16_384, 40_000, usize::MAX] {
                let all = seen(&source, until).unwrap();
                assert_eq!(all, seen(&*history, until).unwrap(), "{readers}, {until}");
                assert!(all.iter().copied().eq(0..all.len() as u64));
            }
        }
    }

    /// Counts the chunks that are read.
    struct CountedReads(History, AtomicU64);

    impl Chunks for CountedReads {
        type Error = HistoryError;
        fn chunk_count(&self) -> u64 {
            self.0.chunk_count()
        }
        fn read_chunk<'a>(
            &self,
            number: u64,
            buffer: &'a mut ChunkBuffer,
        ) -> Result<Option<&'a Chunk>, HistoryError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.read_chunk(number, buffer)
        }
    }

    impl ChunkSource for CountedReads {
        fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
            self.0.round(take)
        }
    }

    #[test]
    fn of_long_chunks_each_reader_has_two() {
        for readers in [1, 2] {
            let ops = (0..130_000).map(|number| {
                let value = (0..40).map(|place| Value::Int(number * 1_000_003 + place * 7_919_777));
                Op::invoke(Process::Client(7), "read", Value::List(value.collect()))
            });
            let counted = CountedReads(History::from_unindexed(ops.collect()), AtomicU64::new(0));
            let source = ChunkReadAhead::new(Arc::new(counted), readers as usize);
            let (mut taken, mut events) = (0, 0);
            source
                .round(&mut |chunk| {
                    assert!(chunk.bytes().len() >= LONG_CHUNK || chunk.len() < 16_384);
                    taken += 1;
                    events += chunk.len();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    // The first that a reader hands over may be long or not.
                    let read = source.chunks.1.load(Ordering::SeqCst);
                    assert!(read <= taken + 2 * readers, "{read} read, {taken} taken");
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(events, 130_000);
        }
    }

    #[test]
    fn an_error_ends_a_round_with_its_own_type() {
        let broken = Arc::new(FailingChunks(history(100_000), 4));
        for readers in [0, 1, 2, 3] {
            let source = ChunkReadAhead::new(Arc::clone(&broken), readers);
            // Chunks before it are not lost on a caller that breaks off earlier.
            assert_eq!(seen(&source, 4 * 16_384).unwrap().len(), 4 * 16_384);
            let error = seen(&source, usize::MAX).unwrap_err();
            assert!(error.downcast_ref::<HistoryError>().is_some());
        }
    }

    #[test]
    fn a_producer_runs_ahead_or_in_turn() {
        let history = history(70_000);
        for (ahead, fails, until) in [
            (false, None, u64::MAX),
            (true, None, u64::MAX),
            (false, Some(3), u64::MAX),
            (true, Some(3), u64::MAX),
            (true, None, 20_000),
            (false, None, 20_000),
        ] {
            let produce = |give: &mut Give<'_>| {
                let mut buffer = ChunkBuffer::default();
                for number in 0..=5 {
                    if Some(number) == fails {
                        return Err("no more".into());
                    }
                    let Some(chunk) = history.read_chunk(number, &mut buffer)? else {
                        break;
                    };
                    if give(&mut chunk.clone()).is_break() {
                        break;
                    }
                }
                Ok(())
            };
            let mut seen = 0;
            let read = round_of(ahead, produce, &mut |chunk| {
                assert_eq!(chunk.first_position(), seen);
                seen += chunk.len() as u64;
                if seen > until {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            assert_eq!(read.is_err(), fails.is_some());
            let expected = match (fails, until) {
                (Some(_), _) => 3 * 16_384,
                (None, 20_000) => 2 * 16_384,
                _ => 70_000,
            };
            assert_eq!(seen, expected);
        }
    }
}
