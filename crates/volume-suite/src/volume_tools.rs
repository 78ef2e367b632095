//! Commands of the volume: `seatrial volume create|downstairs|attach|status|snapshot|replace`.
//!
//! The others are in `sweep_tools.rs`, `offline_tools.rs` and `volume_bench.rs`.

use crate::attach_process::AttachProcess;
use crate::control_socket::{ask_attached, parse_node};
use crate::locked_volume::LockedVolume;
use crate::nbd_server::NbdAddress;
use crate::offline_tools::{DIFF, DUMP, VERIFY};
use crate::owner_machine::OwnerSettings;
use crate::replica_process::ReplicaProcess;
use crate::sweep_tools::{CLONE, REPAIR, ROTATE, sweep_line};
use crate::volume_bench::BENCH;
use crate::volume_file::{
    FILE_NAME, KEY_NAME, LINK_KEY_NAME, REPLICAS_MAX, VolumeFile, key_text, parse_size,
};
use seatrial_host::{StatusListener, TlsCredentials, create_folder, random_bytes};
use seatrial_machine::{NodeId, counted};
use seatrial_suite::{
    SuiteError, SuiteTool, TLS_CA, TLS_CERT, TLS_KEY, ToolArgument, ToolExit, ToolOption,
    ToolSetup, read_tls,
};
use seatrial_volume::{Geometry, VolumeId};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

pub(crate) const VOLUME: ToolArgument = ToolArgument {
    name: "volume",
    about: "Folder of the volume, or its file volume.toml",
    is_required: true,
};
const SIZE: ToolOption = ToolOption {
    name: "size",
    value_name: Some("SIZE"),
    about: "Size, such as 1GiB, 512MiB or a number of bytes; it cannot be changed later",
    default: Some("1GiB"),
};
const BLOCK_SIZE: ToolOption = ToolOption {
    name: "block-size",
    value_name: Some("BYTES"),
    about: "Bytes of a block: a power of two from 512 to 32768",
    default: Some("4096"),
};
pub(crate) const REPLICAS: ToolOption = ToolOption {
    name: "replicas",
    value_name: Some("N"),
    about: "Number of replicas, 1 to 5; more than half of them must be there",
    default: Some("3"),
};
pub(crate) const ADDRESSES: ToolOption = ToolOption {
    name: "addresses",
    value_name: Some("ADDRESSES"),
    about: "Addresses of the replicas, separated by commas",
    default: Some("127.0.0.1, ports from 7501"),
};
pub(crate) const TLS: ToolOption = ToolOption {
    name: "tls",
    value_name: None,
    about: "Refuse connections between attach and replicas without TLS; both then need --tls-cert, --tls-key and --tls-ca",
    default: None,
};
const CERT: ToolOption = ToolOption {
    name: TLS_CERT,
    value_name: Some("FILE"),
    about: "Certificate in PEM; a replica's has the DNS names nN (its number) and seatrial, that of attach neither",
    default: None,
};
const CERT_KEY: ToolOption = ToolOption {
    name: TLS_KEY,
    value_name: Some("FILE"),
    about: "Private key of the certificate, in PEM",
    default: None,
};
const AUTHORITY: ToolOption = ToolOption {
    name: TLS_CA,
    value_name: Some("FILE"),
    about: "Certificate of the authority that signs those of attach and all replicas, in PEM",
    default: None,
};
/// Certificates of one side.
const CERTIFICATES: &[ToolOption] = &[CERT, CERT_KEY, AUTHORITY];
const NODE: ToolOption = ToolOption {
    name: "node",
    value_name: Some("N"),
    about: "Number of this replica, from 1",
    default: Some("1"),
};
const DATA: ToolOption = ToolOption {
    name: "data",
    value_name: Some("DIR"),
    about: "Folder of the replica's data; created if missing",
    default: Some("replica-N in the volume's folder"),
};
const LISTEN: ToolOption = ToolOption {
    name: "listen",
    value_name: Some("ADDRESS"),
    about: "Address to listen on",
    default: Some("the replica's in volume.toml"),
};
const NBD: ToolOption = ToolOption {
    name: "nbd",
    value_name: Some("ADDRESS"),
    about: "Where NBD clients attach: an address with port, or unix:PATH",
    default: Some("127.0.0.1:10809"),
};
const READ_ONLY: ToolOption = ToolOption {
    name: "read-only",
    value_name: None,
    about: "Refuse writes of NBD clients (the volume is taken from another attach nevertheless)",
    default: None,
};
const MEMORY: ToolOption = ToolOption {
    name: "memory",
    value_name: Some("MIB"),
    about: "Mebibytes of writes that are not durable yet, 8 to 4096; clients may have four times as much in flight",
    default: Some("64"),
};
const REPAIR_MEMORY: ToolOption = ToolOption {
    name: "repair-memory",
    value_name: Some("MIB"),
    about: "Mebibytes of writes that are kept for a replica that is away, 0 to 4096; one that missed more is compared with another",
    default: Some("128"),
};
pub(crate) const INLINE: ToolOption = ToolOption {
    name: "inline",
    value_name: Some("SIZE"),
    about: "Encrypt requests up to this size in the volume's own thread, longer ones on other threads",
    default: Some("8KiB"),
};
const HTTP: ToolOption = ToolOption {
    name: "http",
    value_name: Some("ADDRESS"),
    about: "Serve a status page, /metrics and /status.json here; a port alone is one of this machine only",
    default: None,
};
const JSON: ToolOption = ToolOption {
    name: "json",
    value_name: None,
    about: "One JSON document on standard output instead of text",
    default: None,
};
const DROP: ToolOption = ToolOption {
    name: "drop",
    value_name: None,
    about: "Remove the snapshot",
    default: None,
};

