use super::*;
use crate::publication::tests::{TapeSink, message, signature, tape};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sink whose syncs take a while, so that others come meanwhile.
#[derive(Debug, Default)]
struct Slow {
    sink: TapeSink,
    sync: Duration,
}

impl Sink for Slow {
    fn append(&mut self, batch: &mut Batch, now: u64) -> Result<Position, SinkError> {
        self.sink.append(batch, now)
    }

    fn sync(&mut self) -> Result<(), SinkError> {
        std::thread::park_timeout(self.sync);
        self.sink.sync()
    }

    fn end(&self) -> Position {
        self.sink.end()
    }

    fn durable(&self) -> Position {
        self.sink.durable()
    }
}

/// Threads append at random; each message is durable when its append returns, at the position that was answered.
#[test]
fn acknowledged_messages_are_durable_at_their_positions() {
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let (tape, sink) = tape();
        let slow = Slow {
            sink,
            sync: Duration::from_micros(rng.below(80)),
        };
        let options = GroupOptions {
            batch_length: 100 + rng.index(2_000),
            gather: Duration::from_micros([0, 0, 50][rng.index(3)]),
            gather_length: rng.index(1_000),
        };
        let group = GroupWriter::new(slow, options);
        let threads = 1 + rng.below(9);
        let positions = std::thread::scope(|scope| {
            let appenders: Vec<_> = (0..threads)
                .map(|name| {
                    let (group, tape) = (&group, &tape);
                    let mut rng = rng.fork(&name.to_string());
                    scope.spawn(move || {
                        let mut positions = BTreeMap::new();
                        for number in 1..=rng.below(60) {
                            let bytes = message(&mut rng, name, number);
                            let position = group.append_durable(&bytes, number).unwrap();
                            assert!(position.0 < locked(tape).durable, "not yet durable");
                            positions.insert(position, bytes);
                        }
                        positions
                    })
                })
                .collect();
            let joined = appenders.into_iter().map(|thread| thread.join().unwrap());
            joined.flatten().collect::<BTreeMap<_, _>>()
        });
        let tape = locked(&tape);
        let recorded = tape.messages.iter();
        let recorded = recorded.map(|(position, _, bytes)| (*position, bytes.clone()));
        assert!(recorded.eq(positions), "seed {seed}");
        let mut last = BTreeMap::new();
        for (_, _, bytes) in &tape.messages {
            let (thread, number) = signature(bytes);
            let before = last.insert(thread, number).unwrap_or(0);
            assert_eq!(number, before + 1, "seed {seed}, thread {thread}");
        }
        assert_eq!(tape.syncs, tape.blocks.len() as u64, "seed {seed}");
    }
}

/// Thirty-two threads behind a slow sync share it.
#[test]
fn a_sync_is_shared_by_all_that_came_meanwhile() {
    let (tape, sink) = tape();
    let sync = Duration::from_millis(2);
    let group = GroupWriter::new(Slow { sink, sync }, GroupOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                for _ in 0..10 {
                    group.append_durable(b"a message", 0).unwrap();
                }
            });
        }
    });
    let tape = locked(&tape);
    assert_eq!(tape.messages.len(), 320);
    // Ten rounds would be perfect; threads that come late make some more.
    assert!(tape.syncs < 80, "{} syncs for 320 messages", tape.syncs);
}

#[test]
fn one_thread_gathers_no_longer_than_it_may() {
    let (tape, sink) = tape();
    let options = GroupOptions {
        gather: Duration::from_millis(1),
        ..GroupOptions::default()
    };
    let group = GroupWriter::new(sink, options);
    for number in 0..3 {
        group.append_flagged(number, b"alone", 5).unwrap();
    }
    let group = group.into_sink().unwrap();
    assert_eq!(group.end(), group.durable());
    assert_eq!(locked(&tape).blocks, [1, 1, 1]);
}

/// A failure reaches all whose messages were in that sync and all after it; those before were told that theirs are there.
#[test]
fn a_failure_reaches_everyone() {
    for (appends, syncs) in [(Some(3), None), (None, Some(3))] {
        let (tape, mut sink) = tape();
        sink.appends_left = appends;
        sink.syncs_left = syncs;
        let sync = Duration::from_micros(300);
        let group = GroupWriter::new(Slow { sink, sync }, GroupOptions::default());
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut failures = 0;
                    while failures < 3 {
                        match group.append_durable(b"a message", 0) {
                            Ok(_) => {
                                assert_eq!(failures, 0, "it came back to life");
                                answered.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(GroupError::Failed(_)) => failures += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let tape = locked(&tape);
        assert_eq!(tape.syncs, 3);
        let durable = tape.messages.iter();
        let durable = durable.filter(|(position, ..)| position.0 < tape.durable);
        assert_eq!(durable.count() as u64, answered.into_inner());
    }
}

#[test]
fn the_death_of_a_leader_is_reported() {
    let (_, mut sink) = tape();
    sink.panics_after = Some(2);
    let sync = Duration::from_micros(300);
    let group = GroupWriter::new(Slow { sink, sync }, GroupOptions::default());
    let died = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        match group.append_durable(b"a message", 0) {
                            Ok(_) => {}
                            Err(GroupError::Abandoned) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    panic!("no publisher got the error");
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().is_err());
        joined.filter(|&died| died).count()
    });
    assert_eq!(died, 1, "the one that was planned");
    let error = group.append_durable(b"later", 0).unwrap_err();
    assert!(matches!(error, GroupError::Abandoned));
    let long = vec![0; MESSAGE_LENGTH_MAX + 1];
    let error = group.append_durable(&long, 0).unwrap_err();
    assert!(matches!(error, GroupError::TooLong { .. }));
}
