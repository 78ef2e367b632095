//! What to simulate.

use super::anomaly::Anomaly;
use seatrial_generator::KeyDistribution;
use std::ops::RangeInclusive;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Transactions of appends to lists and reads of them.
    ListAppend,
    /// Transactions of writes to registers and reads of them.
    RwRegister,
    /// Reads, writes and compare-and-sets of independent registers.
    Register,
    /// Additions to independent sets and reads of them.
    Set,
    /// Elements go into one queue and out of it; a last operation drains it.
    Queue,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 5] = [
        Workload::ListAppend,
        Workload::RwRegister,
        Workload::Register,
        Workload::Set,
        Workload::Queue,
    ];

    /// The name that histories and checkers know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::ListAppend => "list-append",
            Workload::RwRegister => "rw-register",
            Workload::Register => "register",
            Workload::Set => "set",
            Workload::Queue => "queue",
        }
    }

    /// The workload of this name.
    pub fn by_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The levels that a store of this workload can have, from weak to strong.
    pub const fn levels(self) -> &'static [Isolation] {
        match self {
            Workload::ListAppend | Workload::RwRegister => &Isolation::TRANSACTIONS,
            Workload::Register | Workload::Set => &Isolation::OBJECTS,
            Workload::Queue => &[Isolation::Linearizable],
        }
    }

    /// The strongest level.
    pub fn strongest(self) -> Isolation {
        self.levels()[self.levels().len() - 1]
    }
}

/// How the simulated store isolates its clients from one another: what it does, of which its promise follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Writes go into the store at once, under a lock until their transaction ends; an abort leaves them there; reads
    /// take what is there.
    ReadUncommitted,
    /// Writes wait for the commit, under a lock; each read takes what is committed at its moment.
    ReadCommitted,
    /// Reads take the newest committed versions, but of each transaction all or nothing (as RAMP: Bailis et al. 2014);
    /// writes are not checked.
    ReadAtomic,
    /// Reads take a snapshot, as a rule of a replica that lags behind; writes are not checked.
    Prefix,
    /// Snapshots, as a rule of a replica that lags behind; the first committer wins.
    SnapshotIsolation,
    /// The same, but a client's snapshot has all that the client has seen and done.
    StrongSessionSnapshotIsolation,
    /// Snapshots of the present; the first committer wins.
    StrongSnapshotIsolation,
    /// Transactions take place one after another; but those that only read are, half of the time, served by a replica
    /// that lags behind.
    Serializable,
    /// The same, but the replica has all that the client has seen and done.
    StrongSessionSerializable,
    /// Transactions take place one after another, each at one moment between its invocation and its completion.
    StrictSerializable,
    /// Writes take place one after another; reads are, half of the time, served by a replica that lags behind.
    Eventual,
    /// The same, but the replica has all that the client has seen and done.
    Sequential,
    /// Operations take place one after another, each at one moment between its invocation and its completion.
    Linearizable,
}

impl Isolation {
    /// The levels of single objects, from weak to strong.
    pub const OBJECTS: [Isolation; 3] = [
        Isolation::Eventual,
        Isolation::Sequential,
        Isolation::Linearizable,
    ];

    /// The levels of transactions, from weak to strong.
    pub const TRANSACTIONS: [Isolation; 10] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::ReadAtomic,
        Isolation::Prefix,
        Isolation::SnapshotIsolation,
        Isolation::StrongSessionSnapshotIsolation,
        Isolation::StrongSnapshotIsolation,
        Isolation::Serializable,
        Isolation::StrongSessionSerializable,
        Isolation::StrictSerializable,
    ];

    /// The name that the checkers know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read-uncommitted",
            Isolation::ReadCommitted => "read-committed",
            Isolation::ReadAtomic => "read-atomic",
            Isolation::Prefix => "prefix",
            Isolation::SnapshotIsolation => "snapshot-isolation",
            Isolation::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            Isolation::StrongSnapshotIsolation => "strong-snapshot-isolation",
            Isolation::Serializable => "serializable",
            Isolation::StrongSessionSerializable => "strong-session-serializable",
            Isolation::StrictSerializable => "strict-serializable",
            Isolation::Eventual => "eventual",
            Isolation::Sequential => "sequential",
            Isolation::Linearizable => "linearizable",
        }
    }

    /// The level of this name.
    pub fn by_name(name: &str) -> Option<Isolation> {
        let mut all = Isolation::TRANSACTIONS
            .into_iter()
            .chain(Isolation::OBJECTS);
        all.find(|one| one.name() == name)
    }
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that mean nothing to one another"
)]
pub struct Options {
    /// What the clients do.
    pub workload: Workload,
    /// Invocations and completions together.
    pub operations: u64,
    /// How the store isolates them, and what the history keeps; `None`: as strictly as can be, but for the anomalies.
    pub isolation: Option<Isolation>,
    /// What goes wrong besides, in turn.
    pub anomalies: Vec<Anomaly>,
    /// Share of operations with which an anomaly begins; there is at most one at a time.
    pub anomaly_rate: f64,
    /// Instead: each anomaly once, from when this share of the history is written.
    pub anomaly_at: Option<f64>,
    /// Same seed and options, same history.
    pub seed: u64,
    /// Number of clients, 1 to 65,535.
    pub concurrency: u32,
    /// Keys in use at a time, 1 to 1,048,576.
    pub keys: u32,
    /// Which of them a client takes.
    pub distribution: KeyDistribution,
    /// Micro-operations of a transaction, 1 to 64.
    pub transaction_length: RangeInclusive<u32>,
    /// Are all these lengths equally likely? Else those in the middle are likelier.
    pub even_lengths: bool,
    /// Share of a transaction's micro-operations that read.
    pub reads: f64,
    /// Does a transaction read each key before it writes it, besides?
    pub read_before_write: bool,
    /// Does a transaction draw no key twice?
    pub no_key_twice: bool,
    /// Do completions carry the database's timestamps of snapshot and commit
    /// ([`Stamps`](seatrial_history::Stamps))?
    pub timestamps: bool,
    /// After how many writes a key gives its place to a fresh one, 1 to 65,536 (of registers in transactions:
    /// 1,073,741,824); drawn for each key.
    pub writes_per_key: RangeInclusive<u32>,
    /// Share of operations that fail and certainly did not take place.
    pub fail: f64,
    /// Share of operations whose outcome stays unknown; half of them took place.
    pub info: f64,
}

