//! Published findings about databases, shown again: `seatrial prove`.
//!
//! A [`Proof`] is two tests of this program. The *hit* sets a system up as the publication did, and must find what was
//! published; the *control* changes the one setting that matters, and must find nothing. A control that is accused means that
//! the hit proves nothing either.
//!
//! ```text
//!  PROOFS ─► Proof ─┬─ hit ─────┐
//!                   └─ control ─┴─► Trial ─► seatrial test … --out FOLDER ─► results.json ─► Seen ─► Agreement
//! ```
//!
//! Each trial is a process of the program itself, with the words that a user would type: what a proof shows, anybody can
//! repeat by hand, and a trial that crashes costs its own run. Servers that a proof needs are looked for before it runs
//! ([`SERVERS`], which `seatrial doctor` lists).
//!
//! Not here: how a system is set up (suites), what is an anomaly (checkers).

mod installed;
mod proof;
mod proofs;
mod trial;

pub use installed::{InstalledServer, SERVERS, find_program};
pub use proof::{Agreement, Expected, Proof, Seen, Trial};
pub use proofs::PROOFS;
pub use trial::{TrialError, TrialRun};
