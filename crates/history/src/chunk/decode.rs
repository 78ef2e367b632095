//! Decodes and validates the bytes of a chunk once, so that access needs no further checks.

use super::column::{ChunkColumns, ChunkError, Column, Descriptors};
use super::dictionary::ChunkDictionary;
use super::layout::{HEADER_LENGTH, OPERATIONS_MAX, TYPES, VERSION, column, kind, mop, shape};
use super::tape;
use super::{Chunk, ChunkHeader, OpTemplate, TapeStart};
use crate::{OpType, Process};

impl ChunkHeader {
    /// Reads the header of a chunk; returns it and the number of columns.
    pub(crate) fn read(bytes: &[u8]) -> Result<(ChunkHeader, usize), ChunkError> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
            let problem = format!("{} bytes are no chunk", bytes.len());
            return Err(ChunkError::new(0, problem));
        };
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if half(0) != VERSION || half(2) != 0 {
            let problem = format!("chunk version {}, flags {}: unknown", half(0), half(2));
            return Err(ChunkError::new(0, problem));
        }
        let operations = word(4);
        if operations == 0 || operations as usize > OPERATIONS_MAX {
            let problem = format!("a chunk of {operations} operations");
            return Err(ChunkError::new(4, problem));
        }
        if half(62) != 0 {
            return Err(ChunkError::new(
                62,
                "the header is not zero where it should be",
            ));
        }
        let header = ChunkHeader {
            operations,
            first_position: long(8),
            first_index: long(16),
            first_time: long(24).cast_signed(),
            time_min: long(32).cast_signed(),
            time_max: long(40).cast_signed(),
            ok: word(48),
            fail: word(52),
            info: word(56),
        };
        Ok((header, usize::from(half(60))))
    }
}

/// Memory that only reading needs.
#[derive(Default)]
struct DecodeScratch {
    ids: Vec<u32>,
    integers: Vec<i64>,
}

impl Chunk {
    /// Reads a chunk.
    pub fn from_bytes(bytes: &[u8]) -> Result<Chunk, ChunkError> {
        let mut chunk = Chunk::default();
        chunk.read(bytes)?;
        Ok(chunk)
    }

