//! The hub: the message bus in real time, between the pipes of nodes and the inboxes of clients.

use crate::bus::{MessageBus, MessageDelivery};
use crate::diagram::diagram;
use crate::message_journal::JournalCounts;
use crate::message_network::{MessageLink, TransitCounts, TransitOptions};
use crate::node_message::{Body, EndpointName, NodeMessage};
use seatrial_machine::{Disturbance, Rng, Time};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

/// A handle of the hub; all clones share one bus.
///
/// The sender of a message also delivers everything that is due, under one lock, so that a message without latency takes no
/// hand-over between threads but the two of its pipes. A task delivers what becomes due later. Every queue of a program is
/// bounded: a program that does not read loses messages, which are counted.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    shared: Arc<HubShared>,
}

#[derive(Debug)]
struct HubShared {
    state: Mutex<HubState>,
    /// Wakes the task that delivers later messages: an earlier one was sent.
    timer: Notify,
    began: Instant,
    /// The number of the next request of any client.
    next_id: AtomicI64,
}

#[derive(Debug)]
struct HubState {
    bus: MessageBus,
    sinks: BTreeMap<EndpointName, MessageSink>,
    counts: DeliveryCounts,
    /// When the task will deliver next.
    alarm: Option<Time>,
    /// The harness's requests under way, by number.
    greetings: BTreeMap<i64, oneshot::Sender<NodeMessage>>,
    out: Vec<MessageDelivery>,
}

/// Where the messages of an endpoint go.
#[derive(Clone, Debug)]
pub(crate) enum MessageSink {
    /// Lines for the standard input of a node.
    Node(SyncSender<Vec<u8>>),
    /// Messages for a client.
    Client(mpsc::Sender<NodeMessage>),
    /// Replies to [`Hub::greet`].
    Harness,
}

/// Messages that reached no program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryCounts {
    /// For a node that was down, or a client that has been closed.
    pub(crate) down: u64,
    /// For a program whose queue was full, because it did not read.
    pub(crate) full: u64,
}

/// The endpoint from which the harness greets nodes.
const HARNESS: &str = "c0";
/// Lines that wait for a node that does not read.
pub(crate) const NODE_QUEUE_MAX: usize = 1 << 16;
/// Messages that wait for a client.
pub(crate) const CLIENT_QUEUE_MAX: usize = 64;
/// The task that delivers later messages looks this often whether the hub still exists.
const TIMER_MAX: Duration = Duration::from_millis(200);

/// What passed through the hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubFigures {
    /// Messages sent and arrived.
    pub(crate) journal: JournalCounts,
    /// Messages that the network lost, duplicated or dropped.
    pub(crate) transit: TransitCounts,
    /// Messages that reached no program.
    pub(crate) delivery: DeliveryCounts,
    /// Violations of the protocol.
    pub(crate) violations: u64,
}

impl Hub {
    /// A hub without endpoints. Its time begins now.
    pub(crate) fn new(options: TransitOptions, rng: &Rng) -> Hub {
        let shared = Arc::new(HubShared {
            state: Mutex::new(HubState {
                bus: MessageBus::new(options, rng),
                sinks: BTreeMap::new(),
                counts: DeliveryCounts::default(),
                alarm: None,
                greetings: BTreeMap::new(),
                out: Vec::new(),
            }),
            timer: Notify::new(),
            began: Instant::now(),
            next_id: AtomicI64::new(1),
        });
        Hub { shared }
    }

    /// Delivers what becomes due later, in a task of the present runtime, until the last handle is gone.
    pub(crate) fn start_timer(&self) {
        tokio::spawn(deliver_later(Arc::downgrade(&self.shared)));
    }

    /// A number for a request that no other request has.
    pub(crate) fn next_id(&self) -> i64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The messages of `name` go to `sink` from now on.
    pub(crate) fn attach(&self, name: EndpointName, sink: MessageSink) {
        self.shared.state().sinks.insert(name, sink);
    }

