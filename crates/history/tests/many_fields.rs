//! Histories with very many extra fields: alone in their process, since names are never forgotten.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

use seatrial_history::chunk::{Assembly, Chunk};
use seatrial_history::{Extra, Op, Process, Symbol, Value};

/// The number of a chunk's columns has two bytes, and each field is a column.
#[test]
fn many_fields_fill_a_chunk_before_its_columns_run_out() {
    let mut assembly = Assembly::new(65_536);
    let (mut operations, mut chunks) = (0, 0);
    for number in 0..300 {
        let fields = (0..200).map(|field| {
            let name: &'static str = Box::leak(format!("f{}", number * 200 + field).into());
            (Symbol::from(name), Value::Int(1))
        });
        let mut op = Op::invoke(Process::Client(number), "read", Value::Nil);
        op.extra = Extra::new(&fields.collect::<Vec<_>>());
        op.index = number;
        if let Some(chunk) = assembly.push(&op).unwrap() {
            operations += chunk.len();
            chunks += 1;
        }
    }
    operations += assembly.rest().map_or(0, Chunk::len);
    assert_eq!(operations, 300);
    assert!(chunks > 0, "60,000 fields are too many for one chunk");
}

#[test]
fn an_operation_with_more_fields_than_a_chunk_can_have_is_refused() {
    let fields = (0..20_000).map(|_| (Symbol::from("f"), Value::Int(1)));
    let mut op = Op::invoke(Process::Client(0), "read", Value::Nil);
    op.extra = Extra::new(&fields.collect::<Vec<_>>());
    let refused = Assembly::new(10).push(&op).map(|_| ()).unwrap_err();
    assert_eq!(refused.to_string(), "more than 16777216 bytes");
}
