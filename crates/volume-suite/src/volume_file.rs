//! The file `volume.toml`: identity and shape of a volume, the addresses of its replicas, its parent, and its keys.

use crate::nbd_server::NbdAddress;
use seatrial_host::SecretKey;
use seatrial_machine::NodeId;
use seatrial_suite::SuiteError;
use seatrial_volume::{BlockKey, Geometry, KEY_LENGTH, KeyRing, VolumeId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Name of the file in the folder of a volume.
pub(crate) const FILE_NAME: &str = "volume.toml";
/// Name of the file with the key that encrypts blocks, which replicas do not need.
pub(crate) const KEY_NAME: &str = "key";
/// Name of the file with the key that upstairs and replicas prove to each other.
pub(crate) const LINK_KEY_NAME: &str = "link-key";
/// Maximum number of replicas.
pub(crate) const REPLICAS_MAX: usize = 5;

/// Keys of the file.
const KNOWN: [&str; 9] = [
    "volume",
    "block-length",
    "blocks",
    "replicas",
    "quorum",
    "tls",
    "key-check",
    "parent",
    "parent-export",
];

/// A volume as its users describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    /// The folder of the file; the names of keys are relative to it.
    pub(crate) folder: PathBuf,
    pub(crate) geometry: Geometry,
    /// Addresses of the replicas n1, n2, …
    pub(crate) replicas: Vec<SocketAddr>,
    /// Replicas that must have a flush; more than half of them.
    pub(crate) quorum: usize,
    /// Are connections between the owner and its replicas refused without TLS?
    pub(crate) needs_tls: bool,
    /// What the newest key must yield; none in files of earlier versions.
    pub(crate) key_check: Option<String>,
    /// Where blocks are read that were never written: an address of NBD and the name of an export.
    pub(crate) parent: Option<(NbdAddress, String)>,
}

impl VolumeFile {
    /// Reads the file of a volume: its path, or its folder.
    pub(crate) fn read(path: &Path) -> Result<VolumeFile, SuiteError> {
        let file = if path.is_dir() {
            path.join(FILE_NAME)
        } else {
            path.to_owned()
        };
        let shown = file.display();
        let text = fs::read_to_string(&file).map_err(|error| {
            format!("{shown}: {error}; `seatrial volume create` makes a volume")
        })?;
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        VolumeFile::parse(&text, folder).map_err(|error| format!("{shown}: {error}").into())
    }

    fn parse(text: &str, folder: PathBuf) -> Result<VolumeFile, String> {
        let table = DeTable::parse(text)
            .map_err(|error| format!("this is not TOML: {}", error.message()))?
            .into_inner();
        let mut names = table.keys().map(|name| name.get_ref().as_ref());
        if let Some(unknown) = names.find(|name: &&str| !KNOWN.contains(name)) {
            let known = KNOWN.join(", ");
            return Err(format!("unknown key `{unknown}` (known: {known})"));
        }
        let geometry = Geometry {
            volume: field(&table, "volume")
                .and_then(text_of)
                .and_then(VolumeId::parse)
                .ok_or("`volume` must be 32 hexadecimal digits")?,
            block_length: u32::try_from(number(&table, "block-length")?).unwrap_or(u32::MAX),
            blocks: number(&table, "blocks")?,
        };
        geometry.check()?;
        let Some(DeValue::Array(listed)) = field(&table, "replicas") else {
            return Err("`replicas` must be a list of addresses".to_owned());
        };
        let mut replicas = Vec::new();
        for item in listed {
            let text = text_of(item.get_ref()).unwrap_or_default();
            replicas.push(text.parse().map_err(|_| {
                format!("`replicas`: {text:?} is no address and port such as \"127.0.0.1:7501\"")
            })?);
        }
        let quorum = match field(&table, "quorum") {
            None => replicas.len() / 2 + 1,
            Some(_) => usize::try_from(number(&table, "quorum")?).unwrap_or(usize::MAX),
        };
        let needs_tls = match field(&table, "tls") {
            None => false,
            Some(DeValue::Boolean(needs)) => *needs,
            Some(_) => return Err("`tls` must be true or false".to_owned()),
        };
        let text = |key: &str| field(&table, key).and_then(text_of).map(str::to_owned);
        let parent = match field(&table, "parent") {
            None => None,
            Some(value) => {
                let address = text_of(value).and_then(NbdAddress::parse);
                let address =
                    address.ok_or("`parent` must be an address such as unix:/disk/nbd")?;
                Some((address, text("parent-export").unwrap_or_default()))
            }
        };
        let file = VolumeFile {
            folder,
            geometry,
            replicas,
            quorum,
            needs_tls,
            key_check: text("key-check"),
            parent,
        };
        file.check().map(|()| file)
    }