    /// An inbox for the client `name`; an earlier one ends.
    pub(crate) fn inbox(&self, name: EndpointName) -> mpsc::Receiver<NodeMessage> {
        let (sender, inbox) = mpsc::channel(CLIENT_QUEUE_MAX);
        self.attach(name, MessageSink::Client(sender));
        inbox
    }

    /// Sends a message, and delivers everything that is due.
    pub(crate) fn send(&self, message: NodeMessage) {
        let now = self.shared.now();
        let mut state = self.shared.state();
        state.bus.send(now, message);
        state.deliver(now);
        let due = state.bus.network.next_due();
        let is_earlier = due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm));
        drop(state);
        if is_earlier {
            self.shared.timer.notify_one();
        }
    }

    /// Sends a request of the harness to `node`; the reply comes through the returned channel.
    pub(crate) fn greet(
        &self,
        node: &EndpointName,
        mut request: Body,
    ) -> oneshot::Receiver<NodeMessage> {
        let harness = EndpointName::new(HARNESS);
        let (sender, reply) = oneshot::channel();
        let id = self.next_id();
        request.insert("msg_id".into(), id.into());
        let mut state = self.shared.state();
        // Requests that were given up: their receivers are gone.
        state.greetings.retain(|_, sender| !sender.is_closed());
        state.greetings.insert(id, sender);
        state.sinks.insert(harness.clone(), MessageSink::Harness);
        drop(state);
        self.send(NodeMessage {
            src: harness,
            dest: node.clone(),
            body: request,
        });
        reply
    }

    /// Records that a program broke the protocol.
    pub(crate) fn violation(&self, text: String) {
        self.shared.state().bus.violation(text);
    }

    /// Violations of the protocol that were found since the last call.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        self.shared.state().bus.take_violations()
    }

    /// Cuts links until [`Hub::heal`].
    pub(crate) fn cut(&self, links: impl IntoIterator<Item = MessageLink>) {
        self.shared.state().bus.network.cut(links);
    }

    /// Ends all cuts.
    pub(crate) fn heal(&self) {
        self.shared.state().bus.network.heal();
    }

    /// Disturbs links until [`Hub::calm`].
    pub(crate) fn disturb(&self, links: impl IntoIterator<Item = MessageLink>, how: Disturbance) {
        let now = self.shared.now();
        self.shared.state().bus.network.disturb(now, links, how);
    }

    /// Ends all disturbances.
    pub(crate) fn calm(&self) {
        self.shared.state().bus.network.calm();
    }

    /// Messages that the faults of these links have met: (dropped by cuts, sent over disturbed links).
    pub(crate) fn traffic(&self, links: impl IntoIterator<Item = MessageLink>) -> (u64, u64) {
        let state = self.shared.state();
        links.into_iter().fold((0, 0), |(cut, disturbed), link| {
            let traffic = state.bus.network.traffic(&link);
            (cut + traffic.cut, disturbed + traffic.disturbed)
        })
    }

    /// What passed through the hub so far.
    pub(crate) fn figures(&self) -> HubFigures {
        let state = self.shared.state();
        HubFigures {
            journal: state.bus.journal.counts(),
            transit: state.bus.network.counts(),
            delivery: state.counts,
            violations: state.bus.violation_count(),
        }
    }

    /// The diagram of the first messages.
    pub(crate) fn diagram(&self) -> String {
        let state = self.shared.state();
        let journal = &state.bus.journal;
        let (events, sent) = (journal.events().to_vec(), journal.counts().sent);
        drop(state);
        let omitted = sent.saturating_sub(events.len() as u64);
        diagram(&events, omitted)
    }
}

impl HubShared {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }
}

