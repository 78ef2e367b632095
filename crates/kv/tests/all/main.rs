//! The store as a whole: on a real file, and in the simulated world.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod checkpoint_crash;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod elections;
#[cfg(test)]
mod file;
#[cfg(test)]
mod long_replay;
#[cfg(test)]
mod lost_journal;
#[cfg(test)]
mod no_log;
#[cfg(test)]
mod node;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod past_states;
#[cfg(test)]
mod state_digest;
#[cfg(test)]
mod transfer_crash;
#[cfg(test)]
mod world;
