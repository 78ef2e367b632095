//! Options of a simulated database: workload, isolation, anomalies, sizes and rates; and their validation.

use super::data_types::PERMITS;
use super::planted_anomaly::Anomaly;
use seatrial_generator::KeyDistribution;
use std::ops::RangeInclusive;

/// The operations of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseWorkload {
    /// Transactions of appends to lists and reads of them.
    ListAppend,
    /// Transactions of writes to registers and reads of them.
    RwRegister,
    /// Reads, writes and compare-and-sets of independent registers.
    Register,
    /// Additions to independent sets and reads of them.
    Set,
    /// Enqueues and dequeues of one queue; the last operation drains it.
    Queue,
    /// Independent sets: half of them grow and are read as a whole, half have removals and reads of elements.
    LinearizableSet,
    /// Appends to independent logs, reads of offsets and of all.
    AppendLog,
    /// Writes and reads of blocks of independent devices.
    BlockDevice,
    /// Writes and reads of one or two registers of independent groups.
    MultiRegister,
    /// Independent semaphores of three permits.
    Semaphore,
    /// Independent locks with fences.
    LinearizableLock,
}

impl DatabaseWorkload {
    /// All workloads.
    pub const ALL: [DatabaseWorkload; 11] = [
        DatabaseWorkload::ListAppend,
        DatabaseWorkload::RwRegister,
        DatabaseWorkload::Register,
        DatabaseWorkload::Set,
        DatabaseWorkload::Queue,
        DatabaseWorkload::LinearizableSet,
        DatabaseWorkload::AppendLog,
        DatabaseWorkload::BlockDevice,
        DatabaseWorkload::MultiRegister,
        DatabaseWorkload::Semaphore,
        DatabaseWorkload::LinearizableLock,
    ];

    /// The name in histories, which selects the checker.
    pub const fn name(self) -> &'static str {
        match self {
            DatabaseWorkload::ListAppend => "list-append",
            DatabaseWorkload::RwRegister => "rw-register",
            DatabaseWorkload::Register => "register",
            DatabaseWorkload::Set => "set",
            DatabaseWorkload::Queue => "queue",
            DatabaseWorkload::LinearizableSet => "linearizable-set",
            DatabaseWorkload::AppendLog => "append-log",
            DatabaseWorkload::BlockDevice => "block-device",
            DatabaseWorkload::MultiRegister => "multi-register",
            DatabaseWorkload::Semaphore => "semaphore",
            DatabaseWorkload::LinearizableLock => "linearizable-lock",
        }
    }

    /// The model of its checker, if there are several.
    pub fn model(self) -> Option<String> {
        match self {
            DatabaseWorkload::Semaphore => Some(format!("permits:{PERMITS}")),
            DatabaseWorkload::LinearizableLock => Some("fenced".to_owned()),
            _ => None,
        }
    }

    /// The workload of this name.
    pub fn by_name(name: &str) -> Option<DatabaseWorkload> {
        DatabaseWorkload::ALL
            .into_iter()
            .find(|one| one.name() == name)
    }

    /// The levels that a store of this workload can have, from weak to strong.
    pub const fn levels(self) -> &'static [StoreLevel] {
        match self {
            DatabaseWorkload::ListAppend | DatabaseWorkload::RwRegister => {
                &StoreLevel::TRANSACTIONS
            }
            DatabaseWorkload::Register | DatabaseWorkload::Set => &StoreLevel::OBJECTS,
            _ => &[StoreLevel::Linearizable],
        }
    }

    /// The strongest level.
    pub fn strongest(self) -> StoreLevel {
        self.levels()[self.levels().len() - 1]
    }
}

/// The isolation level of the simulated store, each described by the mechanism that provides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreLevel {
    /// Writes take effect at once, under a lock that is held until the end of the transaction, and remain after an abort;
    /// reads return the newest value.
    ReadUncommitted,
    /// Writes take effect at the commit, under a lock; each read returns the newest committed value.
    ReadCommitted,
    /// Reads return the newest committed versions, but of each transaction all or nothing (as RAMP: Bailis et al. 2014);
    /// writes are not checked for conflicts.
    ReadAtomic,
    /// Reads are from a snapshot, half of the time of a lagging replica; writes are not checked for conflicts.
    Prefix,
    /// Reads are from a snapshot, half of the time of a lagging replica; the first committer wins.
    SnapshotIsolation,
    /// The same, but a client's snapshot contains all that the client has observed and written.
    StrongSessionSnapshotIsolation,
    /// Reads are from a snapshot of the present; the first committer wins.
    StrongSnapshotIsolation,
    /// Transactions run one after another; read-only transactions are served by a lagging replica half of the time.
    Serializable,
    /// The same, but the replica contains all that the client has observed and written.
    StrongSessionSerializable,
    /// Transactions run one after another, each at one instant between its invocation and its completion.
    StrictSerializable,
    /// Writes take place one after another; reads are served by a lagging replica half of the time.
    Eventual,
    /// The same, but the replica contains all that the client has observed and written.
    Sequential,
    /// Operations take place one after another, each at one instant between its invocation and its completion.
    Linearizable,
}

