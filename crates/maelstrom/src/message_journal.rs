//! The journal of messages: counts of all, and the first ones in full for the diagram.

use crate::node_message::{EndpointName, NodeMessage};
use seatrial_machine::Time;
use serde_json::{Value as Json, json};

/// Number of messages that are kept for the diagram.
pub(crate) const EVENTS_MAX: usize = 2_000;

/// Counts of messages, and the first [`EVENTS_MAX`] of them.
#[derive(Debug, Default)]
pub(crate) struct MessageJournal {
    events: Vec<MessageEvent>,
    counts: JournalCounts,
}

/// Messages that were sent, and those that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalCounts {
    /// All messages sent.
    pub(crate) sent: u64,
    /// All that arrived.
    pub(crate) arrived: u64,
    /// Sent by or to a client.
    pub(crate) client_sent: u64,
    /// Sent by clients: requests.
    pub(crate) requests: u64,
}

/// One message of the diagram.
#[derive(Clone, Debug)]
pub(crate) struct MessageEvent {
    /// The number of the message.
    pub(crate) number: u64,
    /// The sender.
    pub(crate) src: EndpointName,
    /// The receiver.
    pub(crate) dest: EndpointName,
    /// The body, shortened.
    pub(crate) text: String,
    /// When it was sent.
    pub(crate) sent: Time,
    /// When it arrived first; `None`: it never did.
    pub(crate) arrived: Option<Time>,
}

/// The most characters of a body in the diagram.
const TEXT_MAX: usize = 120;

impl MessageJournal {
    /// Counts a message that is sent; returns its event unless enough are kept.
    pub(crate) fn draft(&mut self, now: Time, message: &NodeMessage) -> Option<MessageEvent> {
        self.counts.sent += 1;
        self.counts.client_sent += u64::from(message.src.is_client() || message.dest.is_client());
        self.counts.requests += u64::from(message.src.is_client());
        (self.events.len() < EVENTS_MAX).then(|| MessageEvent {
            number: 0,
            src: message.src.clone(),
            dest: message.dest.clone(),
            text: short(message),
            sent: now,
            arrived: None,
        })
    }

    /// Keeps the event of a message that was sent with this number.
    pub(crate) fn sent(&mut self, number: u64, event: Option<MessageEvent>) {
        if let Some(event) = event {
            debug_assert!(self.events.last().is_none_or(|last| last.number < number));
            self.events.push(MessageEvent { number, ..event });
        }
    }

    /// A message has arrived.
    pub(crate) fn arrived(&mut self, number: u64, now: Time, _: &NodeMessage) {
        self.counts.arrived += 1;
        if let Ok(at) = self
            .events
            .binary_search_by_key(&number, |event| event.number)
        {
            self.events[at].arrived.get_or_insert(now);
        }
    }

    /// The messages that are kept, in the order in which they were sent.
    pub(crate) fn events(&self) -> &[MessageEvent] {
        &self.events
    }

    /// The counts.
    pub(crate) const fn counts(&self) -> JournalCounts {
        self.counts
    }

    /// Number of messages that are kept.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.events.len()
    }
}

impl JournalCounts {
    /// Messages between nodes and services.
    pub(crate) const fn between_nodes(self) -> u64 {
        self.sent - self.client_sent
    }

    /// Messages between nodes and services for one request of a client: Maelstrom's `msgs-per-op`.
    pub(crate) fn per_request(self) -> f64 {
        self.between_nodes() as f64 / self.requests.max(1) as f64
    }

    /// As JSON, with the names of Maelstrom's `net` statistics.
    pub(crate) fn json(self) -> Json {
        json!({
            "all": {"send-count": self.sent, "recv-count": self.arrived},
            "clients": {"send-count": self.client_sent},
            "servers": {"send-count": self.between_nodes(), "msgs-per-op": self.per_request()},
        })
    }
}

/// The body of a message without its numbers, shortened.
fn short(message: &NodeMessage) -> String {
    let mut body = message.body.clone();
    for name in ["type", "msg_id", "in_reply_to"] {
        body.remove(name);
    }
    let fields = if body.is_empty() {
        String::new()
    } else {
        format!(" {}", Json::Object(body))
    };
    let text = format!("{}{fields}", message.kind());
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
