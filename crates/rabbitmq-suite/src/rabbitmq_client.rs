//! The clients of a test: enqueues as messages that the node confirms, dequeues as messages that the client acknowledges.

use crate::rabbitmq_nodes::QUEUE;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind};
use seatrial_history::Value;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{DataRequest, DataStore, StoreAnswer, StoreClient, StoreRefusal};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Opens clients.
pub(crate) struct RabbitmqClients {
    /// Time limit of an operation.
    pub(crate) timeout: Duration,
    /// May connections be cut, so that a node notices the end of a client only by its heartbeats?
    pub(crate) may_be_cut: bool,
}

/// Seconds between two heartbeats: a connection without one for twice as long is closed.
const HEARTBEAT: u64 = 3;
/// How long a queue must be empty until all that was handed out to lost clients is in it again.
const RETURNED_AFTER_CUTS: Duration = Duration::from_secs(2 * HEARTBEAT + 2);
const RETURNED: Duration = Duration::from_secs(1);
/// Pause between two looks at an empty queue.
const DRAIN_PAUSE: Duration = Duration::from_millis(100);

impl Clients for RabbitmqClients {
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
            let uri = format!(
                "amqp://guest:guest@{}/%2f?heartbeat={HEARTBEAT}",
                slot.address
            );
            let open = async {
                let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
                let channel = connection.create_channel().await?;
                channel
                    .confirm_select(ConfirmSelectOptions::default())
                    .await?;
                Ok::<_, lapin::Error>((connection, channel))
            };
            let (connection, channel) = timeout(limit, open).await.map_err(|_| "timed out")??;
            Ok(StoreClient::boxed(RabbitmqStore {
                _connection: connection,
                channel,
                node: slot.node,
                limit,
                returned: if self.may_be_cut {
                    RETURNED_AFTER_CUTS
                } else {
                    RETURNED
                },
                empty_since: None,
                is_broken: false,
            }))
        })
    }
}

/// The client of one worker.
struct RabbitmqStore {
    /// Ends with the last that holds it.
    _connection: Connection,
    channel: Channel,
    node: NodeId,
    /// Time limit of an operation.
    limit: Duration,
    /// How long a queue must be empty until it is drained.
    returned: Duration,
    /// Since when drains of this client have found nothing.
    empty_since: Option<Instant>,
    is_broken: bool,
}

impl DataStore for RabbitmqStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            let answer = match request {
                DataRequest::Enqueue(element) => self.enqueue(element).await,
                DataRequest::Dequeue => match self.take().await? {
                    Some(element) => Ok(StoreAnswer::value(Value::Int(element))),
                    None => Err(StoreRefusal::failed("empty")),
                },
                DataRequest::Drain => self.drain().await,
                other => Err(StoreRefusal::failed(format!(
                    "{other:?}: RabbitMQ has no such data"
                ))),
            };
            Ok(answer?.from(self.node))
        })
    }

    fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

impl RabbitmqStore {
    /// Awaits a reply within the limit, and notes that a channel with an error is of no more use. The error: why there is none,
    /// and whether the request certainly was not sent.
    async fn reply<T>(
        &mut self,
        request: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, (bool, String)> {
        let reply = timeout(self.limit, request).await;
        self.is_broken |= !matches!(reply, Ok(Ok(_)));
        match reply {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let is_unsent = matches!(
                    error.kind(),
                    ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidConnectionState(_)
                );
                Err((is_unsent, error.to_string()))
            }
            Err(_) => Err((false, "timed out".into())),
        }
    }

    /// Publishes an element, and waits until the node has confirmed it.
    async fn enqueue(&mut self, element: i64) -> Result<StoreAnswer, StoreRefusal> {
        let channel = self.channel.clone();
        let payload = element.to_string();
        let is_durable = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let published = async {
            let confirmation = channel.basic_publish(
                "".into(),
                QUEUE.into(),
                options,
                payload.as_bytes(),
                is_durable,
            );
            confirmation.await?.await
        };
        match self.reply(published).await {
            Ok(Confirmation::Ack(None)) => Ok(StoreAnswer::done()),
            // It came back: no queue had a place for it.
            Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => {
                Err(StoreRefusal::failed("returned: there is no queue"))
            }
            Ok(other) => Err(StoreRefusal::unknown(format!("{other:?}"))),
            Err((true, reason)) => Err(StoreRefusal::Failed(reason)),
            Err((false, reason)) => Err(StoreRefusal::Unknown(reason)),
        }
    }

    /// Takes the next element out of the queue; `None` if there is none now.
    ///
    /// Nothing answers an acknowledgement. The next request on the channel is executed after it, so its reply shows that the node
    /// has the acknowledgement; a queue whose leader is lost at that time may hand the element out again.
    async fn take(&mut self) -> Result<Option<i64>, StoreRefusal> {
        let channel = self.channel.clone();
        let get = channel.basic_get(QUEUE.into(), BasicGetOptions::default());
        // What is handed out and not acknowledged is returned to the queue.
        let message = self.reply(get).await;
        let Some(message) = message.map_err(|(_, reason)| StoreRefusal::Failed(reason))? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&message.delivery.data).ok();
        let Some(element) = text.and_then(|text| text.parse().ok()) else {
            return Err(StoreRefusal::failed("an element that is no number"));
        };
        let tag = message.delivery.delivery_tag;
        let acknowledged = async {
            channel.basic_ack(tag, BasicAckOptions::default()).await?;
            channel.basic_qos(0, BasicQosOptions::default()).await
        };
        match self.reply(acknowledged).await {
            Ok(()) => Ok(Some(element)),
            Err((_, reason)) => Err(StoreRefusal::Perhaps(Value::Int(element), reason)),
        }
    }

    /// Takes all elements; done when the queue has been empty for so long that clients which were lost hold none.
    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let deadline = Instant::now() + self.limit;
        let mut taken = Vec::new();
        loop {
            match self.take().await {
                Ok(Some(element)) => {
                    taken.push(element);
                    self.empty_since = None;
                }
                Ok(None) => {
                    let since = *self.empty_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.returned {
                        return Ok(StoreAnswer::value(Value::integers(&taken)));
                    }
                    tokio::time::sleep(DRAIN_PAUSE).await;
                }
                Err(refusal) => return Err(refusal.after(taken)),
            }
            if Instant::now() >= deadline {
                let late = StoreRefusal::failed("the queue was not empty for long enough");
                return Err(late.after(taken));
            }
        }
    }
}
