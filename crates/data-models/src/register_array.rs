//! Registers that operations access several at a time: block devices, and registers with transactions.

use seatrial_history::{FixedMap, Key, Mop, Observed, Op, Value};
use seatrial_linear::{
    HistoryModel, ModelCall, MonitorDecision, Refutation, SequentialModel, Unfit, ValueNumbers,
    list_items, plain_value,
};
use seatrial_monitors::{NEVER, RegisterZones, ZoneAction, ZoneCall, ZoneVerdict};
use std::collections::BTreeMap;

/// An array of registers; each operation reads and writes some of them, at one instant.
///
/// Registers that operations connect are one object, and each other register is one of its own. Each register alone is decided in
/// O(n log n) if its values are written once ([`RegisterZones`]); where all operations access one register that suffices, else
/// it can only refute, and what remains is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterArray {
    /// Transactions: `txn` of `[:w key value]` and `[:r key value]`, in order; or `write` of {key value}, and
    /// `read` → {key value}. Registers are nil at first.
    Transactions,
    /// A block device: `write` of `[first [values]]` or `[block value]`; `read` of `[first count]` or of a block → as written;
    /// `trim` of `[first count]`. Blocks are 0 at first, and after `trim`.
    Blocks,
}

/// An access of one register. Registers and values are numbered; the initial value is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArrayAccess {
    /// The register has this value.
    Read(u32, u32),
    /// It has this value from now on.
    Write(u32, u32),
}

/// What an operation does, access by access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOperation {
    /// One access.
    One(ArrayAccess),
    /// Several.
    Several(Box<[ArrayAccess]>),
}

impl ArrayAccess {
    const fn register(self) -> u32 {
        match self {
            ArrayAccess::Read(register, _) | ArrayAccess::Write(register, _) => register,
        }
    }

    const fn is_write(self) -> bool {
        matches!(self, ArrayAccess::Write(..))
    }
}

impl RegisterOperation {
    fn new(accesses: Vec<ArrayAccess>) -> Option<RegisterOperation> {
        match accesses[..] {
            [] => None,
            [one] => Some(RegisterOperation::One(one)),
            _ => Some(RegisterOperation::Several(accesses.into())),
        }
    }

    fn accesses(&self) -> &[ArrayAccess] {
        match self {
            RegisterOperation::One(one) => std::slice::from_ref(one),
            RegisterOperation::Several(several) => several,
        }
    }
}

impl SequentialModel for RegisterArray {
    /// The registers that do not have their initial value, ascending.
    type State = Vec<(u32, u32)>;
    type Operation = RegisterOperation;

    fn initial(&self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    fn step(
        &self,
        state: &Vec<(u32, u32)>,
        operation: &RegisterOperation,
    ) -> Option<Vec<(u32, u32)>> {
        let mut next = state.clone();
        for access in operation.accesses() {
            let place = next.binary_search_by_key(&access.register(), |&(register, _)| register);
            match (*access, place) {
                (ArrayAccess::Read(_, value), Ok(place)) if next[place].1 != value => {
                    return None;
                }
                (ArrayAccess::Read(_, value), Err(_)) if value != 0 => return None,
                (ArrayAccess::Read(..), _) | (ArrayAccess::Write(_, 0), Err(_)) => {}
                (ArrayAccess::Write(_, 0), Ok(place)) => _ = next.remove(place),
                (ArrayAccess::Write(_, value), Ok(place)) => next[place].1 = value,
                (ArrayAccess::Write(register, value), Err(place)) => {
                    next.insert(place, (register, value));
                }
            }
        }
        Some(next)
    }

    fn is_read(&self, operation: &RegisterOperation) -> bool {
        operation.accesses().iter().all(|access| !access.is_write())
    }

    fn heap_bytes(&self, state: &Vec<(u32, u32)>) -> usize {
        state.capacity() * size_of::<(u32, u32)>()
    }
}

/// Blocks of one operation; of more, the history is hardly one of a block device.
const BLOCKS_MAX: i64 = 1 << 20;

/// An operation as it was recorded.
struct RecordedOperation<'a> {
    invocation: &'a Op,
    /// The value of the success.
    result: Option<&'a Value>,
}

