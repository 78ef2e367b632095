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

use crate::etcd_keys::{self as keys, KeyEntry};
use crate::gateway::{Gateway, GatewayError};
use seatrial_history::{Key, Mop, Value};
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{
    DataRequest, DataStore, KeyChange, KeyText as _, StoreAnswer, StoreClient, StoreRefusal,
    Transfer,
};
use serde_json::{Value as Json, json};
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
                .ask("/v3/kv/range", &keys::range("open", true))
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

impl EtcdStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => self.put(&register(key), &value.to_string()).await,
            DataRequest::CompareAndSet(key, old, new) => {
                let key = register(key);
                let compare = keys::has_value(&key, &old.to_string());
                let write = keys::writing(&keys::put(&key, &new.to_string()));
                let reply = self
                    .write(TXN, &keys::transaction(&[compare], &[write]))
                    .await?;
                if keys::succeeded(&reply) {
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
                let reply = self.write(PUT, &keys::put("ids", "")).await?;
                Ok(StoreAnswer::value(Value::Int(keys::revision(&reply))))
            }
            DataRequest::Acquire(key) => self.acquire(key).await,
            DataRequest::Release(key) => self.release(key).await,
        }
    }

    /// Sends a request and notes whether the connection can be used after it.
    async fn ask(&mut self, path: &str, body: &Json) -> Result<Json, GatewayError> {
        let reply = self.gateway.ask(path, body).await;
        if let Err(error) = &reply {
            self.is_broken |= !error.leaves_usable();
        }
        reply
    }

    /// A request that may change something.
    async fn write(&mut self, path: &str, body: &Json) -> Result<Json, StoreRefusal> {
        self.ask(path, body).await.map_err(|error| error.of_write())
    }

    async fn put(&mut self, key: &str, value: &str) -> Result<StoreAnswer, StoreRefusal> {
        self.write(PUT, &keys::put(key, value)).await?;
        Ok(StoreAnswer::done())
    }

    /// The value under a key: of a set, a counter, or a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let is_serializable = self.is_serializable;
        let value = match self.workload {
            "set" => {
                let prefix = set(key);
                let reply = self
                    .ask(RANGE, &keys::range_prefix(&prefix, 0, is_serializable))
                    .await;
                let reply = reply.map_err(|error| error.of_read())?;
                Value::integer_set(&elements(&prefix, &reply).map_err(StoreRefusal::Failed)?.0)
            }
            workload => {
                let (name, absent) = match workload {
                    "counter" => (format!("counter/{key}"), Value::Int(0)),
                    _ => (register(key), Value::Nil),
                };
                let reply = self.ask(RANGE, &keys::range(&name, is_serializable)).await;
                let reply = reply.map_err(|error| error.of_read())?;
                let entry = keys::entry(&name, &reply).map_err(StoreRefusal::Failed)?;
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
            .map(|name| keys::reading(&keys::range(name, self.is_serializable)));
        let reply = self
            .ask(TXN, &keys::transaction(&[], &reads.collect::<Vec<_>>()))
            .await;
        let reply = reply.map_err(|error| error.of_read())?;
        keys::entries_of(names, &reply).map_err(StoreRefusal::Failed)
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
            let compare: Vec<Json> = entries.iter().map(keys::unchanged).collect();
            let writes = change.writes.iter();
            let writes: Vec<Json> = writes
                .map(|(key, value)| keys::writing(&keys::put(key, value)))
                .collect();
            let reply = self
                .write(TXN, &keys::transaction(&compare, &writes))
                .await?;
            if keys::succeeded(&reply) {
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
        let reply = self
            .ask(RANGE, &keys::range_prefix(QUEUE, count, false))
            .await;
        let reply = reply.map_err(|error| after_some(error.of_read()))?;
        let (numbers, found) =
            elements(QUEUE, &reply).map_err(|error| after_some(StoreRefusal::Failed(error)))?;
        if found.is_empty() {
            return Ok(Some(numbers));
        }
        let compare: Vec<Json> = found.iter().map(keys::unchanged).collect();
        let deletions: Vec<Json> = found
            .iter()
            .map(|entry| keys::deleting(&entry.key))
            .collect();
        match self
            .write(TXN, &keys::transaction(&compare, &deletions))
            .await
        {
            Ok(reply) if keys::succeeded(&reply) => Ok(Some(numbers)),
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
        let granted = self
            .ask("/v3/lease/grant", &json!({"TTL": self.lease.to_string()}))
            .await;
        // A lease that no key has changes nothing that a test can see.
        let granted = granted.map_err(|error| error.of_read())?;
        let lease = keys::integer(&granted["ID"]);
        let missing = keys::unchanged(&KeyEntry {
            key: name.clone(),
            ..KeyEntry::default()
        });
        let write = keys::writing(&keys::put_leased(&name, &self.owner, lease));
        let reply = self
            .write(TXN, &keys::transaction(&[missing], &[write]))
            .await?;
        if keys::succeeded(&reply) {
            Ok(StoreAnswer::value(Value::Int(keys::revision(&reply))))
        } else {
            Err(StoreRefusal::failed("held"))
        }
    }

    /// Deletes the key of a lock, if this client owns it.
    async fn release(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let name = format!("lock/{key}");
        let owned = keys::has_value(&name, &self.owner);
        let reply = self
            .write(TXN, &keys::transaction(&[owned], &[keys::deleting(&name)]))
            .await?;
        if keys::succeeded(&reply) {
            Ok(StoreAnswer::done())
        } else {
            Err(StoreRefusal::failed("not held"))
        }
    }
}

/// The elements in the keys of a reply, and the entries.
fn elements(prefix: &str, reply: &Json) -> Result<(Vec<i64>, Vec<KeyEntry>), String> {
    let entries = keys::entries(reply)?;
    let number = |entry: &KeyEntry| {
        let text = entry.key.strip_prefix(prefix).unwrap_or_default();
        text.parse()
            .map_err(|_| format!("{:?} is no element", entry.key))
    };
    let numbers = entries
        .iter()
        .map(number)
        .collect::<Result<Vec<i64>, String>>()?;
    Ok((numbers, entries))
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
