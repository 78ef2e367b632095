//! The true verdict on a case, by the name of a model.

use crate::axioms::{Axioms, Weak};
use crate::case::{Case, Kind};
use crate::orders::{Follows, Rule, is_explained};
use crate::phenomena::{self, Phenomena, Uncommitted};
use std::cell::OnceCell;

/// Is a model kept?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OracleAnswer {
    /// By every reading of its definition.
    Kept,
    /// By none.
    Broken,
    /// Readings differ, or the model is only known to lie between others.
    Open,
}

fn answer(is_kept: bool) -> OracleAnswer {
    if is_kept {
        OracleAnswer::Kept
    } else {
        OracleAnswer::Broken
    }
}

/// Models that have no definition of their own here: a stronger one and a weaker one.
const BETWEEN: [(&str, &str, &str); 8] = [
    ("monotonic-view", "consistent-view", "read-committed"),
    (
        "monotonic-snapshot-read",
        "snapshot-isolation",
        "read-committed",
    ),
    (
        "forward-consistent-view",
        "snapshot-isolation",
        "consistent-view",
    ),
    (
        "monotonic-atomic-view",
        "parallel-snapshot-isolation",
        "read-committed",
    ),
    (
        "read-atomic",
        "parallel-snapshot-isolation",
        "read-committed",
    ),
    (
        "update-atomic",
        "parallel-snapshot-isolation",
        "read-committed",
    ),
    (
        "causal-cerone",
        "parallel-snapshot-isolation",
        "read-committed",
    ),
    ("update-serializable", "serializable", "consistent-view"),
];

/// Brute force on one case; each question is worked out once.
pub(crate) struct Oracle<'a> {
    case: &'a Case,
    explained: [OnceCell<bool>; 9],
    strict: OnceCell<Option<u16>>,
    lenient: OnceCell<Option<u16>>,
    axioms: OnceCell<Axioms<'a>>,
}

