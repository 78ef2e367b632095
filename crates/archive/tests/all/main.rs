//! The archive under loss of power at every point, with one fault in every block, and as a service.

#[cfg(test)]
mod copier;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod model;
#[cfg(test)]
mod pusher;
#[cfg(test)]
mod service;
