//! From the bytes of a chunk to columns that need no further checks.

use super::column::{ChunkError, Columns};
use super::dictionary::Names;
use super::layout::{HEADER_LENGTH, OPERATIONS_MAX, TYPES, VERSION, column, kind, mop, shape};
use super::tape;
use super::{Chunk, ChunkHeader, TapeStart, Template};
use crate::{OpType, Process};

impl ChunkHeader {
    /// Reads the header in front of a chunk's columns, and how many columns there are.
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

/// What only reading needs: kept with the chunk's vectors in mind, short-lived.
#[derive(Default)]
struct Scratch {
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

    /// Reads a chunk into this value, whose memory is used again. When it fails, nothing is in it.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let result = self.read_columns(bytes);
        if result.is_err() {
            *self = Chunk::default();
        }
        result
    }

    fn read_columns(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let (header, count) = ChunkHeader::read(bytes)?;
        self.header = header;
        let columns = Columns::read(bytes, HEADER_LENGTH, count)?;
        let mut scratch = Scratch::default();
        self.names.read(&columns)?;
        self.read_processes(&columns, &mut scratch)?;
        self.read_templates(&columns, &mut scratch)?;
        self.read_kinds(&columns)?;
        self.read_places(&columns, &mut scratch)?;
        self.read_lists(&columns, &mut scratch)?;
        self.read_operands(&columns)?;
        self.read_mops(&columns)?;
        self.read_tapes(&columns)?;
        self.read_extras(&columns, &mut scratch)
    }

    fn read_processes(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        let numbers = columns.get(column::PROCESS_NUMBER);
        let kinds = columns.get(column::PROCESS_KIND);
        numbers.expect(kinds.len())?;
        kinds.ids(2, &mut scratch.ids)?;
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
        ids.ids(self.processes.len(), &mut self.process_ids)
    }

