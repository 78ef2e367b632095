use super::*;
use crate::axiomatic::commit_order::Predecessors;
use crate::registers::ColumnsBuilder;
use seatrial_history::OpType;
use seatrial_machine::Rng;

#[test]
fn live_transactions_have_slots_of_their_own() {
    let mut most = 0;
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut builder = ColumnsBuilder::default();
        let mut current = [0; 4];
        for value in 1..200 {
            builder.begin(rng.below(5));
            let (read, written) = (rng.index(4), rng.index(4));
            if current[read] > 0 {
                builder.read(read as i64, Some(current[read]));
            }
            builder.write(written as i64, value);
            current[written] = value;
            builder.end(OpType::Ok);
        }
        let columns = builder.finish().unwrap();
        let program = SessionProgram::new(&columns);
        let order: Vec<u32> = (0..columns.len() as u32).collect();
        assert!(
            Predecessors::new(&program, &mut [])
                .order(&program)
                .is_some()
        );
        let slots = Slots::new(&program, &order);
        // By slot: the transaction whose clock it has.
        let mut owners = vec![None; slots.count];
        let mut last = vec![None; program.session_count()];
        for &reader in &order {
            let before = last[program.session(reader) as usize].replace(reader);
            for used in program.sources(reader).chain(before) {
                let slot = slots.of[used as usize].unwrap();
                assert_eq!(owners[slot.index()], Some(used), "seed {seed}");
            }
            if let Some(slot) = slots.of[reader as usize] {
                owners[slot.index()] = Some(reader);
            }
        }
        most = most.max(slots.count);
    }
    // Five sessions, four versions that may be read again, and the current transaction.
    assert!(most <= 10, "{most}");
}
