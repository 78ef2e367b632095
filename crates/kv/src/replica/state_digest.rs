//! Digests of a replica's state at an index, by which replicas are compared.

use super::Replica;
use crate::checkpoint::CheckpointWriter;
use seatrial_kv_protocol::message::MessageHeader;
use seatrial_kv_protocol::{Outcome, StateDigest, status_message};
use seatrial_machine::{Computed, Job, NodeId, Output};

/// Requests for a digest that may wait at once; further ones are answered without.
const WAITING_MAX: usize = 64;
/// Bytes of the checkpoint that are encoded at a time.
const SLICE: usize = 256 << 10;

/// Requests for the status with a digest. A job computes the digest from a snapshot, at about 1 GB/s beside the machine; one job
/// at a time, for all that wait. The last digest is kept: a state that does not change costs one job, however often it is asked
/// for.
#[derive(Debug, Default)]
pub(super) struct StateDigests {
    /// The last digest, with the term of its entry.
    newest: Option<(StateDigest, u64)>,
    /// Endpoint and token of each request.
    waiting: Vec<(NodeId, u64)>,
    is_under_way: bool,
}

/// Computes the digest of a snapshot.
struct DigestJob(CheckpointWriter, u64);

/// Its result, with the term of the entry.
struct ComputedDigest(StateDigest, u64);

impl Job for DigestJob {
    fn run(self: Box<Self>) -> Computed {
        let DigestJob(writer, term) = *self;
        Box::new(ComputedDigest(digest_of(writer), term))
    }
}

/// The digest of the checkpoint that this writer begins. Frees its snapshot.
fn digest_of(mut writer: CheckpointWriter) -> StateDigest {
    let index = writer.index();
    while writer.next(SLICE).is_some() {}
    StateDigest {
        index,
        bytes: writer.finish().digest,
    }
}

impl Replica {
    /// The digest of the present state, computed at once: for simulations and tests. Takes a pass over the state.
    pub fn state_digest(&self) -> StateDigest {
        digest_of(self.digest_writer())
    }

    fn digest_writer(&self) -> CheckpointWriter {
        CheckpointWriter::new(self.state.snapshot(), self.checkpoint_head())
    }

    /// Replies to a request for the status, later if it asks for a digest that is not known.
    pub(super) fn show_status(
        &mut self,
        from: NodeId,
        header: &MessageHeader,
        bytes: &[u8],
        out: &mut Vec<Output<Outcome>>,
    ) {
        let Some(wants_digest) = status_message::request(header, bytes) else {
            return;
        };
        let request = (from, header.first);
        let known = self.known_digest();
        let can_wait = wants_digest && known.is_none() && self.can_compute_digest();
        if !can_wait {
            return self.send_status(request, known.filter(|_| wants_digest), out);
        }
        // A request that is sent again waits once.
        if !self.digests.waiting.contains(&request) {
            self.digests.waiting.push(request);
        }
        self.begin_digest(out);
    }

    /// The digest of the present state, if it is known.
    fn known_digest(&self) -> Option<StateDigest> {
        let is_present = |it: &&(StateDigest, u64)| (it.0.index, it.1) == self.applied;
        self.digests
            .newest
            .as_ref()
            .filter(is_present)
            .map(|it| it.0)
    }

    fn can_compute_digest(&self) -> bool {
        self.is_running() && self.applied.0 > 0 && self.digests.waiting.len() < WAITING_MAX
    }

    fn begin_digest(&mut self, out: &mut Vec<Output<Outcome>>) {
        if std::mem::replace(&mut self.digests.is_under_way, true) {
            return;
        }
        let job = DigestJob(self.digest_writer(), self.applied.1);
        let ticket = self.next_job();
        out.push(Output::Compute(Box::new(job), ticket));
    }

    /// Takes the result of a job; returns it if it is not a digest.
    pub(super) fn digest_computed(
        &mut self,
        result: Computed,
        out: &mut Vec<Output<Outcome>>,
    ) -> Option<Computed> {
        let ComputedDigest(digest, term) = match result.downcast::<ComputedDigest>() {
            Ok(computed) => *computed,
            Err(other) => return Some(other),
        };
        self.digests.newest = Some((digest, term));
        self.digests.is_under_way = false;
        for request in std::mem::take(&mut self.digests.waiting) {
            self.send_status(request, Some(digest), out);
        }
        None
    }

    fn send_status(
        &self,
        (to, token): (NodeId, u64),
        digest: Option<StateDigest>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let mut status = self.status();
        status.digest = digest;
        let message = status_message::encode(&status, token);
        out.push(Output::Send { to, message });
    }
}

impl StateDigests {
    pub(super) fn check_invariants(&self) {
        assert!(self.waiting.len() <= WAITING_MAX);
        assert!(self.is_under_way || self.waiting.is_empty());
    }
}