    /// Checks the replicas and the quorum.
    pub(crate) fn check(&self) -> Result<(), String> {
        let count = self.replicas.len();
        if !(1..=REPLICAS_MAX).contains(&count) {
            return Err(format!("{count} replicas are not 1 to {REPLICAS_MAX}"));
        }
        for (place, address) in self.replicas.iter().enumerate() {
            if self.replicas[..place].contains(address) {
                return Err(format!("two replicas have the address {address}"));
            }
        }
        if self.quorum > count || self.quorum * 2 <= count {
            let quorum = self.quorum;
            return Err(format!(
                "a quorum of {quorum} is not more than half of {count} replicas"
            ));
        }
        Ok(())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from(
            "# A volume of seatrial. Replicas need this file and link-key; only attach needs key.\n",
        );
        let Geometry {
            volume,
            block_length,
            blocks,
        } = self.geometry;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "volume = \"{volume}\"\nblock-length = {block_length}\nblocks = {blocks}\nreplicas = [\n"
        );
        for address in &self.replicas {
            let _ = writeln!(text, "    \"{address}\",");
        }
        let _ = writeln!(text, "]\nquorum = {}", self.quorum);
        if self.needs_tls {
            text.push_str("tls = true\n");
        }
        if let Some(check) = &self.key_check {
            let _ = writeln!(text, "key-check = \"{check}\"");
        }
        if let Some((address, export)) = &self.parent {
            let address = address.option_text();
            let _ = writeln!(text, "parent = {address:?}\nparent-export = {export:?}");
        }
        text
    }

    /// Number of the system that upstairs and replicas form, for their greetings.
    pub(crate) const fn cluster(&self) -> u64 {
        self.geometry.volume.0 as u64
    }

    /// The replicas by number, from n1.
    pub(crate) fn nodes(&self) -> BTreeMap<NodeId, SocketAddr> {
        (1..)
            .map(NodeId::server)
            .zip(self.replicas.iter().copied())
            .collect()
    }

    /// The usual folder of a replica's data.
    pub(crate) fn replica_folder(&self, number: usize) -> PathBuf {
        self.folder.join(format!("replica-{number}"))
    }

    /// Is the key that encrypts blocks here?
    pub(crate) fn has_key(&self) -> bool {
        self.folder.join(KEY_NAME).exists()
    }

    /// The key that upstairs and replicas prove to each other.
    pub(crate) fn link_key(&self) -> Result<SecretKey, SuiteError> {
        Ok(SecretKey::read_and_warn(&self.folder.join(LINK_KEY_NAME))?)
    }

    /// The keys that encrypt blocks, by epoch: more than one while blocks are sealed with a new key.
    pub(crate) fn keys(&self) -> Result<BTreeMap<u16, BlockKey>, SuiteError> {
        let path = self.folder.join(KEY_NAME);
        let shown = path.display();
        let text = fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
        let keys = parse_keys(&text).map_err(|error| format!("{shown}:{error}"))?;
        let is_of_volume = |(epoch, key): (&u16, &BlockKey)| {
            let ring = KeyRing::of_epoch(self.geometry.volume, *epoch, &key.0);
            Some(ring.check_text()) == self.key_check
        };
        if self.key_check.is_some() && !keys.iter().any(is_of_volume) {
            return Err(format!(
                "{shown}: this is not the key of the volume; restore the file from a copy"
            )
            .into());
        }
        Ok(keys)
    }

    /// The keys that encrypt blocks.
    pub(crate) fn key(&self) -> Result<KeyRing, SuiteError> {
        Ok(ring_of(self.geometry.volume, &self.keys()?))
    }
}

/// The ring of these keys.
pub(crate) fn ring_of(volume: VolumeId, keys: &BTreeMap<u16, BlockKey>) -> KeyRing {
    let mut keys = keys.iter();
    let (epoch, key) = keys.next().expect("a file of keys has one");
    let ring = KeyRing::of_epoch(volume, *epoch, &key.0);
    keys.fold(ring, |ring, (epoch, key)| ring.with(*epoch, &key.0))
}

