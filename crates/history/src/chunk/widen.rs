//! Widens columns to one value for each operation or micro-operation.

use super::ValueView;
use super::column::Column;
use super::layout::{column, shape};
use super::{Chunk, OpTemplate, Wide};
use crate::OpType;

impl Wide {
    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        self.indices.reset();
        self.times.reset();
        self.kinds.reset();
        self.process_ids.reset();
        self.template_ids.reset();
        self.pairs.reset();
        self.paired_count.take();
        self.keys.reset();
        self.operands.reset();
        self.operand_starts.reset();
        self.mop_starts.reset();
        self.mop_tags.reset();
        self.mop_keys.reset();
        self.mop_arguments.reset();
        self.pool.reset();
        self.extra_starts.reset();
        self.extras.reset();
    }
}

/// Memory for widened columns is passed from chunk to chunk: of many decoded chunks few are in use at a time.
impl Chunk {
    /// Takes over memory for columns that are not widened yet.
    pub(crate) fn take_memory(&self, memory: Wide) {
        let wide = &self.wide;
        wide.indices.take_memory(memory.indices);
        wide.times.take_memory(memory.times);
        wide.kinds.take_memory(memory.kinds);
        wide.process_ids.take_memory(memory.process_ids);
        wide.template_ids.take_memory(memory.template_ids);
        wide.pairs.take_memory(memory.pairs);
        wide.keys.take_memory(memory.keys);
        wide.operands.take_memory(memory.operands);
        wide.operand_starts.take_memory(memory.operand_starts);
        wide.mop_starts.take_memory(memory.mop_starts);
        wide.mop_tags.take_memory(memory.mop_tags);
        wide.mop_keys.take_memory(memory.mop_keys);
        wide.mop_arguments.take_memory(memory.mop_arguments);
        wide.pool.take_memory(memory.pool);
        wide.extra_starts.take_memory(memory.extra_starts);
        wide.extras.take_memory(memory.extras);
    }

    /// Drops the widened columns and returns their memory.
    pub(crate) fn give_memory(&mut self) -> Wide {
        self.wide.reset();
        std::mem::take(&mut self.wide)
    }
}

