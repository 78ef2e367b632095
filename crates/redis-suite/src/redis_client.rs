//! The clients of a test: requests as commands, one after the other.

use crate::Settings;
use crate::commands::{self, RedisCommand, TransactionKeys};
use crate::redis_session::RedisSession;
use redis::Value as Reply;
use seatrial_history::{Key, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{DataRequest, DataStore, StoreAnswer, StoreClient, StoreRefusal};
use std::time::{Duration, Instant};

/// Opens clients.
pub(crate) struct RedisClients {
    pub(crate) settings: Settings,
    /// Time limit of connecting, and of each reply.
    pub(crate) timeout: Duration,
    /// The workload; empty if the operations come from a plan. It decides what is under a key.
    pub(crate) workload: &'static str,
    /// What is under the keys of transactions that are commands in `MULTI`; `None`: they are scripts.
    pub(crate) multi: Option<TransactionKeys>,
}

impl Clients for RedisClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let session = RedisSession::open(self.settings, slot, self.timeout).await?;
            Ok(StoreClient::boxed(RedisStore {
                session,
                workload: self.workload,
                multi: self.multi,
                patience: self.timeout,
            }))
        })
    }
}

/// The client of one worker.
struct RedisStore {
    session: RedisSession,
    workload: &'static str,
    multi: Option<TransactionKeys>,
    /// Time limit after which a request that others got ahead of is not tried again.
    patience: Duration,
}

impl DataStore for RedisStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(self.answer(request))
    }

    fn is_usable(&self) -> bool {
        !self.session.is_broken
    }
}