const CREATE_NOTES: &str = "The folder gets volume.toml (volume id, size, addresses of the replicas), link-key (which replicas and \
attach prove to each other) and key (which encrypts the blocks). Replicas on other machines need a copy of the first two; without \
`key` the data is lost.\n\
Example: seatrial volume create disk --size 10GiB\n\
Exit status: 0 created, 254 error (usage, the folder has a volume already).";
const SERVER_NOTES: &str = "Runs until SIGTERM or Ctrl-C.\n\
Exit status: 0 ended, 254 error (usage, input, address in use, data of another volume).";
const ATTACH_NOTES: &str = "Waits until more than half of the replicas are there, then serves NBD until SIGTERM or Ctrl-C. A later \
attach takes the volume: this one then ends with an error, and none of its later writes is kept.\n\
Example: seatrial volume attach disk --nbd unix:disk/nbd, then nbdinfo 'nbd+unix:///?socket=disk/nbd'\n\
Exit status: 0 detached, 254 error (usage, input, address in use, volume taken).";
const STATUS_NOTES: &str = "Asks the process on this machine that has the volume attached.\n\
Exit status: 0 all replicas are active, 1 some are not, 254 error (usage, input, not attached).";
const CONTROL_NOTES: &str = "Asks the process on this machine that has the volume attached.\n\
Exit status: 0 done, 1 refused, 254 error (usage, input, not attached).";

/// The commands.
pub(crate) const TOOLS: &[SuiteTool] = &[
    SuiteTool {
        name: "create",
        about: "Make the folder of a new volume: its description and its keys",
        arguments: &[ToolArgument {
            name: "folder",
            about: "The folder; created if missing",
            is_required: true,
        }],
        options: &[&[SIZE, BLOCK_SIZE, REPLICAS, ADDRESSES, TLS]],
        notes: CREATE_NOTES,
        run: create,
    },
    SuiteTool {
        name: "downstairs",
        about: "Serve one replica of a volume",
        arguments: &[VOLUME],
        options: &[&[NODE, DATA, LISTEN, HTTP], CERTIFICATES],
        notes: SERVER_NOTES,
        run: downstairs,
    },
    SuiteTool {
        name: "attach",
        about: "Take a volume and serve it to NBD clients",
        arguments: &[VOLUME],
        options: &[
            &[NBD, READ_ONLY, MEMORY, REPAIR_MEMORY, INLINE, HTTP],
            CERTIFICATES,
        ],
        notes: ATTACH_NOTES,
        run: attach,
    },
    SuiteTool {
        name: "status",
        about: "Print what an attached volume and its replicas are doing",
        arguments: &[VOLUME],
        options: &[&[JSON]],
        notes: STATUS_NOTES,
        run: status,
    },
    SuiteTool {
        name: "snapshot",
        about: "Keep the present state of an attached volume under a name",
        arguments: &[
            VOLUME,
            ToolArgument {
                name: "name",
                about: "The name: letters, digits, hyphens",
                is_required: true,
            },
        ],
        options: &[&[DROP]],
        notes: CONTROL_NOTES,
        run: snapshot,
    },
    SuiteTool {
        name: "replace",
        about: "Put an empty replica in place of another one; it is filled while the volume is in use",
        arguments: &[
            VOLUME,
            ToolArgument {
                name: "node",
                about: "The replica that is given up, such as n2",
                is_required: true,
            },
            ToolArgument {
                name: "address",
                about: "Address of the new one",
                is_required: true,
            },
        ],
        options: &[],
        notes: CONTROL_NOTES,
        run: replace,
    },
    CLONE,
    ROTATE,
    REPAIR,
    VERIFY,
    DUMP,
    DIFF,
    BENCH,
];

