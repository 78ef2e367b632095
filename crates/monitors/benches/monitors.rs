//! Processor time and memory of the monitors: `cargo bench -p seatrial-linear --bench monitors [-- TYPE]`.
//! Without `--bench` (as under
//! `cargo test`) the histories are small.

#![allow(clippy::unwrap_used, reason = "a bench that fails says where")]

use seatrial_machine::Rng;
use seatrial_monitors::CollectionAction::{
    Absent, Add, Contains, Empty, Peek, Remove, RemoveUnknown,
};
use seatrial_monitors::{
    CollectionOperation, NEVER, Rejection, multiset, priority_queue, queue, set, stack,
};
use std::collections::BTreeSet;
use std::fs;

/// A data type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collection {
    Set,
    Multiset,
    Queue,
    Stack,
    PriorityQueue,
}

/// A correct collection.
#[derive(Default)]
struct Contents {
    /// In the order of additions.
    values: std::collections::VecDeque<u32>,
    /// By priority.
    sorted: BTreeSet<(u32, u32)>,
}

/// A priority of each value, in no order.
fn priority(value: u32) -> u32 {
    value.wrapping_mul(0x9E37_79B1) >> 4
}

/// A monitor's answer.
fn check(
    collection: Collection,
    operations: &[CollectionOperation],
    priorities: &[u32],
) -> Result<(), Rejection> {
    match collection {
        Collection::Set => set(operations),
        Collection::Multiset => multiset(operations),
        Collection::Queue => queue(operations),
        Collection::Stack => stack(operations),
        Collection::PriorityQueue => priority_queue(operations, priorities),
    }
}

impl Contents {
    fn next(&self, collection: Collection, rng: &mut Rng) -> Option<u32> {
        match collection {
            Collection::PriorityQueue => self.sorted.last().map(|&(_, value)| value),
            Collection::Queue => self.values.front().copied(),
            Collection::Stack => self.values.back().copied(),
            // One of the oldest: removal from the middle of a list takes long.
            Collection::Set | Collection::Multiset => {
                let near = self.values.len().min(8);
                (near > 0).then(|| self.values[rng.index(near)])
            }
        }
    }

    fn take_effect(
        &mut self,
        collection: Collection,
        operation: &mut CollectionOperation,
        rng: &mut Rng,
    ) {
        let value = operation.value;
        match operation.action {
            Add if collection == Collection::PriorityQueue => {
                self.sorted.insert((priority(value), value));
            }
            Add => self.values.push_back(value),
            action => match self.next(collection, rng) {
                None => operation.action = Empty,
                Some(next) => {
                    operation.value = next;
                    if action == Remove {
                        self.sorted.remove(&(priority(next), next));
                        if let Some(place) = match collection {
                            Collection::Stack => self.values.len().checked_sub(1),
                            _ => self.values.iter().position(|&other| other == next),
                        } {
                            self.values.remove(place);
                        }
                    } else if collection == Collection::Set {
                        operation.action = Contains;
                    }
                }
            },
        }
    }
}

/// Operations of clients, each of which takes effect at its call or at its return. Phases of growth and of decline alternate; a
/// tenth of the operations only look.
///
/// `crashes` is the share of operations without result: half of them took effect.
fn history(
    collection: Collection,
    count: usize,
    clients: usize,
    crashes: f64,
) -> Vec<CollectionOperation> {
    let mut rng = Rng::from_seed(7);
    let mut contents = Contents::default();
    let mut operations: Vec<CollectionOperation> = Vec::with_capacity(count);
    let mut open: Vec<(usize, bool)> = Vec::new();
    let (mut position, mut values) = (0, 0);
    while operations.len() < count || !open.is_empty() {
        position += 1;
        if operations.len() < count && open.len() < clients && rng.chance(0.6) {
            // The last tenth declines, so that what is removed there was added long before.
            let grows = (operations.len() * 10 / count).is_multiple_of(2);
            let action = match rng.unit() {
                share if share < 0.1 => Peek,
                share if share < if grows { 0.6 } else { 0.5 } => Add,
                _ => Remove,
            };
            let value = values;
            values += u32::from(action == Add);
            let mut operation = CollectionOperation {
                action,
                value,
                call: position,
                ret: 0,
            };
            let is_early = rng.chance(0.5);
            if is_early {
                contents.take_effect(collection, &mut operation, &mut rng);
            }
            open.push((operations.len(), is_early));
            operations.push(operation);
        } else if !open.is_empty() {
            let (number, is_early) = open.swap_remove(rng.index(open.len()));
            if rng.chance(crashes) {
                let operation = &mut operations[number];
                operation.ret = NEVER;
                if operation.action == Remove {
                    operation.action = RemoveUnknown;
                }
                continue;
            }
            operations[number].ret = position;
            if !is_early {
                contents.take_effect(collection, &mut operations[number], &mut rng);
            }
        }
    }
    operations
}

