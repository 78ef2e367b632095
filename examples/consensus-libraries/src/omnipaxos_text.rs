//! Messages of omnipaxos in words, for traces.

use crate::command::Command;
use crate::omnipaxos_store::LoggedCommand;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::{Compaction, PaxosMsg};
use omnipaxos::storage::SnapshotType;
use omnipaxos::util::{LogSync, SequenceNumber};

fn ballot(ballot: &Ballot) -> String {
    format!("({},{})", ballot.n, ballot.pid)
}

fn place(number: SequenceNumber) -> String {
    format!("session {} number {}", number.session, number.counter)
}

fn list<const SNAPSHOTS: bool>(entries: &[LoggedCommand<SNAPSHOTS>]) -> String {
    let items = entries.iter().map(|entry| match entry.0 {
        Command::Append(value) => value.to_string(),
        Command::Read(_) => "read".to_owned(),
    });
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// A message in words; `None` for heartbeats.
pub(crate) fn describe_message<const SNAPSHOTS: bool>(
    message: &Message<LoggedCommand<SNAPSHOTS>>,
) -> Option<String> {
    let Message::SequencePaxos(message) = message else {
        return None;
    };
    Some(match &message.msg {
        PaxosMsg::AcceptSync(sync) => {
            let (number, decided) = (place(sync.seq_num), sync.decided_idx);
            let content = log_sync(&sync.log_sync);
            format!(
                "AcceptSync {} {number}, decided {decided}, {content}",
                ballot(&sync.n)
            )
        }
        PaxosMsg::AcceptDecide(accept) => {
            let (number, decided) = (place(accept.seq_num), accept.decided_idx);
            let entries = list(&accept.entries);
            format!(
                "AcceptDecide {} {number}, decided {decided}, entries {entries}",
                ballot(&accept.n)
            )
        }
        PaxosMsg::Accepted(accepted) => {
            format!(
                "Accepted {}, accepted {}",
                ballot(&accepted.n),
                accepted.accepted_idx
            )
        }
        PaxosMsg::Decide(decide) => {
            let (number, decided) = (place(decide.seq_num), decide.decided_idx);
            format!("Decide {} {number}, decided {decided}", ballot(&decide.n))
        }
        PaxosMsg::ProposalForward(entries) => format!("ProposalForward {}", list(entries)),
        PaxosMsg::AcceptStopSign(stop) => {
            format!("AcceptStopSign {} {}", ballot(&stop.n), place(stop.seq_num))
        }
        PaxosMsg::ForwardStopSign(_) => "ForwardStopSign".to_owned(),
        PaxosMsg::Compaction(Compaction::Trim(index)) => format!("Compaction trim {index}"),
        PaxosMsg::Compaction(Compaction::Snapshot(index)) => {
            format!("Compaction snapshot {index:?}")
        }
        other => describe_prepare(other),
    })
}

/// The messages of the prepare phase.
fn describe_prepare<const SNAPSHOTS: bool>(message: &PaxosMsg<LoggedCommand<SNAPSHOTS>>) -> String {
    let (name, n, decided, accepted, accepted_in) = match message {
        PaxosMsg::PrepareReq(request) => return format!("PrepareReq {}", ballot(&request.n)),
        PaxosMsg::NotAccepted(refusal) => return format!("NotAccepted {}", ballot(&refusal.n)),
        PaxosMsg::Prepare(it) => (
            "Prepare",
            &it.n,
            it.decided_idx,
            it.accepted_idx,
            &it.n_accepted,
        ),
        PaxosMsg::Promise(it) => (
            "Promise",
            &it.n,
            it.decided_idx,
            it.accepted_idx,
            &it.n_accepted,
        ),
        other => return format!("{other:?}"),
    };
    let sync = match message {
        PaxosMsg::Promise(promise) => promise.log_sync.as_ref(),
        _ => None,
    };
    let sync = sync.map_or(String::new(), |sync| format!(", {}", log_sync(sync)));
    format!(
        "{name} {}, decided {decided}, accepted {accepted} in {}{sync}",
        ballot(n),
        ballot(accepted_in)
    )
}

fn log_sync<const SNAPSHOTS: bool>(sync: &LogSync<LoggedCommand<SNAPSHOTS>>) -> String {
    let snapshot = match &sync.decided_snapshot {
        None => String::new(),
        Some(SnapshotType::Complete(all)) => {
            format!("complete snapshot of {} entries, ", all.0.len())
        }
        Some(SnapshotType::Delta(delta)) => {
            format!("delta snapshot of {} entries, ", delta.0.len())
        }
    };
    let stop = if sync.stopsign.is_some() {
        ", stop-sign"
    } else {
        ""
    };
    format!(
        "{snapshot}log from {} on {}{stop}",
        sync.sync_idx,
        list(&sync.suffix)
    )
}
