//! Numbers for pairs of key and value.

/// A version while columns are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) value: i64,
    pub(super) key: u32,
    /// Who wrote it; [`NONE`](super::NONE) as long as nobody did.
    pub(super) writer: u32,
}

/// An empty slot: no version has this number.
const EMPTY: u32 = u32::MAX;
/// Slots at first.
const SLOTS_MIN: usize = 1 << 10;

/// A hash table from (key, value) to a version's number with open addressing.
///
/// A slot is eight bytes, half of them hash, so that as a rule one slot and one version are looked at. Not for hostile
/// values: an adversary could slow it down, as he could with any large history.
pub(super) struct Table {
    /// Half of the hash, and the number.
    slots: Vec<(u32, u32)>,
    pub(super) versions: Vec<Version>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            slots: vec![(0, EMPTY); SLOTS_MIN],
            versions: Vec::new(),
        }
    }
}

fn hash(key: u32, value: i64) -> u64 {
    let mixed = value.cast_unsigned() ^ u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(mixed ^ 0x243f_6a88_85a3_08d3) * 0xa076_1d64_78bd_642f;
    (product >> 64) as u64 ^ product as u64
}

impl Table {
    /// The number of this version, a new one if need be.
    pub(super) fn number(&mut self, key: u32, value: i64) -> u32 {
        let hash = hash(key, value);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let (other, number) = self.slots[at];
            if number == EMPTY {
                break;
            }
            if other == tag {
                let version = &self.versions[number as usize];
                if version.value == value && version.key == key {
                    return number;
                }
            }
            at = (at + 1) & mask;
        }
        let number = self.versions.len() as u32;
        self.slots[at] = (tag, number);
        let writer = super::NONE;
        self.versions.push(Version { value, key, writer });
        if self.versions.len() * 10 > self.slots.len() * 7 {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let length = 2 * self.slots.len();
        // The old ones are not needed: everything that is hashed stands among the versions.
        self.slots = Vec::new();
        self.slots = vec![(0, EMPTY); length];
        let mask = length - 1;
        for (number, version) in self.versions.iter().enumerate() {
            let hash = hash(version.key, version.value);
            let mut at = hash as usize & mask;
            while self.slots[at].1 != EMPTY {
                at = (at + 1) & mask;
            }
            self.slots[at] = ((hash >> 32) as u32, number as u32);
        }
    }
}
