//! Workloads: what clients do, and who judges it.

mod list_append;
mod register;

pub use list_append::{KeyDistribution, ListAppend, ListAppendOptions};
pub use register::{Register, RegisterOptions, registers};

use seatrial_checker::{Checker, UnknownName};
use seatrial_generator::{Generator, workload as data_type};
use seatrial_machine::Rng;

/// One thing that clients can do to a system, with the checkers that judge what came out.
pub struct Workload {
    /// The name that `--workload` takes and that a history carries.
    pub name: &'static str,
    /// The clients' operations: without end, without pauses, and without a thought for the nemesis.
    pub generator: Box<dyn Generator>,
    /// What clients do at the very end, when all faults are healed; `None`: nothing.
    pub last: Option<Box<dyn Generator>>,
}

impl Workload {
    /// The names of all workloads.
    pub const NAMES: [&'static str; 8] = [
        "register",
        "list-append",
        "set",
        "queue",
        "total-queue",
        "counter",
        "bank",
        "unique-ids",
    ];

    /// The workload called `name`, its random choices drawn from a fork of `rng`.
    pub fn named(name: &str, rng: &Rng) -> Option<Workload> {
        match name {
            "register" => {
                let generator = registers(rng.fork("register"), RegisterOptions::default());
                Some(Workload {
                    name: "register",
                    generator: generator.boxed(),
                    last: None,
                })
            }
            "list-append" => {
                let options = ListAppendOptions::default();
                let generator = ListAppend::new(rng.fork("list-append"), options);
                Some(Workload {
                    name: "list-append",
                    generator: generator.boxed(),
                    last: None,
                })
            }
            other => data_type::named(other, rng).map(|data_type| Workload {
                name: data_type.name,
                generator: data_type.generator,
                last: data_type.last,
            }),
        }
    }

    /// The checkers that judge its history by `model` (`None`: the strictest they know).
    pub fn checkers(&self, model: Option<&str>) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        seatrial_checker::for_workload(self.name, model)
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workload")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_name() {
        for name in Workload::NAMES {
            let workload = Workload::named(name, &Rng::from_seed(1)).unwrap();
            assert_eq!(workload.name, name);
            assert!(
                workload
                    .checkers(None)
                    .is_ok_and(|checkers| checkers.len() > 1)
            );
        }
        assert!(Workload::named("nope", &Rng::from_seed(1)).is_none());
    }
}
