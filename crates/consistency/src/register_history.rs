//! Reads and writes of registers as numbers: what all models of this crate are decided on.

use seatrial_cycles::Csr;
use seatrial_history::{Key, Value};

/// The completion of an operation of unknown outcome; the writer of a version that has none.
pub(crate) const NONE: u32 = u32::MAX;

/// What an operation does to its register, with numbers of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterEffect {
    /// It returned this version.
    Read(u32),
    /// It writes this version.
    Write(u32),
    /// It found the first version and wrote the second one.
    CompareAndSet(u32, u32),
}

/// An operation that took effect or may have taken effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterAction {
    /// Number of its session: its process.
    pub(crate) session: u32,
    pub(crate) key: u32,
    pub(crate) access: RegisterEffect,
    /// Position of its invocation.
    pub(crate) call: u32,
    /// Position of its successful completion; [`NONE`] if its outcome is unknown.
    pub(crate) ret: u32,
    /// Index of its completion, of its invocation if it has none.
    pub(crate) index: u64,
}

impl RegisterAction {
    /// The version that it returned, if it reads.
    pub(crate) fn read(&self) -> Option<u32> {
        match self.access {
            RegisterEffect::Read(version) | RegisterEffect::CompareAndSet(version, _) => {
                Some(version)
            }
            RegisterEffect::Write(_) => None,
        }
    }

    /// The version that it writes, if it writes.
    pub(crate) fn written(&self) -> Option<u32> {
        match self.access {
            RegisterEffect::Write(version) | RegisterEffect::CompareAndSet(_, version) => {
                Some(version)
            }
            RegisterEffect::Read(_) => None,
        }
    }

    /// Did it certainly take effect before its completion?
    pub(crate) fn is_certain(&self) -> bool {
        self.ret != NONE
    }
}

/// A value of a key; the initial state of a key is a version, too.
#[derive(Clone, Debug)]
pub(crate) struct RegisterVersion {
    pub(crate) key: u32,
    pub(crate) value: Value,
    /// The operation that wrote it, [`NONE`] for none; of several, the first.
    pub(crate) writer: u32,
    /// Operations that wrote it and did not fail; the initial state counts as one.
    pub(crate) writers: u32,
    /// Successful operations that returned it.
    pub(crate) readers: u32,
    /// Did a failed operation write it?
    pub(crate) has_failed_writer: bool,
}

impl RegisterVersion {
    /// Is it the state of its key before the first write?
    pub(crate) fn is_initial(&self) -> bool {
        self.value == Value::Nil
    }
}

/// The reads, writes and compare-and-sets of a history, in the order of their invocations.
///
/// Operations that failed are not there; of those of unknown outcome, only writes whose value was read. Another one need not have
/// taken effect, and every model of this crate that holds with it holds without it. Memory: 40 bytes for each operation and about
/// 60 for each version.
#[derive(Debug, Default)]
pub(crate) struct RegisterHistory {
    pub(crate) actions: Vec<RegisterAction>,
    /// By session: its process. An operation of unknown outcome is the last one of its session, or a session of its own: it
    /// may take effect after operations that its process ran later.
    pub(crate) processes: Vec<u64>,
    pub(crate) keys: Vec<Option<Key>>,
    pub(crate) versions: Vec<RegisterVersion>,
    /// Nanoseconds of invocation and completion by action; empty if they were not asked for, are not known or do not rise.
    pub(crate) times: Vec<(i64, i64)>,
    /// Where indices of operations do not follow positions: from this position on they start at this index.
    pub(crate) indices: Vec<(u32, u64)>,
    /// Operations of clients by outcome: ok, fail, info.
    pub(crate) outcomes: [u64; 3],
    /// Operations of unknown outcome that were left out.
    pub(crate) left_out: u64,
}

impl RegisterHistory {
    /// The operations of each session, in its order.
    pub(crate) fn sessions(&self) -> Csr<u32> {
        let members = self.actions.iter().zip(0..);
        let members = members.map(|(action, number)| (action.session, number));
        Csr::group(self.processes.len(), members)
    }

    /// The operations that returned each version.
    pub(crate) fn readers(&self) -> Csr<u32> {
        let all = self.actions.iter().zip(0..);
        let reads = all.filter_map(|(action, number)| Some((action.read()?, number)));
        Csr::group(self.versions.len(), reads)
    }

    /// The operation that wrote the version that this operation returned; `None` for an initial state, and for a version
    /// without a writer.
    pub(crate) fn source(&self, action: u32) -> Option<u32> {
        let version = self.actions[action as usize].read()?;
        let writer = self.versions[version as usize].writer;
        (writer != NONE).then_some(writer)
    }

