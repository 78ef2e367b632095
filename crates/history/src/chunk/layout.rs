//! Constants of the chunk format: header, column ids, shapes, tags (`docs/formats/test-file.md`).

use crate::OpType;

/// The version that is written.
pub(crate) const VERSION: u16 = 1;
/// Bytes of a chunk's header.
pub(crate) const HEADER_LENGTH: usize = 64;
/// Bytes of a column's descriptor.
pub(crate) const DESCRIPTOR_LENGTH: usize = 16;
/// Most operations of a chunk.
pub const OPERATIONS_MAX: usize = 65_536;
/// Most bytes of a name.
pub(crate) const NAME_LENGTH_MAX: usize = 256;
/// Deepest nesting of a value.
pub(crate) const DEPTH_MAX: u32 = 128;
/// Lists of integers of at least this length are shared; shorter ones only if they are a prefix of a shared list.
pub(crate) const SHARED_LENGTH_MIN: usize = 8;

/// Types by number.
pub(crate) const TYPES: [OpType; 4] = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];

/// Column ids.
pub(crate) mod column {
    pub(crate) const TEMPLATE: u8 = 1;
    pub(crate) const PROCESS: u8 = 2;
    pub(crate) const INDEX_STEP: u8 = 3;
    pub(crate) const TIME_STEP: u8 = 4;
    pub(crate) const PAIR: u8 = 5;
    pub(crate) const KEY: u8 = 6;
    pub(crate) const OPERAND: u8 = 7;
    pub(crate) const MOP_TAG: u8 = 8;
    pub(crate) const MOP_KEY: u8 = 9;
    pub(crate) const MOP_ARGUMENT: u8 = 10;
    pub(crate) const LIST_LENGTH: u8 = 11;
    pub(crate) const POOL: u8 = 12;
    pub(crate) const REFERENCE_LIST: u8 = 13;
    pub(crate) const REFERENCE_LENGTH: u8 = 14;
    pub(crate) const TAPE_TAG: u8 = 15;
    pub(crate) const TAPE_INTEGER: u8 = 16;
    pub(crate) const TEMPLATE_TYPE: u8 = 17;
    pub(crate) const TEMPLATE_SHAPE: u8 = 18;
    pub(crate) const TEMPLATE_F: u8 = 19;
    pub(crate) const TEMPLATE_FIELD_COUNT: u8 = 20;
    pub(crate) const TEMPLATE_FIELD: u8 = 21;
    pub(crate) const FIELD_VALUE: u8 = 22;
    pub(crate) const FIELD_NAME: u8 = 23;
    pub(crate) const ENTRY_TAGS: u8 = 24;
    pub(crate) const ENTRY_INTEGERS: u8 = 25;
    pub(crate) const ENTRY_TAPE_TAG: u8 = 26;
    pub(crate) const ENTRY_TAPE_INTEGER: u8 = 27;
    pub(crate) const WORD_LENGTH: u8 = 28;
    pub(crate) const WORD_BYTES: u8 = 29;
    pub(crate) const TEXT_LENGTH: u8 = 30;
    pub(crate) const TEXT_BYTES: u8 = 31;
    pub(crate) const PROCESS_KIND: u8 = 32;
    pub(crate) const PROCESS_NUMBER: u8 = 33;
    pub(crate) const KEY_KIND: u8 = 34;
    pub(crate) const KEY_NUMBER: u8 = 35;
    /// The highest that is known.
    pub(crate) const LAST: u8 = KEY_NUMBER;
    /// Unknown columns with this or a higher id may be skipped.
    pub(crate) const SKIPPABLE: u8 = 128;

