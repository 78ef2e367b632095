use super::*;
use crate::decision::relation::successors;
use crate::decision::relation::testing::{Pairs, reaches};
use seatrial_machine::Rng;

#[test]
fn is_what_walks_find_with_edges_added_and_taken_back() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        // More than one word of bits in some cases.
        let nodes = 2 + rng.below(if seed % 10 == 0 { 90 } else { 12 }) as u32;
        let mut edges = Vec::new();
        for _ in 0..rng.below(2 * u64::from(nodes)) {
            let pair = [0, 0].map(|_: i32| rng.below(u64::from(nodes)) as u32);
            if pair[0] < pair[1] {
                edges.push((pair[0], pair[1]));
            }
        }
        let graph = successors(nodes as usize, &Pairs(edges.clone()));
        let mut closure = TransitiveClosure::new(&graph).unwrap();
        let mut marked = edges.len();
        for _ in 0..12 {
            match rng.below(5) {
                0 => {
                    closure.mark();
                    marked = edges.len();
                }
                1 => {
                    closure.back();
                    closure.mark();
                    edges.truncate(marked);
                }
                _ => {
                    let [from, to] = [0, 0].map(|_: i32| rng.below(u64::from(nodes)) as u32);
                    let is_cycle = from == to || reaches(&edges, to, from);
                    let was: Vec<bool> = (0..nodes).map(|it| reaches(&edges, it, to)).collect();
                    let mut reported = Vec::new();
                    let added = closure.add(from, to, |node| reported.push(node));
                    assert_eq!(added.is_err(), is_cycle, "seed {seed}");
                    if !is_cycle {
                        edges.push((from, to));
                        let is_new = |&it: &u32| !was[it as usize] && reaches(&edges, it, to);
                        let new: Vec<u32> = (0..nodes).filter(is_new).collect();
                        assert_eq!(reported, new, "seed {seed}");
                    }
                }
            }
            for from in 0..nodes {
                for to in 0..nodes {
                    let is_there = closure.reaches(from, to);
                    assert_eq!(is_there, reaches(&edges, from, to), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn there_is_none_of_a_graph_with_a_cycle() {
    let graph = successors(3, &Pairs(vec![(0, 1), (1, 2), (2, 0)]));
    assert!(TransitiveClosure::new(&graph).is_none());
}