impl RecordedOperation<'_> {
    fn argument(&self) -> &Value {
        match (plain_value(&self.invocation.value), self.result) {
            (Value::Nil, Some(result)) => result,
            (argument, _) => argument,
        }
    }

    fn unfit(&self, expected: &str) -> Unfit {
        let (f, argument) = (self.invocation.f, self.argument());
        Unfit::new(
            self.invocation,
            format_args!("`{f}` needs {expected}, not {argument}"),
        )
    }

    /// `[first count]`, or the number of one block.
    fn range(&self) -> Result<(i64, i64), Unfit> {
        let argument = plain_value(&self.invocation.value);
        let items = list_items(argument);
        let range = match (argument, items.as_deref()) {
            (Value::Int(block), _) => (*block, 1),
            (_, Some([Value::Int(first), Value::Int(count)])) => (*first, *count),
            _ => return Err(self.unfit("[first count]")),
        };
        if (0..=BLOCKS_MAX).contains(&range.1) {
            Ok(range)
        } else {
            Err(self.unfit("a range of fewer blocks"))
        }
    }

    /// The blocks of `[first [values]]` or `[block value]`.
    fn blocks(&self, value: &Value) -> Result<(i64, Vec<Value>), Unfit> {
        let items = list_items(value).unwrap_or_default();
        let [Value::Int(first), values] = &items[..] else {
            return Err(self.unfit("[first [values]]"));
        };
        let values = list_items(values).unwrap_or_else(|| vec![values.clone()]);
        Ok((*first, values))
    }

    /// The accesses of an operation on blocks.
    fn block_accesses(&self, values: &mut ValueNumbers) -> Result<Vec<ArrayAccess>, Unfit> {
        // The number of a block that was never written is that of nil.
        let number = |value: &Value, values: &mut ValueNumbers| match value {
            Value::Int(0) => ValueNumbers::NIL,
            value => values.number(value),
        };
        let f = self.invocation.f.as_str();
        let (first, contents, is_write) = match (f, self.result) {
            ("write", _) => {
                let (first, contents) = self.blocks(self.argument())?;
                (first, contents, true)
            }
            ("trim", _) => {
                let (first, count) = self.range()?;
                (first, vec![Value::Nil; count as usize], true)
            }
            ("read", None) => return Ok(Vec::new()),
            ("read", Some(result)) => {
                let (first, contents) = self.blocks(result)?;
                (first, contents, false)
            }
            _ => return Err(Unfit::function(self.invocation, "block device")),
        };
        let numbered = (0..).zip(&contents).map(|(place, value)| {
            let block = values.integer(first.wrapping_add(place));
            let value = number(value, values);
            if is_write {
                ArrayAccess::Write(block, value)
            } else {
                ArrayAccess::Read(block, value)
            }
        });
        Ok(numbered.collect())
    }

    /// The accesses of a transaction; of one of unknown outcome, its writes.
    fn transaction_accesses(&self, values: &mut ValueNumbers) -> Result<Vec<ArrayAccess>, Unfit> {
        let recorded = self.result.unwrap_or(plain_value(&self.invocation.value));
        let f = self.invocation.f.as_str();
        let mut accesses = Vec::new();
        match (f, recorded) {
            ("txn", Value::Txn(mops)) => {
                for mop in mops.iter() {
                    let register = values.number(&key_value(mop.key()));
                    accesses.push(match mop {
                        Mop::Write { value, .. } => {
                            ArrayAccess::Write(register, values.integer(*value))
                        }
                        Mop::Read { observed, .. } => {
                            let value = match observed {
                                Observed::Register(value) => values.integer(*value),
                                Observed::Nil => ValueNumbers::NIL,
                                Observed::List(_) => return Err(self.unfit("reads of registers")),
                            };
                            ArrayAccess::Read(register, value)
                        }
                        Mop::Append { .. } => return Err(self.unfit("writes and reads")),
                    });
                }
            }
            ("read", _) if self.result.is_none() => {}
            ("read", Value::Map(pairs)) => {
                accesses.extend(pairs.iter().map(|(key, value)| {
                    ArrayAccess::Read(values.number(key), values.number(value))
                }));
            }
            ("write", _) => match self.argument() {
                Value::Map(pairs) => accesses.extend(pairs.iter().map(|(key, value)| {
                    ArrayAccess::Write(values.number(key), values.number(value))
                })),
                _ => return Err(self.unfit("a map of registers to values")),
            },
            ("read", _) => return Err(self.unfit("a map of registers to values")),
            ("txn", _) => return Err(self.unfit("micro-operations")),
            _ => return Err(Unfit::function(self.invocation, "multi-register")),
        }
        if self.result.is_none() {
            accesses.retain(|access| access.is_write());
        }
        Ok(accesses)
    }
}

