//! Published findings about databases, shown again: `seatrial prove`.
//!
//! A proof ([`PublishedFinding`]) is two tests of this program. The *hit* sets a system up as the publication did, and must find
//! what was published; the *control* changes the one setting that matters, and must find nothing. A control that is accused
//! means that the hit proves nothing either.
//!
//! ```text
//!  PROOFS ─► Series ─► PublishedFinding ─┬─ hit ─────┐
//!                                        └─ control ─┴─► FindingTest ─► seatrial test … ─► results.json ─► Reproduction
//! ```
//!
//! Each test is a process of the program itself, with the words that a user would type: what a proof shows, anybody can
//! repeat by hand, and a test that crashes costs its own run. Servers that a proof needs are looked for before it runs
//! ([`SERVERS`], which `seatrial doctor` lists).
//!
//! Not here: how a system is set up (suites), what is an anomaly (checkers).

mod finding_series;
mod finding_test;
mod installed;
mod proofs;
mod prove_arguments;
mod published_finding;

pub use finding_series::Series;
pub use finding_test::{FindingTestError, FindingTestRun};
pub use installed::{InstalledServer, SERVERS, find_program};
pub use proofs::PROOFS;
pub use prove_arguments::ProveArguments;
pub use published_finding::{ExpectedVerdict, FindingTest, PublishedFinding, Reproduction, Seen};