/// The keys of a file: a line for each, an epoch and hexadecimal digits. The error begins with the number of the line.
fn parse_keys(text: &str) -> Result<BTreeMap<u16, BlockKey>, String> {
    let mut keys = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        // The only key of a volume had no epoch before there were several.
        let (epoch, digits) = line.trim().split_once(' ').unwrap_or(("0", line.trim()));
        let key = epoch.parse().ok().zip(parse_key(digits));
        let (epoch, key) = key.ok_or_else(|| {
            let digits = 2 * KEY_LENGTH;
            format!("{number}: a key is {digits} hexadecimal digits, after its epoch and a space")
        })?;
        if keys.insert(epoch, BlockKey(key)).is_some() {
            return Err(format!("{number}: there are two keys of epoch {epoch}"));
        }
    }
    if keys.is_empty() {
        return Err("1: there is no key".to_owned());
    }
    Ok(keys)
}

fn field<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t DeValue<'t>> {
    table.get(key).map(|value| value.get_ref())
}

fn text_of<'t>(value: &'t DeValue<'_>) -> Option<&'t str> {
    match value {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

fn number(table: &DeTable<'_>, key: &str) -> Result<u64, String> {
    let number = match field(table, key) {
        Some(DeValue::Integer(number)) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    number.ok_or_else(|| format!("`{key}` must be a whole number"))
}

/// A key from hexadecimal digits.
fn parse_key(text: &str) -> Option<[u8; KEY_LENGTH]> {
    let is_hex = text.len() == 2 * KEY_LENGTH && text.bytes().all(|it| it.is_ascii_hexdigit());
    let digits = is_hex.then_some(text)?;
    let mut key = [0; KEY_LENGTH];
    for (byte, place) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[place..place + 2], 16).ok()?;
    }
    Some(key)
}

/// Bytes as hexadecimal digits and a line end: the text of a key file.
pub(crate) fn key_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
    }
    text.push('\n');
    text
}

/// Parses a size such as `1GiB`, `512MiB` or a number of bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> VolumeFile {
        VolumeFile {
            folder: PathBuf::from("folder"),
            geometry: Geometry {
                volume: VolumeId(0x1234),
                block_length: 4_096,
                blocks: 262_144,
            },
            replicas: vec![
                "127.0.0.1:7501".parse().unwrap(),
                "[::1]:7502".parse().unwrap(),
                "127.0.0.1:7503".parse().unwrap(),
            ],
            quorum: 2,
            needs_tls: true,
            key_check: Some("00ff".to_owned()),
            parent: Some((
                NbdAddress::Unix("/parent/nbd".into()),
                "volume@before".to_owned(),
            )),
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let read = VolumeFile::parse(&file().text(), PathBuf::from("folder"));
        assert_eq!(read, Ok(file()));
        let without = file().text().replace("quorum = 2\n", "");
        let read = VolumeFile::parse(&without, PathBuf::from("folder"));
        assert_eq!(read, Ok(file()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, reason) in [
            ("blocks = 262144", "blocks = 0", "0 blocks"),
            ("blocks = 262144", "blocks = -1", "`blocks` must be"),
            ("length = 4096", "length = 100", "100 bytes is not a power"),
            ("quorum = 2", "quorum = 1", "more than half of 3"),
            ("quorum = 2", "quorum = 4", "more than half of 3"),
            ("quorum = 2", "size = 2", "unknown key `size`"),
            ("tls = true", "tls = \"yes\"", "`tls` must be true or false"),
            (
                "7503",
                "7501",
                "two replicas have the address 127.0.0.1:7501",
            ),
            ("[::1]:7502", "here", "is no address"),
            ("volume = ", "volume = 7 #", "32 hexadecimal digits"),
            ("unix:/parent/nbd", "nowhere", "`parent` must be"),
            ("volume = ", "volume", "this is not TOML"),
        ] {
            let text = file().text().replace(from, to);
            let error = VolumeFile::parse(&text, PathBuf::new()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn keys_and_sizes_are_texts() {
        let key: [u8; KEY_LENGTH] = std::array::from_fn(|place| place as u8 * 7);
        assert_eq!(parse_key(key_text(&key).trim_end()), Some(key));
        assert_eq!(parse_key("00"), None);
        assert_eq!(parse_key(&"é".repeat(32)), None);
        assert_eq!(parse_size("1GiB"), Some(1 << 30));
        assert_eq!(parse_size("5 MiB"), Some(5 << 20));
        assert_eq!(parse_size("4096"), Some(4_096));
        for wrong in ["", "GiB", "1G", "-1", "99999999999TiB", "1.5GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