    /// Reads a chunk into this value, whose memory is reused. After an error the chunk is empty.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let mut copy = std::mem::take(&mut self.bytes);
        copy.clear();
        copy.extend_from_slice(bytes);
        self.read_owned(&mut copy)
    }

    /// [`Chunk::read`] without a copy: swaps the bytes with those of the former chunk, which the caller can reuse as memory.
    pub fn read_owned(&mut self, bytes: &mut Vec<u8>) -> Result<(), ChunkError> {
        self.wide.reset();
        let result = self.read_columns(bytes);
        if result.is_ok() {
            std::mem::swap(&mut self.bytes, bytes);
        } else {
            *self = Chunk::default();
        }
        result
    }

    fn read_columns(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let (header, count) = ChunkHeader::read(bytes)?;
        if u32::try_from(bytes.len()).is_err() {
            let problem = format!("{} bytes are no chunk", bytes.len());
            return Err(ChunkError::new(0, problem));
        }
        self.header = header;
        let descriptors = Descriptors::read(bytes, HEADER_LENGTH, count)?;
        let columns = ChunkColumns::new(&descriptors, bytes);
        let mut scratch = DecodeScratch::default();
        self.names.read(&columns)?;
        self.read_processes(&columns, &mut scratch)?;
        self.read_templates(&columns, &mut scratch)?;
        self.count_templates(&columns, &mut scratch)?;
        self.read_places(&columns)?;
        self.read_lists(&columns, &mut scratch)?;
        self.read_operands(&columns)?;
        self.read_mops(&columns)?;
        self.read_tapes(&columns)?;
        self.read_extras(&columns, &mut scratch)?;
        self.columns = descriptors;
        self.assert_complete();
        Ok(())
    }

    /// Asserts what the checks of the columns have established, whatever the bytes were.
    fn assert_complete(&self) {
        assert_eq!(self.template_counts.len(), self.templates.len());
        debug_assert_eq!(
            self.template_counts.iter().sum::<u32>(),
            self.header.operations,
            "an operation without template"
        );
        assert!(
            self.list_starts.len() > self.names.keys.len(),
            "a key has no list"
        );
        assert!(!self.entry_starts.is_empty(), "entries without an end");
        debug_assert!(
            self.tape_starts
                .is_sorted_by(|one, next| one.place < next.place),
            "an operation has two tapes"
        );
        debug_assert!(
            self.references.iter().all(|(start, end)| start <= end),
            "a reference ends before its start"
        );
    }

    fn read_processes(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        let numbers = columns.get(column::PROCESS_NUMBER);
        let kinds = columns.get(column::PROCESS_KIND);
        numbers.expect(kinds.len())?;
        kinds.ids(2, &mut scratch.ids)?;
        scratch.integers.clear();
        numbers.integers(&mut scratch.integers);
        self.processes.clear();
        for (&kind, &number) in scratch.ids.iter().zip(&scratch.integers) {
            self.processes.push(if kind == u32::from(kind::NAMED) {
                let place = usize::try_from(number).unwrap_or(usize::MAX);
                let word = self.names.words.get(place);
                Process::Named(*word.ok_or_else(|| numbers.error("points at nothing"))?)
            } else {
                Process::Client(number.cast_unsigned())
            });
        }
        let ids = columns.get(column::PROCESS);
        ids.expect(self.header.operations as usize)?;
        ids.expect_ids(self.processes.len())
    }

    fn read_templates(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        let ids = &mut scratch.ids;
        let names = columns.get(column::FIELD_NAME);
        names.ids(self.names.words.len(), ids)?;
        self.field_names.clear();
        let words = ids.iter().map(|&word| self.names.word(word as usize));
        self.field_names.extend(words);
        let fields = columns.get(column::TEMPLATE_FIELD);
        fields.ids(names.len(), &mut self.template_fields)?;

        let types = columns.get(column::TEMPLATE_TYPE);
        let shapes = columns.get(column::TEMPLATE_SHAPE);
        let fs = columns.get(column::TEMPLATE_F);
        let field_counts = columns.get(column::TEMPLATE_FIELD_COUNT);
        for other in [shapes, fs, field_counts] {
            other.expect(types.len())?;
        }
        types.ids(TYPES.len(), ids)?;
        self.templates.clear();
        self.templates.extend(ids.iter().map(|&kind| OpTemplate {
            kind: TYPES[kind as usize],
            shape: 0,
            f: self.names.word(0),
            fields: (0, 0),
        }));
        shapes.ids(shape::OPERANDS.len(), ids)?;
        for (template, &shape) in self.templates.iter_mut().zip(&*ids) {
            template.shape = shape as u8;
        }
        fs.ids(self.names.words.len(), ids)?;
        for (template, &word) in self.templates.iter_mut().zip(&*ids) {
            template.f = self.names.word(word as usize);
        }
        field_counts.starts(fields.len(), ids)?;
        fields.expect(ids[ids.len() - 1] as usize)?;
        for (template, range) in self.templates.iter_mut().zip(ids.windows(2)) {
            template.fields = (range[0], range[1]);
        }
        Ok(())
    }

    /// Counts the operations of each template, and compares the counts of types with the header.
    fn count_templates(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        let ids = columns.get(column::TEMPLATE);
        ids.expect(self.header.operations as usize)?;
        ids.expect_ids(self.templates.len())?;
        self.template_counts.clear();
        self.template_counts.resize(self.templates.len(), 0);
        if ids.width() == 1 {
            let counted = &mut self.template_counts[ids.base() as usize..];
            for (sum, count) in counted.iter_mut().zip(count_bytes(ids.stored())) {
                *sum = count;
            }
        } else {
            ids.ids(self.templates.len(), &mut scratch.ids)?;
            for &id in &scratch.ids {
                self.template_counts[id as usize] += 1;
            }
        }
        let mut counts = [0_u32; TYPES.len()];
        for (template, count) in self.templates.iter().zip(&self.template_counts) {
            counts[template.kind as usize] += count;
        }
        let header = &self.header;
        if counts[OpType::Ok as usize..] != [header.ok, header.fail, header.info] {
            let problem = "the header's counts are not those of the operations";
            return Err(ids.error(problem));
        }
        Ok(())
    }

    /// Checks index, time, pair and key.
    fn read_places(&self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let count = self.header.operations as usize;
        self.check_indices(columns)?;
        let last = self.header.first_index.checked_add(count as u64 - 1);
        let last_position = self.header.first_position.checked_add(count as u64);
        if last.is_none() || last_position.is_none() {
            return Err(ChunkError::new(
                8,
                "positions or indices pass the highest number",
            ));
        }
        self.check_times(columns)?;
        self.check_pairs(columns)?;
        let keys = columns.get(column::KEY);
        keys.expect(count)?;
        keys.expect_ids(self.names.keys.len() + 1)?;
        if let Some(none) = self.names.none_key
            && keys.contains(i64::from(none) + 1)
        {
            return Err(keys.error("points at no key"));
        }
        Ok(())
    }

    fn check_indices(&self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let steps = columns.get(column::INDEX_STEP);
        steps.expect(self.header.operations as usize - 1)?;
        let first = self.header.first_index;
        // Fast path: no step is below 1 and the last index does not overflow.
        let last = steps.sum().map(|sum| sum + u128::from(first));
        if steps.base() > 0 && last.is_some_and(|last| last <= u128::from(u64::MAX)) {
            return Ok(());
        }
        let (mut index, mut rises) = (first, true);
        steps.for_each(|step| {
            let next = index.wrapping_add(step.cast_unsigned());
            rises &= next > index;
            index = next;
        });
        rises
            .then_some(())
            .ok_or_else(|| steps.error("does not rise"))
    }

    fn check_times(&self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let steps = columns.get(column::TIME_STEP);
        steps.expect(self.header.operations as usize - 1)?;
        let first = self.header.first_time;
        let expected = (self.header.time_min, self.header.time_max);
        // Fast path: no step is negative, so the last time is the highest.
        let sum = steps.sum().and_then(|sum| i128::try_from(sum).ok());
        if let Some(last) = sum.and_then(|sum| sum.checked_add(first.into()))
            && last <= i128::from(i64::MAX)
            && i128::from(steps.base()) + i128::from(steps.highest()) <= i128::from(i64::MAX)
        {
            if expected == (first, last as i64) {
                return Ok(());
            }
        } else {
            let (mut time, mut bounds) = (first, (first, first));
            steps.for_each(|step| {
                time = time.wrapping_add(step);
                bounds = (time.min(bounds.0), time.max(bounds.1));
            });
            if expected == bounds {
                return Ok(());
            }
        }
        Err(steps.error("does not lead to the times in the header"))
    }

    fn check_pairs(&self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let pairs = columns.get(column::PAIR);
        pairs.expect(self.header.operations as usize)?;
        let first = i64::try_from(self.header.first_position).unwrap_or(i64::MAX);
        let base = pairs.base();
        let reach = i64::try_from(pairs.highest())
            .ok()
            .and_then(|highest| highest.checked_add(base));
        // Fast path: even the greatest distance reaches from the chunk's first position into the history.
        if base >= 0 && reach.is_some_and(|reach| reach <= first) {
            return Ok(());
        }
        let (mut position, mut sound) = (first, true);
        pairs.for_each(|distance| {
            sound &= (0..=position).contains(&distance);
            position = position.saturating_add(1);
        });
        sound
            .then_some(())
            .ok_or_else(|| pairs.error("points before the history"))
    }

    fn read_lists(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        let lengths = columns.get(column::LIST_LENGTH);
        let pool = columns.get(column::POOL);
        let keys = self.names.keys.len();
        if lengths.len() < keys {
            return Err(lengths.error("has fewer lists than there are keys"));
        }
        lengths.starts(pool.len(), &mut self.list_starts)?;
        pool.expect(self.list_starts[self.list_starts.len() - 1] as usize)?;

        let branches = columns.get(column::REFERENCE_LIST);
        let of_branch = columns.get(column::REFERENCE_LENGTH);
        of_branch.expect(branches.len())?;
        branches.ids(lengths.len() - keys, &mut scratch.ids)?;
        scratch.integers.clear();
        of_branch.integers(&mut scratch.integers);
        self.references.clear();
        for (&branch, &length) in scratch.ids.iter().zip(&scratch.integers) {
            let list = keys + branch as usize;
            let (start, end) = (self.list_starts[list], self.list_starts[list + 1]);
            if !(0..=i64::from(end - start)).contains(&length) {
                return Err(of_branch.error("is longer than the branch"));
            }
            self.references.push((start, start + length as u32));
        }
        Ok(())
    }

    /// Checks operands against their shapes.
    fn read_operands(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let operands = columns.get(column::OPERAND);
        let counted = || self.templates.iter().zip(&self.template_counts);
        let expected: u64 = counted()
            .map(|(template, &count)| u64::from(template.operands()) * u64::from(count))
            .sum();
        operands.expect(expected as usize)?;
        self.tape_starts.clear();
        let used = counted().filter(|(template, count)| **count > 0 && template.operands() > 0);
        let mut shapes = used.map(|(template, _)| template.shape);
        let mops = columns.get(column::MOP_TAG);
        if shapes.clone().all(shape::is_free) {
            return mops.expect(0);
        }
        if shapes.all(|shape| shape == shape::TXN)
            && let Some(sum) = operands.sum()
            && sum <= mops.len() as u128
        {
            return mops.expect(sum as usize);
        }
        self.walk_operands(columns)
    }

    /// Checks operand by operand, and collects where tapes start.
    fn walk_operands(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let operands = columns.get(column::OPERAND);
        let mops = columns.get(column::MOP_TAG);
        let problem = "holds a number that does not fit its shape";
        let shapes: Vec<u8> = self.templates.iter().map(|of| of.shape).collect();
        let (mut mop_end, mut operand) = (0_u64, 0);
        for place in 0..self.header.operations as usize {
            let template = columns.get(column::TEMPLATE).value(place);
            let shape = shapes[template as usize];
            let sound = if shape == shape::TXN {
                let count = operands.value(operand).cast_unsigned();
                let fits = count <= mops.len() as u64 - mop_end;
                mop_end += if fits { count } else { 0 };
                fits
            } else {
                shape::is_free(shape) || self.is_operand_sound(columns, place, shape, operand)
            };
            if !sound {
                return Err(operands.error(problem));
            }
            operand += usize::from(shape::OPERANDS[usize::from(shape)]);
        }
        mops.expect(mop_end as usize)
    }

    /// Is the operand with this number, of an operation of this shape, in range? Of a tape it collects the start.
    fn is_operand_sound(
        &mut self,
        columns: &ChunkColumns<'_>,
        place: usize,
        shape: u8,
        number: usize,
    ) -> bool {
        let operand = columns.get(column::OPERAND).value(number);
        let below = |limit: usize| 0..limit as i64;
        match shape {
            shape::WORD => below(self.names.words.len()).contains(&operand),
            shape::TEXT => below(self.names.text_count()).contains(&operand),
            shape::LIST_BRANCH | shape::SET_BRANCH => {
                below(self.references.len()).contains(&operand)
            }
            shape::LIST_PREFIX | shape::SET_PREFIX => {
                let key = columns.get(column::KEY).value(place).checked_sub(1);
                let key = key.filter(|&key| key >= 0);
                let none = self.names.none_key.map(i64::from);
                let limit = key.or(none).map(|key| self.list_length(key as usize) + 1);
                limit.is_some_and(|limit| below(limit).contains(&operand))
            }
            _ => {
                self.tape_starts.push(TapeStart {
                    place: place as u32,
                    operand: number as u32,
                    tag: 0,
                    integer: 0,
                });
                true
            }
        }
    }

    /// Elements of the list of this key.
    fn list_length(&self, key: usize) -> usize {
        (self.list_starts[key + 1] - self.list_starts[key]) as usize
    }

    /// Checks micro-operations.
    fn read_mops(&self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let tags = columns.get(column::MOP_TAG);
        let keys = columns.get(column::MOP_KEY);
        let arguments = columns.get(column::MOP_ARGUMENT);
        keys.expect(tags.len())?;
        arguments.expect(tags.len())?;
        tags.expect_bytes(mop::COUNT)?;
        keys.expect_ids(self.names.keys.len())?;
        if let Some(none) = self.names.none_key
            && keys.contains(i64::from(none))
        {
            return Err(keys.error("points at no key"));
        }
        let limits = ArgumentLimits {
            lists: &self.list_starts,
            references: self.references.len(),
        };
        limits
            .are_kept(&tags, &keys, &arguments)
            .then_some(())
            .ok_or_else(|| arguments.error("reads more than there is"))
    }

    fn read_tapes(&mut self, columns: &ChunkColumns<'_>) -> Result<(), ChunkError> {
        let tags = columns.get(column::TAPE_TAG);
        let integers = columns.get(column::TAPE_INTEGER);
        tags.bytes(256, &mut self.tape_tags)?;
        self.tape_integers.clear();
        integers.integers(&mut self.tape_integers);
        let operands = columns.get(column::OPERAND);
        let mut tapes = Tapes::new(&self.tape_tags, &self.tape_integers, &self.names);
        for start in &mut self.tape_starts {
            (start.tag, start.integer) = tapes.starts();
            let at = start.operand as usize;
            tapes
                .step(operands.value(at), operands.value(at + 1))
                .map_err(|problem| tags.error(problem))?;
        }
        tapes.end().map_err(|problem| tags.error(problem))
    }

    fn read_extras(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        self.read_entries(columns, scratch)?;
        let count = columns.field_values().len();
        if count != self.field_names.len() {
            let problem = format!("{count} columns of values, not one per field");
            return Err(columns.get(column::FIELD_NAME).error(&problem));
        }
        if self.field_names.is_empty() {
            return Ok(());
        }
        // Operations per field, counted by template: a loop over fields of operations could take hours in a forged chunk.
        let mut expected = vec![0_u64; count];
        for (template, &operations) in self.templates.iter().zip(&self.template_counts) {
            let (start, end) = template.fields;
            for &field in &self.template_fields[start as usize..end as usize] {
                expected[field as usize] += u64::from(operations);
            }
        }
        let entries = self.entry_starts.len() - 1;
        for (column, expected) in columns.field_values().zip(expected) {
            column.expect(usize::try_from(expected).unwrap_or(usize::MAX))?;
            column.expect_ids(entries)?;
        }
        Ok(())
    }

    /// Reads the distinct values of extra fields.
    fn read_entries(
        &mut self,
        columns: &ChunkColumns<'_>,
        scratch: &mut DecodeScratch,
    ) -> Result<(), ChunkError> {
        let tags = columns.get(column::ENTRY_TAPE_TAG);
        let tag_counts = columns.get(column::ENTRY_TAGS);
        let integer_counts = columns.get(column::ENTRY_INTEGERS);
        let integers = columns.get(column::ENTRY_TAPE_INTEGER);
        integer_counts.expect(tag_counts.len())?;
        tags.bytes(256, &mut self.entry_tags)?;
        self.entry_integers.clear();
        integers.integers(&mut self.entry_integers);
        tag_counts.ids(tags.len() + 1, &mut scratch.ids)?;
        scratch.integers.clear();
        integer_counts.integers(&mut scratch.integers);
        let mut tapes = Tapes::new(&self.entry_tags, &self.entry_integers, &self.names);
        self.entry_starts.clear();
        self.entry_starts.push((0, 0));
        for (&of_tags, &of_integers) in scratch.ids.iter().zip(&scratch.integers) {
            tapes
                .step(i64::from(of_tags), of_integers)
                .map_err(|problem| tags.error(problem))?;
            self.entry_starts.push(tapes.starts());
        }
        tapes.end().map_err(|problem| tags.error(problem))
    }
}

