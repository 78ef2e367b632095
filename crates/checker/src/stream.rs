//! Checkers that judge a history chunk by chunk.

use crate::data::{Folded, Judge};
use crate::stats::CountFold;
use crate::txn::isolation::{Isolation, Model};
use crate::txn::{G1, Inference, Level, ListAppend, RwRegister};
use crate::{
    Bank, Counter, Lock, Log, LongFork, Monotonic, Queue, Set, SetFull, Stats, TotalQueue,
    UniqueIds, Verdict,
};
use seatrial_history::{Chunks, FoldError, Folder};

/// A checker that needs no whole history in memory, so it judges one of any size. Several that judge at once, each in
/// its own thread, share the passes of their folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// Counts of outcomes: [`Stats`].
    Stats,
    /// Direct anomalies of list-append: [`G1`].
    G1,
    /// Isolation of list-append at this level: [`ListAppend`].
    ListAppend(Level),
    /// Isolation of registers by axioms: [`Isolation`].
    Isolation(Model),
    /// Isolation of registers at this level with these assumptions: [`RwRegister`].
    RwRegister(Level, Inference),
    /// A set that is read at the end: [`Set`].
    Set,
    /// A set that is read all the time: [`SetFull`].
    SetFull,
    /// Where a queue's elements come from: [`Queue`].
    Queue,
    /// What becomes of them: [`TotalQueue`].
    TotalQueue,
    /// Identifiers: [`UniqueIds`].
    UniqueIds,
    /// Bounds of a counter: [`Counter`].
    Counter,
    /// The total of accounts: [`Bank`].
    Bank,
    /// Groups of registers: [`LongFork`].
    LongFork,
    /// Numbers and timestamps: [`Monotonic`].
    Monotonic,
    /// Who holds a lock: [`Lock`].
    Lock,
    /// Logs with offsets: [`Log`].
    Log,
}

impl Streaming {
    /// All of them.
    pub const ALL: [Streaming; 16] = [
        Streaming::Stats,
        Streaming::G1,
        Streaming::ListAppend(Level::StrictSerializable),
        Streaming::Isolation(Model::StrictSerializable),
        Streaming::RwRegister(Level::StrictSerializable, Inference::NONE),
        Streaming::Set,
        Streaming::SetFull,
        Streaming::Queue,
        Streaming::TotalQueue,
        Streaming::UniqueIds,
        Streaming::Counter,
        Streaming::Bank,
        Streaming::LongFork,
        Streaming::Monotonic,
        Streaming::Lock,
        Streaming::Log,
    ];

    /// The name by which `--checker` and the results know it.
    pub fn name(self) -> &'static str {
        match self {
            Streaming::Stats => "stats",
            Streaming::G1 => "g1",
            Streaming::ListAppend(_) => "list-append",
            Streaming::Isolation(_) => Isolation::NAME,
            Streaming::RwRegister(..) => "rw-register",
            Streaming::Set => Set::NAME,
            Streaming::SetFull => SetFull::NAME,
            Streaming::Queue => Queue::NAME,
            Streaming::TotalQueue => TotalQueue::NAME,
            Streaming::UniqueIds => UniqueIds::NAME,
            Streaming::Counter => Counter::NAME,
            Streaming::Bank => Bank::NAME,
            Streaming::LongFork => LongFork::NAME,
            Streaming::Monotonic => Monotonic::NAME,
            Streaming::Lock => Lock::NAME,
            Streaming::Log => Log::NAME,
        }
    }

    /// The one called `name`; `None` when that one needs the whole history.
    pub fn by_name(name: &str) -> Option<Streaming> {
        Streaming::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The same, judging by the model of this name; `None` when there is none such.
    pub fn with_model(self, model: &str) -> Option<Streaming> {
        match self {
            Streaming::ListAppend(_) => Level::by_name(model).map(Streaming::ListAppend),
            Streaming::Isolation(_) => Model::by_name(model).map(Streaming::Isolation),
            Streaming::RwRegister(_, inference) => {
                Level::by_name(model).map(|level| Streaming::RwRegister(level, inference))
            }
            _ => None,
        }
    }

    /// The same, taking this for granted about keys, if it infers anything from that.
    #[must_use]
    pub fn with_inference(self, inference: Inference) -> Streaming {
        match self {
            Streaming::RwRegister(level, _) => Streaming::RwRegister(level, inference),
            other => other,
        }
    }

    /// Judges the folder's history. The verdict is that of the checker that needs it whole; the error is that of a
    /// chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        match self {
            Streaming::Stats => {
                let (all, by_function) = folder.fold(CountFold)?;
                Ok(Stats::verdict(all, &by_function))
            }
            Streaming::G1 => G1.judge(folder),
            Streaming::ListAppend(level) => ListAppend::new(level).judge(folder),
            Streaming::Isolation(model) => Isolation::new(model).judge(folder),
            Streaming::RwRegister(level, inference) => {
                let checker = RwRegister::new(level).with_inference(inference);
                checker.judge(folder)
            }
            Streaming::Set => folder.fold(Folded(Set)),
            Streaming::SetFull => folder.fold(Folded(SetFull::default())),
            Streaming::Queue => folder.fold(Folded(Queue)),
            Streaming::TotalQueue => folder.fold(Folded(TotalQueue)),
            Streaming::UniqueIds => folder.fold(Folded(UniqueIds)),
            Streaming::Counter => folder.fold(Folded(Counter)),
            Streaming::Bank => folder.fold(Folded(Bank::new())),
            Streaming::LongFork => folder.fold(Folded(LongFork::new())),
            Streaming::Monotonic => folder.fold(Folded(Monotonic::default())),
            Streaming::Lock => folder.fold(Folded(Lock::default())),
            Streaming::Log => folder.fold(Folded(Log)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_name;
    use seatrial_history::{History, Op, OpType, Process, Value};
    use seatrial_machine::Rng;
    use std::sync::Arc;

    /// Clients and a nemesis that do anything in any order.
    fn any_history(rng: &mut Rng) -> History {
        let ops = (0..rng.below(40_000)).map(|_| {
            let process = match rng.below(5) {
                4 => Process::NEMESIS,
                number => Process::Client(number),
            };
            // A completion belongs to the function of its invocation.
            let f = match process {
                Process::Client(number) => ["read", "write", "cas", "read"][number as usize],
                Process::Named(_) => *rng.pick(&["kill", "read"]),
            };
            let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
            let kind = kinds[rng.index(if f == "cas" { 1 } else { 4 })];
            Op {
                kind,
                ..Op::invoke(process, f, Value::Nil)
            }
        });
        History::from_unindexed(ops.collect())
    }

    #[test]
    fn chunk_by_chunk_the_verdict_is_the_same() {
        for seed in 0..20 {
            let history = Arc::new(any_history(&mut Rng::from_seed(seed)));
            let folder = Folder::new(history.clone(), 2);
            for streaming in Streaming::ALL {
                let whole = by_name(streaming.name(), None).unwrap().check(&history);
                let verdict = streaming.judge(&folder).unwrap();
                let text = |verdict| serde_json::to_string(verdict).unwrap();
                assert_eq!(text(&verdict), text(&whole), "seed {seed}");
                assert_eq!(Streaming::by_name(streaming.name()), Some(streaming));
            }
        }
        assert_eq!(Streaming::by_name("cas-register"), None);
        assert_eq!(Streaming::G1.with_model("serializable"), None);
        let weaker = Streaming::by_name("list-append").and_then(|one| one.with_model("SI"));
        let expected = Streaming::ListAppend(Level::SnapshotIsolation);
        assert_eq!(weaker, Some(expected));
    }
}