impl Options {
    /// So many operations of a workload on a store of the strongest level, with what else is usual.
    pub fn new(workload: Workload, operations: u64) -> Options {
        Options {
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
    pub fn store(&self) -> Isolation {
        self.isolation.unwrap_or_else(|| self.workload.strongest())
    }

    /// Does the history keep the level of the store?
    pub fn is_valid(&self) -> bool {
        let mut anomalies = self.anomalies.iter();
        anomalies.all(|anomaly| anomaly.is_admitted_by(self.store()))
    }

    /// Can this be simulated?
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_numbers()?;
        self.check_transactions()?;
        let workload = self.workload;
        if !workload.levels().contains(&self.store()) {
            let levels = workload.levels().iter();
            return Err(OptionsError::Isolation {
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
            if anomaly.processes() > self.concurrency && workload != Workload::Queue {
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
        if self.workload == Workload::Queue && self.operations % 2 == 1 {
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
            Workload::RwRegister => 1 << 30,
            // A list is as long as its key has writes.
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

    /// Do the workload and its store know what is asked of transactions?
    fn check_transactions(&self) -> Result<(), OptionsError> {
        let workload = self.workload;
        let is_timed = self.anomaly_at.is_some() && workload == Workload::Queue;
        let has_transactions = matches!(workload, Workload::ListAppend | Workload::RwRegister);
        let is_shaped = self.read_before_write || self.no_key_twice || self.timestamps;
        if is_timed || is_shaped && !has_transactions {
            return Err(OptionsError::Untold {
                workload: workload.name(),
                what: if is_timed {
                    "puts its anomalies in at a rate alone"
                } else {
                    "has no transactions to shape or to stamp"
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
            return Err(OptionsError::Untold {
                workload: self.store().name(),
                what: "takes no snapshots, so there are no timestamps of them",
            });
        }
        Ok(())
    }
}

/// Why something cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// The workload has no such level.
    #[error("{workload} has no isolation {isolation}; it has {}", levels.join(", "))]
    Isolation {
        /// The workload.
        workload: &'static str,
        /// The level that was asked for.
        isolation: &'static str,
        /// Those that it has.
        levels: Vec<&'static str>,
    },
    /// A number is too small or too large, or a range is empty.
    #[error("a {name} of {low} to {high}: it must lie between 1 and {most}, the lower end first")]
    Bounds {
        /// Of what.
        name: &'static str,
        /// The lower end.
        low: u32,
        /// The upper end.
        high: u32,
        /// The largest possible.
        most: u32,
    },
    /// Shares outside 0 to 1.
    #[error("{fail} fail and {info} info: both are shares of all operations, together at most 1")]
    Rates {
        /// The share that fails.
        fail: f64,
        /// The share that stays unknown.
        info: f64,
    },
    /// The share of reads is none.
    #[error("{rate} reads: it is a share of micro-operations, from 0 to 1")]
    Reads {
        /// What was asked for.
        rate: f64,
    },
    /// The workload or its store cannot do what was asked.
    #[error("{workload} {what}")]
    Untold {
        /// Which one.
        workload: &'static str,
        /// What it does not do.
        what: &'static str,
    },
    /// Too few keys for a transaction that takes none twice.
    #[error("{length} micro-operations that take no key twice, and {keys} keys")]
    Keys {
        /// Of a transaction.
        length: u32,
        /// Those in use at a time.
        keys: u32,
    },
    /// The share of anomalies is none.
    #[error("anomalies at {rate}: it is a share of all operations, from 0 to 1")]
    AnomalyRate {
        /// What was asked for.
        rate: f64,
    },
    /// The workload's operations cannot show the anomaly.
    #[error("{workload} cannot show {anomaly}; it can show {}", anomalies.join(", "))]
    Unseen {
        /// The workload.
        workload: &'static str,
        /// The anomaly that was asked for.
        anomaly: &'static str,
        /// Those that it can show.
        anomalies: Vec<&'static str>,
    },
    /// The level does not have the anomaly.
    #[error(
        "{isolation} excludes {anomaly}; {}. Without a level the store is strict but for the anomaly",
        admitting(levels)
    )]
    Excluded {
        /// The anomaly that was asked for.
        anomaly: &'static str,
        /// The level that was asked for.
        isolation: &'static str,
        /// Those that have it.
        levels: Vec<&'static str>,
    },
    /// Too few clients for the anomaly.
    #[error("{anomaly} takes {processes} processes, and there are {concurrency}")]
    Processes {
        /// The anomaly that was asked for.
        anomaly: &'static str,
        /// How many processes it takes.
        processes: u32,
        /// How many there are.
        concurrency: u32,
    },
    /// The drain at the end of a queue must complete.
    #[error(
        "{operations} operations of a queue: the number must be even, so that the last one completes"
    )]
    Odd {
        /// How many were asked for.
        operations: u64,
    },
}

/// Which levels have the anomaly, in words.
fn admitting(levels: &[&str]) -> String {
    match levels {
        [] => "every level does".to_owned(),
        levels => format!("those that have it are {}", levels.join(", ")),
    }
}
