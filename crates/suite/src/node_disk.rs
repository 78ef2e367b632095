//! Disks of the nodes' own, whose power a test can cut: an option that several suites have.

use crate::{OptionValues, Setup, SuiteError, SuiteOption, Verb};
use seatrial_runner::{NetworkKind, ProcessNodes};

/// The disk of each node: a folder of the run, or a file system on a loop device.
pub const NODE_DISK: SuiteOption = SuiteOption {
    name: "disk",
    value_name: "KIND",
    about: "Disk of each node: folder (of the run), or ext4 or xfs on a loop device, whose power `--faults disk` cuts (root)",
    default: Some("folder"),
    verbs: &[Verb::Test],
};

/// Faults of disks that no file system on a loop device has: of them only the loss of power is left.
const OMITTED_ON_DISKS: [&str; 4] = ["slow-disk", "write-errors", "read-errors", "no-space"];

/// The file system that each node has for itself, the value of [`NODE_DISK`]; `None`: a folder.
pub fn node_disk(options: &OptionValues) -> Result<Option<&'static str>, String> {
    let disk = options.one_of(NODE_DISK.name, &["folder", "ext4", "xfs"])?;
    Ok(Some(disk).filter(|disk| *disk != "folder"))
}

/// What [`Suite::omitted_faults_with`](crate::Suite::omitted_faults_with) returns for a suite with [`NODE_DISK`], which without
/// disks omits `others`.
pub fn omitted_with_disks(
    options: &OptionValues,
    others: &'static [&'static str],
) -> &'static [&'static str] {
    match node_disk(options) {
        Ok(Some(_)) => &OMITTED_ON_DISKS,
        _ => others,
    }
}

impl Setup<'_> {
    /// Gives each of the nodes a disk of its own, if [`NODE_DISK`] asks for it.
    pub fn with_disks(&self, nodes: ProcessNodes) -> Result<ProcessNodes, SuiteError> {
        let Some(disk) = node_disk(self.options)? else {
            return Ok(nodes);
        };
        if self.network == NetworkKind::Local {
            return Ok(nodes.with_disks(disk));
        }
        let network = self.network;
        Err(format!(
            "--disk {disk} needs --network local, not {network}: leave out faults of links"
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_no_disk_of_its_own() {
        let mut options = OptionValues::default();
        assert_eq!(node_disk(&options), Ok(None));
        assert_eq!(omitted_with_disks(&options, &["slow-disk"]), ["slow-disk"]);
        options.insert(NODE_DISK.name, "folder".into());
        assert_eq!(node_disk(&options), Ok(None));
        options.insert(NODE_DISK.name, "xfs".into());
        assert_eq!(node_disk(&options), Ok(Some("xfs")));
        let omitted = omitted_with_disks(&options, &["slow-disk", "lose-unsynced"]);
        assert!(!omitted.contains(&"lose-unsynced"));
        options.insert(NODE_DISK.name, "btrfs".into());
        assert!(node_disk(&options).is_err());
    }
}
