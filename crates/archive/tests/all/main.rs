//! The archive under loss of power at every point, and with one fault in every block.

#[cfg(test)]
mod crash;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod model;
