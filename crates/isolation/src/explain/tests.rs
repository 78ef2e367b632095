use super::*;
use seatrial_cycles::graph::WW;

#[test]
fn shapes_with_a_name_of_their_own() {
    let keys = |written: &[&[u32]]| {
        let written: Vec<BTreeSet<u32>> = written
            .iter()
            .map(|keys| keys.iter().copied().collect())
            .collect();
        move |node: u32| written[node as usize].clone()
    };
    let name = |edges: &[u8], written: &[&[u32]]| {
        let nodes: Vec<u32> = (0..edges.len() as u32).collect();
        let shape = shape(&nodes, edges, keys(written))?;
        shape.split_once(':').map(|(name, _)| name)
    };
    let (skew, fork) = (Some("This is write skew"), "This is a long fork");
    assert_eq!(name(&[RW, RW], &[&[1], &[2]]), skew);
    assert_eq!(
        name(&[RW, RW], &[&[1, 3], &[2, 3]]),
        None,
        "both write a key"
    );
    assert_eq!(name(&[RW, WW], &[&[1], &[2]]), None);
    assert_eq!(name(&[RW, RW, RW], &[&[1], &[2], &[3]]), None);
    for (edges, written) in [
        ([WR, RW, WR, RW], [&[1][..], &[], &[2], &[]]),
        ([RW, WR, RW, WR], [&[], &[1][..], &[], &[2]]),
    ] {
        let nodes = [0, 1, 2, 3];
        let found = shape(&nodes, &edges, keys(&written));
        assert!(
            found.is_some_and(|text| text.starts_with(fork)),
            "{found:?}"
        );
    }
    assert_eq!(name(&[WR, RW, WR, RW], &[&[1], &[], &[1], &[]]), None);
    assert_eq!(name(&[WR, RW, RW, WR], &[&[1], &[], &[2], &[]]), None);
}