/// Counts each byte. Four tables, so that equal neighbours do not wait for each other's increment.
fn count_bytes(bytes: &[u8]) -> [u32; 256] {
    let mut tables = [[0_u32; 256]; 4];
    let (quads, rest) = bytes.as_chunks::<4>();
    for quad in quads {
        for (table, &byte) in tables.iter_mut().zip(quad) {
            table[usize::from(byte)] += 1;
        }
    }
    for &byte in rest {
        tables[0][usize::from(byte)] += 1;
    }
    std::array::from_fn(|byte| tables.iter().map(|table| table[byte]).sum())
}

/// Upper limits of the arguments of micro-operations that read lists.
struct ArgumentLimits<'a> {
    /// Where the list of each key starts.
    lists: &'a [u32],
    references: usize,
}

impl ArgumentLimits<'_> {
    /// Do all arguments of these three columns respect the limits?
    fn are_kept(&self, tags: &Column<'_>, keys: &Column<'_>, arguments: &Column<'_>) -> bool {
        if arguments.base() < 0 {
            return self.one_by_one(tags, keys, arguments);
        }
        match (keys.width(), arguments.width()) {
            (1, 1) => self.in_bytes::<1>(tags, keys, arguments),
            (1, 2) => self.in_bytes::<2>(tags, keys, arguments),
            _ => self.one_by_one(tags, keys, arguments),
        }
    }

    /// The exclusive limit of the argument for this tag and key; `None`: any argument.
    fn limit(&self, tag: u8, key: usize) -> Option<u64> {
        match tag {
            mop::READ_PREFIX => {
                let (&start, &end) = self.lists.get(key).zip(self.lists.get(key + 1))?;
                Some(u64::from(end - start) + 1)
            }
            mop::READ_BRANCH => Some(self.references as u64),
            _ => None,
        }
    }

    /// For up to 256 keys and narrow arguments: one table look-up per micro-operation, without a branch.
    fn in_bytes<const WIDTH: usize>(
        &self,
        tags: &Column<'_>,
        keys: &Column<'_>,
        arguments: &Column<'_>,
    ) -> bool {
        // Exclusive limits of stored arguments, by stored tag and stored key.
        let mut limits = [[u32::MAX; 256]; 8];
        for (tag, limits) in (tags.base() as u8..mop::COUNT as u8).zip(&mut limits) {
            for (key, slot) in (keys.base() as usize..).zip(limits) {
                if let Some(limit) = self.limit(tag, key) {
                    let stored = i128::from(limit) - i128::from(arguments.base());
                    *slot = stored.clamp(0, i128::from(u32::MAX)) as u32;
                }
            }
        }
        let rows = tags.stored().iter().zip(keys.stored());
        let rows = rows.zip(arguments.stored().as_chunks::<WIDTH>().0);
        let mut broken = false;
        for ((&tag, &key), argument) in rows {
            let mut wide = [0; 4];
            wide[..WIDTH].copy_from_slice(argument);
            let limit = limits[usize::from(tag & 7)][usize::from(key)];
            broken |= u32::from_le_bytes(wide) >= limit;
        }
        !broken
    }

    fn one_by_one(&self, tags: &Column<'_>, keys: &Column<'_>, arguments: &Column<'_>) -> bool {
        let lists = self.lists.windows(2);
        let lengths: Vec<u64> = lists.map(|ends| u64::from(ends[1] - ends[0])).collect();
        let (first_tag, mut place, mut sound) = (tags.base() as u8, 0, true);
        let stored = tags.stored();
        arguments.for_each(|argument| {
            let argument = argument.cast_unsigned();
            match stored[place] + first_tag {
                mop::READ_PREFIX => sound &= argument <= lengths[keys.value(place) as usize],
                mop::READ_BRANCH => sound &= argument < self.references as u64,
                _ => {}
            }
            place += 1;
        });
        sound
    }
}

