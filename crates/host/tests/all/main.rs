//! Machines on real sockets and files.

#[cfg(test)]
mod attack;
#[cfg(test)]
mod busy;
#[cfg(test)]
mod guest;
#[cfg(test)]
mod peer;
#[cfg(test)]
#[allow(dead_code, reason = "its other half is for the tests of sim")]
#[path = "../../../sim/tests/all/replica.rs"]
mod replica;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session;
#[cfg(test)]
mod status;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod wire;