fn key_value(key: &Key) -> Value {
    match key {
        Key::Int(number) => Value::Int(*number),
        Key::Word(word) => Value::Word(*word),
        Key::Text(text) => Value::Text(text.clone()),
    }
}

impl HistoryModel for RegisterArray {
    fn name(&self) -> &'static str {
        match self {
            RegisterArray::Transactions => "multi-register",
            RegisterArray::Blocks => "block-device",
        }
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        values: &mut ValueNumbers,
    ) -> Result<Option<RegisterOperation>, Unfit> {
        let completed = completion.filter(|op| op.is_ok());
        let recorded = RecordedOperation {
            invocation,
            result: completed.map(|op| plain_value(&op.value)),
        };
        let accesses = match self {
            RegisterArray::Transactions => recorded.transaction_accesses(values)?,
            RegisterArray::Blocks => recorded.block_accesses(values)?,
        };
        Ok(RegisterOperation::new(accesses))
    }

    fn certificate_type(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    /// By zones, if it is one register.
    fn linearize(&self, calls: &[ModelCall<RegisterOperation>]) -> Option<Vec<u32>> {
        let projections = RegisterProjections::new(calls);
        let mut registers = projections.registers.values();
        let (Some(operations), None) = (registers.next(), registers.next()) else {
            return None;
        };
        let is_whole = !projections.is_spanning && operations.len() == calls.len();
        let order = is_whole.then(|| decide_register(operations).1).flatten()?;
        let numbers = order.iter().map(|&one| operations[one as usize].1);
        Some(numbers.collect())
    }

    fn accesses(&self, operation: &RegisterOperation, parts: &mut Vec<u64>) {
        let accesses = operation.accesses().iter();
        parts.extend(accesses.map(|access| u64::from(access.register())));
    }

    /// A write of unknown outcome is needed only if one of its values is read.
    fn drop_unobserved(&self, calls: &mut Vec<ModelCall<RegisterOperation>>) {
        if calls.iter().all(ModelCall::is_certain) {
            return;
        }
        let mut seen: FixedMap<(u32, u32), bool> = FixedMap::default();
        let written = |call: &ModelCall<RegisterOperation>| -> Vec<(u32, u32)> {
            let accesses = call.operation.accesses().iter();
            let writes = accesses.filter_map(|access| match *access {
                ArrayAccess::Write(register, value) => Some((register, value)),
                ArrayAccess::Read(..) => None,
            });
            writes.collect()
        };
        for call in calls.iter().filter(|call| !call.is_certain()) {
            seen.extend(written(call).into_iter().map(|write| (write, false)));
        }
        for call in calls.iter().filter(|call| call.is_certain()) {
            for access in call.operation.accesses() {
                if let ArrayAccess::Read(register, value) = *access
                    && let Some(seen) = seen.get_mut(&(register, value))
                {
                    *seen = true;
                }
            }
        }
        calls.retain(|call| call.is_certain() || written(call).iter().any(|write| seen[write]));
    }

    fn monitor(
        &self,
        calls: &[ModelCall<RegisterOperation>],
        _: &ValueNumbers,
    ) -> MonitorDecision<RegisterOperation> {
        RegisterProjections::new(calls).decide()
    }

    fn monitor_name(&self) -> &'static str {
        "zones of unique values, register by register"
    }

    fn argument(&self, operation: &RegisterOperation, values: &ValueNumbers) -> String {
        let accesses = operation.accesses().iter();
        let accesses = accesses.map(|access| {
            let (verb, value) = match access {
                ArrayAccess::Read(_, value) => ("r", value),
                ArrayAccess::Write(_, value) => ("w", value),
            };
            let register = values.value(access.register());
            format!("[{verb} {register} {}]", self.shown(*value, values))
        });
        let accesses: Vec<String> = accesses.take(SHOWN_MAX).collect();
        format!(" {}", accesses.join(" "))
    }

    fn describe_state(&self, state: &Vec<(u32, u32)>, values: &ValueNumbers) -> String {
        let listed = state.iter().take(SHOWN_MAX).map(|&(register, value)| {
            let register = values.value(register);
            format!("{register} {}", self.shown(value, values))
        });
        let mut listed: Vec<String> = listed.collect();
        if state.len() > SHOWN_MAX {
            listed.push(format!("and {} more", state.len() - SHOWN_MAX));
        }
        format!("it is {{{}}}", listed.join(", "))
    }
}

