//! One connection to a server, and which errors are definite.

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use seatrial_runner::ClientError;
use seatrial_suite::StoreRefusal;
use serde_json::{Value as Json, json};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A connection to one server. It is used until it is lost the first time.
pub(crate) struct NatsConnection {
    client: Client,
    /// Was the connection lost? The client then connects again by itself, and sends what it had not sent: too late for us.
    is_lost: watch::Receiver<bool>,
    /// Time limit of each reply.
    limit: Duration,
}

/// Pause before a second attempt to connect again, for which no operation waits.
const RECONNECT: Duration = Duration::from_secs(5);
/// Pause after a refusal for want of a leader: it comes at once, and an election takes seconds, so retries would soon be used up.
const REFUSED: Duration = Duration::from_millis(250);

/// Why a request has no result.
#[derive(Debug, PartialEq)]
pub(crate) enum NatsError {
    /// The connection had been lost before the request.
    Closed,
    /// The connection was lost, or the reply cannot be read.
    Lost(String),
    /// No reply within the limit.
    Late,
    /// No server listens on the subject: there is no leader now.
    NoResponders,
    /// JetStream's error, with its code.
    Refused(i64, String),
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatsError::Closed => f.write_str("the connection is closed"),
            NatsError::Lost(reason) => f.write_str(reason),
            NatsError::Late => f.write_str("timed out"),
            NatsError::NoResponders => f.write_str("no responders"),
            NatsError::Refused(code, reason) => write!(f, "{reason} ({code})"),
        }
    }
}

impl Error for NatsError {}

/// JetStream's codes of a message whose expected sequence is not the last one of its subject; the second one since 2.12, where
/// another message of the subject is under way.
const WRONG_SEQUENCE: [i64; 2] = [10071, 10164];
/// JetStream's code while there is no leader.
const UNAVAILABLE: i64 = 10008;
/// JetStream's code of a message that is not there.
const NO_MESSAGE: i64 = 10037;

impl NatsError {
    /// Did the request certainly not take place? Of JetStream's errors only one is certain: others may come after the leader has
    /// proposed a message to its followers.
    pub(crate) fn is_definite(&self) -> bool {
        match self {
            NatsError::Closed | NatsError::NoResponders => true,
            NatsError::Refused(code, _) => WRONG_SEQUENCE.contains(code),
            NatsError::Lost(_) | NatsError::Late => false,
        }
    }

    /// Can the connection be used for another request?
    pub(crate) fn leaves_usable(&self) -> bool {
        matches!(self, NatsError::NoResponders | NatsError::Refused(..))
    }

    /// The refusal of a message.
    pub(crate) fn of_write(&self) -> StoreRefusal {
        if self.is_definite() {
            StoreRefusal::failed(self)
        } else {
            StoreRefusal::unknown(self)
        }
    }

    /// The refusal of a request that changes nothing.
    pub(crate) fn of_read(&self) -> StoreRefusal {
        StoreRefusal::failed(self)
    }
}

/// A message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredMessage {
    /// Its number in the stream.
    pub(crate) sequence: i64,
    /// What it carries.
    pub(crate) number: i64,
}

