//! Writes the columns of a chunk, each packed with the smallest width and base that hold its values.

use super::layout::{DESCRIPTOR_LENGTH, column};
use seatrial_blocks::packed::{IntegerSlice, Packing};

/// A column with its packing chosen.
struct PackedColumn<'a> {
    id: u8,
    packing: Packing,
    values: IntegerSlice<'a>,
}

/// Collects the columns of a chunk, then writes descriptors and values. Columns without values are left out.
#[derive(Default)]
pub(crate) struct ChunkColumnWriter<'a> {
    columns: Vec<PackedColumn<'a>>,
}

impl<'a> ChunkColumnWriter<'a> {
    /// Adds the next column.
    pub(crate) fn put(&mut self, id: u8, values: IntegerSlice<'a>) {
        if values.is_empty() {
            return;
        }
        // Text is read as it is stored: width 1 and base 0, whatever its bytes are.
        let is_text = id == column::WORD_BYTES || id == column::TEXT_BYTES;
        let mut packing = if is_text {
            Packing { width: 1, base: 0 }
        } else {
            values.packing()
        };
        packing.width = packing.width.max(u8::from(column::is_counted(id)));
        self.columns.push(PackedColumn {
            id,
            packing,
            values,
        });
    }

    /// Number of columns.
    pub(crate) fn count(&self) -> usize {
        self.columns.len()
    }

    /// Appends all descriptors, then all values.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for column in &self.columns {
            out.extend([column.id, column.packing.width, 0, 0]);
            out.extend((column.values.len() as u32).to_le_bytes());
            out.extend(column.packing.base.to_le_bytes());
        }
        for column in &self.columns {
            column.values.pack(column.packing, out);
        }
        let lengths = self.columns.iter().map(|column| {
            DESCRIPTOR_LENGTH + column.values.len() * usize::from(column.packing.width)
        });
        debug_assert_eq!(
            out.len() - start,
            lengths.sum::<usize>(),
            "values are stored as their descriptors say"
        );
    }
}