    /// Is there an operation that returned a value that several operations wrote? Then it is not known which one it saw.
    pub(crate) fn ambiguous(&self) -> Option<&RegisterVersion> {
        let mut versions = self.versions.iter();
        versions.find(|version| version.writers > 1 && version.readers > 0)
    }

    /// Is there a compare-and-set?
    pub(crate) fn compare_and_set(&self) -> Option<&RegisterAction> {
        let mut actions = self.actions.iter();
        actions.find(|action| matches!(action.access, RegisterEffect::CompareAndSet(..)))
    }

    /// Leaves out compare-and-sets of unknown outcome that cannot have taken effect: nothing wrote what they compare with, and
    /// another operation wrote their new value.
    pub(crate) fn remove_impossible(&mut self) {
        loop {
            let numbered = self.actions.iter().zip(0..);
            let mut impossible = numbered.filter(|(action, _)| match action.access {
                RegisterEffect::CompareAndSet(from, to) => {
                    let writers = |version: u32| self.versions[version as usize].writers;
                    !action.is_certain() && writers(from) == 0 && writers(to) > 1
                }
                _ => false,
            });
            let Some((_, number)) = impossible.next() else {
                return;
            };
            self.remove(&[number]);
        }
    }

    /// Leaves out these operations, which are sorted.
    pub(crate) fn remove(&mut self, removed: &[u32]) {
        if removed.is_empty() {
            return;
        }
        for &number in removed {
            let action = self.actions[number as usize];
            if let Some(version) = action.read() {
                self.versions[version as usize].readers -= 1;
            }
            if let Some(version) = action.written() {
                self.versions[version as usize].writers -= 1;
            }
        }
        let is_kept = |number: usize| removed.binary_search(&(number as u32)).is_err();
        let kept = self.actions.iter().enumerate();
        let kept = kept.filter(|(number, _)| is_kept(*number));
        self.actions = kept.map(|(_, action)| *action).collect();
        let times = self.times.iter().enumerate();
        let times = times.filter(|(number, _)| is_kept(*number));
        self.times = times.map(|(_, time)| *time).collect();
        for version in &mut self.versions {
            version.writer = NONE;
        }
        for (action, number) in self.actions.iter().zip(0..) {
            if let Some(version) = action.written() {
                let writer = &mut self.versions[version as usize].writer;
                *writer = (*writer).min(number);
            }
        }
    }

    /// A value as text.
    pub(crate) fn value(&self, version: u32) -> String {
        self.versions[version as usize].value.to_string()
    }

    /// `op 14 (process 3)`.
    pub(crate) fn origin(&self, action: u32) -> String {
        let action = &self.actions[action as usize];
        let process = self.processes[action.session as usize];
        format!("op {} (process {process})", action.index)
    }

    /// ` of key x`; empty for a history without keys.
    pub(crate) fn of_key(&self, key: u32) -> String {
        let key = &self.keys[key as usize];
        key.as_ref()
            .map_or_else(String::new, |key| format!(" of key {key}"))
    }

    /// `the write of 3 to key x by op 14 (process 3)`.
    pub(crate) fn shown(&self, number: u32) -> String {
        let action = &self.actions[number as usize];
        let key = &self.keys[action.key as usize];
        let (to, of) = match key {
            Some(key) => (format!(" to key {key}"), format!(" of key {key}")),
            None => (String::new(), String::new()),
        };
        let origin = self.origin(number);
        match action.access {
            RegisterEffect::Read(version) => {
                format!("the read of {}{of} by {origin}", self.value(version))
            }
            RegisterEffect::Write(version) => {
                format!("the write of {}{to} by {origin}", self.value(version))
            }
            RegisterEffect::CompareAndSet(from, to_version) => {
                let (from, to_value) = (self.value(from), self.value(to_version));
                format!("the compare-and-set from {from} to {to_value}{of} by {origin}")
            }
        }
    }

    /// Asserts that the columns refer to one another.
    pub(crate) fn assert_complete(&self) {
        assert!(self.times.is_empty() || self.times.len() == self.actions.len());
        for action in &self.actions {
            debug_assert!((action.session as usize) < self.processes.len());
            debug_assert!((action.key as usize) < self.keys.len());
            debug_assert!(action.call <= action.ret, "it ends before its call");
        }
        for version in &self.versions {
            assert!(
                version.writer == NONE || (version.writer as usize) < self.actions.len(),
                "a version has a writer that does not exist"
            );
        }
    }
}
