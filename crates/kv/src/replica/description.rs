//! A replica's description of itself for its status page and metrics.

use super::Replica;
use seatrial_consensus::Role;
use seatrial_machine::{DurationHistogram, LinePart, NodeId, StatusSheet, Time, thousands};
use std::collections::BTreeSet;
use std::time::Duration;

/// Counts of a replica since its start, for its description.
#[derive(Debug, Default)]
pub(super) struct ReplicaFigures {
    /// Times from the turn that took a request of a client here to the turn with its reply, of requests that write …
    pub(super) writes: DurationHistogram,
    /// … and of those that only read.
    pub(super) reads: DurationHistogram,
    /// Requests that were refused or dropped: malformed, or too much waits.
    pub(super) refused: u64,
    /// Commands that were executed, of all nodes' clients.
    pub(super) commands: u64,
    /// Blocks that were handed to the journal, and their bytes.
    pub(super) blocks: u64,
    pub(super) block_bytes: u64,
    /// When the newest checkpoint of this start became durable.
    pub(super) checkpointed: Option<Time>,
}

impl Replica {
    /// Adds role, requests, log, checkpoints and members to a sheet. Costs a pass over the members.
    pub(super) fn describe_all(&self, now: Time, sheet: &mut StatusSheet) {
        self.describe_facts(sheet);
        self.describe_requests(sheet);
        self.describe_log(sheet);
        self.describe_checkpoints(now, sheet);
        self.describe_state(sheet);
        self.describe_members(sheet);
    }

    fn describe_facts(&self, sheet: &mut StatusSheet) {
        let member = self.core.status();
        let leader = member.leader;
        sheet.fact("node", self.options.node.to_string());
        sheet.fact("role", member.role.name());
        sheet.fact(
            "leader",
            leader.map_or("none".to_owned(), |it| it.to_string()),
        );
        sheet.fact("term", thousands(member.term));
        sheet.fact("members", names(&self.members.voters));
        sheet.fact("cluster", self.options.cluster.to_string());
        sheet.fact("start", thousands(self.start));
        if self.rejoins.is_open() {
            sheet.fact("journal", "lost; silent until a leader lets it rejoin");
        }
        if let Some(error) = &self.checkpoints.last_error {
            sheet.fact("last error of a file", error.clone());
        }
        let leads = f64::from(u8::from(member.role == Role::Leader));
        sheet.gauge("kv_is_leader", "1 if this node leads its cluster", leads);
        let knows = f64::from(u8::from(leader.is_some()));
        let rejoins = f64::from(u8::from(self.rejoins.is_open()));
        let about = "1 while this node has lost its journal and has not rejoined";
        sheet.gauge("kv_rejoining", about, rejoins);
        let about = "1 if this node knows a leader";
        sheet.gauge("kv_has_leader", about, knows);
        sheet.gauge("kv_term", "Term of consensus", member.term as f64);
        sheet.gauge("kv_voters", "Voters of the cluster", self.voters() as f64);
    }

    fn describe_requests(&self, sheet: &mut StatusSheet) {
        let figures = &self.figures;
        let about = "Time from taking a request that writes to its reply, of clients of this node";
        sheet.durations("kv_write_seconds", about, &figures.writes);
        let about = "Time from taking a request that reads to its reply, of clients of this node";
        sheet.durations("kv_read_seconds", about, &figures.reads);
        let about = "Requests refused or dropped: malformed, or too much waits";
        sheet.counter("kv_requests_refused_total", about, figures.refused);
        let about = "Commands executed, of clients of all nodes";
        sheet.counter("kv_commands_total", about, figures.commands);
        sheet.chart(
            "Requests of clients of this node",
            &[
                ("writes", "kv_write_seconds", LinePart::Rate),
                ("reads", "kv_read_seconds", LinePart::Rate),
            ],
        );
        sheet.chart(
            "Latency in this node",
            &[
                ("write, median", "kv_write_seconds", LinePart::Quantile(0.5)),
                ("write, 99 %", "kv_write_seconds", LinePart::Quantile(0.99)),
                ("read, median", "kv_read_seconds", LinePart::Quantile(0.5)),
                ("read, 99 %", "kv_read_seconds", LinePart::Quantile(0.99)),
            ],
        );
    }

    fn describe_log(&self, sheet: &mut StatusSheet) {
        let member = self.core.status();
        for (name, about, index) in [
            ("kv_last_index", "Last entry of the log", member.last),
            (
                "kv_durable_index",
                "Last entry that is durable here",
                member.persisted,
            ),
            (
                "kv_committed_index",
                "Last committed entry",
                member.committed,
            ),
            ("kv_applied_index", "Last executed entry", self.applied.0),
        ] {
            sheet.gauge(name, about, index as f64);
        }
        let about = "Blocks written to the journal; each has a batch of entries";
        sheet.counter("kv_journal_blocks_total", about, self.figures.blocks);
        let about = "Bytes of blocks written to the journal";
        sheet.counter(
            "kv_journal_written_bytes_total",
            about,
            self.figures.block_bytes,
        );
        let about = "Bytes of the journal that are kept";
        sheet.gauge("kv_journal_bytes", about, self.journal.kept_bytes() as f64);
        let about = "Blocks of the journal that are not durable yet";
        sheet.gauge(
            "kv_journal_blocks_under_way",
            about,
            self.journal.under_way() as f64,
        );
        sheet.chart(
            "Log: commands executed, blocks written",
            &[
                ("commands", "kv_commands_total", LinePart::Rate),
                ("blocks", "kv_journal_blocks_total", LinePart::Rate),
            ],
        );
    }

