//! Checkers of transactions obey what a history says of its times, also as a library.

use seatrial_checker::{Aims, Checker, Validity, check_source};
use seatrial_cycles::Level;
use seatrial_history::Provenance;
use seatrial_inference::{ListAppend, RwRegister};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_isolation::{AxiomaticModel, Isolation};

/// Client 1 reads what was there before client 0 appended (or wrote), and does so later.
const STALE: [&str; 2] = [
    "{:process 0 :type :invoke :f :txn :value [[:append 1 1]]}
     {:process 0 :type :ok :f :txn :value [[:append 1 1]]}
     {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
     {:process 1 :type :ok :f :txn :value [[:r 1 []]]}
     {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
     {:process 1 :type :ok :f :txn :value [[:r 1 [1]]]}",
    "{:process 0 :type :invoke :f :txn :value [[:w 1 1]]}
     {:process 0 :type :ok :f :txn :value [[:w 1 1]]}
     {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
     {:process 1 :type :ok :f :txn :value [[:r 1 nil]]}
     {:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
     {:process 1 :type :ok :f :txn :value [[:r 1 1]]}",
];

/// The usual checker, the one of a level that was asked for, and a history.
type Case = (Box<dyn Checker>, Box<dyn Checker>, &'static str);

#[test]
fn without_times_real_time_is_left_open_and_nothing_else() {
    let strict = Level::StrictSerializable;
    let usual: [Case; 3] = [
        (
            Box::new(ListAppend::default()),
            Box::new(ListAppend::new(strict)),
            STALE[0],
        ),
        (
            Box::new(RwRegister::default()),
            Box::new(RwRegister::new(strict)),
            STALE[1],
        ),
        (
            Box::new(Isolation::default()),
            Box::new(Isolation::new(AxiomaticModel::StrictSerializable)),
            STALE[1],
        ),
    ];
    for (usual, asked, text) in usual {
        let options = ImportOptions::default();
        let history = import::read("a.edn", text.as_bytes(), Format::Edn, options).unwrap();
        let timeless = Aims {
            provenance: Provenance::default().timeless(),
            ..Aims::default()
        };
        let check = |checker: &dyn Checker, aims: &Aims| {
            check_source(checker, &history, aims).unwrap().verdict
        };
        for checker in [&*usual, &*asked] {
            let verdict = check(checker, &Aims::default());
            assert_eq!(verdict.valid, Validity::Invalid, "{}", checker.name());
        }
        let held = check(&*usual, &timeless);
        assert_eq!(held.valid, Validity::Valid, "{held:?}");
        assert_eq!(held.model.as_deref(), Some("strong-session-serializable"));
        let open = check(&*asked, &timeless);
        assert!(matches!(open.valid, Validity::Unknown(_)), "{open:?}");
        assert_eq!(open.model.as_deref(), Some("strict-serializable"));
        assert!(open.undecided[0].starts_with("real time, as the history has no times"));
    }
}