fn create(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let folder = setup.values.path("folder").ok_or("no folder")?;
    let size = setup.text(SIZE.name)?.unwrap_or("1GiB");
    let bytes = parse_size(size)
        .ok_or_else(|| format!("--size takes a size such as 1GiB or 512MiB, not {size}"))?;
    let block_length = setup.values.number(BLOCK_SIZE.name, 512..=32_768, 4_096)?;
    if !bytes.is_multiple_of(block_length) {
        return Err(format!("--size {size} is no multiple of {block_length} bytes").into());
    }
    let replicas = new_addresses(setup)?;
    let file = VolumeFile {
        folder: folder.to_owned(),
        geometry: Geometry {
            volume: VolumeId(u128::from_le_bytes(random_bytes()?)),
            block_length: block_length as u32,
            blocks: bytes / block_length,
        },
        quorum: replicas.len() / 2 + 1,
        replicas,
        needs_tls: setup.has(TLS.name),
        key_check: None,
        parent: None,
    };
    file.geometry.check()?;
    file.check()?;
    make_volume(&file)?;
    let Geometry { volume, blocks, .. } = file.geometry;
    (setup.print)(format_args!(
        "volume {volume}: {blocks} blocks of {block_length} bytes on {} replicas",
        file.replicas.len()
    ));
    print_commands(setup, &file);
    Ok(ToolExit::Done)
}

/// Prints how a new volume is used.
pub(crate) fn print_commands(setup: &ToolSetup<'_>, file: &VolumeFile) {
    let shown = file.folder.display();
    for (node, address) in file.nodes() {
        let number = node.number();
        (setup.print)(format_args!(
            "{node} at {address}: seatrial volume downstairs {shown} --node {number}"
        ));
    }
    (setup.print)(format_args!("then: seatrial volume attach {shown}"));
}

/// The addresses of the replicas of a new volume.
pub(crate) fn new_addresses(setup: &ToolSetup<'_>) -> Result<Vec<SocketAddr>, SuiteError> {
    let count = setup
        .values
        .number(REPLICAS.name, 1..=REPLICAS_MAX as u64, 3)?;
    let replicas = match setup.text(ADDRESSES.name)? {
        Some(text) => parse_addresses(text)?,
        None => (7_501..)
            .take(count as usize)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect(),
    };
    if setup.has(REPLICAS.name) && replicas.len() as u64 != count {
        return Err(format!(
            "--addresses has {} addresses, --replicas is {count}",
            replicas.len()
        )
        .into());
    }
    Ok(replicas)
}

/// Makes the folder of a volume, with its keys and its file.
pub(crate) fn make_volume(file: &VolumeFile) -> Result<(), SuiteError> {
    let folder = &file.folder;
    create_folder(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut locked = LockedVolume::create(file.clone())?;
    for name in [KEY_NAME, LINK_KEY_NAME] {
        write_key(&folder.join(name))?;
    }
    locked.file.key_check = Some(file.key()?.check_text());
    // The file of the volume is last: with it the folder is complete.
    locked.write()
}

fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let address = |one: &str| {
        let address = one.trim().parse();
        address.map_err(|_| {
            format!("--addresses: {one:?} is no address and port such as 127.0.0.1:7501")
        })
    };
    text.split(',').map(address).collect()
}

/// Writes a new random key to a file that only this user may read; an existing file is an error.
fn write_key(path: &Path) -> Result<(), SuiteError> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(failed)?;
    let key: [u8; 32] = random_bytes()?;
    let written = file.write_all(key_text(&key).as_bytes());
    Ok(written.and_then(|()| file.sync_all()).map_err(failed)?)
}

