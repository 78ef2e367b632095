//! Gathering the operations of a history for a model, chunk by chunk.

use crate::gathering::KeyNumbers;
use crate::history_model::{HistoryModel, ModelCall, Unfit, ValueNumbers};
use crate::object::{NEVER, is_tuple};
use seatrial_history::{Chunk, FixedMap, Key, Op, OpType};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Positions that calls can have.
const POSITIONS_MAX: u64 = NEVER as u64 - 1;

/// The operations of a history as a model has them: each row is an invocation, in order, and gets its operation when that
/// completes. Rows of operations that failed, and of those that constrain nothing, stay empty.
///
/// Cost: a model operation and 8 bytes for each row, 4 more where there are keys. Only invocations that are open at the end of a
/// chunk are kept whole, until their completion.
pub(crate) struct ModelGathering<M: HistoryModel> {
    rows: Vec<ModelRow<M::Operation>>,
    /// By row: the number of its key; empty while there is none but 0.
    keys: Vec<u32>,
    key_numbers: KeyNumbers,
    values: ValueNumbers,
    /// Invocations of earlier chunks without a completion, by position: the row, and the operation.
    open: BTreeMap<u64, (u32, Op)>,
    /// Positions of the completions of operations of unknown outcome, by that of the invocation.
    indeterminate: FixedMap<u32, u32>,
    /// Successes without an invocation, ascending: their rows are not in the order of calls.
    orphans: Vec<u32>,
    /// The first row that the model does not have, and why.
    unfit: Option<(u32, String)>,
    too_long: Option<String>,
}

struct ModelRow<O> {
    operation: Option<O>,
    call: u32,
    ret: u32,
}

impl<O> ModelRow<O> {
    fn into_call(self) -> Option<ModelCall<O>> {
        let (call, ret) = (self.call, self.ret);
        self.operation.map(|operation| ModelCall {
            operation,
            call,
            ret,
        })
    }
}

/// One object of a history: its key, and its operations in the order of their invocations.
pub(crate) struct KeyedCalls<O> {
    pub(crate) key: Option<Key>,
    pub(crate) calls: Vec<ModelCall<O>>,
}

/// All that was gathered.
pub(crate) struct GatheredCalls<O> {
    /// In the order of keys.
    pub(crate) objects: Vec<KeyedCalls<O>>,
    pub(crate) values: ValueNumbers,
    pub(crate) indeterminate: FixedMap<u32, u32>,
    /// Positions of successes without an invocation, ascending.
    pub(crate) orphans: Vec<u32>,
}

impl<M: HistoryModel> ModelGathering<M> {
    pub(crate) fn new() -> ModelGathering<M> {
        ModelGathering {
            rows: Vec::new(),
            keys: Vec::new(),
            key_numbers: KeyNumbers::default(),
            values: ValueNumbers::new(),
            open: BTreeMap::new(),
            indeterminate: FixedMap::default(),
            orphans: Vec::new(),
            unfit: None,
            too_long: None,
        }
    }

