use super::*;
use crate::decision::relation::Relation;
use seatrial_machine::Rng;

/// Blocks of two keys, each with a write and a reader, and further nodes with random edges.
struct RandomRegion {
    nodes: u32,
    edges: Vec<(u32, u32)>,
    blocks: Vec<MovableBlock>,
}

impl Relation for RandomRegion {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for &(from, to) in &self.edges {
            take(from, to);
        }
    }
}

fn scene(rng: &mut Rng) -> RandomRegion {
    let mut scene = RandomRegion {
        nodes: 0,
        edges: Vec::new(),
        blocks: Vec::new(),
    };
    for run in 0..2 {
        for _ in 0..=rng.below(4) {
            let first = scene.nodes;
            let is_read = rng.chance(0.7);
            scene.nodes += 1 + u32::from(is_read);
            scene.blocks.push(MovableBlock {
                run,
                head: first,
                middle: rng.below(10),
                written: (!is_read).then(|| GraphNode::new(first)),
                exit: is_read.then(|| GraphNode::new(first + 1)),
                begun: first,
                first,
            });
            if is_read {
                scene.edges.push((first, first + 1));
            }
        }
    }
    for _ in 0..rng.below(2 * u64::from(scene.nodes)) {
        let [from, to] = [0, 0].map(|_: i32| rng.below(u64::from(scene.nodes)) as u32);
        let share = if from < to { 0.5 } else { 0.1 };
        if from != to && rng.chance(share) {
            scene.edges.push((from, to));
        }
    }
    scene
}

/// Do the blocks, in this order within their runs, leave no cycle?
fn is_right(scene: &RandomRegion, order: &[u32]) -> bool {
    let mut edges = scene.edges.clone();
    for (place, &one) in order.iter().enumerate() {
        for &other in &order[place + 1..] {
            let (one, other) = (&scene.blocks[one as usize], &scene.blocks[other as usize]);
            if one.run == other.run {
                edges.extend(one.before(other));
            }
        }
    }
    let all = RandomRegion {
        edges,
        blocks: Vec::new(),
        ..*scene
    };
    TransitiveClosure::new(&successors(scene.nodes as usize, &all)).is_some()
}

/// Tries all orders of the numbers from `start` on.
fn permute(order: &mut Vec<u32>, start: usize, is_wanted: &mut impl FnMut(&[u32]) -> bool) -> bool {
    if start == order.len() {
        return is_wanted(order);
    }
    (start..order.len()).any(|other| {
        order.swap(start, other);
        let is_found = permute(order, start + 1, is_wanted);
        order.swap(start, other);
        is_found
    })
}

#[test]
fn finds_an_order_where_there_is_one() {
    let (mut solved, mut impossible) = (0, 0);
    for seed in 0..3_000 {
        let scene = scene(&mut Rng::from_seed(seed));
        let graph = successors(scene.nodes as usize, &scene);
        let mut steps = 1_000_000;
        let found = RegionSearch::new(&graph, &scene.blocks);
        let found = found.and_then(|component| component.solve(&mut steps));
        if let Some(order) = found {
            assert!(is_right(&scene, &order), "seed {seed}");
            solved += 1;
            continue;
        }
        let mut order: Vec<u32> = (0..scene.blocks.len() as u32).collect();
        let is_possible = permute(&mut order, 0, &mut |order| is_right(&scene, order));
        assert!(!is_possible, "seed {seed}");
        impossible += 1;
    }
    assert!(solved > 500 && impossible > 200, "{solved} {impossible}");
}
