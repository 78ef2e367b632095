//! Commands that pass over all blocks: `seatrial volume clone|rotate|repair`.

use crate::control_socket::{ask_attached, ask_if_attached};
use crate::locked_volume::LockedVolume;
use crate::nbd_server::NbdAddress;
use crate::volume_file::{VolumeFile, ring_of};
use crate::volume_tools::{
    ADDRESSES, REPLICAS, TLS, VOLUME, make_volume, new_addresses, print_commands, volume,
};
use seatrial_host::random_bytes;
use seatrial_suite::{SuiteError, SuiteTool, ToolArgument, ToolExit, ToolSetup};
use seatrial_volume::{BlockKey, Geometry, VolumeId};
use serde_json::Value;
use std::thread;
use std::time::Duration;

const CLONE_NOTES: &str = "The clone is a volume of its own, with its own keys and replicas. It begins as the snapshot: blocks that were \
never written in the clone are read from the process that has the parent attached. `attach` of the clone copies them in the background; \
`status` shows how far. When all are there, the clone needs its parent no more.\n\
Example: seatrial volume snapshot disk before, then seatrial volume clone disk before copy --addresses \
127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603\n\
Exit status: 0 made, 254 error (usage, input, the parent is not attached, the folder has a volume already).";
const ROTATE_NOTES: &str = "Adds a new key to the file `key`. New blocks are sealed with it at once; the others are sealed again in the \
background while the volume is attached, also after a crash. When that is done, and no snapshot is older, the earlier key is removed from \
the file. Back the file up before and after.\n\
Exit status: 0 begun, 1 refused, 254 error (usage, input).";
const REPAIR_NOTES: &str = "Reads every block of every active replica, and replaces damaged copies by those of other replicas, while the \
volume is in use.\n\
Exit status: 0 every block can be read, 1 some block is damaged on all replicas, or refused, 254 error (usage, input, not attached).";

pub(crate) const CLONE: SuiteTool = SuiteTool {
    name: "clone",
    about: "Make a volume that begins as a snapshot of an attached one",
    arguments: &[
        VOLUME,
        ToolArgument {
            name: "snapshot",
            about: "Name of the snapshot",
            is_required: true,
        },
        ToolArgument {
            name: "folder",
            about: "Folder of the clone; created if missing",
            is_required: true,
        },
    ],
    options: &[&[REPLICAS, ADDRESSES, TLS]],
    notes: CLONE_NOTES,
    run: clone,
};

pub(crate) const ROTATE: SuiteTool = SuiteTool {
    name: "rotate",
    about: "Encrypt a volume with a new key, in the background",
    arguments: &[VOLUME],
    options: &[],
    notes: ROTATE_NOTES,
    run: rotate,
};

pub(crate) const REPAIR: SuiteTool = SuiteTool {
    name: "repair",
    about: "Read all copies of all blocks, and repair damaged ones",
    arguments: &[VOLUME],
    options: &[],
    notes: REPAIR_NOTES,
    run: repair,
};

fn clone(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let parent = volume(setup)?;
    let snapshot = setup.text("snapshot")?.unwrap_or_default();
    let status = ask_attached(&parent, "status")?;
    let mut snapshots = status["snapshots"].as_array().into_iter().flatten();
    if !snapshots.any(|it| it == snapshot) {
        let shown = parent.folder.display();
        return Err(format!(
            "{shown}: there is no snapshot {snapshot}; `seatrial volume snapshot {shown} {snapshot}` makes it"
        )
        .into());
    }
    let address = status["nbd"].as_str().and_then(NbdAddress::parse);
    let address = address.ok_or("the process that has the parent attached serves no NBD client")?;
    let replicas = new_addresses(setup)?;
    if let Some(used) = replicas.iter().find(|it| parent.replicas.contains(it)) {
        return Err(format!(
            "{used} is the address of a replica of the parent; --addresses names others"
        )
        .into());
    }
    let file = VolumeFile {
        folder: setup.values.path("folder").ok_or("no folder")?.to_owned(),
        geometry: Geometry {
            volume: VolumeId(u128::from_le_bytes(random_bytes()?)),
            ..parent.geometry
        },
        quorum: replicas.len() / 2 + 1,
        replicas,
        needs_tls: setup.has(TLS.name),
        key_check: None,
        parent: Some((address, format!("volume@{snapshot}"))),
    };
    file.check()?;
    make_volume(&file)?;
    (setup.print)(format_args!(
        "volume {}: a clone of snapshot {snapshot}",
        file.geometry.volume
    ));
    print_commands(setup, &file);
    Ok(ToolExit::Done)
}

