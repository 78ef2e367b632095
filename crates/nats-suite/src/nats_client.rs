//! The clients of a test: requests as messages.
//!
//! | data | in JetStream |
//! | --- | --- |
//! | set | a message for each element; a read asks for one message after the other |
//! | queue | messages that a pull consumer hands out; taken when the server has confirmed the acknowledgement |
//! | register | a key of a bucket; a compare-and-set reads it and publishes if the last message is still the same |
//! | unique ids | the sequence of a message |

use crate::jetstream_streams::{self as streams, DATA, IDS, QUEUE, REGISTERS, WORKERS};
use crate::nats_connection::{NatsConnection, NatsError, number_in};
use crate::nats_log::NatsLog;
use async_nats::{Message, Subject};
use bytes::Bytes;
use seatrial_history::{Key, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{DataRequest, DataStore, StoreAnswer, StoreClient, StoreRefusal};
use serde_json::json;
use std::time::{Duration, Instant};

/// Opens clients.
pub(crate) struct NatsClients {
    /// Time limit of an operation.
    pub(crate) timeout: Duration,
    /// The workload; empty if the operations come from a plan.
    pub(crate) workload: &'static str,
    /// Does any replica answer reads?
    pub(crate) reads_anywhere: bool,
}

impl Clients for NatsClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            // An operation ends before its time limit, so that its completion can say what it may have taken.
            let limit = self.timeout * 9 / 10;
            let connection = NatsConnection::open(slot.address, limit).await?;
            if self.workload == "log" {
                let log = NatsLog::new(connection, slot.node, limit, self.reads_anywhere);
                return Ok(Box::new(log) as Box<dyn Client>);
            }
            Ok(StoreClient::boxed(NatsStore {
                connection,
                node: slot.node,
                workload: self.workload,
                reads_anywhere: self.reads_anywhere,
                limit,
                is_broken: false,
            }))
        })
    }
}

/// The client of one worker.
struct NatsStore {
    connection: NatsConnection,
    node: NodeId,
    workload: &'static str,
    reads_anywhere: bool,
    /// Time limit of an operation.
    limit: Duration,
    is_broken: bool,
}

impl DataStore for NatsStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            let answer = self.answer(request).await?;
            Ok(answer.from(self.node))
        })
    }

    fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

/// Pause between two questions whether all elements were taken.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