impl StoreLevel {
    /// The levels of single objects, from weak to strong.
    pub const OBJECTS: [StoreLevel; 3] = [
        StoreLevel::Eventual,
        StoreLevel::Sequential,
        StoreLevel::Linearizable,
    ];

    /// The levels of transactions, from weak to strong.
    pub const TRANSACTIONS: [StoreLevel; 10] = [
        StoreLevel::ReadUncommitted,
        StoreLevel::ReadCommitted,
        StoreLevel::ReadAtomic,
        StoreLevel::Prefix,
        StoreLevel::SnapshotIsolation,
        StoreLevel::StrongSessionSnapshotIsolation,
        StoreLevel::StrongSnapshotIsolation,
        StoreLevel::Serializable,
        StoreLevel::StrongSessionSerializable,
        StoreLevel::StrictSerializable,
    ];

    /// The name of the consistency model in the checkers.
    pub const fn name(self) -> &'static str {
        match self {
            StoreLevel::ReadUncommitted => "read-uncommitted",
            StoreLevel::ReadCommitted => "read-committed",
            StoreLevel::ReadAtomic => "read-atomic",
            StoreLevel::Prefix => "prefix",
            StoreLevel::SnapshotIsolation => "snapshot-isolation",
            StoreLevel::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            StoreLevel::StrongSnapshotIsolation => "strong-snapshot-isolation",
            StoreLevel::Serializable => "serializable",
            StoreLevel::StrongSessionSerializable => "strong-session-serializable",
            StoreLevel::StrictSerializable => "strict-serializable",
            StoreLevel::Eventual => "eventual",
            StoreLevel::Sequential => "sequential",
            StoreLevel::Linearizable => "linearizable",
        }
    }

    /// The level of this name.
    pub fn by_name(name: &str) -> Option<StoreLevel> {
        let mut all = StoreLevel::TRANSACTIONS
            .into_iter()
            .chain(StoreLevel::OBJECTS);
        all.find(|one| one.name() == name)
    }
}

/// Options of a simulated database.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct DatabaseOptions {
    /// The operations of the clients.
    pub workload: DatabaseWorkload,
    /// Number of invocations and completions together.
    pub operations: u64,
    /// Isolation level of the store; `None`: the strongest level, except for the planted anomalies.
    pub isolation: Option<StoreLevel>,
    /// Anomalies to plant, in turn.
    pub anomalies: Vec<Anomaly>,
    /// Fraction of operations at which an anomaly begins; at most one is planted at a time.
    pub anomaly_rate: f64,
    /// Plant each anomaly once instead, after this fraction of the history.
    pub anomaly_at: Option<f64>,
    /// Seed: equal options yield equal histories.
    pub seed: u64,
    /// Number of clients, 1 to 65,535.
    pub concurrency: u32,
    /// Number of keys in use at a time, 1 to 1,048,576.
    pub keys: u32,
    /// Probability of each of them.
    pub distribution: KeyDistribution,
    /// Number of micro-operations of a transaction, 1 to 64.
    pub transaction_length: RangeInclusive<u32>,
    /// Are all these lengths equally likely? Otherwise medium lengths are likelier.
    pub even_lengths: bool,
    /// Fraction of a transaction's micro-operations that are reads.
    pub reads: f64,
    /// Does a transaction also read each key before it writes it?
    pub read_before_write: bool,
    /// Are the keys of a transaction distinct?
    pub no_key_twice: bool,
    /// Do completions carry the database's timestamps of snapshot and commit
    /// ([`Stamps`](seatrial_history::Stamps))?
    pub timestamps: bool,
    /// Number of writes after which a key retires, drawn for each key: 1 to 65,536 (for registers in transactions 1 to
    /// 1,073,741,824).
    pub writes_per_key: RangeInclusive<u32>,
    /// Fraction of operations that fail and definitely did not take place.
    pub fail: f64,
    /// Fraction of operations whose outcome stays unknown; half of them took place.
    pub info: f64,
}