impl HubState {
    /// Delivers everything that has arrived by `now`.
    fn deliver(&mut self, now: Time) {
        let HubState {
            bus,
            sinks,
            counts,
            greetings,
            out,
            ..
        } = self;
        bus.advance(now, |name| sinks.contains_key(name), out);
        for MessageDelivery { number, message } in out.drain(..) {
            let Some(sink) = sinks.get(&message.dest) else {
                counts.down += 1;
                continue;
            };
            // `Some(true)`: the queue is full; `Some(false)`: its reader has ended.
            let failure = match sink {
                MessageSink::Node(lines) => {
                    let sent = lines.try_send(message.line(number));
                    let is_full = |error| matches!(error, std::sync::mpsc::TrySendError::Full(_));
                    sent.err().map(is_full)
                }
                MessageSink::Client(inbox) => {
                    let sent = inbox.try_send(message);
                    let is_full = |error| matches!(error, mpsc::error::TrySendError::Full(_));
                    sent.err().map(is_full)
                }
                MessageSink::Harness => {
                    let waiting = message.in_reply_to().and_then(|id| greetings.remove(&id));
                    let sent = waiting.map(|sender| sender.send(message));
                    sent.is_none_or(|sent| sent.is_err()).then_some(false)
                }
            };
            match failure {
                Some(true) => counts.full += 1,
                Some(false) => counts.down += 1,
                None => {}
            }
        }
    }
}

/// The task that delivers what becomes due later. It ends with the hub.
async fn deliver_later(hub: Weak<HubShared>) {
    loop {
        let Some(shared) = hub.upgrade() else {
            return;
        };
        let now = shared.now();
        let due = {
            let mut state = shared.state();
            state.deliver(now);
            let due = state.bus.network.next_due();
            state.alarm = due;
            due
        };
        let wait = due.map_or(TIMER_MAX, |due| due.since(now).min(TIMER_MAX));
        let _ = timeout(wait, shared.timer.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_message::body;

    fn name(name: &str) -> EndpointName {
        EndpointName::new(name)
    }

    fn message(src: &str, dest: &str, kind: &str, field: &'static str, id: i64) -> NodeMessage {
        NodeMessage {
            src: name(src),
            dest: name(dest),
            body: body(kind, [(field, id.into())]),
        }
    }

    #[tokio::test]
    async fn messages_go_to_pipes_and_inboxes_and_back() {
        let options = TransitOptions {
            latency: Duration::from_millis(20),
            ..TransitOptions::default()
        };
        let hub = Hub::new(options, &Rng::from_seed(1));
        hub.start_timer();
        let (lines, pipe) = std::sync::mpsc::sync_channel(1);
        hub.attach(name("n1"), MessageSink::Node(lines));
        // A node that is down.
        hub.attach(
            name("n2"),
            MessageSink::Node(std::sync::mpsc::sync_channel(1).0),
        );
        let mut inbox = hub.inbox(name("c1"));
        let id = hub.next_id();
        hub.send(message("c1", "n1", "echo", "msg_id", id));
        let line = pipe.try_recv().expect("a client's message has no latency");
        assert!(line.starts_with(br#"{"id":0,"src":"c1","dest":"n1""#));
        hub.send(message("n1", "c1", "echo_ok", "in_reply_to", id));
        assert_eq!(inbox.recv().await.unwrap().kind(), "echo_ok");
        // A service answers after two latencies, by the task.
        let began = Instant::now();
        hub.send(message("n1", "lin-tso", "ts", "msg_id", 5));
        let line = tokio::task::spawn_blocking(move || (pipe.recv().unwrap(), pipe)).await;
        let (line, pipe) = line.unwrap();
        assert!(String::from_utf8(line).unwrap().contains("ts_ok"));
        assert!(began.elapsed() >= Duration::from_millis(40));
        // The node does not read.
        for _ in 0..3 {
            hub.send(message("c1", "n1", "echo", "msg_id", hub.next_id()));
        }
        hub.send(message("c1", "n2", "echo", "msg_id", hub.next_id()));
        let delivery = hub.figures().delivery;
        assert_eq!(delivery, DeliveryCounts { down: 1, full: 2 });
        drop(pipe);
        assert!(hub.diagram().contains("lin-tso"));
    }
}