impl NatsConnection {
    /// Connects within the limit, which is also that of each reply.
    pub(crate) async fn open(
        address: SocketAddr,
        limit: Duration,
    ) -> Result<NatsConnection, ClientError> {
        let (losses, is_lost) = watch::channel(false);
        let options = ConnectOptions::new()
            .ignore_discovered_servers()
            .connection_timeout(limit)
            .request_timeout(None)
            .reconnect_delay_callback(|attempts| match attempts {
                0 | 1 => Duration::ZERO,
                _ => RECONNECT,
            })
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    losses.send_replace(true);
                }
                std::future::ready(())
            });
        let connect = options.connect(format!("nats://{address}"));
        let client = timeout(limit, connect)
            .await
            .map_err(|_| NatsError::Late)??;
        Ok(NatsConnection {
            client,
            is_lost,
            limit,
        })
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, NatsError> {
        let mut request = Request::new().payload(payload);
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        self.send(subject, request).await
    }

    /// Asks a consumer for its next message. That keeps its subject, so the reply is known only by a subscription of its own.
    pub(crate) async fn delivery(
        &self,
        subject: String,
        payload: Bytes,
    ) -> Result<Message, NatsError> {
        let inbox = self.client.new_inbox();
        let request = Request::new().payload(payload).inbox(inbox);
        self.send(subject, request).await
    }

    async fn send(&self, subject: String, request: Request) -> Result<Message, NatsError> {
        if *self.is_lost.borrow() {
            return Err(NatsError::Closed);
        }
        let mut is_lost = self.is_lost.clone();
        let reply = tokio::select! {
            reply = timeout(self.limit, self.client.send_request(subject, request)) => reply,
            _ = is_lost.wait_for(|is_lost| *is_lost) => {
                return Err(NatsError::Lost("the connection was lost".into()));
            }
        };
        match reply {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                tokio::time::sleep(REFUSED).await;
                Err(NatsError::NoResponders)
            }
            Ok(Err(error)) => Err(NatsError::Lost(error.to_string())),
            Err(_) => Err(NatsError::Late),
        }
    }

    /// Asks JetStream, such as `STREAM.INFO.data`.
    pub(crate) async fn api(&self, subject: &str, body: &Json) -> Result<Json, NatsError> {
        let payload = Bytes::from(body.to_string());
        let reply = self
            .request(format!("$JS.API.{subject}"), None, payload)
            .await?;
        let result = result(&reply.payload);
        if matches!(result, Err(NatsError::Refused(UNAVAILABLE, _))) {
            tokio::time::sleep(REFUSED).await;
        }
        result
    }

    /// Publishes a number, and waits until it is acknowledged; `last`: only if the subject's last message has this sequence (0:
    /// if it has none). Returns the message's sequence.
    pub(crate) async fn publish(
        &self,
        subject: String,
        number: i64,
        last: Option<i64>,
    ) -> Result<i64, NatsError> {
        let headers = last.map(|last| {
            let mut headers = HeaderMap::new();
            headers.insert(
                async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
                last.to_string().as_str(),
            );
            headers
        });
        let reply = self
            .request(subject, headers, Bytes::from(number.to_string()))
            .await?;
        let reply = result(&reply.payload)?;
        reply["seq"].as_i64().ok_or_else(|| {
            NatsError::Lost(format!("an acknowledgement without a sequence: {reply}"))
        })
    }

    /// The first message of a subject from this sequence on, as the stream's leader has it; with `anywhere`, as any replica does.
    pub(crate) async fn next(
        &self,
        stream: &str,
        subject: &str,
        sequence: i64,
        anywhere: bool,
    ) -> Result<Option<StoredMessage>, NatsError> {
        let body = json!({"seq": sequence.max(1), "next_by_subj": subject});
        self.message(stream, &body, anywhere).await
    }

    /// The last message of a subject.
    pub(crate) async fn last(
        &self,
        stream: &str,
        subject: &str,
        anywhere: bool,
    ) -> Result<Option<StoredMessage>, NatsError> {
        let body = json!({"last_by_subj": subject});
        self.message(stream, &body, anywhere).await
    }

    async fn message(
        &self,
        stream: &str,
        body: &Json,
        anywhere: bool,
    ) -> Result<Option<StoredMessage>, NatsError> {
        if anywhere {
            let subject = format!("$JS.API.DIRECT.GET.{stream}");
            let payload = Bytes::from(body.to_string());
            return direct(&self.request(subject, None, payload).await?);
        }
        match self.api(&format!("STREAM.MSG.GET.{stream}"), body).await {
            Ok(reply) => stored(&reply["message"]).map(Some),
            Err(NatsError::Refused(NO_MESSAGE, _)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

/// JetStream's reply, or its error.
fn result(payload: &[u8]) -> Result<Json, NatsError> {
    let reply: Json = serde_json::from_slice(payload)
        .map_err(|error| NatsError::Lost(format!("a reply that is no JSON: {error}")))?;
    let error = &reply["error"];
    if error.is_null() {
        return Ok(reply);
    }
    let description = error["description"].as_str().unwrap_or("no description");
    let code = error["err_code"].as_i64().unwrap_or(0);
    Err(NatsError::Refused(code, description.to_owned()))
}

/// The message in a leader's reply.
fn stored(message: &Json) -> Result<StoredMessage, NatsError> {
    let sequence = message["seq"].as_i64();
    let data = message["data"].as_str().unwrap_or_default();
    let number = STANDARD.decode(data).ok();
    let number = number.and_then(|bytes| number_in(&bytes));
    match (sequence, number) {
        (Some(sequence), Some(number)) => Ok(StoredMessage { sequence, number }),
        _ => Err(NatsError::Lost(format!("no message of a test: {message}"))),
    }
}

/// The message that a replica returns.
fn direct(reply: &Message) -> Result<Option<StoredMessage>, NatsError> {
    match reply.status {
        None | Some(StatusCode::OK) => {}
        Some(StatusCode::NOT_FOUND) => return Ok(None),
        Some(status) => {
            let description = reply.description.clone().unwrap_or_default();
            return Err(NatsError::Refused(status.as_u16().into(), description));
        }
    }
    let sequence = reply.headers.as_ref().and_then(|headers| {
        let sequence = headers.get(async_nats::header::NATS_SEQUENCE)?;
        sequence.as_str().parse().ok()
    });
    match (sequence, number_in(&reply.payload)) {
        (Some(sequence), Some(number)) => Ok(Some(StoredMessage { sequence, number })),
        _ => Err(NatsError::Lost(
            "a replica's reply is no message of a test".into(),
        )),
    }
}

/// The number that a message carries, in decimal digits.
pub(crate) fn number_in(payload: &[u8]) -> Option<i64> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_proposed_is_definite() {
        let refused = |code| NatsError::Refused(code, "reason".into());
        assert!(refused(10071).is_definite() && refused(10164).is_definite());
        assert!(NatsError::NoResponders.is_definite() && NatsError::Closed.is_definite());
        for other in [refused(10008), refused(10077), NatsError::Late] {
            assert!(!other.is_definite(), "{other}");
            assert!(matches!(other.of_write(), StoreRefusal::Unknown(_)));
            assert!(matches!(other.of_read(), StoreRefusal::Failed(_)));
        }
        assert!(!NatsError::Late.leaves_usable() && refused(10008).leaves_usable());
    }

    #[test]
    fn replies_are_read_without_trust() {
        let reply = br#"{"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 3"}}"#;
        let expected = NatsError::Refused(10071, "wrong last sequence: 3".into());
        assert_eq!(result(reply), Err(expected));
        assert_eq!(result(br#"{"seq": 7}"#).unwrap()["seq"], 7);
        assert!(matches!(result(b"+OK"), Err(NatsError::Lost(_))));
        let message = json!({"seq": 5, "data": "MTI=", "subject": "data.set.1"});
        let expected = StoredMessage {
            sequence: 5,
            number: 12,
        };
        assert_eq!(stored(&message), Ok(expected));
        for wrong in [
            json!({"seq": 5, "data": "!"}),
            json!({"data": "MTI="}),
            json!({"seq": 5, "data": "eA=="}),
        ] {
            assert!(stored(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(number_in(b"-4"), Some(-4));
        assert_eq!(number_in(b"\xff"), None);
    }
}