/// Registers that a text lists.
const SHOWN_MAX: usize = 32;

impl RegisterArray {
    fn shown(self, value: u32, values: &ValueNumbers) -> Value {
        match (self, value) {
            (RegisterArray::Blocks, ValueNumbers::NIL) => Value::Int(0),
            _ => values.value(value),
        }
    }
}

/// What an operation does to one register.
#[derive(Clone, Copy, Debug)]
struct ProjectedCall {
    action: ZoneAction,
    call: u32,
    ret: u32,
}

impl ZoneCall for ProjectedCall {
    fn action(&self) -> ZoneAction {
        self.action
    }

    fn call(&self) -> u32 {
        self.call
    }

    fn ret(&self) -> u32 {
        self.ret
    }
}

/// The operations of an object, as each register alone has them.
struct RegisterProjections<'a> {
    calls: &'a [ModelCall<RegisterOperation>],
    /// By register: its operations, and their numbers. Values are numbered for each register.
    registers: BTreeMap<u32, Vec<(ProjectedCall, u32)>>,
    /// Does an operation access more than one register?
    is_spanning: bool,
}

impl<'a> RegisterProjections<'a> {
    fn new(calls: &'a [ModelCall<RegisterOperation>]) -> RegisterProjections<'a> {
        let mut projections = RegisterProjections {
            calls,
            registers: BTreeMap::new(),
            is_spanning: false,
        };
        for (number, call) in (0..).zip(calls) {
            let accesses = call.operation.accesses();
            let mut registers: Vec<u32> = accesses.iter().map(|one| one.register()).collect();
            registers.sort_unstable();
            registers.dedup();
            projections.is_spanning |= registers.len() > 1;
            for register in registers {
                if let Some(action) = project(accesses, register) {
                    let operation = ProjectedCall {
                        action,
                        call: call.call,
                        ret: call.ret,
                    };
                    let of_register = projections.registers.entry(register).or_default();
                    of_register.push((operation, number));
                } else {
                    // It contradicts itself; the search says so.
                    projections.is_spanning = true;
                }
            }
        }
        projections
    }

    fn decide(self) -> MonitorDecision<RegisterOperation> {
        let mut reason = self
            .is_spanning
            .then(|| "an operation accesses more than one register".to_owned());
        for (&register, operations) in &self.registers {
            match decide_register(operations).0 {
                ZoneVerdict::Linearizable => {}
                ZoneVerdict::Refuted(core) => return self.refuted(register, operations, &core),
                ZoneVerdict::NotApplicable(_) => {
                    let why = "more than one operation writes the same value to a register";
                    reason.get_or_insert_with(|| why.to_owned());
                }
            }
        }
        reason.map_or(MonitorDecision::Linearizable, MonitorDecision::Search)
    }

    /// The operations of the core, with their accesses of this register only.
    fn refuted(
        &self,
        register: u32,
        operations: &[(ProjectedCall, u32)],
        core: &[u32],
    ) -> MonitorDecision<RegisterOperation> {
        let mut numbers: Vec<u32> = core.iter().map(|&one| operations[one as usize].1).collect();
        numbers.sort_unstable();
        let weaker = numbers.iter().filter_map(|&number| {
            let call = &self.calls[number as usize];
            let mut accesses = call.operation.accesses().to_vec();
            accesses.retain(|access| access.register() == register);
            Some(ModelCall {
                operation: RegisterOperation::new(accesses)?,
                call: call.call,
                ret: call.ret,
            })
        });
        MonitorDecision::Refuted(Refutation {
            calls: weaker.collect(),
            reason: None,
        })
    }
}

/// What an operation does to one register; `None` if it contradicts itself.
fn project(accesses: &[ArrayAccess], register: u32) -> Option<ZoneAction> {
    let (mut read, mut written) = (None, None);
    for access in accesses
        .iter()
        .filter(|access| access.register() == register)
    {
        match *access {
            ArrayAccess::Write(_, value) => written = Some(value),
            ArrayAccess::Read(_, value) => match (written, read) {
                (None, None) => read = Some(value),
                (Some(known), _) | (None, Some(known)) if known == value => {}
                _ => return None,
            },
        }
    }
    match (read, written) {
        (Some(read), Some(written)) if read != written => Some(ZoneAction::Cas(read, written)),
        (Some(read), _) => Some(ZoneAction::Read(read)),
        (None, Some(written)) => Some(ZoneAction::Write(written)),
        (None, None) => None,
    }
}

/// Decides one register, without the writes of unknown outcome that nothing reads. Of a linearizable one also returns the numbers
/// of its operations in the order of a linearization.
fn decide_register(operations: &[(ProjectedCall, u32)]) -> (ZoneVerdict, Option<Vec<u32>>) {
    // Values are numbered anew, as zones have a table of all numbers; the initial value is 0.
    let mut numbers: FixedMap<u32, u32> = FixedMap::default();
    numbers.insert(0, 0);
    let mut number = |value: u32| {
        let fresh = numbers.len() as u32;
        *numbers.entry(value).or_insert(fresh)
    };
    let mut needed: Vec<u32> = Vec::new();
    let mut entries: Vec<ProjectedCall> = Vec::with_capacity(operations.len());
    for (operation, _) in operations {
        let action = match operation.action {
            ZoneAction::Read(value) => ZoneAction::Read(number(value)),
            ZoneAction::Cas(from, to) => ZoneAction::Cas(number(from), number(to)),
            ZoneAction::Write(value) => ZoneAction::Write(number(value)),
            ZoneAction::Other => return (ZoneVerdict::NotApplicable(None), None),
        };
        if let ZoneAction::Read(value) | ZoneAction::Cas(value, _) = action {
            needed.push(value);
        }
        entries.push(ProjectedCall {
            action,
            ..*operation
        });
    }
    needed.sort_unstable();
    let mut kept = Vec::new();
    let mut own = 0;
    entries.retain(|entry| {
        let is_needed = |value| needed.binary_search(&value).is_ok();
        let is_kept = entry.ret != NEVER
            || matches!(entry.action, ZoneAction::Write(value) if is_needed(value));
        if is_kept {
            kept.push(own);
        }
        own += 1;
        is_kept
    });
    let (verdict, order) = RegisterZones::new(numbers.len()).check_with_order(&entries);
    let original = |entries: Vec<u32>| -> Vec<u32> {
        let entries = entries.into_iter();
        entries.map(|entry| kept[entry as usize]).collect()
    };
    match verdict {
        ZoneVerdict::Refuted(core) => (ZoneVerdict::Refuted(original(core)), None),
        verdict => (verdict, order.map(original)),
    }
}