impl NatsStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        match request {
            DataRequest::Add(key, element) => {
                self.publish(streams::set_subject(key), element).await
            }
            DataRequest::Read(key) if self.workload == "set" => self.elements(key).await,
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => {
                self.publish(streams::register_subject(key), value).await
            }
            DataRequest::CompareAndSet(key, old, new) => self.compare_and_set(key, old, new).await,
            DataRequest::Enqueue(element) => self.publish(QUEUE.to_owned(), element).await,
            DataRequest::Dequeue => match self.take().await? {
                Some(element) => Ok(StoreAnswer::value(Value::Int(element))),
                None => Err(StoreRefusal::failed("empty")),
            },
            DataRequest::Drain => self.drain().await,
            DataRequest::Generate => {
                let sequence = self.connection.publish(IDS.to_owned(), 0, None).await;
                let sequence = self.noted(sequence).map_err(|error| error.of_write())?;
                Ok(StoreAnswer::value(Value::Int(sequence)))
            }
            other => Err(StoreRefusal::failed(format!(
                "{other:?}: NATS has no such data"
            ))),
        }
    }

    /// Notes whether the connection can be used after this.
    fn noted<T>(&mut self, result: Result<T, NatsError>) -> Result<T, NatsError> {
        if let Err(error) = &result {
            self.is_broken |= !error.leaves_usable();
        }
        result
    }

    async fn publish(&mut self, subject: String, number: i64) -> Result<StoreAnswer, StoreRefusal> {
        let sequence = self.connection.publish(subject, number, None).await;
        self.noted(sequence).map_err(|error| error.of_write())?;
        Ok(StoreAnswer::done())
    }

    /// All elements of a set.
    async fn elements(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let subject = streams::set_subject(key);
        let (mut found, mut from) = (Vec::new(), 1);
        let deadline = Instant::now() + self.limit;
        loop {
            if Instant::now() >= deadline {
                return Err(StoreRefusal::failed("not all elements were read in time"));
            }
            let next = self
                .connection
                .next(DATA, &subject, from, self.reads_anywhere);
            let next = next.await;
            match self.noted(next).map_err(|error| error.of_read())? {
                Some(message) => {
                    found.push(message.number);
                    from = message.sequence + 1;
                }
                None => return Ok(StoreAnswer::value(Value::integer_set(&found))),
            }
        }
    }

    /// The value of a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let subject = streams::register_subject(key);
        let last = self
            .connection
            .last(REGISTERS, &subject, self.reads_anywhere);
        let last = last.await;
        let last = self.noted(last).map_err(|error| error.of_read())?;
        let value = last.map_or(Value::Nil, |message| Value::Int(message.number));
        Ok(StoreAnswer::value(value))
    }

    /// Publishes if the message that has the old value is still the last one of its key.
    async fn compare_and_set(
        &mut self,
        key: &Key,
        old: i64,
        new: i64,
    ) -> Result<StoreAnswer, StoreRefusal> {
        let subject = streams::register_subject(key);
        let last = self.connection.last(REGISTERS, &subject, false).await;
        let last = self.noted(last).map_err(|error| error.of_read())?;
        let Some(message) = last.filter(|message| message.number == old) else {
            return Err(StoreRefusal::failed("the register has another value"));
        };
        let published = self
            .connection
            .publish(subject, new, Some(message.sequence));
        let published = published.await;
        self.noted(published).map_err(|error| error.of_write())?;
        Ok(StoreAnswer::done())
    }

    /// Takes the next element out of the queue; `None` if there is none now.
    async fn take(&mut self) -> Result<Option<i64>, StoreRefusal> {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{DATA}.{WORKERS}");
        let request = Bytes::from_static(br#"{"batch": 1, "no_wait": true}"#);
        let message = self.connection.delivery(subject, request).await;
        // What is delivered and not acknowledged stays in the queue.
        let message = self.noted(message).map_err(|error| error.of_read())?;
        let Some((element, acknowledge)) = delivered(message)? else {
            return Ok(None);
        };
        let confirmed =
            self.connection
                .request(acknowledge.to_string(), None, Bytes::from_static(b"+ACK"));
        let confirmed = confirmed.await;
        match self.noted(confirmed) {
            Ok(_) => Ok(Some(element)),
            Err(NatsError::Closed) => Err(StoreRefusal::failed(NatsError::Closed)),
            Err(error) => Err(StoreRefusal::Perhaps(
                Value::Int(element),
                error.to_string(),
            )),
        }
    }

    /// Takes all elements, also those that were handed out and not acknowledged.
    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let deadline = Instant::now() + self.limit;
        let mut taken = Vec::new();
        while Instant::now() < deadline {
            match self.take().await {
                Ok(Some(element)) => taken.push(element),
                Ok(None) => match self.is_empty().await {
                    Ok(true) => return Ok(StoreAnswer::value(Value::integers(&taken))),
                    Ok(false) => tokio::time::sleep(DRAIN_PAUSE).await,
                    Err(refusal) => return Err(refusal.after(taken)),
                },
                Err(refusal) => return Err(refusal.after(taken)),
            }
        }
        let late = StoreRefusal::failed("the queue was not empty in time");
        Err(late.after(taken))
    }

    /// Has each element been taken?
    async fn is_empty(&mut self) -> Result<bool, StoreRefusal> {
        let subject = format!("CONSUMER.INFO.{DATA}.{WORKERS}");
        let info = self.connection.api(&subject, &json!({})).await;
        let info = self.noted(info).map_err(|error| error.of_read())?;
        Ok(info["num_pending"] == 0 && info["num_ack_pending"] == 0)
    }
}

/// The element of a delivery, and the subject of its acknowledgement; `None`: there was no element.
fn delivered(message: Message) -> Result<Option<(i64, Subject)>, StoreRefusal> {
    if message.status.is_some() {
        return Ok(None);
    }
    let Some(acknowledge) = message.reply else {
        // JetStream's own error, such as that of a consumer without a leader.
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        return Err(StoreRefusal::Failed(text));
    };
    let element = number_in(&message.payload);
    let element = element.ok_or_else(|| StoreRefusal::failed("an element that is no number"))?;
    Ok(Some((element, acknowledge)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_differ_from_errors() {
        let message = |payload: &'static [u8], reply: Option<&str>, status| Message {
            subject: "_INBOX.1".into(),
            reply: reply.map(Subject::from),
            payload: Bytes::from_static(payload),
            headers: None,
            status,
            description: None,
            length: payload.len(),
        };
        let good = delivered(message(b"7", Some("$JS.ACK.data"), None));
        assert_eq!(good, Ok(Some((7, Subject::from("$JS.ACK.data")))));
        let empty = message(b"", None, Some(async_nats::StatusCode::NOT_FOUND));
        assert_eq!(delivered(empty), Ok(None));
        assert!(delivered(message(b"{}", None, None)).is_err());
        assert!(delivered(message(b"x", Some("$JS.ACK.data"), None)).is_err());
    }
}
