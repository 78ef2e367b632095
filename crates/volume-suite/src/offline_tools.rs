//! Commands on the folders of replicas that are not running: `seatrial volume verify|dump|diff`.

use crate::volume_file::VolumeFile;
use crate::volume_tools::{VOLUME, volume};
use seatrial_files::Files;
use seatrial_host::DataFolder;
use seatrial_machine::{Storage as _, counted};
use seatrial_suite::{SuiteError, SuiteTool, ToolExit, ToolOption, ToolSetup};
use seatrial_volume::{
    BlockContent, BlockNumber, DownstairsOptions, KeyRing, RegionCheck, StoredRegion,
};
use std::any::Any;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FOLDERS: ToolOption = ToolOption {
    name: "data",
    value_name: Some("DIRS"),
    about: "Folders of replicas, separated by commas",
    default: Some("all of replica-1, ... in the volume's folder"),
};
const RECORDS: ToolOption = ToolOption {
    name: "records",
    value_name: None,
    about: "Each record of the log, with its position",
    default: None,
};
const BLOCKS: ToolOption = ToolOption {
    name: "blocks",
    value_name: None,
    about: "Each written block: its version, what it holds, its position in the log",
    default: None,
};

const VERIFY_NOTES: &str = "Reads each folder whole, and changes nothing: checksums of the log, each block's slot (is it there, of \
this block, of the map's version, sealed with the key), the map file against the log. Without the file `key` the seals are not \
checked. The replica must not be running.\n\
Exit status: 0 intact, 1 damaged, 254 error (usage, input, replica is running).";
const DUMP_NOTES: &str = "Reads the folders and changes nothing. The replica must not be running.\n\
Exit status: 0 printed, 254 error (usage, input, replica is running).";
const DIFF_NOTES: &str = "Compares versions: equal versions have equal bytes if `verify` finds both replicas intact. Blocks that were \
changed after the last flush that all replicas have may differ, and are counted. The replicas must not be running.\n\
Exit status: 0 equal up to the last common flush, 1 different, 254 error (usage, input, replica is running).";

/// `seatrial volume verify`.
pub(crate) const VERIFY: SuiteTool = SuiteTool {
    name: "verify",
    about: "Check every block in the folders of replicas",
    arguments: &[VOLUME],
    options: &[&[FOLDERS]],
    notes: VERIFY_NOTES,
    run: verify,
};

/// `seatrial volume dump`.
pub(crate) const DUMP: SuiteTool = SuiteTool {
    name: "dump",
    about: "Print what is in the folders of replicas",
    arguments: &[VOLUME],
    options: &[&[FOLDERS, RECORDS, BLOCKS]],
    notes: DUMP_NOTES,
    run: dump,
};

/// `seatrial volume diff`.
pub(crate) const DIFF: SuiteTool = SuiteTool {
    name: "diff",
    about: "Compare the folders of two or more replicas, block by block",
    arguments: &[VOLUME],
    options: &[&[FOLDERS]],
    notes: DIFF_NOTES,
    run: diff,
};

/// Maximum number of defects that are printed for a folder.
const LINES_MAX: usize = 20;

/// A folder that no other process may open.
struct ReplicaFolder {
    path: PathBuf,
    region: StoredRegion,
    /// The lock, held until this is dropped.
    _lock: Box<dyn Any + Send + Sync>,
}

impl ReplicaFolder {
    fn open(path: &Path, file: &VolumeFile) -> Result<ReplicaFolder, SuiteError> {
        let shown = path.display();
        if !path.is_dir() {
            return Err(format!("{shown}: there is no such folder").into());
        }
        let lock = match Files.lock(&path.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(format!("{shown}: its replica is running; stop it first").into());
            }
            Err(error) => return Err(format!("{shown}: {error}").into()),
        };
        let wrong = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
        let data = DataFolder::open(Arc::new(Files), path).map_err(|error| wrong(&error))?;
        let segment_length = DownstairsOptions::new(file.geometry).segment_length;
        let region = StoredRegion::open(&data, &file.geometry, segment_length);
        Ok(ReplicaFolder {
            path: path.to_owned(),
            region: region.map_err(|error| wrong(&error))?,
            _lock: lock,
        })
    }

    /// Opens the folders that the command line names, or all of the volume's.
    fn open_all(
        setup: &ToolSetup<'_>,
        file: &VolumeFile,
    ) -> Result<Vec<ReplicaFolder>, SuiteError> {
        let paths: Vec<PathBuf> = if let Some(text) = setup.text(FOLDERS.name)? {
            text.split(',').map(|it| it.trim().into()).collect()
        } else {
            let all = (1..=file.replicas.len()).map(|number| file.replica_folder(number));
            all.filter(|path| path.is_dir()).collect()
        };
        if paths.is_empty() {
            let shown = file.folder.display();
            return Err(format!("{shown}: there is no replica's folder; --data names it").into());
        }
        paths
            .iter()
            .map(|path| ReplicaFolder::open(path, file))
            .collect()
    }
}

fn verify(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let keys = if file.has_key() {
        Some(file.key()?)
    } else {
        (setup.report)(format_args!("there is no key: the seals are not checked"));
        None
    };
    let mut exit = ToolExit::Done;
    for folder in ReplicaFolder::open_all(setup, &file)? {
        if !verify_folder(setup, &folder, keys.as_ref())? {
            exit = ToolExit::Negative;
        }
    }
    Ok(exit)
}

