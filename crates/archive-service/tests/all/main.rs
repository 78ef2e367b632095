//! The archive as a service, simulated: clients, copies, hostile bytes, limits.

#[cfg(test)]
mod copier;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod losses;
#[path = "../../../archive/tests/all/model.rs"]
#[allow(dead_code, reason = "its other half is for the tests of archive")]
#[cfg(test)]
mod model;
#[cfg(test)]
mod pusher;
#[cfg(test)]
mod service;