/// The volume that the command line names.
pub(crate) fn volume(setup: &ToolSetup<'_>) -> Result<VolumeFile, SuiteError> {
    VolumeFile::read(setup.values.path(VOLUME.name).ok_or("no volume")?)
}

/// The certificates of this side, if the command line names any; a volume that needs them refuses to go without.
fn certificates(
    setup: &ToolSetup<'_>,
    file: &VolumeFile,
) -> Result<Option<TlsCredentials>, SuiteError> {
    let tls = read_tls(setup.values)?;
    if file.needs_tls && tls.is_none() {
        let shown = file.folder.join(FILE_NAME);
        return Err(format!(
            "{}: this volume needs TLS (tls = true): give --{TLS_CERT}, --{TLS_KEY} and --{TLS_CA}",
            shown.display()
        )
        .into());
    }
    Ok(tls)
}

fn downstairs(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let count = file.replicas.len();
    let number = setup.values.number(NODE.name, 1..=count as u64, 1)?;
    let listen = match setup.text(LISTEN.name)? {
        None => file.replicas[number as usize - 1],
        Some(text) => text.parse().map_err(|_| {
            format!("--listen takes an address and port such as 127.0.0.1:7501, not {text}")
        })?,
    };
    let data = setup.values.path(DATA.name).map(Path::to_owned);
    let node = NodeId::server(number as u32);
    let tls = certificates(setup, &file)?;
    if let Some(tls) = &tls {
        tls.check_node(&node.to_string())?;
    }
    let process = ReplicaProcess {
        node,
        tls,
        data: data.unwrap_or_else(|| file.replica_folder(number as usize)),
        listen,
        http: status_listener(setup, &format!("volume n{number}"))?,
        file,
    };
    process.run(setup.report)?;
    Ok(ToolExit::Done)
}

/// Listens for requests for the status, if an address is given.
fn status_listener(
    setup: &ToolSetup<'_>,
    title: &str,
) -> Result<Option<StatusListener>, SuiteError> {
    let Some(text) = setup.text(HTTP.name)? else {
        return Ok(None);
    };
    // A port alone is one of this machine only: others are reached by no oversight.
    let local = text
        .parse()
        .map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    let address = local.or_else(|_| text.parse()).map_err(|_| {
        format!("--http takes a port, or an address and port such as 127.0.0.1:9400, not {text}")
    })?;
    let listener = StatusListener::bind(address, title)?;
    (setup.report)(format_args!(
        "status page at http://{}/",
        listener.address()
    ));
    Ok(Some(listener))
}

fn attach(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let nbd = setup.text(NBD.name)?.unwrap_or("127.0.0.1:10809");
    let file = volume(setup)?;
    let inline = match setup.text(INLINE.name)? {
        None => None,
        Some(text) => Some(
            parse_size(text)
                .filter(|it| *it <= 32 << 20)
                .ok_or_else(|| {
                    format!("--inline takes a size up to 32MiB such as 8KiB, not {text}")
                })? as usize,
        ),
    };
    let settings = OwnerSettings {
        memory: (setup.values.number(MEMORY.name, 8..=4_096, 64)? as usize) << 20,
        repair_memory: (setup.values.number(REPAIR_MEMORY.name, 0..=4_096, 128)? as usize) << 20,
        inline,
        http: status_listener(setup, "volume")?,
        tls: certificates(setup, &file)?,
    };
    let process = AttachProcess {
        settings,
        file,
        nbd: NbdAddress::parse(nbd).ok_or_else(|| {
            format!(
                "--nbd takes an address and port such as 127.0.0.1:10809, or unix:PATH, not {nbd}"
            )
        })?,
        is_read_only: setup.has(READ_ONLY.name),
    };
    process.run(setup.report)?;
    Ok(ToolExit::Done)
}