fn rotate(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let mut locked = LockedVolume::open(&volume(setup)?.folder)?;
    let mut keys = locked.file.keys()?;
    if keys.len() > 1 {
        let shown = locked.file.folder.display();
        (setup.report)(format_args!(
            "{shown}: an earlier rotation has not ended; `seatrial volume status {shown}` shows how far it is"
        ));
        return Ok(ToolExit::Negative);
    }
    let newest = keys.keys().next_back().copied().unwrap_or(0);
    let epoch = newest
        .checked_add(1)
        .ok_or("65,535 rotations are the most")?;
    keys.insert(epoch, BlockKey(random_bytes()?));
    // The file first: a process that has the key writes with it at once.
    locked.write_keys(&keys)?;
    let ring = ring_of(locked.file.geometry.volume, &keys);
    locked.file.key_check = Some(ring.check_text());
    locked.write()?;
    match ask_if_attached(&locked.file, "rotate")? {
        None => (setup.print)(format_args!("key {epoch} is used from the next attach on")),
        Some(reply) => {
            if let Some(error) = reply["error"].as_str() {
                (setup.report)(format_args!("{error}"));
                return Ok(ToolExit::Negative);
            }
            (setup.print)(format_args!(
                "key {epoch} is used; blocks with key {newest} are sealed again"
            ));
        }
    }
    Ok(ToolExit::Done)
}

fn repair(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let reply = ask_attached(&file, "repair")?;
    if let Some(error) = reply["error"].as_str() {
        (setup.report)(format_args!("{error}"));
        return Ok(ToolExit::Negative);
    }
    loop {
        let status = ask_attached(&file, "status")?;
        let mut sweeps = status["sweeps"].as_array().into_iter().flatten();
        let sweep = sweeps.find(|it| it["kind"] == "repair");
        let sweep = sweep.ok_or("the volume was taken by another process")?;
        if sweep["done"] == true {
            let failed = sweep["failed"].as_u64().unwrap_or_default();
            (setup.print)(format_args!("{}", sweep_line(sweep)));
            return Ok(if failed == 0 {
                ToolExit::Done
            } else {
                ToolExit::Negative
            });
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// The progress of a sweep, for people.
pub(crate) fn sweep_line(sweep: &Value) -> String {
    let of = |key: &str| sweep[key].as_u64().unwrap_or_default();
    let text = |key: &str| sweep[key].as_str().unwrap_or_default();
    let (verb, needed) = match text("kind") {
        "fill" => ("copied from the parent", "parent"),
        "rekey" => ("sealed again with the newest key", "earlier key"),
        _ => ("damaged reads repaired", ""),
    };
    let mut parts = vec![format!(
        "{}: {} of {} blocks, {} {verb}",
        text("kind"),
        of("looked"),
        of("blocks"),
        of("changed")
    )];
    if of("failed") > 0 {
        parts.push(format!("{} on no replica intact", of("failed")));
    }
    let names = sweep["needed_by"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    if sweep["done"] == true {
        parts.push("done".to_owned());
        if !names.is_empty() {
            let names = names.join(", ");
            parts.push(format!("snapshots that need the {needed}: {names}"));
        }
    } else if !text("reason").is_empty() {
        parts.push(format!("waits: {}", text("reason")));
    }
    parts.join(", ")
}
