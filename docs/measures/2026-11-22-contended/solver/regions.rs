//! Solves regions with a SAT solver from crates.io, cycles added as they turn up: `regions FILE [SECONDS]`.
//!
//! FILE has a region per paragraph: `n NODES TOOK FOUND` (what Seatrial's own search took, in microseconds, and whether it found
//! an order), `e FROM TO` for each edge, and `p F1 T1 F2 T2 / B1 U1 B2 U2` for each pair of blocks: the edges of either order
//! (-1: none). A variable per pair; its literal brings edges. The solver's answer is an order of all pairs; cycles in it become
//! clauses, the shortest through each node that is on one (up to 200 a round), until there is none or no answer is left.

use batsat::{lbool, BasicSolver, Lit, SolverInterface};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

struct Pair {
    ways: [Vec<(usize, usize)>; 2],
}

#[derive(Default)]
struct Region {
    nodes: usize,
    took: u64,
    found: bool,
    edges: Vec<(usize, usize)>,
    pairs: Vec<Pair>,
}

fn read(text: &str) -> Vec<Region> {
    let mut all: Vec<Region> = Vec::new();
    for line in text.lines() {
        let words: Vec<i64> = line[1..]
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match &line[..1] {
            "n" => all.push(Region {
                nodes: words[0] as usize,
                took: words[1] as u64,
                found: words[2] == 1,
                ..Region::default()
            }),
            "e" => all
                .last_mut()
                .unwrap()
                .edges
                .push((words[0] as usize, words[1] as usize)),
            _ => {
                let way = |part: &[i64]| {
                    let edges = part.chunks(2).filter(|edge| edge[0] >= 0);
                    edges
                        .map(|edge| (edge[0] as usize, edge[1] as usize))
                        .collect()
                };
                all.last_mut().unwrap().pairs.push(Pair {
                    ways: [way(&words[..4]), way(&words[4..8])],
                });
            }
        }
    }
    all
}

/// Clauses (variables and signs) of cycles in the graph that a model makes.
fn cycles(region: &Region, model: &[bool]) -> Vec<Vec<(usize, bool)>> {
    let mut graph: Vec<Vec<(usize, Option<usize>)>> = vec![Vec::new(); region.nodes];
    for &(from, to) in &region.edges {
        graph[from].push((to, None));
    }
    for (number, pair) in region.pairs.iter().enumerate() {
        for &(from, to) in &pair.ways[usize::from(!model[number])] {
            graph[from].push((to, Some(number)));
        }
    }
    let mut found = Vec::new();
    let mut seen = HashMap::new();
    for root in 0..region.nodes {
        if found.len() >= 200 {
            break;
        }
        let mut origin: Vec<Option<(usize, Option<usize>)>> = vec![None; region.nodes];
        let mut queue = VecDeque::from([root]);
        'walk: while let Some(node) = queue.pop_front() {
            for &(to, by) in &graph[node] {
                if to == root {
                    let mut clause: Vec<(usize, bool)> =
                        by.iter().map(|&it| (it, !model[it])).collect();
                    let mut at = node;
                    while at != root {
                        let (before, by) = origin[at].unwrap();
                        clause.extend(by.map(|it| (it, !model[it])));
                        at = before;
                    }
                    clause.sort_unstable();
                    clause.dedup();
                    if seen.insert(clause.clone(), ()).is_none() {
                        found.push(clause);
                    }
                    break 'walk;
                }
                if origin[to].is_none() {
                    origin[to] = Some((node, by));
                    queue.push_back(to);
                }
            }
        }
    }
    found
}

fn batsat(region: &Region, limit: Duration) -> (&'static str, u64, u64) {
    let began = Instant::now();
    let mut solver = BasicSolver::default();
    let variables: Vec<_> = region
        .pairs
        .iter()
        .map(|_| solver.new_var_default())
        .collect();
    let (mut rounds, mut clauses) = (0, 0);
    loop {
        rounds += 1;
        if began.elapsed() > limit {
            return ("none", rounds, clauses);
        }
        match solver.solve_limited(&[]) {
            it if it == lbool::TRUE => {}
            it if it == lbool::FALSE => return ("no order", rounds, clauses),
            _ => return ("none", rounds, clauses),
        }
        let model: Vec<bool> = variables
            .iter()
            .map(|&it| solver.value_var(it) == lbool::TRUE)
            .collect();
        let found = cycles(region, &model);
        if found.is_empty() {
            return ("order", rounds, clauses);
        }
        for clause in found {
            clauses += 1;
            let mut literals: Vec<Lit> = clause
                .iter()
                .map(|&(it, sign)| Lit::new(variables[it], sign))
                .collect();
            solver.add_clause_reuse(&mut literals);
        }
    }
}

fn main() {
    let file = std::env::args().nth(1).expect("a file");
    let seconds: u64 = std::env::args()
        .nth(2)
        .map_or(10, |it| it.parse().expect("seconds"));
    let regions = read(&std::fs::read_to_string(file).expect("a readable file"));
    println!("| nodes | pairs | Seatrial | ms | batsat | ms | rounds | clauses |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for region in &regions {
        let began = Instant::now();
        let (answer, rounds, clauses) = batsat(region, Duration::from_secs(seconds));
        println!(
            "| {} | {} | {} | {:.1} | {answer} | {:.1} | {rounds} | {clauses} |",
            region.nodes,
            region.pairs.len(),
            if region.found { "order" } else { "none" },
            region.took as f64 / 1e3,
            began.elapsed().as_secs_f64() * 1e3,
        );
    }
}