/// Validates consecutive tapes.
struct Tapes<'a> {
    tags: &'a [u8],
    integers: &'a [i64],
    names: &'a ChunkDictionary,
    tag: usize,
    integer: usize,
}

impl<'a> Tapes<'a> {
    fn new(tags: &'a [u8], integers: &'a [i64], names: &'a ChunkDictionary) -> Tapes<'a> {
        Tapes {
            tags,
            integers,
            names,
            tag: 0,
            integer: 0,
        }
    }

    /// Where the next tape begins.
    fn starts(&self) -> (u32, u32) {
        (self.tag as u32, self.integer as u32)
    }

    fn step(&mut self, tags: i64, integers: i64) -> Result<(), &'static str> {
        fn end(start: usize, length: i64) -> Option<usize> {
            start.checked_add(usize::try_from(length).ok()?)
        }
        let tag_end = end(self.tag, tags).filter(|&end| end <= self.tags.len());
        let integer_end = end(self.integer, integers).filter(|&end| end <= self.integers.len());
        let (Some(tag_end), Some(integer_end)) = (tag_end, integer_end) else {
            return Err("is shorter than its values");
        };
        let tags = &self.tags[self.tag..tag_end];
        let integers = &self.integers[self.integer..integer_end];
        tape::check(tags, integers, self.names)?;
        (self.tag, self.integer) = (tag_end, integer_end);
        Ok(())
    }

    fn end(&self) -> Result<(), &'static str> {
        let all = self.tag == self.tags.len() && self.integer == self.integers.len();
        all.then_some(()).ok_or("is longer than its values")
    }
}