impl DatabaseOptions {
    /// `operations` operations of a workload on a store of the strongest level, with defaults for all other options.
    pub fn new(workload: DatabaseWorkload, operations: u64) -> DatabaseOptions {
        DatabaseOptions {
            workload,
            operations,
            isolation: None,
            anomalies: Vec::new(),
            anomaly_rate: 0.001,
            anomaly_at: None,
            seed: 0,
            concurrency: 100,
            keys: 10,
            distribution: KeyDistribution::Exponential,
            transaction_length: 1..=8,
            even_lengths: false,
            reads: 0.5,
            read_before_write: false,
            no_key_twice: false,
            timestamps: false,
            writes_per_key: 128..=256,
            fail: 0.015,
            info: 0.005,
        }
    }

    /// The level of the store.
    pub fn store(&self) -> StoreLevel {
        self.isolation.unwrap_or_else(|| self.workload.strongest())
    }

    /// Does the history satisfy the level of the store? False when an anomaly is planted that the level excludes.
    pub fn is_valid(&self) -> bool {
        let mut anomalies = self.anomalies.iter();
        anomalies.all(|anomaly| anomaly.is_admitted_by(self.store()))
    }

    /// Checks that the options are consistent and within bounds.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_numbers()?;
        self.check_transactions()?;
        let workload = self.workload;
        if !workload.levels().contains(&self.store()) {
            let levels = workload.levels().iter();
            return Err(OptionsError::StoreLevel {
                workload: workload.name(),
                isolation: self.store().name(),
                levels: levels.map(|level| level.name()).collect(),
            });
        }
        for &anomaly in &self.anomalies {
            if !anomaly.is_seen_in(workload) {
                let seen = Anomaly::all().filter(|one| one.is_seen_in(workload));
                return Err(OptionsError::Unseen {
                    workload: workload.name(),
                    anomaly: anomaly.name(),
                    anomalies: seen.map(Anomaly::name).collect(),
                });
            }
            if let Some(isolation) = self.isolation
                && !anomaly.is_admitted_by(isolation)
            {
                let levels = workload.levels().iter();
                let admit = levels.filter(|level| anomaly.is_admitted_by(**level));
                return Err(OptionsError::Excluded {
                    anomaly: anomaly.name(),
                    isolation: isolation.name(),
                    levels: admit.map(|level| level.name()).collect(),
                });
            }
            if anomaly.processes() > self.concurrency && workload != DatabaseWorkload::Queue {
                return Err(OptionsError::Processes {
                    anomaly: anomaly.name(),
                    processes: anomaly.processes(),
                    concurrency: self.concurrency,
                });
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), OptionsError> {
        if self.workload == DatabaseWorkload::Queue && self.operations % 2 == 1 {
            return Err(OptionsError::Odd {
                operations: self.operations,
            });
        }
        let within = |name, low: u32, high: u32, most| {
            if low < 1 || low > high || high > most {
                return Err(OptionsError::Bounds {
                    name,
                    low,
                    high,
                    most,
                });
            }
            Ok(())
        };
        within("concurrency", self.concurrency, self.concurrency, 65_535)?;
        within("number of keys", self.keys, self.keys, 1 << 20)?;
        let length = &self.transaction_length;
        within("transaction length", *length.start(), *length.end(), 64)?;
        let writes = &self.writes_per_key;
        let most = match self.workload {
            DatabaseWorkload::RwRegister => 1 << 30,
            // Every read copies up to this many elements.
            _ => 1 << 16,
        };
        within("writes per key", *writes.start(), *writes.end(), most)?;
        let share = |rate: f64| (0.0..=1.0).contains(&rate);
        if !share(self.fail) || !share(self.info) || self.fail + self.info > 1.0 {
            return Err(OptionsError::Rates {
                fail: self.fail,
                info: self.info,
            });
        }
        for rate in [Some(self.anomaly_rate), self.anomaly_at] {
            if let Some(rate) = rate.filter(|&rate| !share(rate)) {
                return Err(OptionsError::AnomalyRate { rate });
            }
        }
        if !share(self.reads) {
            return Err(OptionsError::Reads { rate: self.reads });
        }
        Ok(())
    }

    /// Checks the options that only some workloads and levels support.
    fn check_transactions(&self) -> Result<(), OptionsError> {
        let workload = self.workload;
        let is_timed = self.anomaly_at.is_some() && workload == DatabaseWorkload::Queue;
        let has_transactions = matches!(
            workload,
            DatabaseWorkload::ListAppend | DatabaseWorkload::RwRegister
        );
        let is_shaped = self.read_before_write || self.no_key_twice || self.timestamps;
        if is_timed || is_shaped && !has_transactions {
            return Err(OptionsError::Unsupported {
                workload: workload.name(),
                what: if is_timed {
                    "supports anomalies only at a rate"
                } else {
                    "has no transactions, so options of transactions do not apply"
                },
            });
        }
        let length = *self.transaction_length.end();
        if self.no_key_twice && length > self.keys {
            return Err(OptionsError::Keys {
                length,
                keys: self.keys,
            });
        }
        if self.timestamps && !self.store().has_snapshots() {
            return Err(OptionsError::Unsupported {
                workload: self.store().name(),
                what: "has no snapshots, so there are no timestamps",
            });
        }
        Ok(())
    }
}

/// Why options are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// The workload does not have this level.
    #[error("{workload} has no isolation {isolation} (available: {})", levels.join(", "))]
    StoreLevel {
        /// The workload.
        workload: &'static str,
        /// The level given.
        isolation: &'static str,
        /// The levels of the workload.
        levels: Vec<&'static str>,
    },
    /// A number is out of bounds, or a range is empty.
    #[error("{name} {low} to {high} must be between 1 and {most}, the lower end first")]
    Bounds {
        /// The quantity.
        name: &'static str,
        /// The lower end.
        low: u32,
        /// The upper end.
        high: u32,
        /// The maximum.
        most: u32,
    },
    /// Fractions outside 0 to 1.
    #[error("{fail} fail and {info} info must be fractions of all operations, together at most 1")]
    Rates {
        /// The fraction that fails.
        fail: f64,
        /// The fraction with an unknown outcome.
        info: f64,
    },
    /// The fraction of reads is out of bounds.
    #[error("reads must be a fraction of micro-operations from 0 to 1, found {rate}")]
    Reads {
        /// The fraction given.
        rate: f64,
    },
    /// The workload or level does not support an option.
    #[error("{workload} {what}")]
    Unsupported {
        /// The workload or level.
        workload: &'static str,
        /// Why the option does not apply.
        what: &'static str,
    },
    /// Too few keys for a transaction with distinct keys.
    #[error("{length} micro-operations on distinct keys need as many keys, found {keys}")]
    Keys {
        /// Maximum number of micro-operations of a transaction.
        length: u32,
        /// Number of keys in use at a time.
        keys: u32,
    },
    /// The fraction of anomalies is out of bounds.
    #[error("anomalies must be a fraction of all operations from 0 to 1, found {rate}")]
    AnomalyRate {
        /// The fraction given.
        rate: f64,
    },
    /// The workload's operations cannot show the anomaly.
    #[error("{workload} cannot show {anomaly} (available: {})", anomalies.join(", "))]
    Unseen {
        /// The workload.
        workload: &'static str,
        /// The anomaly given.
        anomaly: &'static str,
        /// The anomalies that the workload can show.
        anomalies: Vec<&'static str>,
    },
    /// The level excludes the anomaly.
    #[error(
        "{isolation} excludes {anomaly}; {}. Without a level the store is strict except for the anomaly",
        admitting(levels)
    )]
    Excluded {
        /// The anomaly given.
        anomaly: &'static str,
        /// The level given.
        isolation: &'static str,
        /// The levels that allow the anomaly.
        levels: Vec<&'static str>,
    },
    /// Too few clients for the anomaly.
    #[error("{anomaly} needs {processes} processes, found a concurrency of {concurrency}")]
    Processes {
        /// The anomaly given.
        anomaly: &'static str,
        /// Number of processes of the anomaly.
        processes: u32,
        /// Number of clients.
        concurrency: u32,
    },
    /// The drain at the end of a queue must complete.
    #[error(
        "the operations of a queue must be even in number, so that the last one completes, found {operations}"
    )]
    Odd {
        /// Number of operations given.
        operations: u64,
    },
}

/// The levels that allow an anomaly, for a message.
fn admitting(levels: &[&str]) -> String {
    match levels {
        [] => "every level does".to_owned(),
        levels => format!("levels that allow it: {}", levels.join(", ")),
    }
}