/// Makes one result wrong, at nine tenths of the history or the next place where that refutes it.
fn disturb(collection: Collection, operations: &mut [CollectionOperation], priorities: &[u32]) {
    let mut added = vec![u32::MAX; priorities.len()];
    for operation in operations
        .iter()
        .filter(|operation| operation.action == Add)
    {
        added[operation.value as usize] = operation.ret;
    }
    let begin = operations.len() / 10 * 9;
    for one in begin..operations.len() {
        let before = operations[one];
        match collection {
            Collection::Set if before.action == Contains => {
                operations[one].action = Absent;
            }
            Collection::Multiset if before.action == Remove => operations[one].action = Empty,
            _ if before.action == Remove => {
                let later = (one + 500..operations.len()).find(|&other| {
                    let later = &operations[other];
                    later.action == Remove && added[later.value as usize] < before.call
                });
                let Some(other) = later else { continue };
                let value = operations[other].value;
                operations[other].value = before.value;
                operations[one].value = value;
                if check(collection, operations, priorities).is_err() {
                    return;
                }
                operations[other].value = value;
            }
            _ => continue,
        }
        if check(collection, operations, priorities).is_err() {
            return;
        }
        operations[one] = before;
    }
    panic!("no violation of a {collection:?}");
}

fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks
        .map(|field| field.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// A line of the process's memory, in KiB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let mut words = line.unwrap().split_whitespace();
    words.next().unwrap().parse().unwrap()
}

fn measure(
    collection: Collection,
    operations: &[CollectionOperation],
    priorities: &[u32],
    clients: usize,
    crashes: f64,
) {
    let runs = 5;
    // Forgets the most memory so far.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (before, began) = (memory("VmRSS:"), processor_seconds());
    let mut answer = "valid".to_owned();
    for _ in 0..runs {
        match check(collection, operations, priorities) {
            Ok(()) => {}
            Err(Rejection::NotLinearizable(part)) => {
                answer = format!("refuted by {}", part.len());
            }
            Err(Rejection::NotApplicable(_)) => answer = String::from("undecided"),
        }
    }
    let seconds = (processor_seconds() - began) / f64::from(runs);
    let most = memory("VmHWM:").saturating_sub(before) * 1024;
    let count = operations.len();
    let bytes = most as f64 / count as f64;
    println!("{collection:?},{count},{clients},{crashes},{answer},{seconds:.3},{most},{bytes:.0}");
}

fn main() {
    let counts: &[usize] = if std::env::args().any(|argument| argument == "--bench") {
        &[100_000, 1_000_000]
    } else {
        &[3_000]
    };
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.find(|argument| !argument.starts_with('-'));
    println!(
        "type,operations,clients,crashes,answer,processor_seconds,peak_bytes,bytes_per_operation"
    );
    for collection in [
        Collection::Set,
        Collection::Multiset,
        Collection::Queue,
        Collection::Stack,
        Collection::PriorityQueue,
    ] {
        if wanted
            .as_ref()
            .is_some_and(|wanted| *wanted != format!("{collection:?}"))
        {
            continue;
        }
        for &count in counts {
            for (clients, crashes) in [(8, 0.0), (100, 0.0), (8, 0.01)] {
                let mut operations = history(collection, count, clients, crashes);
                let priorities: Vec<u32> = (0..count as u32).map(priority).collect();
                measure(collection, &operations, &priorities, clients, crashes);
                disturb(collection, &mut operations, &priorities);
                measure(collection, &operations, &priorities, clients, crashes);
            }
        }
    }
}
