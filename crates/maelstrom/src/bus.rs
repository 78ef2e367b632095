//! The message bus of a test: the network, the services on it, the journal, and the rules that replies must keep.

use crate::message_journal::MessageJournal;
use crate::message_network::{Arrival, MessageNetwork, TransitOptions};
use crate::node_message::{EndpointName, NodeMessage};
use crate::service::Service;
use seatrial_machine::{Rng, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything that happens to a message between two programs. It owns the network, the services and the journal; a driver
/// gives it
/// the messages that programs send and the time, and carries out the deliveries that it returns. Deterministic: the same
/// calls, the
/// same deliveries.
#[derive(Debug)]
pub(crate) struct MessageBus {
    /// The network, for faults of links.
    pub(crate) network: MessageNetwork,
    services: BTreeMap<EndpointName, Service>,
    /// What was sent and when it arrived.
    pub(crate) journal: MessageJournal,
    requests: BTreeMap<EndpointName, ClientRequests>,
    /// Names that messages were sent to and that no endpoint has.
    unknown: BTreeSet<EndpointName>,
    violations: Violations,
}

/// The requests of one client, by number.
#[derive(Debug, Default)]
struct ClientRequests {
    open: BTreeMap<i64, EndpointName>,
    /// The numbers that were answered last, oldest first.
    answered: VecDeque<i64>,
}

/// Numbers that are kept to find second replies.
const ANSWERED_MAX: usize = 256;
/// Requests without a reply that are kept; of more, the newest.
const OPEN_MAX: usize = 1_024;

/// Texts of broken rules that have not been taken yet.
#[derive(Debug, Default)]
struct Violations {
    texts: Vec<String>,
    /// Violations so far, also those whose text was dropped.
    count: u64,
}

/// The most texts that wait.
const VIOLATIONS_MAX: usize = 64;

/// A message for a node or a client.
#[derive(Debug)]
pub(crate) struct MessageDelivery {
    /// The number of the message.
    pub(crate) number: u64,
    /// The message.
    pub(crate) message: NodeMessage,
}

impl MessageBus {
    /// A bus without traffic. `rng` decides latencies, losses and the choices of services.
    pub(crate) fn new(options: TransitOptions, rng: &Rng) -> MessageBus {
        MessageBus {
            network: MessageNetwork::new(options, rng.fork("network")),
            services: Service::all(&rng.fork("services")),
            journal: MessageJournal::default(),
            requests: BTreeMap::new(),
            unknown: BTreeSet::new(),
            violations: Violations::default(),
        }
    }

    /// A program sends a message.
    pub(crate) fn send(&mut self, now: Time, message: NodeMessage) {
        if message.src.is_client()
            && let Some(id) = message.id()
        {
            let requests = self.requests.entry(message.src.clone()).or_default();
            requests.open.insert(id, message.dest.clone());
            if requests.open.len() > OPEN_MAX {
                requests.open.pop_first();
            }
        }
        self.transmit(now, message);
    }

    fn transmit(&mut self, now: Time, message: NodeMessage) {
        let draft = self.journal.draft(now, &message);
        let number = self.network.send(now, message);
        self.journal.sent(number, draft);
    }

    /// Delivers everything that has arrived by `now`: services answer, messages for nodes and clients are pushed onto `out`.
    /// `is_endpoint` knows the names of nodes and clients.
    pub(crate) fn advance(
        &mut self,
        now: Time,
        is_endpoint: impl Fn(&EndpointName) -> bool,
        out: &mut Vec<MessageDelivery>,
    ) {
        while let Some(arrival) = self.network.pop_due(now) {
            let Arrival {
                number,
                sent,
                message,
            } = arrival;
            debug_assert!(sent <= now, "a message arrives before it is sent");
            self.journal.arrived(number, now, &message);
            if let Some(service) = self.services.get_mut(&message.dest) {
                let reply = answer(service, &message);
                self.transmit(now, reply);
            } else if !is_endpoint(&message.dest) {
                self.unknown_destination(&message);
            } else if !message.dest.is_client() || self.is_awaited(&message) {
                out.push(MessageDelivery { number, message });
            }
        }
    }

    /// Does a client wait for this message? A reply that breaks a rule is recorded.
    fn is_awaited(&mut self, reply: &NodeMessage) -> bool {
        let requests = self.requests.entry(reply.dest.clone()).or_default();
        let (src, dest, kind) = (&reply.src, &reply.dest, reply.kind());
        let Some(id) = reply.in_reply_to() else {
            let text = format!("{src} sent {kind} to client {dest} without in_reply_to");
            self.violation(text);
            return false;
        };
        if let Some(asked) = requests.open.remove(&id) {
            requests.answered.push_back(id);
            if requests.answered.len() > ANSWERED_MAX {
                requests.answered.pop_front();
            }
            if asked != *src {
                let text = format!("{src} answered message {id} of {dest}, which was for {asked}");
                self.violation(text);
            }
            return true;
        }
        if requests.answered.contains(&id) {
            let text = format!("{src} answered message {id} of {dest} a second time, with {kind}");
            self.violation(text);
        } else if requests.answered.back().is_none_or(|&last| id > last) {
            let text = format!("{src} answered message {id} of {dest}, which {dest} never sent");
            self.violation(text);
        }
        false
    }

    fn unknown_destination(&mut self, message: &NodeMessage) {
        if self.unknown.len() < VIOLATIONS_MAX && self.unknown.insert(message.dest.clone()) {
            let (src, dest, kind) = (&message.src, &message.dest, message.kind());
            self.violation(format!(
                "{src} sent {kind} to {dest}, which is no node, client or service"
            ));
        }
    }

    /// Records that a program broke the protocol.
    pub(crate) fn violation(&mut self, text: String) {
        self.violations.count += 1;
        if self.violations.texts.len() < VIOLATIONS_MAX {
            self.violations.texts.push(text);
        }
    }

    /// The texts of violations since the last call.
    pub(crate) fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations.texts)
    }

    /// Number of violations so far.
    pub(crate) const fn violation_count(&self) -> u64 {
        self.violations.count
    }
}

