//! The clients of a test: requests as reads and changes of znodes.
//!
//! | data | in ZooKeeper |
//! | --- | --- |
//! | register | a znode; a compare-and-set reads it, and writes if the version is still the same |
//! | transaction, bank | all znodes are read; a `multi` compares all versions and writes, else again from the start |
//! | counter | a znode that is read, then written if its version is still the same, else again from the start |
//! | set | a child for each element |
//! | queue | a numbered child for each element; the one with the lowest number is deleted |
//! | unique ids | the transaction of a write |
//! | lock | a numbered child that its session owns, and that has the lowest number; the fence is the transaction |

use crate::ReadGuard;
use crate::znode_tree::{self as tree, ACCOUNTS, IDS, QUEUE};
use crate::zookeeper_session::{Znode, ZooKeeperSession, of_read, of_write};
use seatrial_history::{Key, Mop, Transfer, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{
    DataRequest, DataStore, KeyChange, KeyText as _, StoreAnswer, StoreClient, StoreRefusal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use zookeeper_client::Error;

/// Opens clients.
pub(crate) struct ZooKeeperClients {
    /// Time limit of beginning a session, and of each operation.
    pub(crate) timeout: Duration,
    /// Time without contact after which the servers end a session.
    pub(crate) session: Duration,
    /// The workload; empty if the operations come from a plan.
    pub(crate) workload: &'static str,
    /// What comes before a read.
    pub(crate) guard: ReadGuard,
}

impl Clients for ZooKeeperClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let session = ZooKeeperSession::open(slot.address, self.timeout, self.session).await?;
            Ok(StoreClient::boxed(ZooKeeperStore {
                session,
                node: slot.node,
                workload: self.workload,
                guard: self.guard,
                patience: self.timeout,
                held: BTreeMap::new(),
            }))
        })
    }
}

/// The client of one worker.
struct ZooKeeperStore {
    session: ZooKeeperSession,
    node: NodeId,
    workload: &'static str,
    guard: ReadGuard,
    /// Time limit after which a request that others got ahead of is not tried again.
    patience: Duration,
    /// The znodes of the locks that it holds.
    held: BTreeMap<Key, String>,
}

impl DataStore for ZooKeeperStore {
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
        !self.session.is_broken()
    }
}

/// Most elements that are taken out of the queue at once.
const TAKEN_AT_ONCE: usize = 50;

impl ZooKeeperStore {
    async fn answer(&mut self, request: DataRequest<'_>) -> Result<StoreAnswer, StoreRefusal> {
        match request {
            DataRequest::Read(key) => self.read(key).await,
            DataRequest::Write(key, value) => {
                self.write(&tree::register(key), &value.to_string()).await
            }
            DataRequest::CompareAndSet(key, old, new) => {
                self.compare_and_set(&tree::register(key), old, new).await
            }
            DataRequest::Add(key, value) if self.workload == "set" => self.add(key, value).await,
            DataRequest::Add(key, by) => {
                let path = tree::counter(key);
                self.change(std::slice::from_ref(&path), |znodes| {
                    let sum = znodes[0].number(0)? + by;
                    Ok(KeyChange::put([(path.clone(), sum.to_string())], None))
                })
                .await
            }
            DataRequest::Transaction(mops) => self.transaction(mops).await,
            DataRequest::Balances => {
                let accounts: Vec<String> = (0..ACCOUNTS).map(tree::account).collect();
                self.change(&accounts, |znodes| {
                    let balances = znodes.iter().map(|znode| znode.number(0));
                    let balances = balances.collect::<Result<Vec<i64>, String>>()?;
                    let pairs: Vec<(i64, i64)> = (0..).zip(balances).collect();
                    Ok(KeyChange::put([], Some(Value::balances(&pairs))))
                })
                .await
            }
            DataRequest::Transfer(transfer) => self.transfer(transfer).await,
            DataRequest::Enqueue(element) => {
                let path = format!("{QUEUE}/{element}-");
                let created = self.session.create_numbered(&path).await;
                created.map_err(|error| of_write(&error))?;
                Ok(StoreAnswer::done())
            }
            DataRequest::Dequeue => self.dequeue().await,
            DataRequest::Drain => self.drain().await,
            DataRequest::Generate => {
                let change = self.session.set(IDS, "", None).await;
                let change = change.map_err(|error| of_write(&error))?;
                Ok(StoreAnswer::value(Value::Int(change)))
            }
            DataRequest::Acquire(key) => self.acquire(key).await,
            DataRequest::Release(key) => self.release(key).await,
        }
    }

    /// What comes before a read.
    async fn guard_read(&mut self) -> Result<(), StoreRefusal> {
        let done = match self.guard {
            ReadGuard::Quorum => self.session.commit_nothing().await,
            ReadGuard::Sync => self.session.sync().await,
            ReadGuard::Local => Ok(()),
        };
        done.map_err(|error| of_read(&error))
    }