    fn describe_checkpoints(&self, now: Time, sheet: &mut StatusSheet) {
        let checkpoints = self.checkpoint_status();
        let since = self.applied.0.saturating_sub(checkpoints.newest);
        let (written, is_writing) = self.checkpoints.progress();
        for (name, about, value) in [
            (
                "kv_checkpoint_index",
                "Last entry in the newest checkpoint",
                checkpoints.newest as f64,
            ),
            (
                "kv_checkpoint_bytes",
                "Bytes of the newest checkpoint",
                checkpoints.length as f64,
            ),
            (
                "kv_checkpoint_lag_entries",
                "Executed entries that are not in it",
                since as f64,
            ),
            (
                "kv_checkpoint_writing",
                "1 while a checkpoint is made",
                f64::from(u8::from(is_writing)),
            ),
            (
                "kv_checkpoint_written_bytes",
                "Bytes written of the one that is made",
                written as f64,
            ),
            (
                "kv_checkpoint_receiving",
                "1 while a checkpoint comes from another node",
                f64::from(u8::from(checkpoints.receiving.is_some())),
            ),
        ] {
            sheet.gauge(name, about, value);
        }
        if let Some(made) = self.figures.checkpointed {
            let about = "Time since this start made its newest checkpoint";
            sheet.gauge(
                "kv_checkpoint_age_seconds",
                about,
                now.since(made).as_secs_f64(),
            );
        }
        self.describe_checkpoint_counts(sheet);
        sheet.chart(
            "Entries after the newest checkpoint",
            &[("entries", "kv_checkpoint_lag_entries", LinePart::Level)],
        );
        let written = "kv_checkpoint_written_bytes";
        sheet.chart(
            "Checkpoint",
            &[
                ("newest", "kv_checkpoint_bytes", LinePart::Level),
                ("being written", written, LinePart::Level),
            ],
        );
    }

    fn describe_checkpoint_counts(&self, sheet: &mut StatusSheet) {
        let checkpoints = self.checkpoint_status();
        for (name, about, count) in [
            (
                "kv_checkpoints_made_total",
                "Checkpoints made",
                checkpoints.made,
            ),
            (
                "kv_checkpoints_of_changes_total",
                "Checkpoints made that hold the changes since a whole one",
                checkpoints.changes,
            ),
            (
                "kv_checkpoints_skipped_total",
                "Checkpoints skipped because one was under way or their base is not here",
                checkpoints.skipped,
            ),
            (
                "kv_checkpoints_failed_total",
                "Checkpoints given up after an error",
                checkpoints.failed,
            ),
            (
                "kv_checkpoints_received_total",
                "Checkpoints received from other nodes",
                checkpoints.received,
            ),
        ] {
            sheet.counter(name, about, count);
        }
        let about = "Checkpoint indices at which nodes report different contents";
        let different = checkpoints.different as f64;
        sheet.gauge("kv_checkpoints_different", about, different);
    }

    fn describe_state(&self, sheet: &mut StatusSheet) {
        let keys = self.state.items().len() as f64;
        sheet.gauge("kv_keys", "Keys", keys);
        let bytes = self.state.size() as f64;
        sheet.gauge("kv_state_bytes", "Bytes of keys and values", bytes);
        let sessions = self.state.session_count() as f64;
        sheet.gauge(
            "kv_sessions",
            "Open sessions of clients of all nodes",
            sessions,
        );
        sheet.chart("State", &[("bytes", "kv_state_bytes", LinePart::Level)]);
    }

    fn describe_members(&self, sheet: &mut StatusSheet) {
        let leader = self.core.status().leader;
        let row = |node: &NodeId, vote: &str| {
            let role = if Some(*node) == leader { "leader" } else { "" };
            let address = match self.addresses.get(node) {
                Some(address) => address.to_string(),
                None if *node == self.options.node => "this node".to_owned(),
                None => "from --peers".to_owned(),
            };
            vec![node.to_string(), vote.to_owned(), role.to_owned(), address]
        };
        let members = &self.members;
        let voters = members.voters.iter().map(|node| row(node, "votes"));
        let learners = members.learners.iter().map(|node| row(node, "learns"));
        let leaving = members.outgoing.difference(&members.voters);
        let leaving = leaving.map(|node| row(node, "leaves"));
        let rows = voters.chain(learners).chain(leaving).collect();
        sheet.table("Members", &["node", "vote", "role", "address"], rows);
    }

    /// Counts a reply to a request that was taken at `since`.
    pub(super) fn count_reply(&mut self, is_read: bool, since: Time) {
        let duration: Duration = self.now.since(since);
        if is_read {
            self.figures.reads.add(duration);
        } else {
            self.figures.writes.add(duration);
            let is_writing = self.checkpoints.is_writing();
            self.checkpoints.pace.replied(since, self.now, is_writing);
        }
    }
}

fn names(nodes: &BTreeSet<NodeId>) -> String {
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    names.join(" ")
}