/// The reply of a service to a message.
fn answer(service: &mut Service, request: &NodeMessage) -> NodeMessage {
    let mut body = service.answer(&request.src, &request.body);
    if let Some(id) = request.id() {
        body.insert("in_reply_to".into(), id.into());
    }
    NodeMessage {
        src: request.dest.clone(),
        dest: request.src.clone(),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_message::body;
    use std::time::Duration;

    fn bus() -> MessageBus {
        MessageBus::new(TransitOptions::default(), &Rng::from_seed(1))
    }

    fn message(src: &str, dest: &str, kind: &str, name: &'static str, id: i64) -> NodeMessage {
        NodeMessage {
            src: EndpointName::new(src),
            dest: EndpointName::new(dest),
            body: body(kind, [(name, id.into())]),
        }
    }

    fn delivered(bus: &mut MessageBus) -> Vec<String> {
        let mut out = Vec::new();
        let is_known = |name: &EndpointName| name.is_client() || name.as_str() == "n1";
        bus.advance(Time::ZERO, is_known, &mut out);
        let shown = out.iter().map(|delivery| {
            let NodeMessage { src, dest, .. } = &delivery.message;
            format!("{src} {dest} {}", delivery.message.kind())
        });
        shown.collect()
    }

    #[test]
    fn services_answer_nodes() {
        let mut bus = bus();
        bus.send(Time::ZERO, message("n1", "lin-tso", "ts", "msg_id", 4));
        assert_eq!(delivered(&mut bus), ["lin-tso n1 ts_ok"]);
        assert_eq!(bus.take_violations(), [""; 0]);
    }

    #[test]
    fn replies_to_clients_keep_the_rules() {
        let mut bus = bus();
        let reply = |bus: &mut MessageBus, id| {
            bus.send(
                Time::ZERO,
                message("n1", "c1", "echo_ok", "in_reply_to", id),
            );
            (delivered(bus), bus.take_violations())
        };
        bus.send(Time::ZERO, message("c1", "n1", "echo", "msg_id", 1));
        assert_eq!(delivered(&mut bus), ["c1 n1 echo"]);
        let (first, broken) = reply(&mut bus, 1);
        assert_eq!((first.len(), broken.len()), (1, 0));
        let (second, broken) = reply(&mut bus, 1);
        assert_eq!(second, [""; 0]);
        assert_eq!(
            broken,
            ["n1 answered message 1 of c1 a second time, with echo_ok"]
        );
        let (_, broken) = reply(&mut bus, 9);
        assert_eq!(broken, ["n1 answered message 9 of c1, which c1 never sent"]);
        bus.send(Time::ZERO, message("n1", "c1", "echo_ok", "msg_id", 1));
        assert_eq!(delivered(&mut bus), [""; 0]);
        assert_eq!(
            bus.take_violations(),
            ["n1 sent echo_ok to client c1 without in_reply_to"]
        );
        assert_eq!(bus.violation_count(), 3);
    }

    #[test]
    fn an_unknown_destination_is_a_violation_once() {
        let mut bus = bus();
        for _ in 0..3 {
            bus.send(Time::ZERO, message("n1", "n7", "gossip", "msg_id", 1));
        }
        assert_eq!(delivered(&mut bus), [""; 0]);
        assert_eq!(
            bus.take_violations(),
            ["n1 sent gossip to n7, which is no node, client or service"]
        );
    }

    #[test]
    fn a_million_messages_take_little_memory() {
        let mut bus = bus();
        let mut now = Time::ZERO;
        for id in 0..50_000 {
            bus.send(now, message("c1", "n1", "echo", "msg_id", id));
            let mut out = Vec::new();
            bus.advance(now, |_| true, &mut out);
            assert_eq!(out.len(), 1);
            now += Duration::from_micros(10);
        }
        assert!(bus.requests[&EndpointName::new("c1")].open.len() <= OPEN_MAX);
        assert!(bus.journal.len() <= crate::message_journal::EVENTS_MAX);
    }
}