    /// The value under a key: of a set, a counter, or a register.
    async fn read(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        self.guard_read().await?;
        if self.workload == "set" {
            let children = self.session.children(&tree::set(key)).await;
            let (names, _) = children.map_err(|error| of_read(&error))?;
            let elements = names.iter().map(|name| {
                name.parse()
                    .map_err(|_| StoreRefusal::Failed(format!("{name:?} is no element")))
            });
            let elements = elements.collect::<Result<Vec<i64>, StoreRefusal>>()?;
            return Ok(StoreAnswer::value(Value::integer_set(&elements)));
        }
        let (path, absent) = match self.workload {
            "counter" => (tree::counter(key), Value::Int(0)),
            _ => (tree::register(key), Value::Nil),
        };
        let found = self.session.get(&path).await;
        let value = match found.map_err(|error| of_read(&error))? {
            None => absent,
            Some(znode) => Value::Int(znode.number(0).map_err(StoreRefusal::Failed)?),
        };
        Ok(StoreAnswer::value(value))
    }

    /// Sets the data of a znode, which is created if it is missing.
    async fn write(&mut self, path: &str, text: &str) -> Result<StoreAnswer, StoreRefusal> {
        match self.session.set(path, text, None).await {
            Ok(_) => return Ok(StoreAnswer::done()),
            Err(Error::NoNode) => {}
            Err(error) => return Err(of_write(&error)),
        }
        let created = self.session.create(path, text).await;
        if created.map_err(|error| of_write(&error))? {
            return Ok(StoreAnswer::done());
        }
        // Another client created it, and none deletes it.
        let set = self.session.set(path, text, None).await;
        set.map_err(|error| of_write(&error))?;
        Ok(StoreAnswer::done())
    }

    async fn compare_and_set(
        &mut self,
        path: &str,
        old: i64,
        new: i64,
    ) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        self.guard_read().await?;
        while began.elapsed() < self.patience {
            let found = self.session.get(path).await;
            let found = found.map_err(|error| of_read(&error))?;
            let text = found.as_ref().map_or("", |znode| znode.text.as_str());
            if text != old.to_string() {
                return Err(StoreRefusal::failed("the register has another value"));
            }
            let version = found.map(|znode| znode.version);
            match self.session.set(path, &new.to_string(), version).await {
                Ok(_) => return Ok(StoreAnswer::done()),
                Err(Error::BadVersion) => self.catch_up().await?,
                Err(error) => return Err(of_write(&error)),
            }
        }
        Err(StoreRefusal::failed("other clients were always first"))
    }

    /// Another client was first: the server may not have its change yet. What is read then is compared when it is written.
    async fn catch_up(&mut self) -> Result<(), StoreRefusal> {
        self.session.sync().await.map_err(|error| of_read(&error))
    }

    /// Adds an element to a set.
    async fn add(&mut self, key: &Key, element: i64) -> Result<StoreAnswer, StoreRefusal> {
        let set = tree::set(key);
        let path = format!("{set}/{element}");
        let mut created = self.session.create(&path, "").await;
        if created == Err(Error::NoNode) {
            let made = self.session.create(&set, "").await;
            // The empty set alone changes nothing that a test can see.
            made.map_err(|error| of_read(&error))?;
            created = self.session.create(&path, "").await;
        }
        created.map_err(|error| of_write(&error))?;
        Ok(StoreAnswer::done())
    }

    /// Reads znodes in one request.
    async fn look(&mut self, paths: &[String]) -> Result<Vec<Znode>, StoreRefusal> {
        let found = self.session.get_all(paths).await;
        let found = found.map_err(|error| of_read(&error))?;
        let znodes = paths
            .iter()
            .zip(found)
            .map(|(path, found)| found.map_or_else(|| Znode::missing(path), |(znode, _)| znode));
        Ok(znodes.collect())
    }

    /// Reads znodes, and changes what `decide` says if all still have the same versions; otherwise again from the start.
    /// Without a change, a comparison of the versions shows that all were there at one time; local reads have none.
    async fn change(
        &mut self,
        paths: &[String],
        decide: impl Fn(&[Znode]) -> Result<KeyChange, String>,
    ) -> Result<StoreAnswer, StoreRefusal> {
        let began = Instant::now();
        while began.elapsed() < self.patience {
            let znodes = self.look(paths).await?;
            let change = decide(&znodes).map_err(StoreRefusal::Failed)?;
            let answer = change
                .value
                .map_or_else(StoreAnswer::done, StoreAnswer::value);
            if change.writes.is_empty() && self.guard == ReadGuard::Local {
                return Ok(answer);
            }
            if self.create_missing(&znodes).await? {
                continue;
            }
            let committed = self.session.commit(&znodes, &change.writes).await;
            if committed.map_err(|error| of_write(&error))? {
                return Ok(answer);
            }
            self.catch_up().await?;
        }
        Err(StoreRefusal::failed("other clients were always first"))
    }

    /// Creates those of these znodes that were missing, because only what exists has a version; were there any? A znode without
    /// data is as good as none.
    async fn create_missing(&mut self, znodes: &[Znode]) -> Result<bool, StoreRefusal> {
        let mut is_any = false;
        for znode in znodes.iter().filter(|znode| znode.is_missing()) {
            let created = self.session.create(&znode.path, "").await;
            created.map_err(|error| of_read(&error))?;
            is_any = true;
        }
        if is_any {
            self.catch_up().await?;
        }
        Ok(is_any)
    }

    async fn transaction(&mut self, mops: &[Mop]) -> Result<StoreAnswer, StoreRefusal> {
        let paths: BTreeSet<String> = mops.iter().map(|mop| tree::data(mop.key())).collect();
        let paths: Vec<String> = paths.into_iter().collect();
        let is_list = !matches!(self.workload, "rw-register" | "long-fork");
        self.change(&paths, |znodes| {
            KeyChange::of_transaction(mops, znodes, tree::data, is_list)
        })
        .await
    }

    async fn transfer(&mut self, transfer: Transfer) -> Result<StoreAnswer, StoreRefusal> {
        let paths = [tree::account(transfer.from), tree::account(transfer.to)];
        self.change(&paths, |znodes| {
            KeyChange::of_transfer(&transfer, znodes, 0)
        })
        .await
    }
}

