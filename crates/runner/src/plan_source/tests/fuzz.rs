//! Fuzzed plans: no panic, no hang, no memory for claimed sizes; and an accepted plan can be executed.

use super::{environment, read};
use seatrial_generator::{Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation};
use seatrial_history::{Op, OpType};
use seatrial_machine::{Rng, Time};
use std::time::Duration;

/// Every word at least once.
const RICH: &str = "
name = 'fuzzed'
description = 'all words'
[test]
seed = '4f'
concurrency = 5
nodes = 3
time = '2s'
ops = 100
rate = 500.5
timeout = '1s'
model = 'linearizable'
checkers = ['stats']
stop_on_violation = true
accept_undecided = true
[[phases]]
mix = [{ weight = 7, f = 'w', key = { zipf = 9 }, value = { counter = 'x' }, repeat = true },
  { f = 'r', key = 'k', value = { int = [0, 5] }, fields = { a = 1 }, process = 1, at = '1ms', repeat = 4 }]
rate = 1000
time_limit = '100ms'
faults = { kinds = ['kill', 'partition'], interval = '5ms', targets = ['n1'], for = '50ms', recovery = '5ms' }
[[phases]]
any = [{ each_thread = { f = 'a', limit = 2 } }, { each_process = { f = 'b', once = true } },
  { sequence = [{ fault = 'cut', links = [['n1', 'n2']] }, { fault = 'skew', node = 'n2', offset_ms = 5 }, { heal = true }] }]
[[phases]]
reserve = [{ threads = 1, workload = 'bank', limit = 5 }]
default = { flip_flop = [{ f = 'x', value = { txn = [['r', 1], ['append', { uniform = 3 }, { counter = true }]], length = [1, 3] } }, { f = 'y' }] }
limit = 9
[[phases]]
concurrent_keys = { f = 'z', value = { choice = [1, { cas = [1, 2] }, [true, 2.5, { nil = true }]] }, repeat = 3 }
keys = { from = 1, to = 3 }
threads_per_key = 2
[[phases]]
sequential_keys = { shortest_any = [{ f = 'p' }, { sleep = '1ms' }], until_ok = true, delay = '1ms' }
keys = [1, 'two']
on = [0, 1]
[[phases]]
cycle_times = [{ for = '1ms', f = 'q', repeat = true, delay_til = '2ms' }, { for = '2ms', log = 'here' }]
limit = 3
concurrency_limit = 2
process_limit = 9
f_map = { q = 'qq' }
only = ['qq']
except = ['zz']
cycle = 2
synchronize = true
stagger = 0
";

/// A byte, a word or a piece from elsewhere, where it does not belong.
fn mutate(text: &str, rng: &mut Rng) -> String {
    const PIECES: [&str; 24] = [
        "{",
        "}",
        "[",
        "]",
        "'",
        "\"",
        "=",
        ":",
        ",",
        ".",
        "\n",
        "-1",
        "0",
        "1e308",
        "9223372036854775807",
        "true",
        "null",
        "é",
        "f = 'a'",
        "[[phases]]",
        "{}",
        "[]",
        "{ counter = true }",
        "faults = ['kill']",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.index(bytes.len().max(1)).min(bytes.len());
        match rng.below(5) {
            0 => {
                let end = (at + 1 + rng.index(12)).min(bytes.len());
                bytes.drain(at..end);
            }
            1 => {
                let piece = *rng.pick(&PIECES);
                bytes.splice(at..at, piece.bytes());
            }
            2 => {
                let from = rng.index(bytes.len().max(1));
                let end = (from + rng.index(80)).min(bytes.len());
                let piece: Vec<u8> = bytes.get(from..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.below(256) as u8;
                }
            }
            _ => {
                let piece = *rng.pick(&PIECES);
                let end = (at + piece.len()).min(bytes.len());
                bytes.splice(at..end, piece.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a plan for a moment.
fn carry_out(text: &str) -> bool {
    match read(text) {
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1);
            assert!(error.to_string().len() < 2_000, "{error}");
            assert!(error.problem.at <= text.len());
            false
        }
        Ok(plan) => {
            // Few operations: pauses of nothing give very many.
            let generator = plan.generator(environment()).limit(300);
            let options = InterpreterOptions::new(3, Rng::from_seed(1));
            let client = |op: &Op| {
                SimulatedReply::After(Duration::from_millis(1), OpType::Ok, op.value.clone())
            };
            let interpreter = Interpreter::new(generator, &options);
            let mut simulation =
                Simulation::new(interpreter, client).stop_at(Time::from_nanoseconds(50_000_000));
            simulation.run_with(|_| {});
            assert!(!plan.outline().to_string().is_empty());
            true
        }
    }
}

#[test]
fn mutations_are_refused_or_run() {
    assert!(carry_out(RICH));
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..6_000 {
        let mut rng = Rng::from_seed(seed);
        let mutated = mutate(RICH, &mut rng);
        if carry_out(&mutated) {
            accepted += 1;
        } else {
            refused += 1;
        }
    }
    assert!(
        accepted > 50 && refused > 1_000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn noise_is_refused() {
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let length = rng.index(200);
        let bytes: Vec<u8> = (0..length).map(|_| rng.below(128) as u8).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        carry_out(&text);
    }
}