    /// The column's name in the byte map.
    pub(crate) fn name(id: u8) -> &'static str {
        const NAMES: [&str; LAST as usize + 1] = [
            "no column",
            "template",
            "process",
            "index step",
            "time step",
            "pair",
            "key",
            "operand",
            "micro-operation tag",
            "micro-operation key",
            "micro-operation argument",
            "list length",
            "pool",
            "reference list",
            "reference length",
            "tape tag",
            "tape integer",
            "template type",
            "template shape",
            "template f",
            "template field count",
            "template field",
            "field value",
            "field name",
            "entry tags",
            "entry integers",
            "entry tape tag",
            "entry tape integer",
            "word length",
            "word bytes",
            "text length",
            "text bytes",
            "process kind",
            "process number",
            "key kind",
            "key number",
        ];
        NAMES.get(usize::from(id)).copied().unwrap_or("unknown")
    }

    /// Must it have a byte per value even if all are equal? Its count then bounds what a reader allocates.
    pub(crate) const fn is_counted(id: u8) -> bool {
        matches!(
            id,
            TEMPLATE
                | MOP_TAG
                | LIST_LENGTH
                | POOL
                | REFERENCE_LIST
                | TAPE_TAG
                | TAPE_INTEGER
                | TEMPLATE_TYPE
                | TEMPLATE_FIELD
                | FIELD_VALUE
                | FIELD_NAME
                | ENTRY_TAGS
                | ENTRY_TAPE_TAG
                | ENTRY_TAPE_INTEGER
                | WORD_LENGTH
                | WORD_BYTES
                | TEXT_LENGTH
                | TEXT_BYTES
                | PROCESS_KIND
                | KEY_KIND
        )
    }
}

/// Shapes of values.
pub(crate) mod shape {
    pub(crate) const NIL: u8 = 0;
    pub(crate) const FALSE: u8 = 1;
    pub(crate) const TRUE: u8 = 2;
    pub(crate) const INT: u8 = 3;
    pub(crate) const CAS: u8 = 4;
    pub(crate) const TXN: u8 = 5;
    pub(crate) const WORD: u8 = 6;
    pub(crate) const TEXT: u8 = 7;
    pub(crate) const LIST_PREFIX: u8 = 8;
    pub(crate) const LIST_BRANCH: u8 = 9;
    pub(crate) const SET_PREFIX: u8 = 10;
    pub(crate) const SET_BRANCH: u8 = 11;
    pub(crate) const TAPE: u8 = 12;
    pub(crate) const TRANSFER: u8 = 13;
    /// Operands of each shape.
    pub(crate) const OPERANDS: [u8; 14] = [0, 0, 0, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 3];

    /// Are all operands valid?
    pub(crate) const fn is_free(shape: u8) -> bool {
        shape < TXN || shape == TRANSFER
    }
}

/// Tags of micro-operations, as [`Chunk::mop_tags`](super::Chunk::mop_tags) has them.
pub mod mop {
    /// An append; its argument is the element.
    pub const APPEND: u8 = 0;
    /// A write; its argument is the value.
    pub const WRITE: u8 = 1;
    /// A read of the initial state, or with unknown result; its argument is 0.
    pub const READ_NIL: u8 = 2;
    /// A read of a register; its argument is the value.
    pub const READ_REGISTER: u8 = 3;
    /// A read of a list; its argument is the number of elements of its key's [`Chunk::list`](crate::Chunk::list).
    pub const READ_PREFIX: u8 = 4;
    /// A read of a list; its argument is the id of a [`Chunk::reference`](crate::Chunk::reference).
    pub const READ_BRANCH: u8 = 5;
    /// Number of tags.
    pub(crate) const COUNT: usize = 6;
}

/// Tags of tapes.
pub(crate) mod tape {
    pub(crate) const NIL: u8 = 0;
    pub(crate) const FALSE: u8 = 1;
    pub(crate) const TRUE: u8 = 2;
    pub(crate) const INT: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const TEXT: u8 = 5;
    pub(crate) const WORD: u8 = 6;
    pub(crate) const LIST: u8 = 7;
    pub(crate) const SET: u8 = 8;
    pub(crate) const MAP: u8 = 9;
    pub(crate) const INTS: u8 = 10;
    pub(crate) const INT_SET: u8 = 11;
    pub(crate) const CAS: u8 = 12;
    pub(crate) const TXN: u8 = 13;
    pub(crate) const KEYED: u8 = 14;
    pub(crate) const APPEND: u8 = 15;
    pub(crate) const WRITE: u8 = 16;
    pub(crate) const READ_NIL: u8 = 17;
    pub(crate) const READ_REGISTER: u8 = 18;
    pub(crate) const READ_LIST: u8 = 19;
    pub(crate) const INT_MAP: u8 = 20;
    pub(crate) const INT_PAIRS: u8 = 21;
}

/// Kinds of processes and keys.
pub(crate) mod kind {
    pub(crate) const CLIENT: u8 = 0;
    pub(crate) const NAMED: u8 = 1;
    pub(crate) const KEY_INT: u8 = 0;
    pub(crate) const KEY_WORD: u8 = 1;
    pub(crate) const KEY_TEXT: u8 = 2;
    pub(crate) const KEY_NONE: u8 = 3;
}
