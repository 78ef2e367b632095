//! The buffer of an overwritten value, for the next value of its length.

use super::{Item, Undo};
use std::sync::Arc;

/// Shorter values are left to the allocator, which keeps short buffers at hand itself.
const LENGTH_MIN: usize = 1_024;

/// At most one buffer that nothing refers to any more. A store whose values have one length then neither allocates nor frees at
/// an overwrite, which both touch the memory beside the buffer: 13 % of a node's time at 4 KiB.
///
/// A value that a snapshot shares is never a spare, so its bytes do not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareValue(Option<Arc<[u8]>>);

impl SpareValue {
    /// A value with these bytes, in the spare buffer if it has their length.
    #[inline]
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        if let Some(mut spare) = self.0.take_if(|spare| spare.len() == bytes.len())
            && let Some(buffer) = Arc::get_mut(&mut spare)
        {
            buffer.copy_from_slice(bytes);
            return spare;
        }
        bytes.into()
    }

    /// Takes what a committed change has replaced.
    #[inline]
    pub(crate) fn keep(&mut self, replaced: Undo) {
        if let Undo::Restore(Item::Register(mut value)) = replaced
            && value.len() >= LENGTH_MIN
            && Arc::get_mut(&mut value).is_some()
        {
            self.0 = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(spare: &mut SpareValue, value: &Arc<[u8]>) {
        spare.keep(Undo::Restore(Item::Register(Arc::clone(value))));
    }

    #[test]
    fn a_buffer_is_filled_again_unless_something_else_has_it() {
        let mut spare = SpareValue::default();
        let value: Arc<[u8]> = vec![1; 4_096].into();
        kept(&mut spare, &value);
        assert!(spare.0.is_none(), "it is shared");
        let address = value.as_ptr();
        spare.keep(Undo::Restore(Item::Register(value)));
        let longer = spare.fill(&[2; 4_097]);
        assert_ne!(longer.as_ptr(), address);
        let filled = spare.fill(&[3; 4_096]);
        assert_eq!((filled.as_ptr(), &*filled), (address, &[3; 4_096][..]));
        assert_ne!(spare.fill(&[4; 4_096]).as_ptr(), address, "it is used");
        // A clone of the state has the same spare: neither may write to it.
        spare.keep(Undo::Restore(Item::Register(filled)));
        let mut clone = spare.clone();
        let (one, other) = (spare.fill(&[5; 4_096]), clone.fill(&[6; 4_096]));
        assert_eq!((one[0], other[0]), (5, 6));
        spare.keep(Undo::Restore(Item::Register(vec![0; 100].into())));
        assert!(spare.0.is_none(), "short ones are not kept");
    }
}