impl RedisStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        let is_set = self.workload == "set";
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => {
                self.done(&commands::set(&commands::name(key), value)).await
            }
            DataRequest::CompareAndSet(key, old, new) => {
                let call = commands::compare_and_set(&commands::name(key), old, new);
                self.granted(&call, "the register has another value").await
            }
            DataRequest::Add(key, value) if is_set => {
                self.done(&commands::add_member(&commands::name(key), value))
                    .await
            }
            DataRequest::Add(key, by) => {
                self.done(&commands::increment(&commands::name(key), by))
                    .await
            }
            DataRequest::Transaction(mops) => {
                let call = match self.multi {
                    Some(keys) => commands::multi(mops, keys),
                    None => commands::transaction(mops),
                };
                self.value(&call, |reply| commands::transaction_value(mops, reply))
                    .await
            }
            DataRequest::Balances => {
                self.value(&commands::balances(), commands::balances_value)
                    .await
            }
            DataRequest::Transfer(transfer) => {
                self.granted(&commands::transfer(transfer), "insufficient funds")
                    .await
            }
            DataRequest::Enqueue(element) => self.done(&commands::enqueue(element)).await,
            DataRequest::Dequeue => self.dequeue().await,
            DataRequest::Drain => self.drain().await,
            DataRequest::Generate => {
                let call = commands::increment(commands::IDS, 1);
                self.value(&call, |reply| Ok(Value::Int(number(reply)?)))
                    .await
            }
            DataRequest::Acquire(_) | DataRequest::Release(_) => {
                Err(StoreRefusal::failed("this suite has no locks"))
            }
        }
    }

    /// The value under a key: of a set, a counter, or a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let name = commands::name(key);
        match self.workload {
            "set" => {
                let members = |reply: &Reply| Ok(Value::integer_set(&commands::integers(reply)?));
                self.value(&commands::members(&name), members).await
            }
            "counter" => {
                let sum = |reply: &Reply| Ok(Value::Int(commands::integer(reply)?.unwrap_or(0)));
                self.value(&commands::get(&name), sum).await
            }
            _ => {
                let value =
                    |reply: &Reply| Ok(commands::integer(reply)?.map_or(Value::Nil, Value::Int));
                self.value(&commands::get(&name), value).await
            }
        }
    }

    /// The answer to a command whose reply says only that it was executed.
    async fn done(&mut self, call: &RedisCommand) -> Result<StoreAnswer, StoreRefusal> {
        let (_, node) = self.session.ask(call).await?;
        Ok(StoreAnswer::done().from(node))
    }

    /// The answer to a script that returns 1 if it took place.
    async fn granted(
        &mut self,
        call: &RedisCommand,
        otherwise: &str,
    ) -> Result<StoreAnswer, StoreRefusal> {
        match self.session.ask(call).await? {
            (Reply::Int(1), node) => Ok(StoreAnswer::done().from(node)),
            (Reply::Int(0), _) => Err(StoreRefusal::failed(otherwise)),
            (other, _) => Err(StoreRefusal::unknown(format!("unexpected reply {other:?}"))),
        }
    }

    /// The answer to a command with a result. A reply that cannot be read leaves the outcome unknown.
    async fn value(
        &mut self,
        call: &RedisCommand,
        decode: impl FnOnce(&Reply) -> Result<Value, String>,
    ) -> Result<StoreAnswer, StoreRefusal> {
        let (reply, node) = self.session.ask(call).await?;
        let value = decode(&reply).map_err(StoreRefusal::Unknown)?;
        Ok(StoreAnswer::value(value).from(node))
    }

    /// Looks at the next element, and takes it if it is still the next one. If the reply to that is lost, it is known which
    /// element may be gone.
    async fn dequeue(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let Some((elements, node)) = self.take(1, &[]).await? else {
                continue;
            };
            let [element] = elements[..] else {
                return Err(StoreRefusal::failed("empty"));
            };
            return Ok(StoreAnswer::value(Value::Int(element)).from(node));
        }
        Err(StoreRefusal::failed("other clients were always first"))
    }

    /// Takes elements until there are none.
    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while began.elapsed() < self.patience {
            let Some((elements, node)) = self.take(commands::TAKEN_AT_ONCE_MAX, &taken).await?
            else {
                continue;
            };
            if elements.is_empty() {
                return Ok(StoreAnswer::value(Value::integers(&taken)).from(node));
            }
            taken.extend(elements.iter().rev());
        }
        let reason = "the queue was not empty within the time limit";
        Err(StoreRefusal::Perhaps(
            Value::integers(&taken),
            reason.into(),
        ))
    }

    /// Takes the next elements, at most `count`; `None` if other clients took one of them first. `before` are those that the same
    /// operation has taken already.
    async fn take(
        &mut self,
        count: i64,
        before: &[i64],
    ) -> Result<Option<(Vec<i64>, NodeId)>, StoreRefusal> {
        let all = |elements: &[i64]| match (count, elements) {
            (1, [element]) => Value::Int(*element),
            _ => Value::integers(&[before, elements].concat()),
        };
        let after_some = |refusal| match refusal {
            StoreRefusal::Failed(reason) if !before.is_empty() => {
                StoreRefusal::Perhaps(all(&[]), reason)
            }
            other => other,
        };
        let (reply, node) = self
            .session
            .ask(&commands::look(count))
            .await
            .map_err(after_some)?;
        let elements = commands::integers(&reply).map_err(StoreRefusal::Failed)?;
        if elements.is_empty() {
            return Ok(Some((elements, node)));
        }
        match self.session.ask(&commands::take(&elements)).await {
            Ok((Reply::Int(1), node)) => Ok(Some((elements, node))),
            Ok((Reply::Int(0), _)) => Ok(None),
            Ok((other, _)) => Err(StoreRefusal::Perhaps(
                all(&elements),
                format!("unexpected reply {other:?}"),
            )),
            Err(StoreRefusal::Unknown(reason)) => {
                Err(StoreRefusal::Perhaps(all(&elements), reason))
            }
            Err(other) => Err(after_some(other)),
        }
    }
}

fn number(reply: &Reply) -> Result<i64, String> {
    commands::integer(reply)?.ok_or_else(|| "nil for a number".into())
}
