//! The clients of a test: requests as transactions of etcd.
//!
//! | data | in etcd |
//! | --- | --- |
//! | register | a key; a compare-and-set compares its value |
//! | transaction, counter, bank | all keys are read, then written if none has changed since, else again from the start |
//! | set | a key for each element |
//! | queue | a key for each element; the oldest is read, then deleted if it is still there |
//! | unique ids | the revision of a write |
//! | lock | a key with a lease, created if it is missing; the fence is the revision |

use crate::etcd_keys::{
    self as keys, Integer, KeyEntry, KeyOperation, PutReply, RangeReply, TxnCondition, TxnReply,
    TxnRequest,
};
use crate::gateway::{Gateway, GatewayError};
use seatrial_history::{Key, Mop, Value};
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{
    DataRequest, DataStore, KeyChange, KeyText as _, StoreAnswer, StoreClient, StoreRefusal,
    Transfer,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Opens clients.
pub(crate) struct EtcdClients {
    timeout: Duration,
    workload: &'static str,
    is_serializable: bool,
    /// Seconds until the lease of a lock ends.
    lease: u64,
    /// Draws the names of owners of locks.
    owners: Mutex<Rng>,
}

impl EtcdClients {
    /// Clients of this workload (empty: of a plan); `is_serializable`: do reads ask only the client's own member?
    pub(crate) fn new(
        timeout: Duration,
        workload: &'static str,
        is_serializable: bool,
        lease: u64,
        owners: Rng,
    ) -> EtcdClients {
        EtcdClients {
            timeout,
            workload,
            is_serializable,
            lease,
            owners: Mutex::new(owners),
        }
    }
}

impl Clients for EtcdClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let mut gateway = Gateway::open(slot.address, self.timeout).await?;
            // A proxy accepts connections to a member that is dead: a first round trip shows it.
            gateway
                .ask::<RangeReply>(RANGE, &keys::range("open", true))
                .await?;
            let owner = self
                .owners
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .word();
            Ok(StoreClient::boxed(EtcdStore {
                gateway,
                node: slot.node,
                workload: self.workload,
                is_serializable: self.is_serializable,
                patience: self.timeout,
                lease: self.lease,
                owner: format!("{owner:x}"),
                is_broken: false,
            }))
        })
    }
}

/// The client of one worker.
struct EtcdStore {
    gateway: Gateway,
    node: NodeId,
    workload: &'static str,
    is_serializable: bool,
    /// Time limit after which a request that others got ahead of is not tried again.
    patience: Duration,
    lease: u64,
    /// Its name as the owner of locks.
    owner: String,
    is_broken: bool,
}

