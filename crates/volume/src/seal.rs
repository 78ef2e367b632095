//! Encryption of blocks: AES-256-GCM-SIV (RFC 8452), see `docs/decisions/0051`.

use crate::block_context::{BlockContent, BlockContext, BlockSlot, BlockVersion, CONTEXT_LENGTH};
use crate::geometry::{BlockNumber, VolumeId};
use aes_gcm_siv::aead::{AeadInOut, KeyInit};
use aes_gcm_siv::{Aes256GcmSiv, Nonce, Tag};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Bytes of a key.
pub const KEY_LENGTH: usize = 32;

/// The keys of a volume by epoch. New blocks are sealed with the newest; older ones are read with the key that sealed them.
///
/// Each block is sealed alone. The nonce is its version, which is never given twice; if it were all the same, say because the
/// upstairs' machine was put back to an earlier state, GCM-SIV reveals only whether both blocks are equal. What is authenticated
/// besides the bytes: volume, block number, epoch and content, so no block passes for another one. Not detected: a replica that
/// delivers an older version of a block, or says that it was never written.
#[derive(Clone)]
pub struct KeyRing {
    volume: VolumeId,
    newest: u16,
    /// False: the planted bug [`VolumeBug::SwappedBlocks`](crate::VolumeBug::SwappedBlocks).
    binds_blocks: bool,
    /// Shared: each job has a ring.
    keys: Arc<BTreeMap<u16, Aes256GcmSiv>>,
}

/// The bytes of a key. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BlockKey(pub [u8; KEY_LENGTH]);

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockKey")
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "KeyRing of {} with {} keys",
            self.volume,
            self.keys.len()
        )
    }
}

impl KeyRing {
    /// A ring with one key of epoch 0.
    pub fn new(volume: VolumeId, key: &[u8; KEY_LENGTH]) -> KeyRing {
        KeyRing::of_epoch(volume, 0, key)
    }

    /// A ring with one key of any epoch.
    pub fn of_epoch(volume: VolumeId, epoch: u16, key: &[u8; KEY_LENGTH]) -> KeyRing {
        let keys = BTreeMap::from([(epoch, Aes256GcmSiv::new(key.into()))]);
        KeyRing {
            volume,
            newest: epoch,
            binds_blocks: true,
            keys: Arc::new(keys),
        }
    }

    /// Adds the key of an epoch; the largest epoch seals.
    #[must_use]
    pub fn with(mut self, epoch: u16, key: &[u8; KEY_LENGTH]) -> KeyRing {
        Arc::make_mut(&mut self.keys).insert(epoch, Aes256GcmSiv::new(key.into()));
        self.newest = self.newest.max(epoch);
        self
    }

    /// The epoch whose key seals.
    pub const fn newest(&self) -> u16 {
        self.newest
    }

    /// Is there a key of an earlier epoch?
    pub fn has_older(&self) -> bool {
        self.keys.len() > 1
    }

    /// Drops the keys of earlier epochs.
    pub(crate) fn drop_older(&mut self) {
        let newest = self.newest;
        Arc::make_mut(&mut self.keys).retain(|epoch, _| *epoch == newest);
    }

    /// A text from which the newest key can be recognised, and nothing else: the tag of nothing, with a nonce that no block has.
    pub fn check_text(&self) -> String {
        let block = BlockNumber(u64::MAX);
        let version = BlockVersion {
            generation: u32::MAX,
            counter: u64::MAX,
        };
        let mut slot = Vec::new();
        self.seal(&mut slot, block, version, &[]);
        let tag = BlockContext::decode(&slot).map(|it| u128::from_be_bytes(it.tag));
        format!("{:032x}", tag.unwrap_or_default())
    }

    /// Plants a bug: block numbers are not authenticated.
    pub(crate) const fn without_block_numbers(mut self) -> KeyRing {
        self.binds_blocks = false;
        self
    }

    /// What is authenticated and not encrypted.
    fn associated(&self, block: BlockNumber, epoch: u16, content: BlockContent) -> [u8; 27] {
        let mut bytes = [0; 27];
        bytes[..16].copy_from_slice(&self.volume.0.to_le_bytes());
        if self.binds_blocks {
            bytes[16..24].copy_from_slice(&block.0.to_le_bytes());
        }
        bytes[24..26].copy_from_slice(&epoch.to_le_bytes());
        bytes[26] = content as u8;
        bytes
    }

    /// Appends the slot of a block with these bytes; none: a block of zeros.
    pub fn seal(&self, out: &mut Vec<u8>, block: BlockNumber, version: BlockVersion, bytes: &[u8]) {
        let content = if bytes.is_empty() {
            BlockContent::Zeros
        } else {
            BlockContent::Data
        };
        let start = out.len();
        out.resize(start + CONTEXT_LENGTH, 0);
        out.extend_from_slice(bytes);
        let (context, data) = out[start..].split_at_mut(CONTEXT_LENGTH);
        let associated = self.associated(block, self.newest, content);
        let nonce = Nonce::from(version.nonce());
        let tag = self.keys[&self.newest].encrypt_inout_detached(
            &nonce,
            &associated,
            (&mut *data).into(),
        );
        let mut sealed = BlockContext {
            version,
            epoch: self.newest,
            content,
            // The only error is a plaintext of more than 64 GiB.
            tag: tag.expect("a block is short").into(),
            checksum: 0,
        };
        sealed.checksum = sealed.checksum_of(block, data);
        context.copy_from_slice(&sealed.encode());
    }

    /// Appends the plain bytes of a slot that claims to be this block. False, and nothing appended: it is damaged, or not this
    /// block, or sealed with another key.
    #[must_use]
    pub fn open(
        &self,
        out: &mut Vec<u8>,
        block: BlockNumber,
        slot: &BlockSlot<'_>,
        block_length: u32,
    ) -> bool {
        let context = &slot.context;
        let start = out.len();
        if context.content == BlockContent::Absent {
            out.resize(start + block_length as usize, 0);
            return true;
        }
        let Some(key) = self.keys.get(&context.epoch) else {
            return false;
        };
        let associated = self.associated(block, context.epoch, context.content);
        let nonce = Nonce::from(context.version.nonce());
        let tag = Tag::from(context.tag);
        out.extend_from_slice(slot.data());
        let opened =
            key.decrypt_inout_detached(&nonce, &associated, out[start..].as_mut().into(), &tag);
        if opened.is_err() {
            out.truncate(start);
            return false;
        }
        out.resize(start + block_length as usize, 0);
        true
    }
}