/// Each accessor widens its column at the first call, for all operations of the chunk; later calls return the same slice.
impl Chunk {
    /// A column in packed form.
    pub(super) fn column(&self, id: u8) -> Column<'_> {
        self.columns.get(id, &self.bytes)
    }

    /// Indices; empty when each is one more than the one before.
    pub(super) fn indices(&self) -> &[u64] {
        self.wide.indices.get(|indices| {
            let steps = self.column(column::INDEX_STEP);
            if self.len() > 1 && steps.constant() != Some(1) {
                let mut index = self.header.first_index;
                indices.reserve(self.len());
                indices.push(index);
                steps.for_each(|step| {
                    index = index.wrapping_add(step.cast_unsigned());
                    indices.push(index);
                });
            }
        })
    }

    /// The time of each operation: nanoseconds since the test began, -1 if unknown.
    pub fn times(&self) -> &[i64] {
        self.wide.times.get(|times| {
            if self.is_empty() {
                return;
            }
            let mut time = self.header.first_time;
            times.reserve(self.len());
            times.push(time);
            self.column(column::TIME_STEP).for_each(|step| {
                time = time.wrapping_add(step);
                times.push(time);
            });
            debug_assert_eq!(times.len(), self.len());
        })
    }

    /// The type of each operation.
    pub fn kinds(&self) -> &[OpType] {
        self.wide.kinds.get(|kinds| {
            let ids = self.column(column::TEMPLATE);
            if let Some(of_byte) = self.of_byte(OpType::Invoke, |template| template.kind) {
                let ids = ids.stored().iter();
                kinds.extend(ids.map(|&id| of_byte[usize::from(id)]));
            } else {
                let ids = self.template_ids().iter();
                kinds.extend(ids.map(|&id| self.templates[id as usize].kind));
            }
        })
    }

    /// A table by stored byte of the template column; `None` if that is wider than a byte.
    fn of_byte<T: Copy>(&self, nothing: T, of: impl Fn(&OpTemplate) -> T) -> Option<[T; 256]> {
        let ids = self.column(column::TEMPLATE);
        if ids.width() != 1 {
            return None;
        }
        let mut table = [nothing; 256];
        let templates = self.templates.get(ids.base() as usize..)?;
        for (slot, template) in table.iter_mut().zip(templates) {
            *slot = of(template);
        }
        Some(table)
    }

    /// The template id of each operation.
    pub fn template_ids(&self) -> &[u32] {
        let column = || self.column(column::TEMPLATE);
        self.wide.template_ids.get(|ids| column().widen_ids(ids))
    }

    /// The template of the operation at `place`.
    pub(super) fn template(&self, place: usize) -> &OpTemplate {
        &self.templates[self.template_ids()[place] as usize]
    }

    /// The process of each operation as an id of this chunk.
    pub fn process_ids(&self) -> &[u32] {
        let column = || self.column(column::PROCESS);
        self.wide.process_ids.get(|ids| column().widen_ids(ids))
    }

    /// The distance from each completion back to its invocation, in positions; 0 for invocations and for completions without
    /// one. The second half of a nemesis operation is a completion.
    pub fn pairs(&self) -> &[i64] {
        let column = || self.column(column::PAIR);
        self.wide.pairs.get(|pairs| column().integers(pairs))
    }

    /// Completions that have an invocation. Counted once, for all who ask.
    pub fn paired_count(&self) -> u64 {
        let count = || self.pairs().iter().filter(|pair| **pair > 0).count() as u64;
        *self.wide.paired_count.get_or_init(count)
    }

    /// Key id plus one of each operation, 0 without key; empty when no operation has a key.
    pub(super) fn keys(&self) -> &[u32] {
        self.wide.keys.get(|keys| {
            let column = self.column(column::KEY);
            if column.constant() != Some(0) {
                column.widen_ids(keys);
            }
        })
    }

    pub(super) fn operands(&self) -> &[i64] {
        let column = || self.column(column::OPERAND);
        self.wide.operands.get(|values| column().integers(values))
    }

    /// Starts of the operands of each operation, and the end of the last.
    pub(super) fn operand_starts(&self) -> &[u32] {
        self.wide.operand_starts.get(|starts| {
            let mut end = 0;
            starts.push(end);
            starts.extend(self.template_ids().iter().map(|&id| {
                end += self.templates[id as usize].operands();
                end
            }));
            debug_assert_eq!(end as usize, self.column(column::OPERAND).len());
        })
    }

    /// The range of the micro-operations of the operation at `place`; `None` if it is no transaction.
    pub fn txn_range(&self, place: usize) -> Option<(usize, usize)> {
        match self.mop_starts().get(place..) {
            Some(&[start, end, ..]) if end > start => Some((start as usize, end as usize)),
            _ => matches!(self.value(place), ValueView::Txn(_)).then_some((0, 0)),
        }
    }

    /// Starts of the micro-operations of each operation in [`Chunk::mop_tags`], [`Chunk::mop_keys`] and
    /// [`Chunk::mop_arguments`], and the end of the last. Empty when the chunk has no micro-operations.
    pub fn mop_starts(&self) -> &[u32] {
        self.wide.mop_starts.get(|starts| {
            if self.column(column::MOP_TAG).is_empty() {
                return;
            }
            let (mut end, mut operand) = (0, 0);
            let operands = self.column(column::OPERAND);
            starts.push(end);
            starts.extend(self.template_ids().iter().map(|&id| {
                let template = &self.templates[id as usize];
                if template.shape == shape::TXN {
                    end += operands.value(operand) as u32;
                }
                operand += template.operands() as usize;
                end
            }));
            debug_assert_eq!(end as usize, self.column(column::MOP_TAG).len());
        })
    }

    /// The tag of each micro-operation, one of [`mop_tag`](super::mop_tag).
    pub fn mop_tags(&self) -> &[u8] {
        let tags = self.column(column::MOP_TAG);
        if tags.base() == 0 {
            return tags.stored();
        }
        self.wide.mop_tags.get(|out| tags.widen_bytes(out))
    }

    /// The key id of each micro-operation.
    pub fn mop_keys(&self) -> &[u32] {
        let column = || self.column(column::MOP_KEY);
        self.wide.mop_keys.get(|keys| column().widen_ids(keys))
    }

    /// The argument of each micro-operation; its meaning depends on the tag.
    pub fn mop_arguments(&self) -> &[i64] {
        let column = || self.column(column::MOP_ARGUMENT);
        let arguments = &self.wide.mop_arguments;
        arguments.get(|arguments| column().integers(arguments))
    }

    /// The elements of all lists.
    pub(super) fn pool(&self) -> &[i64] {
        let column = || self.column(column::POOL);
        self.wide.pool.get(|pool| column().integers(pool))
    }

    /// Starts of the extra fields of each operation, and the end of the last. Empty when there are none.
    pub(super) fn extra_starts(&self) -> &[u32] {
        self.wide.extra_starts.get(|starts| {
            if self.field_names.is_empty() {
                return;
            }
            let mut end = 0;
            starts.push(end);
            starts.extend(self.template_ids().iter().map(|&id| {
                let (first, last) = self.templates[id as usize].fields;
                end += last - first;
                end
            }));
        })
    }

    /// The extra fields of all operations: field id and entry id.
    pub(super) fn extras(&self) -> &[(u32, u32)] {
        self.wide.extras.get(|extras| {
            let columns: Vec<Column<'_>> = self.columns.field_values(&self.bytes).collect();
            let mut next = vec![0; columns.len()];
            for &id in self.template_ids() {
                let (first, end) = self.templates[id as usize].fields;
                for &field in &self.template_fields[first as usize..end as usize] {
                    let place = &mut next[field as usize];
                    let entry = columns[field as usize].value(*place);
                    *place += 1;
                    extras.push((field, entry as u32));
                }
            }
            debug_assert!(
                columns.iter().map(|column| column.len()).eq(next),
                "a field has a value that no operation has"
            );
        })
    }
}
