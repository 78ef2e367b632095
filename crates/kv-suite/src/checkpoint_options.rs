//! The options of checkpoints, as `test` takes them and passes them to its nodes.

use crate::{CHECKPOINT_BYTES, CHECKPOINT_MODE, CHECKPOINT_SHARE};
use seatrial_kv::{CheckpointMode, ReplicaOptions};
use seatrial_suite::{OptionValues, SuiteError};
use std::process::Command;

/// Names of the modes.
const MODES: [(&str, CheckpointMode); 3] = [
    ("concurrent", CheckpointMode::Concurrent),
    ("blocking", CheckpointMode::Blocking),
    ("none", CheckpointMode::None),
];

/// When and how nodes make checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointOptions {
    bytes: u64,
    mode: (&'static str, CheckpointMode),
    share: u32,
}

impl CheckpointOptions {
    /// Reads the options.
    pub(crate) fn read(options: &OptionValues) -> Result<CheckpointOptions, SuiteError> {
        let name = options
            .get(CHECKPOINT_MODE)
            .map_or(MODES[0].0.into(), |value| value.to_string_lossy());
        let mode = MODES.into_iter().find(|mode| mode.0 == name);
        let mode = mode.ok_or_else(|| {
            let names = MODES.map(|mode| mode.0).join(", ");
            format!("--{CHECKPOINT_MODE} takes one of {names}, not {name}")
        })?;
        Ok(CheckpointOptions {
            bytes: options.number(CHECKPOINT_BYTES, 1..=u64::MAX, 64 << 20)?,
            mode,
            share: options.number(CHECKPOINT_SHARE, 1..=100, 30)? as u32,
        })
    }

    /// Sets the options of a replica.
    pub(crate) fn apply(self, options: &mut ReplicaOptions) {
        options.checkpoint_bytes = self.bytes;
        options.checkpoint_mode = self.mode.1;
        options.checkpoint_share = self.share;
    }

    /// Adds them to the command line of a node.
    pub(crate) fn pass(self, command: &mut Command) {
        command.arg(format!("--{CHECKPOINT_BYTES}"));
        command.arg(self.bytes.to_string());
        command.arg(format!("--{CHECKPOINT_MODE}")).arg(self.mode.0);
        command.arg(format!("--{CHECKPOINT_SHARE}"));
        command.arg(self.share.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_refused_with_the_allowed_ones() {
        for (name, value, reason) in [
            (CHECKPOINT_MODE, "fork", "concurrent, blocking, none"),
            (CHECKPOINT_SHARE, "0", "from 1 to 100"),
            (CHECKPOINT_BYTES, "0", "from 1"),
        ] {
            let mut options = OptionValues::default();
            options.insert(name, value.into());
            let error = CheckpointOptions::read(&options).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let usual = CheckpointOptions::read(&OptionValues::default()).unwrap();
        assert_eq!(usual.mode.1, CheckpointMode::Concurrent);
    }
}
