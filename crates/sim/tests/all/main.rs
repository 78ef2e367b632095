//! Machines that use every part of the seam, in worlds of faults.

#[cfg(test)]
#[allow(dead_code, reason = "its other half is for the tests of host")]
mod replica;
#[cfg(test)]
mod world;