/// Checks one folder; returns whether it is intact.
fn verify_folder(
    setup: &ToolSetup<'_>,
    folder: &ReplicaFolder,
    keys: Option<&KeyRing>,
) -> Result<bool, SuiteError> {
    let shown = folder.path.display();
    let check = folder.region.verify(keys);
    let check: RegionCheck = check.map_err(|error| format!("{shown}: {error}"))?;
    let verdict = if check.is_intact() {
        "intact".to_owned()
    } else {
        format!(
            "{}, {}",
            counted(check.damaged.len() as u64, "damaged part"),
            counted(check.defect_count, "defective block")
        )
    };
    (setup.print)(format_args!(
        "{shown}: {} of log, {}, {} in use: {verdict}",
        counted(check.log_bytes, "byte"),
        counted(check.records, "record"),
        counted(check.slots, "slot")
    ));
    if let Some(torn) = &folder.region.report().torn {
        (setup.print)(format_args!("  the end was cut off by a crash: {torn}"));
    }
    for damage in &check.damaged {
        (setup.print)(format_args!("  {damage}"));
    }
    for defect in check.defects.iter().take(LINES_MAX) {
        (setup.print)(format_args!("  {defect}"));
    }
    print_rest(setup, check.defect_count);
    Ok(check.is_intact())
}

/// Says how many lines were left out.
fn print_rest(setup: &ToolSetup<'_>, count: u64) {
    let rest = count.saturating_sub(LINES_MAX as u64);
    if rest > 0 {
        (setup.print)(format_args!("  and {rest} more"));
    }
}

fn dump(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    for folder in ReplicaFolder::open_all(setup, &file)? {
        let shown = folder.path.display();
        (setup.print)(format_args!("{shown}:"));
        print_summary(setup, &folder.region, &file);
        if setup.has(BLOCKS.name) {
            print_blocks(setup, &folder.region, &file);
        }
        if setup.has(RECORDS.name) {
            let print = setup.print;
            let damaged = folder
                .region
                .records(&mut |position, record| print(format_args!("{position} {record}")));
            for damage in damaged.map_err(|error| format!("{shown}: {error}"))? {
                (setup.report)(format_args!("{shown}: {damage}"));
            }
        }
    }
    Ok(ToolExit::Done)
}

fn print_summary(setup: &ToolSetup<'_>, region: &StoredRegion, file: &VolumeFile) {
    let geometry = &file.geometry;
    (setup.print)(format_args!(
        "  volume {}: {} of {}",
        geometry.volume,
        counted(geometry.blocks, "block"),
        counted(u64::from(geometry.block_length), "byte")
    ));
    let (start, end) = region.log_range();
    (setup.print)(format_args!(
        "  log from {start} to {end}, {} in use",
        counted(region.used_bytes(), "byte")
    ));
    let (mark, lineage) = region.mark();
    (setup.print)(format_args!(
        "  generation {}; has everything up to flush {} of generation {}; last flush seen {}",
        region.generation(),
        mark.flush,
        mark.generation,
        region.flush()
    ));
    for entry in lineage.entries() {
        (setup.print)(format_args!(
            "  generation {} begins with flush {} and continues flush {}",
            entry.generation, entry.start, entry.base
        ));
    }
    for snapshot in region.snapshots() {
        let partial = if snapshot.is_whole { "" } else { ", not whole" };
        (setup.print)(format_args!(
            "  snapshot {} of flush {}{partial}",
            snapshot.name, snapshot.flush
        ));
    }
    for damage in &region.report().damaged {
        (setup.print)(format_args!("  damaged: {damage}"));
    }
}

fn print_blocks(setup: &ToolSetup<'_>, region: &StoredRegion, file: &VolumeFile) {
    for number in 0..file.geometry.blocks {
        let Some(block) = region.block("", BlockNumber(number)) else {
            continue;
        };
        let Some(position) = block.position else {
            continue;
        };
        let content = match block.content {
            BlockContent::Data => "data",
            BlockContent::Zeros | BlockContent::Absent => "zeros",
        };
        let version = block.version;
        (setup.print)(format_args!(
            "{number} {}.{} {content} {position}",
            version.generation, version.counter
        ));
    }
}

fn diff(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let folders = ReplicaFolder::open_all(setup, &file)?;
    if folders.len() < 2 {
        return Err("a comparison needs the folders of two replicas; --data names them".into());
    }
    let (paths, regions): (Vec<_>, Vec<_>) = folders
        .iter()
        .map(|folder| (folder.path.display().to_string(), &folder.region))
        .unzip();
    let difference = StoredRegion::compare(&regions);
    (setup.print)(format_args!(
        "{} up to flush {}: {} equal, {} different, {} changed later and different",
        paths.join(", "),
        difference.common_flush,
        counted(difference.equal_count, "block"),
        difference.differing_count,
        difference.later_count
    ));
    for block in difference.differing.iter().take(LINES_MAX) {
        let versions: Vec<String> = regions
            .iter()
            .filter_map(|region| region.block("", *block))
            .map(|it| format!("{}.{}", it.version.generation, it.version.counter))
            .collect();
        (setup.print)(format_args!(
            "  block {}: versions {}",
            block.0,
            versions.join(", ")
        ));
    }
    print_rest(setup, difference.differing_count);
    Ok(if difference.differing_count == 0 {
        ToolExit::Done
    } else {
        ToolExit::Negative
    })
}