impl DataStore for EtcdStore {
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

/// Number of accounts of the workload `bank`, and what each has at first.
const ACCOUNTS: i64 = 8;
const OPENING_BALANCE: i64 = 10;
/// The prefix of the keys of the queue's elements.
const QUEUE: &str = "queue/";
/// Most elements that are taken out of the queue at once.
const TAKEN_AT_ONCE: i64 = 50;

const RANGE: &str = "/v3/kv/range";
const PUT: &str = "/v3/kv/put";
const TXN: &str = "/v3/kv/txn";
const GRANT: &str = "/v3/lease/grant";

/// Asks for a lease of this number of seconds.
#[derive(Serialize)]
struct LeaseRequest {
    #[serde(rename = "TTL")]
    seconds: Integer,
}

#[derive(Deserialize)]
struct LeaseReply {
    #[serde(rename = "ID")]
    id: Integer,
}

impl EtcdStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => self.put(&register(key), &value.to_string()).await,
            DataRequest::CompareAndSet(key, old, new) => {
                let key = register(key);
                let (old, new) = (old.to_string(), new.to_string());
                let compare = [keys::has_value(&key, &old)];
                let write = [KeyOperation::Put(keys::put(&key, &new))];
                if self.transact(&compare, &write).await?.succeeded {
                    Ok(StoreAnswer::done())
                } else {
                    Err(StoreRefusal::failed("the register has another value"))
                }
            }
            DataRequest::Add(key, value) if self.workload == "set" => {
                self.put(&format!("{}{value}", set(key)), "").await
            }
            DataRequest::Add(key, by) => {
                let key = format!("counter/{key}");
                self.change(std::slice::from_ref(&key), |entries| {
                    let sum = entries[0].number(0)? + by;
                    Ok(KeyChange::put([(key.clone(), sum.to_string())], None))
                })
                .await
            }
            DataRequest::Transaction(mops) => self.transaction(mops).await,
            DataRequest::Balances => {
                let entries = self
                    .look(&(0..ACCOUNTS).map(account).collect::<Vec<_>>())
                    .await?;
                let balances = entries.iter().map(|entry| entry.number(OPENING_BALANCE));
                let balances = balances
                    .collect::<Result<Vec<i64>, String>>()
                    .map_err(StoreRefusal::Failed)?;
                let pairs: Vec<(i64, i64)> = (0..).zip(balances).collect();
                Ok(StoreAnswer::value(Value::balances(&pairs)))
            }
            DataRequest::Transfer(transfer) => self.transfer(transfer).await,
            DataRequest::Enqueue(element) => self.put(&format!("{QUEUE}{element}"), "").await,
            DataRequest::Dequeue => self.dequeue().await,
            DataRequest::Drain => self.drain().await,
            DataRequest::Generate => {
                let reply: PutReply = self.write(PUT, &keys::put("ids", "")).await?;
                Ok(StoreAnswer::value(Value::Int(reply.header.revision.0)))
            }
            DataRequest::Acquire(key) => self.acquire(key).await,
            DataRequest::Release(key) => self.release(key).await,
        }
    }

    /// Sends a request and notes whether the connection can be used after it.
    async fn ask<R: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<R, GatewayError> {
        let reply = self.gateway.ask(path, request).await;
        if let Err(error) = &reply {
            self.is_broken |= !error.leaves_usable();
        }
        reply
    }

    /// A request that may change something.
    async fn write<R: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<R, StoreRefusal> {
        let reply = self.ask(path, request).await;
        reply.map_err(|error| error.of_write())
    }

    async fn put(&mut self, key: &str, value: &str) -> Result<StoreAnswer, StoreRefusal> {
        self.write::<PutReply>(PUT, &keys::put(key, value)).await?;
        Ok(StoreAnswer::done())
    }

    /// A transaction that writes.
    async fn transact(
        &mut self,
        compare: &[TxnCondition<'_>],
        success: &[KeyOperation<'_>],
    ) -> Result<TxnReply, StoreRefusal> {
        self.write(TXN, &TxnRequest { compare, success }).await
    }

    /// The value under a key: of a set, a counter, or a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let is_serializable = self.is_serializable;
        let value = match self.workload {
            "set" => {
                let prefix = set(key);
                let all = keys::range_prefix(&prefix, 0, is_serializable);
                let reply: Result<RangeReply, _> = self.ask(RANGE, &all).await;
                let entries = reply.map_err(|error| error.of_read())?.entries();
                let elements = elements(&prefix, &entries).map_err(StoreRefusal::Failed)?;
                Value::integer_set(&elements)
            }
            workload => {
                let (name, absent) = match workload {
                    "counter" => (format!("counter/{key}"), Value::Int(0)),
                    _ => (register(key), Value::Nil),
                };
                let one = keys::range(&name, is_serializable);
                let reply: Result<RangeReply, _> = self.ask(RANGE, &one).await;
                let entry = reply.map_err(|error| error.of_read())?.entry(&name);
                match entry.value {
                    None => absent,
                    Some(_) => Value::Int(entry.number(0).map_err(StoreRefusal::Failed)?),
                }
            }
        };
        Ok(StoreAnswer::value(value))
    }

    /// Reads keys in one transaction.
    async fn look(&mut self, names: &[String]) -> Result<Vec<KeyEntry>, StoreRefusal> {
        let reads = names
            .iter()
            .map(|name| KeyOperation::Range(keys::range(name, self.is_serializable)));
        let request = TxnRequest {
            compare: &[],
            success: &reads.collect::<Vec<_>>(),
        };
        let reply: Result<TxnReply, _> = self.ask(TXN, &request).await;
        let reply = reply.map_err(|error| error.of_read())?;
        reply.entries_of(names).map_err(StoreRefusal::Failed)
    }

    /// Reads keys, and changes what `decide` says if none of them has changed since; otherwise again from the start.
    async fn change(
        &mut self,
        names: &[String],
        decide: impl Fn(&[KeyEntry]) -> Result<KeyChange, String>,
    ) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let entries = self.look(names).await?;
            let change = decide(&entries).map_err(StoreRefusal::Failed)?;
            let answer = change
                .value
                .map_or_else(StoreAnswer::done, StoreAnswer::value);
            if change.writes.is_empty() {
                return Ok(answer);
            }
            let compare: Vec<TxnCondition<'_>> = entries.iter().map(keys::unchanged).collect();
            let writes = change.writes.iter();
            let writes: Vec<KeyOperation<'_>> = writes
                .map(|(key, value)| KeyOperation::Put(keys::put(key, value)))
                .collect();
            if self.transact(&compare, &writes).await?.succeeded {
                return Ok(answer);
            }
        }
        Err(StoreRefusal::failed("other clients were always first"))
    }

    async fn transaction(&mut self, mops: &[Mop]) -> Result<StoreAnswer, StoreRefusal> {
        let names: BTreeSet<String> = mops.iter().map(|mop| data(mop.key())).collect();
        let names: Vec<String> = names.into_iter().collect();
        let is_list = !matches!(self.workload, "rw-register" | "long-fork");
        self.change(&names, |entries| {
            KeyChange::of_transaction(mops, entries, data, is_list)
        })
        .await
    }

    async fn transfer(&mut self, transfer: Transfer) -> Result<StoreAnswer, StoreRefusal> {
        let names = [account(transfer.from), account(transfer.to)];
        self.change(&names, |entries| {
            KeyChange::of_transfer(&transfer, entries, OPENING_BALANCE)
        })
        .await
    }

    /// Takes the oldest elements out of the queue, at most `count`; `None` if other clients took one of them first. `before` are
    /// those that the same operation has taken already.
    async fn take(&mut self, count: i64, before: &[i64]) -> Result<Option<Vec<i64>>, StoreRefusal> {
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
        let oldest = keys::range_prefix(QUEUE, count, false);
        let reply: Result<RangeReply, _> = self.ask(RANGE, &oldest).await;
        let reply = reply.map_err(|error| after_some(error.of_read()))?;
        let found = reply.entries();
        let numbers = elements(QUEUE, &found);
        let numbers = numbers.map_err(|error| after_some(StoreRefusal::Failed(error)))?;
        if found.is_empty() {
            return Ok(Some(numbers));
        }
        let compare: Vec<TxnCondition<'_>> = found.iter().map(keys::unchanged).collect();
        let deletions = found.iter().map(|entry| keys::deleting(&entry.key));
        let deletions: Vec<KeyOperation<'_>> = deletions.collect();
        match self.transact(&compare, &deletions).await {
            Ok(reply) if reply.succeeded => Ok(Some(numbers)),
            Ok(_) => Ok(None),
            Err(StoreRefusal::Unknown(reason)) => Err(StoreRefusal::Perhaps(all(&numbers), reason)),
            Err(other) => Err(after_some(other)),
        }
    }

    async fn dequeue(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        while began.elapsed() < self.patience {
            match self.take(1, &[]).await?.as_deref() {
                None => {}
                Some([element]) => return Ok(StoreAnswer::value(Value::Int(*element))),
                Some(_) => return Err(StoreRefusal::failed("empty")),
            }
        }
        Err(StoreRefusal::failed("other clients were always first"))
    }

    async fn drain(&mut self) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while began.elapsed() < self.patience {
            match self.take(TAKEN_AT_ONCE, &taken).await? {
                None => {}
                Some(elements) if elements.is_empty() => {
                    return Ok(StoreAnswer::value(Value::integers(&taken)));
                }
                Some(elements) => taken.extend(elements),
            }
        }
        Err(StoreRefusal::Perhaps(
            Value::integers(&taken),
            "the queue was not empty in time".into(),
        ))
    }

    /// Creates the key of a lock with a fresh lease, if it is missing.
    async fn acquire(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let name = format!("lock/{key}");
        let asked = LeaseRequest {
            seconds: Integer(self.lease.cast_signed()),
        };
        let granted: Result<LeaseReply, _> = self.ask(GRANT, &asked).await;
        // A lease that no key has changes nothing that a test can see.
        let lease = granted.map_err(|error| error.of_read())?.id;
        let missing = KeyEntry {
            key: name.clone(),
            ..KeyEntry::default()
        };
        let owner = self.owner.clone();
        let write = KeyOperation::Put(keys::put_leased(&name, &owner, lease));
        let reply = self
            .transact(&[keys::unchanged(&missing)], &[write])
            .await?;
        if reply.succeeded {
            Ok(StoreAnswer::value(Value::Int(reply.header.revision.0)))
        } else {
            Err(StoreRefusal::failed("held"))
        }
    }

    /// Deletes the key of a lock, if this client owns it.
    async fn release(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let name = format!("lock/{key}");
        let owner = self.owner.clone();
        let owned = keys::has_value(&name, &owner);
        let reply = self.transact(&[owned], &[keys::deleting(&name)]).await?;
        if reply.succeeded {
            Ok(StoreAnswer::done())
        } else {
            Err(StoreRefusal::failed("not held"))
        }
    }
}

/// The elements in the keys of these entries.
fn elements(prefix: &str, entries: &[KeyEntry]) -> Result<Vec<i64>, String> {
    let number = |entry: &KeyEntry| {
        let text = entry.key.strip_prefix(prefix).unwrap_or_default();
        text.parse()
            .map_err(|_| format!("{:?} is no element", entry.key))
    };
    entries.iter().map(number).collect()
}

fn register(key: &Key) -> String {
    format!("register/{key}")
}

fn set(key: &Key) -> String {
    format!("set/{key}/")
}

fn data(key: &Key) -> String {
    format!("data/{key}")
}

fn account(number: i64) -> String {
    format!("account/{number}")
}