fn status(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let status = ask_attached(&volume(setup)?, "status")?;
    if let Some(error) = status["error"].as_str() {
        return Err(error.into());
    }
    let replicas = status["replicas"].as_array();
    let replicas = replicas.map_or(&[][..], Vec::as_slice);
    if setup.has(JSON.name) {
        (setup.print)(format_args!("{status:#}"));
    } else {
        let state = if status["active"] == true {
            "active"
        } else {
            "not active"
        };
        let of = |key: &str| status[key].as_u64().unwrap_or_default();
        (setup.print)(format_args!(
            "{state}, generation {}, flush {}, {} bytes not durable",
            of("generation"),
            of("flush"),
            of("retained_bytes")
        ));
        (setup.print)(format_args!(
            "{} reads ({} bytes), {} writes ({} bytes), {} flushes, {} trims; {} failed, {} under way",
            of("reads"),
            of("bytes_read"),
            of("writes"),
            of("bytes_written"),
            of("flushes"),
            of("trims"),
            of("failed"),
            of("requests")
        ));
        for replica in replicas {
            print_replica(setup, replica);
        }
        print_stages(setup, &status["stages"]);
        for name in status["snapshots"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            (setup.print)(format_args!("snapshot {name}"));
        }
        let key = if status["earlier_keys"] == true {
            ", earlier ones are still needed"
        } else {
            ""
        };
        (setup.print)(format_args!("key {}{key}", of("key")));
        for sweep in status["sweeps"].as_array().into_iter().flatten() {
            (setup.print)(format_args!("{}", sweep_line(sweep)));
        }
    }
    let is_whole = replicas.iter().all(|it| it["state"] == "active");
    Ok(if is_whole && status["active"] == true {
        ToolExit::Done
    } else {
        ToolExit::Negative
    })
}

/// Prints how long the stages of requests took.
fn print_stages(setup: &ToolSetup<'_>, stages: &Value) {
    for stage in stages.as_array().into_iter().flatten() {
        let micros = |key: &str| stage[key].as_f64().unwrap_or_default();
        (setup.print)(format_args!(
            "{}: {} times, half of them within {:.0} us, 99 % within {:.0} us, all within {:.0} us",
            stage["name"].as_str().unwrap_or_default(),
            stage["count"].as_u64().unwrap_or_default(),
            micros("p50_us"),
            micros("p99_us"),
            micros("max_us")
        ));
    }
}

fn print_replica(setup: &ToolSetup<'_>, replica: &Value) {
    let text = |key: &str| replica[key].as_str().unwrap_or_default();
    let of = |key: &str| replica[key].as_u64().unwrap_or_default();
    let reason = text("reason");
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    };
    let left = match (of("chunks_left"), of("writes_left")) {
        (0, writes) => counted(writes, "write"),
        (chunks, _) => counted(chunks, "chunk"),
    };
    (setup.print)(format_args!(
        "{} {}{reason}: {} unacknowledged, {} sent again, {} repairs of {} blocks, {} left, {} damaged",
        text("node"),
        text("state"),
        of("unacknowledged"),
        of("resent"),
        of("repairs"),
        of("repaired_blocks"),
        left,
        of("damaged")
    ));
}

/// Reports a refusal.
fn outcome(setup: &ToolSetup<'_>, reply: &Value) -> ToolExit {
    match reply["error"].as_str() {
        None => ToolExit::Done,
        Some(error) => {
            (setup.report)(format_args!("{error}"));
            ToolExit::Negative
        }
    }
}

fn snapshot(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let file = volume(setup)?;
    let name = setup.text("name")?.unwrap_or_default();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("{name:?} is no name of a snapshot").into());
    }
    let verb = if setup.has(DROP.name) {
        "drop-snapshot"
    } else {
        "snapshot"
    };
    let reply = ask_attached(&file, &format!("{verb} {name}"))?;
    Ok(outcome(setup, &reply))
}

fn replace(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let mut locked = LockedVolume::open(&volume(setup)?.folder)?;
    let file = &mut locked.file;
    let node = setup.text("node")?.unwrap_or_default();
    let place = parse_node(node).map(|it| it.number() as usize - 1);
    let place = place.filter(|place| *place < file.replicas.len());
    let place = place.ok_or_else(|| format!("{node} is no replica of this volume"))?;
    let address = setup.text("address")?.unwrap_or_default();
    file.replicas[place] = address
        .parse()
        .map_err(|_| format!("{address:?} is no address and port such as 127.0.0.1:7504"))?;
    file.check()?;
    let reply = ask_attached(file, &format!("replace {node} {address}"))?;
    let exit = outcome(setup, &reply);
    if exit == ToolExit::Done {
        // The next attach finds the new replica as well.
        locked.write()?;
    }
    Ok(exit)
}
