use super::*;
use crate::decision::relation::testing::{Pairs, reaches};
use crate::decision::relation::{predecessors, successors};
use seatrial_machine::Rng;

#[test]
fn follows_edges_as_they_come_and_go() {
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let nodes = 2 + rng.index(10);
        let mut edges = Vec::new();
        for _ in 0..rng.below(8) {
            let (one, other) = (rng.index(nodes) as u32, rng.index(nodes) as u32);
            if one != other {
                edges.push((one.min(other), one.max(other)));
            }
        }
        let known = edges.len();
        let pairs = Pairs(edges.clone());
        let order: Vec<u32> = (0..nodes as u32).collect();
        let mut topology = IncrementalOrder::new(
            successors(nodes, &pairs),
            predecessors(nodes, &pairs),
            &order,
        );
        for literal in 0..40 {
            if rng.chance(0.2) {
                let left = rng.index(topology.added() + 1);
                topology.truncate(left);
                edges.truncate(known + left);
            }
            let (from, to) = (rng.index(nodes) as u32, rng.index(nodes) as u32);
            let closes = from == to || reaches(&edges, to, from);
            match topology.add(from, to, literal) {
                Ok(()) => {
                    assert!(!closes, "seed {seed}");
                    edges.push((from, to));
                }
                Err(path) => {
                    assert!(closes, "seed {seed}");
                    assert_eq!((path.nodes[0], path.nodes.last()), (to, Some(&from)));
                    let steps = path.nodes.windows(2);
                    assert!(
                        steps
                            .into_iter()
                            .all(|two| edges.contains(&(two[0], two[1])))
                    );
                }
            }
            let ordered = |&(from, to): &(u32, u32)| topology.place(from) < topology.place(to);
            assert!(edges.iter().all(ordered), "seed {seed}");
        }
    }
}
