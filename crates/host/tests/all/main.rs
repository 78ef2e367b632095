//! Machines on real sockets and files.

#[cfg(test)]
mod attack;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session;
#[cfg(test)]
mod wire;