/// Queues and locks. They never read locally: an element that is not seen would be lost, a lock that is not seen held twice.
impl ZooKeeperStore {
    /// Takes the oldest elements out of the queue, at most `count`; `None` if other clients took one of them first. `before` are
    /// those that the same operation has taken already.
    async fn take(
        &mut self,
        count: usize,
        before: &[i64],
    ) -> Result<Option<Vec<i64>>, StoreRefusal> {
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
        self.catch_up().await.map_err(after_some)?;
        let children = self.session.children(QUEUE).await;
        let (names, _) = children.map_err(|error| after_some(of_read(&error)))?;
        let mut queued = Vec::with_capacity(names.len());
        for name in names {
            let (element, number) =
                tree::queued(&name).map_err(|error| after_some(StoreRefusal::Failed(error)))?;
            queued.push((number, element, format!("{QUEUE}/{name}")));
        }
        queued.sort_unstable();
        queued.truncate(count);
        let elements: Vec<i64> = queued.iter().map(|(_, element, _)| *element).collect();
        let paths: Vec<String> = queued.into_iter().map(|(_, _, path)| path).collect();
        if paths.is_empty() {
            return Ok(Some(elements));
        }
        match self.session.delete_all(&paths).await {
            Ok(true) => Ok(Some(elements)),
            Ok(false) => Ok(None),
            Err(error) => Err(match of_write(&error) {
                StoreRefusal::Unknown(reason) => StoreRefusal::Perhaps(all(&elements), reason),
                other => after_some(other),
            }),
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
        // An element that its server does not show would count as lost.
        let seen = self.session.commit_nothing().await;
        seen.map_err(|error| of_read(&error))?;
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

    /// Queues for a lock, and leaves the queue if another client is first. The server has all numbers below its own: it has this
    /// session's creation.
    async fn acquire(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let lock = tree::lock(key);
        let name = format!("{lock}/c-");
        let mut created = self.session.create_owned(&name).await;
        if created == Err(Error::NoNode) {
            let made = self.session.create(&lock, "").await;
            made.map_err(|error| of_read(&error))?;
            created = self.session.create_owned(&name).await;
        }
        let (path, fence) = created.map_err(|error| of_write(&error))?;
        let children = self.session.children(&lock).await;
        let (names, _) = children.map_err(|error| StoreRefusal::unknown(&error))?;
        let own = path.rsplit('/').next().unwrap_or_default();
        if names.iter().any(|other| other.as_str() < own) {
            // If its outcome is unknown, the end of the session deletes the znode, and until then it may come to be the first.
            let left = self.session.delete(&path).await;
            left.map_err(|error| StoreRefusal::unknown(&error))?;
            return Err(StoreRefusal::failed("held"));
        }
        self.held.insert(key.clone(), path);
        Ok(StoreAnswer::value(Value::Int(fence)))
    }

    async fn release(&mut self, key: &Key) -> Result<StoreAnswer, StoreRefusal> {
        let Some(path) = self.held.remove(key) else {
            return Err(StoreRefusal::failed("not held"));
        };
        match self.session.delete(&path).await {
            Ok(true) => Ok(StoreAnswer::done()),
            Ok(false) => Err(StoreRefusal::failed("not held any more")),
            Err(error) => Err(of_write(&error)),
        }
    }
}