    fn read_templates(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
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
        self.templates.extend(ids.iter().map(|&kind| Template {
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
        let templates = columns.get(column::TEMPLATE);
        templates.expect(self.header.operations as usize)?;
        templates.ids(self.templates.len(), &mut self.template_ids)
    }

    fn read_kinds(&mut self, columns: &Columns<'_>) -> Result<(), ChunkError> {
        self.kinds.clear();
        let templates = &self.templates;
        let kinds = self.template_ids.iter();
        self.kinds
            .extend(kinds.map(|&id| templates[id as usize].kind));
        let mut counts = [0_u32; TYPES.len()];
        for template in &mut counts.iter_mut().zip(TYPES) {
            let of_type = self.kinds.iter().filter(|&&kind| kind == template.1);
            *template.0 = of_type.count() as u32;
        }
        let header = &self.header;
        let told = [header.ok, header.fail, header.info];
        if counts[OpType::Ok as usize..] != told {
            let problem = "the header's counts are not those of the operations";
            return Err(columns.get(column::TEMPLATE).error(problem));
        }
        Ok(())
    }

    /// Reads index, time, pair and key.
    fn read_places(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        let count = self.header.operations as usize;
        let steps = columns.get(column::INDEX_STEP);
        steps.expect(count - 1)?;
        self.indices.clear();
        if count > 1 && steps.constant() != Some(1) {
            steps.integers(&mut scratch.integers);
            let mut index = self.header.first_index;
            self.indices.push(index);
            for step in &scratch.integers {
                let next = index.wrapping_add(step.cast_unsigned());
                if next <= index {
                    return Err(steps.error("does not rise"));
                }
                self.indices.push(next);
                index = next;
            }
        }
        let last = self.header.first_index.checked_add(count as u64 - 1);
        let last_position = self.header.first_position.checked_add(count as u64);
        if last.is_none() || last_position.is_none() {
            return Err(ChunkError::new(
                8,
                "positions or indices pass the highest number",
            ));
        }
        let steps = columns.get(column::TIME_STEP);
        steps.expect(count - 1)?;
        self.read_times(columns, scratch)?;
        let pairs = columns.get(column::PAIR);
        pairs.expect(count)?;
        pairs.integers(&mut self.pairs);
        let first = i64::try_from(self.header.first_position).unwrap_or(i64::MAX);
        let mut positions = self.pairs.iter().zip(first..=i64::MAX);
        if !positions.all(|(distance, position)| (0..=position).contains(distance)) {
            return Err(pairs.error("points before the history"));
        }
        let keys = columns.get(column::KEY);
        keys.expect(count)?;
        keys.ids(self.names.keys.len() + 1, &mut self.keys)?;
        if keys.constant() == Some(0) {
            self.keys.clear();
        }
        let none = self.names.none_key.map(|id| id + 1);
        if none.is_some_and(|none| self.keys.contains(&none)) {
            return Err(keys.error("points at no key"));
        }
        Ok(())
    }

    fn read_times(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        let steps = columns.get(column::TIME_STEP);
        steps.integers(&mut scratch.integers);
        self.times.clear();
        let mut time = self.header.first_time;
        self.times.push(time);
        self.times.extend(scratch.integers.iter().map(|step| {
            time = time.wrapping_add(*step);
            time
        }));
        let times = self.times.iter();
        let bounds = times.fold((time, time), |(low, high), &time| {
            (low.min(time), high.max(time))
        });
        if bounds != (self.header.time_min, self.header.time_max) {
            return Err(steps.error("does not lead to the times in the header"));
        }
        Ok(())
    }

    fn read_lists(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        let lengths = columns.get(column::LIST_LENGTH);
        let pool = columns.get(column::POOL);
        let keys = self.names.keys.len();
        if lengths.len() < keys {
            return Err(lengths.error("has fewer lists than there are keys"));
        }
        lengths.starts(pool.len(), &mut self.list_starts)?;
        pool.expect(self.list_starts[self.list_starts.len() - 1] as usize)?;
        pool.integers(&mut self.pool);

        let branches = columns.get(column::REFERENCE_LIST);
        let of_branch = columns.get(column::REFERENCE_LENGTH);
        of_branch.expect(branches.len())?;
        branches.ids(lengths.len() - keys, &mut scratch.ids)?;
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

    fn read_operands(&mut self, columns: &Columns<'_>) -> Result<(), ChunkError> {
        let operands = columns.get(column::OPERAND);
        self.operand_starts.clear();
        self.operand_starts.push(0);
        let mut end = 0;
        let templates = &self.templates;
        self.operand_starts
            .extend(self.template_ids.iter().map(|&id| {
                end += u32::from(shape::OPERANDS[usize::from(templates[id as usize].shape)]);
                end
            }));
        operands.expect(end as usize)?;
        operands.integers(&mut self.operands);

        self.mop_starts.clear();
        self.tape_starts.clear();
        let mops = columns.len(column::MOP_TAG) as u64;
        let wrong = || operands.error("holds a number that does not fit its shape");
        if mops > 0 {
            self.mop_starts.push(0);
        }
        let mut mop_end = 0_u64;
        for place in 0..self.template_ids.len() {
            let shape = self.templates[self.template_ids[place] as usize].shape;
            if shape == shape::TXN {
                let count = self.operands[self.operand_starts[place] as usize];
                mop_end += u64::try_from(count)
                    .ok()
                    .filter(|&count| count <= mops - mop_end)
                    .ok_or_else(wrong)?;
            } else if shape >= shape::WORD && !self.is_operand_sound(place, shape) {
                return Err(wrong());
            }
            if mops > 0 {
                self.mop_starts.push(mop_end as u32);
            }
        }
        columns.get(column::MOP_TAG).expect(mop_end as usize)
    }

    /// Does the operand of an operation of this shape point at something? Notes where its tape starts.
    fn is_operand_sound(&mut self, place: usize, shape: u8) -> bool {
        let at = self.operand_starts[place] as usize;
        let (operand, below) = (self.operands[at], |limit: usize| 0..limit as i64);
        match shape {
            shape::WORD => below(self.names.words.len()).contains(&operand),
            shape::TEXT => below(self.names.text_count()).contains(&operand),
            shape::LIST_BRANCH | shape::SET_BRANCH => {
                below(self.references.len()).contains(&operand)
            }
            shape::LIST_PREFIX | shape::SET_PREFIX => {
                let key = self.key_id(place).or(self.names.none_key);
                key.is_some_and(|key| below(self.list(key).len() + 1).contains(&operand))
            }
            _ => {
                self.tape_starts.push(TapeStart {
                    place: place as u32,
                    tag: 0,
                    integer: 0,
                });
                true
            }
        }
    }

    fn read_mops(&mut self, columns: &Columns<'_>) -> Result<(), ChunkError> {
        let tags = columns.get(column::MOP_TAG);
        let keys = columns.get(column::MOP_KEY);
        let arguments = columns.get(column::MOP_ARGUMENT);
        keys.expect(tags.len())?;
        arguments.expect(tags.len())?;
        tags.bytes(mop::COUNT, &mut self.mop_tags)?;
        keys.ids(self.names.keys.len(), &mut self.mop_keys)?;
        arguments.integers(&mut self.mop_arguments);
        let none = self.names.none_key;
        if none.is_some_and(|none| self.mop_keys.contains(&none)) {
            return Err(keys.error("points at no key"));
        }
        let references = self.references.len() as u64;
        let mut sound = true;
        let mops = self.mop_tags.iter().zip(&self.mop_keys);
        for ((&tag, &key), &argument) in mops.zip(&self.mop_arguments) {
            let argument = argument.cast_unsigned();
            let key = key as usize;
            let length = self.list_starts[key + 1] - self.list_starts[key];
            sound &= tag != mop::READ_PREFIX || argument <= u64::from(length);
            sound &= tag != mop::READ_BRANCH || argument < references;
        }
        if !sound {
            return Err(arguments.error("reads more than there is"));
        }
        Ok(())
    }

    fn read_tapes(&mut self, columns: &Columns<'_>) -> Result<(), ChunkError> {
        let tags = columns.get(column::TAPE_TAG);
        let integers = columns.get(column::TAPE_INTEGER);
        tags.bytes(256, &mut self.tape_tags)?;
        integers.integers(&mut self.tape_integers);
        let mut tapes = Tapes::new(&self.tape_tags, &self.tape_integers, &self.names);
        for start in &mut self.tape_starts {
            (start.tag, start.integer) = tapes.starts();
            let at = self.operand_starts[start.place as usize] as usize;
            let lengths = (self.operands[at], self.operands[at + 1]);
            tapes
                .step(lengths.0, lengths.1)
                .map_err(|problem| tags.error(problem))?;
        }
        tapes.end().map_err(|problem| tags.error(problem))
    }

    fn read_extras(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        self.read_entries(columns, scratch)?;
        self.extra_starts.clear();
        self.extras.clear();
        let count = columns.field_values.len();
        if count != self.field_names.len() {
            let problem = format!("{count} columns of values, not one per field");
            return Err(columns.get(column::FIELD_NAME).error(&problem));
        }
        if self.field_names.is_empty() {
            return Ok(());
        }
        // How many operations have each field: by template, as a long list of fields times many operations is long.
        let mut of_template = vec![0_u64; self.templates.len()];
        for &id in &self.template_ids {
            of_template[id as usize] += 1;
        }
        let mut expected = vec![0_u64; count];
        for (template, operations) in self.templates.iter().zip(of_template) {
            let (start, end) = template.fields;
            for &field in &self.template_fields[start as usize..end as usize] {
                expected[field as usize] += operations;
            }
        }
        let entries = self.entry_starts.len() - 1;
        let mut values = Vec::with_capacity(count);
        for (column, expected) in columns.field_values.iter().zip(expected) {
            column.expect(usize::try_from(expected).unwrap_or(usize::MAX))?;
            let mut ids = Vec::new();
            column.ids(entries, &mut ids)?;
            values.push(ids.into_iter());
        }
        self.extra_starts.push(0);
        for &id in &self.template_ids {
            let (start, end) = self.templates[id as usize].fields;
            for &field in &self.template_fields[start as usize..end as usize] {
                let entry = values[field as usize].next().unwrap_or(0);
                self.extras.push((field, entry));
            }
            self.extra_starts.push(self.extras.len() as u32);
        }
        Ok(())
    }

    /// Reads the distinct values of extra fields.
    fn read_entries(
        &mut self,
        columns: &Columns<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ChunkError> {
        let tags = columns.get(column::ENTRY_TAPE_TAG);
        let tag_counts = columns.get(column::ENTRY_TAGS);
        let integer_counts = columns.get(column::ENTRY_INTEGERS);
        let integers = columns.get(column::ENTRY_TAPE_INTEGER);
        integer_counts.expect(tag_counts.len())?;
        tags.bytes(256, &mut self.entry_tags)?;
        integers.integers(&mut self.entry_integers);
        tag_counts.ids(tags.len() + 1, &mut scratch.ids)?;
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

/// Steps over tapes that follow one another, checking each.
struct Tapes<'a> {
    tags: &'a [u8],
    integers: &'a [i64],
    names: &'a Names,
    tag: usize,
    integer: usize,
}

impl<'a> Tapes<'a> {
    fn new(tags: &'a [u8], integers: &'a [i64], names: &'a Names) -> Tapes<'a> {
        Tapes {
            tags,
            integers,
            names,
            tag: 0,
            integer: 0,
        }
    }

    /// Where the next begins.
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
