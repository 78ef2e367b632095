//! NBD clients of a volume in memory.

#[cfg(test)]
mod clients;
#[cfg(test)]
mod memory_volume;
#[cfg(test)]
mod nbd_tools;
