//! What to simulate.

use std::ops::RangeInclusive;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Transactions of appends to lists and reads of them.
    ListAppend,
    /// Transactions of writes to registers and reads of them.
    RwRegister,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 2] = [Workload::ListAppend, Workload::RwRegister];

    /// The name that histories and checkers know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::ListAppend => "list-append",
            Workload::RwRegister => "rw-register",
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
}

impl Isolation {
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
        }
    }

    /// The level of this name.
    pub fn by_name(name: &str) -> Option<Isolation> {
        let mut all = Isolation::TRANSACTIONS.into_iter();
        all.find(|one| one.name() == name)
    }
}

/// Which of the keys in use a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// The n-th with a weight of 1/n.
    Zipf,
    /// The first half of the time, the second a quarter of the time, and so on.
    Exponential,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Distribution; 3] = [
        Distribution::Uniform,
        Distribution::Zipf,
        Distribution::Exponential,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipf => "zipf",
            Distribution::Exponential => "exponential",
        }
    }

    /// The distribution of this name.
    pub fn by_name(name: &str) -> Option<Distribution> {
        Distribution::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What the clients do.
    pub workload: Workload,
    /// Invocations and completions together.
    pub operations: u64,
    /// How the store isolates them.
    pub isolation: Isolation,
    /// Same seed and options, same history.
    pub seed: u64,
    /// Number of clients, 1 to 65,535.
    pub concurrency: u32,
    /// Keys in use at a time, 1 to 65,536.
    pub keys: u32,
    /// Which of them a client takes.
    pub distribution: Distribution,
    /// Micro-operations of a transaction, 1 to 64.
    pub transaction_length: RangeInclusive<u32>,
    /// After how many writes a key gives its place to a fresh one, 1 to 65,536; drawn for each key.
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
            isolation: workload.strongest(),
            seed: 0,
            concurrency: 100,
            keys: 10,
            distribution: Distribution::Exponential,
            transaction_length: 1..=8,
            writes_per_key: 128..=256,
            fail: 0.015,
            info: 0.005,
        }
    }

    /// Can this be simulated?
    pub fn check(&self) -> Result<(), OptionsError> {
        let workload = self.workload.name();
        if !self.workload.levels().contains(&self.isolation) {
            let levels = self.workload.levels().iter();
            return Err(OptionsError::Isolation {
                workload,
                isolation: self.isolation.name(),
                levels: levels.map(|level| level.name()).collect(),
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
        within("number of keys", self.keys, self.keys, 65_536)?;
        let length = &self.transaction_length;
        within("transaction length", *length.start(), *length.end(), 64)?;
        let writes = &self.writes_per_key;
        within("writes per key", *writes.start(), *writes.end(), 65_536)?;
        let share = |rate: f64| (0.0..=1.0).contains(&rate);
        if !share(self.fail) || !share(self.info) || self.fail + self.info > 1.0 {
            return Err(OptionsError::Rates {
                fail: self.fail,
                info: self.info,
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
}
