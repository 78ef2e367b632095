//! Transactions: which isolation level does a history keep?
//!
//! ```
//! use seatrial_checker::{Checker, Validity, txn::{Level, ListAppend}};
//! use seatrial_history::import::{self, Format, Options};
//!
//! // Both read the empty list and both append: one update is lost.
//! let text = b"{:process 0 :type :invoke :f :txn :value [[:r 1 nil] [:append 1 1]]}
//!              {:process 1 :type :invoke :f :txn :value [[:r 1 nil] [:append 1 2]]}
//!              {:process 0 :type :ok :f :txn :value [[:r 1 []] [:append 1 1]]}
//!              {:process 1 :type :ok :f :txn :value [[:r 1 []] [:append 1 2]]}";
//! let history = import::read("run.edn", text, Format::Edn, Options::default())?;
//! let verdict = ListAppend::new(Level::SnapshotIsolation).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! assert_eq!(verdict.anomalies["lost-update"], 1);
//! let verdict = ListAppend::new(Level::ReadCommitted).check(&history);
//! assert_eq!(verdict.valid, Validity::Valid);
//! # Ok::<(), import::ImportError>(())
//! ```

mod anomaly;
mod components;
mod decision;
mod dense;
mod dependencies;
mod explain;
pub(crate) mod findings;
mod g1;
mod graph;
pub mod isolation;
mod kept;
mod level;
mod linked;
mod list_append;
mod passes;
pub mod registers;
mod rows;
mod rw_register;
mod search;
mod timestamps;
mod transactions;

pub(crate) use dense::Map;
pub(crate) use dependencies::{Cycle, Member, cycles};
pub use g1::G1;
pub use level::Level;
pub(crate) use list_append::OnlineLists;
pub use list_append::{ListAppend, Windows};
pub use passes::Rounds;
pub use rw_register::{Inference, RwRegister, UnknownInference};
pub use timestamps::{Promise, Timestamped, Timestamps};

use anomaly::Cyclic;
use std::collections::BTreeSet;

/// What one judgement may cost beyond its linear part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Edges that may be looked at in the search for cycles with one anti-dependency, the only part of the search
    /// that is not linear. Past it the search gives what it has, and the verdict says so.
    pub search_steps_max: u64,
}

impl Default for Bound {
    /// A thousand million steps: a few seconds.
    fn default() -> Bound {
        Bound {
            search_steps_max: 1_000_000_000,
        }
    }
}

/// The kinds of cycles that this level forbids.
fn cyclic(level: Level) -> BTreeSet<Cyclic> {
    let forbidden = level.forbidden();
    Cyclic::all()
        .filter(|cyclic| forbidden.contains(cyclic.name()))
        .collect()
}
