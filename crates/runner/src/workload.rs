//! Workloads: what clients do, and who judges it.

mod list_append;
mod register;

pub use list_append::{KeyDistribution, ListAppend, ListAppendOptions};
pub use register::{Register, RegisterOptions, registers};

use seatrial_generator::Generator;
use seatrial_machine::Rng;

/// One thing that clients can do to a system, with the checkers that judge what came out.
pub struct Workload {
    /// The name that `--workload` takes and that a history carries.
    pub name: &'static str,
    /// The clients' operations: without end, without pauses, and without a thought for the nemesis.
    pub generator: Box<dyn Generator>,
    /// The names of the checkers that judge its history, the most important last.
    pub checkers: &'static [&'static str],
}

impl Workload {
    /// The names of all workloads.
    pub const NAMES: [&'static str; 2] = ["register", "list-append"];

    /// The workload called `name`, its random choices drawn from a fork of `rng`.
    pub fn named(name: &str, rng: &Rng) -> Option<Workload> {
        let checkers = Workload::checkers_of(name)?;
        match name {
            "register" => {
                let generator = registers(rng.fork("register"), RegisterOptions::default());
                Some(Workload {
                    name: "register",
                    generator: generator.boxed(),
                    checkers,
                })
            }
            "list-append" => {
                let options = ListAppendOptions::default();
                let generator = ListAppend::new(rng.fork("list-append"), options);
                Some(Workload {
                    name: "list-append",
                    generator: generator.boxed(),
                    checkers,
                })
            }
            _ => None,
        }
    }

    /// The names of the checkers for a history of the workload called `name`.
    pub fn checkers_of(name: &str) -> Option<&'static [&'static str]> {
        match name {
            "register" => Some(&["stats", "register"]),
            "list-append" => Some(&["stats", "list-append"]),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workload")
            .field("name", &self.name)
            .field("checkers", &self.checkers)
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
            assert_eq!(Workload::checkers_of(name), Some(workload.checkers));
        }
        assert!(Workload::named("nope", &Rng::from_seed(1)).is_none());
    }
}
