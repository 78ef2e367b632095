//! How six servers become a cluster.

use crate::redis_nodes::ask;
use crate::redis_session::word;
use redis::cmd;
use seatrial_runner::{ClientError, NodePlace};
use std::collections::BTreeMap;

/// Number of hash slots.
const SLOTS: usize = 16_384;
/// Number of primaries; each has one replica.
const PRIMARIES: usize = 3;

/// Takes the next step towards a cluster; an error says what is missing. Returns `Ok` once all nodes agree on it and every
/// replica is in sync. Each step looks at what there is first, so it can be taken again.
pub(crate) async fn form(places: &[NodePlace]) -> Result<(), ClientError> {
    assert_eq!(places.len(), 2 * PRIMARIES, "each primary has one replica");
    for place in places {
        let known = state(place).await?;
        if number(&known, "cluster_known_nodes") < places.len() {
            meet(places).await?;
            return Err(format!("{} does not know all nodes yet", place.node).into());
        }
    }
    for (index, place) in places[..PRIMARIES].iter().enumerate() {
        if own_slots(place).await? == 0 {
            let (first, last) = (
                SLOTS * index / PRIMARIES,
                SLOTS * (index + 1) / PRIMARIES - 1,
            );
            ask(
                place.address,
                cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last),
            )
            .await?;
        }
    }
    for (place, primary) in places[PRIMARIES..].iter().zip(places) {
        let role = ask(place.address, &cmd("ROLE")).await?;
        let redis::Value::Array(role) = role else {
            return Err("the answer to ROLE is no list".into());
        };
        if word(role.first()).as_deref() == Some("master") {
            let id = ask(primary.address, cmd("CLUSTER").arg("MYID")).await?;
            let id = word(Some(&id)).ok_or("the answer to CLUSTER MYID is no text")?;
            ask(place.address, cmd("CLUSTER").arg("REPLICATE").arg(id)).await?;
        }
        let link = word(role.get(3)).unwrap_or_default();
        if link != "connected" {
            return Err(format!("{} is not in sync with {} yet", place.node, primary.node).into());
        }
    }
    for place in places {
        let known = state(place).await?;
        let state = known.get("cluster_state").map_or("", String::as_str);
        if state != "ok" || number(&known, "cluster_size") != PRIMARIES {
            return Err(format!("for {} the cluster is in the state {state:?}", place.node).into());
        }
    }
    Ok(())
}

/// Introduces all nodes to the first one, which introduces them to each other.
async fn meet(places: &[NodePlace]) -> Result<(), ClientError> {
    for other in &places[1..] {
        let (ip, port) = (other.address.ip().to_string(), other.address.port());
        let mut meet = cmd("CLUSTER");
        meet.arg("MEET").arg(ip).arg(port).arg(port + 1);
        ask(places[0].address, &meet).await?;
    }
    Ok(())
}

/// Number of slots that a node has itself.
async fn own_slots(place: &NodePlace) -> Result<usize, ClientError> {
    let nodes = ask(place.address, cmd("CLUSTER").arg("NODES")).await?;
    let nodes = word(Some(&nodes)).unwrap_or_default();
    let own = nodes.lines().find(|line| line.contains("myself"));
    // Eight fields come before the ranges.
    Ok(own.map_or(0, |line| line.split_whitespace().skip(8).count()))
}

/// The fields of `CLUSTER INFO`.
async fn state(place: &NodePlace) -> Result<BTreeMap<String, String>, ClientError> {
    let reply = ask(place.address, cmd("CLUSTER").arg("INFO")).await?;
    let text = word(Some(&reply)).unwrap_or_default();
    let pairs = text
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    Ok(pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

fn number(state: &BTreeMap<String, String>, name: &str) -> usize {
    state
        .get(name)
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}
