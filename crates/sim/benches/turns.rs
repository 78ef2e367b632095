//! How fast a world goes: machine turns per second of one core, queue, network, disk and trace included.
//!
//! `cargo bench -p seatrial-sim` prints one line per case: the best and the median of five runs, and a fingerprint
//! that must not change when only the speed should.
#![expect(
    clippy::disallowed_types,
    reason = "a measurement needs the clock of the real world"
)]

use seatrial_machine::{
    DataFolder, FaultKind, Input, LogName, Machine, NodeId, Output, Rng, Ticket, Time,
};
use seatrial_sim::{Booted, World, WorldOptions};
use std::time::{Duration, Instant};

/// After this long without an answer the ball is thrown again.
const PATIENCE: Duration = Duration::from_millis(50);
const RUNS: usize = 5;

/// Throws a ball to a partner, and throws it back when it comes; with a log, only when that is durable.
struct Player {
    partner: NodeId,
    logs: bool,
    /// The highest ball seen.
    ball: u64,
    again_at: Time,
}

impl Player {
    fn throw(&self, out: &mut Vec<Output<()>>) {
        out.push(Output::Send {
            to: self.partner,
            message: (self.ball + 1).to_le_bytes().to_vec(),
        });
    }
}

impl Machine for Player {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, now: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Message { bytes, .. } => {
                let Ok(bytes) = bytes.try_into() else { return };
                let ball = u64::from_le_bytes(bytes);
                if ball <= self.ball {
                    return;
                }
                self.ball = ball;
                if self.logs {
                    out.push(Output::Append {
                        log: LogName::MAIN,
                        bytes: vec![b'+'; 64],
                        ticket: Ticket(ball),
                    });
                } else {
                    self.throw(out);
                }
            }
            Input::Appended(_) | Input::Wake => self.throw(out),
            Input::Request(..) | Input::Computed(..) | Input::FileDone(..) => return,
        }
        self.again_at = now + PATIENCE;
    }

    fn wake_at(&self) -> Option<Time> {
        Some(self.again_at)
    }
}

fn run(options: &WorldOptions, pairs: u32, logs: bool, turns: u64) -> (f64, u64) {
    let boot = move |id: NodeId, _: &DataFolder| {
        let number = id.number();
        let machine = Player {
            partner: NodeId::server(if number % 2 == 1 {
                number + 1
            } else {
                number - 1
            }),
            logs,
            ball: u64::from(number % 2),
            again_at: Time::ZERO,
        };
        Ok(Booted::with_log(machine, 0))
    };
    let mut world = World::new(1, options.clone(), boot);
    for number in 1..=2 * pairs {
        world.add(NodeId::server(number));
    }
    let began = Instant::now();
    while world.turns() < turns {
        world.step();
    }
    let rate = world.turns() as f64 / began.elapsed().as_secs_f64();
    (rate, world.fingerprint())
}

fn main() {
    // `cargo test --benches` only looks whether it runs.
    let turns = if std::env::args().any(|argument| argument == "--bench") {
        3_000_000
    } else {
        3_000
    };
    let rough = WorldOptions::swarm(&mut Rng::from_seed(8), &FaultKind::ALL);
    println!("rough: {rough}");
    for (name, options, pairs, logs) in [
        ("1 pair", WorldOptions::default(), 1, false),
        ("50 pairs", WorldOptions::default(), 50, false),
        ("50 pairs, rough", rough, 50, false),
        ("50 pairs with a log", WorldOptions::default(), 50, true),
    ] {
        let mut rates = [0.0; RUNS];
        let mut fingerprint = 0;
        for rate in &mut rates {
            (*rate, fingerprint) = run(&options, pairs, logs, turns);
        }
        rates.sort_by(f64::total_cmp);
        let (median, best) = (rates[RUNS / 2] / 1e6, rates[RUNS - 1] / 1e6);
        println!(
            "{name:<20} median {median:5.2}, best {best:5.2} million turns/s   {fingerprint:016x}"
        );
    }
}