impl Oracle<'_> {
    pub(crate) fn new(case: &Case) -> Oracle<'_> {
        Oracle {
            case,
            explained: [const { OnceCell::new() }; 9],
            strict: OnceCell::new(),
            lenient: OnceCell::new(),
            axioms: OnceCell::new(),
        }
    }

    /// Is there an order that explains the case?
    pub(crate) fn explained(&self, rule: Rule, follows: Follows) -> bool {
        let at = rule as usize * 3 + follows as usize;
        *self.explained[at].get_or_init(|| is_explained(self.case, rule, follows))
    }

    fn order(&self, rule: Rule, follows: Follows) -> OracleAnswer {
        answer(self.explained(rule, follows))
    }

    /// Does some version order show no forbidden phenomenon?
    fn phenomena(&self, stricter: Phenomena, weaker: Phenomena) -> OracleAnswer {
        let strict = self.strict.get_or_init(|| phenomena::kept(self.case, true));
        if strict.is_some_and(|kept| kept & stricter.bit() != 0) {
            return OracleAnswer::Kept;
        }
        let lenient = self
            .lenient
            .get_or_init(|| phenomena::kept(self.case, false));
        match lenient {
            Some(kept) if kept & weaker.bit() == 0 => OracleAnswer::Broken,
            _ => OracleAnswer::Open,
        }
    }

    /// Parallel snapshot isolation asks that transactions see their own writes, so there is one reading.
    fn parallel(&self, it: Phenomena) -> OracleAnswer {
        match self.strict.get_or_init(|| phenomena::kept(self.case, true)) {
            Some(kept) if kept & it.bit() != 0 => OracleAnswer::Kept,
            Some(_) => OracleAnswer::Broken,
            None => OracleAnswer::Open,
        }
    }

    fn uncommitted(&self, follows: Follows) -> OracleAnswer {
        match phenomena::read_uncommitted(self.case, follows) {
            Uncommitted::Kept => OracleAnswer::Kept,
            Uncommitted::Broken => OracleAnswer::Broken,
            Uncommitted::Open => OracleAnswer::Open,
        }
    }

    /// Prefix consistency; of lists every read must be of one order of appends too, which not all readings ask for.
    fn prefix(&self, follows: Follows) -> OracleAnswer {
        let answer = self.order(Rule::Prefix, follows);
        let is_kept = answer == OracleAnswer::Kept;
        if is_kept
            && self.case.kind == Kind::Lists
            && self.of("read-committed") != OracleAnswer::Kept
        {
            return OracleAnswer::Open;
        }
        answer
    }

    /// Is the model of this name kept?
    ///
    /// # Panics
    /// When there is no such model.
    pub(crate) fn of(&self, model: &str) -> OracleAnswer {
        use Follows::{Nothing, Sessions, Time};
        use Phenomena as P;
        let same = |it| self.phenomena(it, it);
        if let Some((_, weak)) = Weak::ALL.iter().find(|weak| weak.0 == model) {
            // The axioms are of registers and take each value for written once; where one is not, a read has more than
            // one source.
            if self.case.kind == Kind::Lists || !self.case.has_unique_writes() {
                return OracleAnswer::Open;
            }
            let axioms = self.axioms.get_or_init(|| Axioms::new(self.case));
            return answer(axioms.is_kept(*weak));
        }
        if let Some((_, stronger, weaker)) = BETWEEN.iter().find(|row| row.0 == model) {
            return match (self.of(stronger), self.of(weaker)) {
                (OracleAnswer::Kept, _) => OracleAnswer::Kept,
                (_, OracleAnswer::Broken) => OracleAnswer::Broken,
                _ => OracleAnswer::Open,
            };
        }
        match model {
            "read-uncommitted" => self.uncommitted(Nothing),
            "strong-session-read-uncommitted" => self.uncommitted(Sessions),
            "strong-read-uncommitted" => self.uncommitted(Time),
            "read-committed" => same(P::ReadCommitted),
            "strong-session-read-committed" => same(P::SessionReadCommitted),
            "strong-read-committed" => same(P::StrongReadCommitted),
            "cursor-stability" => self.phenomena(P::CursorStability, P::NoLostUpdate),
            "consistent-view" => same(P::ConsistentView),
            "repeatable-read" => same(P::Serializable),
            "parallel-snapshot-isolation" => self.parallel(P::ParallelSnapshot),
            "strong-session-parallel-snapshot-isolation" => {
                self.parallel(P::SessionParallelSnapshot)
            }
            "prefix" => self.prefix(Nothing),
            "strong-session-prefix" => self.prefix(Sessions),
            "snapshot-isolation" => self.order(Rule::Snapshot, Nothing),
            "strong-session-snapshot-isolation" => self.order(Rule::Snapshot, Sessions),
            "strong-snapshot-isolation" => self.order(Rule::Snapshot, Time),
            "serializable" => self.order(Rule::Serializable, Nothing),
            "strong-session-serializable" => self.order(Rule::Serializable, Sessions),
            "strict-serializable" => self.order(Rule::Serializable, Time),
            _ => panic!("no model {model}"),
        }
    }

    /// Where two definitions of one model differ, which must not be: by orders, and by phenomena.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        use Follows::{Nothing, Sessions, Time};
        use Phenomena as P;
        let kept = (*self.strict.get_or_init(|| phenomena::kept(self.case, true)))?;
        let rows = [
            ("snapshot-isolation", P::Snapshot, Rule::Snapshot, Nothing),
            (
                "strong-session-snapshot-isolation",
                P::SessionSnapshot,
                Rule::Snapshot,
                Sessions,
            ),
            (
                "strong-snapshot-isolation",
                P::StrongSnapshot,
                Rule::Snapshot,
                Time,
            ),
            ("serializable", P::Serializable, Rule::Serializable, Nothing),
            (
                "strong-session-serializable",
                P::SessionSerializable,
                Rule::Serializable,
                Sessions,
            ),
            (
                "strict-serializable",
                P::StrictSerializable,
                Rule::Serializable,
                Time,
            ),
        ];
        let differs = rows.iter().find(|(_, it, rule, follows)| {
            (kept & it.bit() != 0) != self.explained(*rule, *follows)
        });
        differs.map(|row| row.0)
    }
}
