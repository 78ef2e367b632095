//! The models of real time: regular and safe registers, and how stale each key is.

use crate::consistency::ConsistencyTally;
use crate::consistency_explanation as explain;
use crate::consistency_model::ConsistencyModel;
use crate::real_time_reads::real_time_violations;
use crate::register_history::RegisterHistory;
use crate::time_staleness::{TimeStaleness, time_staleness};
use crate::value_clusters::{WriteCluster, clusters_of};
use crate::version_staleness::{StalenessAnswer, VersionOrder, certain_staleness, unordered_core};
use seatrial_cycles::Csr;
use serde_json::json;

/// Numbers of versions that are tried above those that are certain, to find the least one.
const VERSIONS_TRIED: usize = 16;

/// How stale the history is.
#[derive(Default)]
struct HistoryStaleness {
    /// The least *k* of all keys is at least this, and more if a key is open.
    least: usize,
    has_open_keys: bool,
    delta: i64,
}

/// How many versions the reads of a key are stale.
struct KeyStaleness {
    /// The least *k* is at least, and at most.
    least: usize,
    most: Option<usize>,
    /// A read of a version that is certainly `least` versions old, if that is why.
    stalest: Option<u32>,
    /// Clusters that have no order with `least - 1` versions, if that is why.
    remaining: Vec<WriteCluster>,
}

impl ConsistencyTally {
    /// Regular and safe registers.
    pub(crate) fn check_real_time(&mut self, model: ConsistencyModel, history: &RegisterHistory) {
        let is_safe = model == ConsistencyModel::Safe;
        let counts = real_time_violations(history, is_safe, |it| {
            self.findings.add(explain::real_time_name(it), || {
                explain::real_time(history, it)
            });
        });
        self.counts.insert("reads", counts.reads);
        if is_safe {
            self.counts.insert("unconstrained_reads", counts.free);
        }
    }

    /// Staleness by versions or by time, key by key: both are local, as linearizability is.
    pub(crate) fn check_staleness(&mut self, model: ConsistencyModel, history: &RegisterHistory) {
        let mut initial = vec![0; history.keys.len()];
        for (version, number) in history.versions.iter().zip(0..) {
            if version.is_initial() {
                initial[version.key as usize] = number;
            }
        }
        let is_timed = history.times.len() == history.actions.len();
        if !is_timed && matches!(model, ConsistencyModel::TimeStaleness(_)) {
            self.unknown = Some("the times of operations are not known, or do not rise".into());
            return;
        }
        let readers = history.readers();
        let members = history.actions.iter().zip(0..);
        let members = members.map(|(action, number)| (action.key, number));
        let by_key = Csr::group(history.keys.len(), members);
        let mut all = HistoryStaleness::default();
        for (members, initial) in by_key.rows().zip(initial) {
            match clusters_of(history, &readers, members, initial) {
                Ok(clusters) => self.check_key(model, history, &clusters, &mut all),
                Err(read) => {
                    let it = crate::real_time_reads::RealTimeViolation::Early { read };
                    self.findings.add(explain::real_time_name(it), || {
                        explain::real_time(history, it)
                    });
                }
            }
        }
        if self
            .findings
            .names()
            .any(|name| name == explain::EARLY_READ)
        {
            // No number of versions and no time explains such a read.
            return;
        }
        let smallest = if all.has_open_keys {
            json!({"at_least": all.least})
        } else {
            json!(all.least)
        };
        self.figures.insert("smallest_k", smallest);
        if is_timed {
            self.figures.insert("smallest_delta_ns", all.delta.into());
        }
    }

    fn check_key(
        &mut self,
        model: ConsistencyModel,
        history: &RegisterHistory,
        clusters: &[WriteCluster],
        all: &mut HistoryStaleness,
    ) {
        let wanted = match model {
            ConsistencyModel::VersionStaleness(versions) => versions as usize,
            _ => 1,
        };
        let versions = versions_of(history, clusters, wanted);
        all.least = all.least.max(versions.least);
        all.has_open_keys |= versions.most != Some(versions.least);
        if !history.times.is_empty() {
            let timed = time_staleness(history, clusters);
            all.delta = all.delta.max(timed.delta);
            if let ConsistencyModel::TimeStaleness(time) = model
                && timed.delta > time
            {
                self.add_time(history, clusters, timed);
            }
        }
        if let ConsistencyModel::VersionStaleness(_) = model {
            self.conclude_versions(history, versions, wanted);
        }
    }

    fn add_time(
        &mut self,
        history: &RegisterHistory,
        clusters: &[WriteCluster],
        timed: TimeStaleness,
    ) {
        let (one, other) = timed.conflict.expect("a stale key has two values");
        let pair = [&clusters[one as usize], &clusters[other as usize]];
        self.findings.add(explain::STALE_READ, || {
            explain::stale_by_time(history, pair, timed.delta)
        });
    }

    fn conclude_versions(
        &mut self,
        history: &RegisterHistory,
        versions: KeyStaleness,
        wanted: usize,
    ) {
        if versions.most.is_some_and(|most| most <= wanted) {
            return;
        }
        if versions.least <= wanted {
            self.unknown.get_or_insert_with(|| {
                format!(
                    "the search for an order in which each read returns one of the last {wanted} writes reached its bound"
                )
            });
            return;
        }
        self.findings.add(explain::STALE_READ, || {
            if let Some(read) = versions.stalest {
                return explain::stale_by_versions(history, read, versions.least);
            }
            let core = unordered_core(history, versions.remaining, wanted);
            explain::no_fresh_order(history, &core, wanted)
        });
    }
}

/// The least number of versions for which a key has an order, as far as it is found; that it is more than `wanted` is
/// explained.
fn versions_of(
    history: &RegisterHistory,
    clusters: &[WriteCluster],
    wanted: usize,
) -> KeyStaleness {
    let certain = certain_staleness(history, clusters);
    let between = certain.map_or(0, |(between, _)| between);
    let mut staleness = KeyStaleness {
        least: between + 1,
        most: None,
        stalest: certain.map(|(_, read)| read),
        remaining: Vec::new(),
    };
    for k in between + 1..=(between + VERSIONS_TRIED).max(wanted) {
        let mut order = VersionOrder::new(history, clusters, k);
        match order.decide() {
            StalenessAnswer::Holds => {
                staleness.most = Some(k);
                break;
            }
            StalenessAnswer::Fails => {
                staleness.least = k + 1;
                if k == wanted {
                    staleness.stalest = None;
                    staleness.remaining = order.remaining();
                }
            }
            StalenessAnswer::Open => {}
        }
    }
    staleness
}