    /// Invocations so far.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds the operations of the next chunk. Breaks at more operations than there can be.
    pub(crate) fn push(&mut self, model: &M, chunk: &Chunk) -> ControlFlow<()> {
        let first = chunk.first_position();
        if first + chunk.len() as u64 > POSITIONS_MAX {
            self.too_long = Some(format!(
                "more than {POSITIONS_MAX} events, which is what a search can have"
            ));
            return ControlFlow::Break(());
        }
        let clients: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        // By place in the chunk: the row of an invocation without completion so far.
        let mut rows = vec![NEVER; chunk.len()];
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (&kind, &process)) in kinds.enumerate() {
            if !clients[process as usize] {
                continue;
            }
            if kind == OpType::Invoke {
                rows[place] = self.add(chunk, place, first + place as u64);
            } else {
                self.complete(model, chunk, (place, kind), &mut rows);
            }
        }
        for (place, &row) in rows.iter().enumerate() {
            if row != NEVER {
                let position = first + place as u64;
                self.open.insert(position, (row, chunk.op(place)));
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds an empty row.
    fn add(&mut self, chunk: &Chunk, place: usize, call: u64) -> u32 {
        let key = chunk.key_id(place).map(|id| chunk.key(id));
        let key = self.key_numbers.number(key);
        let row = self.rows.len();
        self.rows.push(ModelRow {
            operation: None,
            call: call as u32,
            ret: NEVER,
        });
        // Histories without keys have no column of keys.
        if key != 0 && self.keys.is_empty() {
            self.keys.resize(row, 0);
        }
        if key != 0 || !self.keys.is_empty() {
            self.keys.push(key);
        }
        row as u32
    }

    /// Completes an operation; a success without invocation may have begun at any time before.
    fn complete(
        &mut self,
        model: &M,
        chunk: &Chunk,
        (place, kind): (usize, OpType),
        rows: &mut [u32],
    ) {
        let first = chunk.first_position();
        let end = Some((first + place as u64) as u32);
        let Some(position) = chunk.invocation(place) else {
            if kind == OpType::Ok {
                self.orphans.extend(end);
                let row = self.add(chunk, place, 0);
                let op = chunk.op(place);
                self.set(model, row, (&op, Some(&op)), end);
            }
            return;
        };
        let Some(local) = position.checked_sub(first) else {
            if let Some((row, invocation)) = self.open.remove(&position)
                && kind != OpType::Fail
            {
                self.set(model, row, (&invocation, Some(&chunk.op(place))), end);
            }
            return;
        };
        let local = local as usize;
        let row = std::mem::replace(&mut rows[local], NEVER);
        if row == NEVER || kind == OpType::Fail {
            return;
        }
        if kind == OpType::Ok {
            let (argument, result) = (chunk.value(local), chunk.value(place));
            let stored = model.stored_operation(chunk.f(local), argument, result, &mut self.values);
            if let Some(operation) = stored {
                return self.fill(row, operation, end, true);
            }
        }
        let both = (&chunk.op(local), Some(&chunk.op(place)));
        self.set(model, row, both, end);
    }

    /// Sets the operation of a row, which did not fail.
    fn set(
        &mut self,
        model: &M,
        row: u32,
        (invocation, completion): (&Op, Option<&Op>),
        end: Option<u32>,
    ) {
        let operation = if is_tuple(invocation) {
            let reason = "its value looks like a tuple [key value]: read the history as keyed";
            Err(Unfit::new(invocation, reason))
        } else {
            model.operation(invocation, completion, &mut self.values)
        };
        match operation {
            Ok(Some(operation)) => {
                let is_certain = completion.is_some_and(Op::is_ok);
                self.fill(row, operation, end, is_certain);
            }
            Ok(None) => {}
            Err(unfit) => {
                if self
                    .unfit
                    .as_ref()
                    .is_none_or(|(earliest, _)| row < *earliest)
                {
                    self.unfit = Some((row, unfit.to_string()));
                }
            }
        }
    }

    fn fill(&mut self, row: u32, operation: M::Operation, end: Option<u32>, is_certain: bool) {
        let row = &mut self.rows[row as usize];
        row.operation = Some(operation);
        row.ret = end.filter(|_| is_certain).unwrap_or(NEVER);
        debug_assert!(row.call <= row.ret, "it ends after its call");
        if let Some(end) = end.filter(|_| !is_certain) {
            self.indeterminate.insert(row.call, end);
        }
    }

    /// All objects. The error is the reason why they cannot be checked.
    pub(crate) fn finish(mut self, model: &M) -> Result<GatheredCalls<M::Operation>, String> {
        if let Some(reason) = self.too_long {
            return Err(reason);
        }
        for (row, op) in std::mem::take(&mut self.open).into_values() {
            self.set(model, row, (&op, None), None);
        }
        if let Some((_, reason)) = self.unfit {
            return Err(reason);
        }
        let known = self.key_numbers.into_known();
        let mut objects: Vec<KeyedCalls<M::Operation>> = known
            .into_iter()
            .map(|key| KeyedCalls {
                key,
                calls: Vec::new(),
            })
            .collect();
        if let [object] = &mut objects[..] {
            // In place, where rows and calls are of one size.
            let rows = std::mem::take(&mut self.rows).into_iter();
            object.calls = rows.filter_map(ModelRow::into_call).collect();
        }
        for (number, row) in self.rows.into_iter().enumerate() {
            let key = self.keys.get(number).map_or(0, |&key| key as usize);
            objects[key].calls.extend(row.into_call());
        }
        // A key of which nothing is known is no object.
        objects.retain(|object| !object.calls.is_empty());
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        if objects.len() > 1 && objects[0].key.is_none() {
            return Err("some operations have a key and some have none".into());
        }
        if !self.orphans.is_empty() {
            for object in &mut objects {
                object.calls.sort_by_key(|call| call.call);
            }
        }
        Ok(GatheredCalls {
            objects,
            values: self.values,
            indeterminate: self.indeterminate,
            orphans: self.orphans,
        })
    }
}
