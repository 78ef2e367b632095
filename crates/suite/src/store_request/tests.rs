//! Tests of requests and of the client of a store.

use super::*;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{Generator, Simulation};
use seatrial_history::{Observed, Process};
use seatrial_machine::Rng;

/// Refuses or answers each request as it is set up.
struct Fixed(Result<StoreAnswer, StoreRefusal>);

impl DataStore for Fixed {
    fn execute<'a>(
        &'a mut self,
        _: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

fn completion(answer: Result<StoreAnswer, StoreRefusal>, op: &Op) -> (Op, bool) {
    let mut client = StoreClient {
        store: Fixed(answer),
        is_late: false,
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let done = match client.invoke(op).as_mut().poll(&mut context) {
        std::task::Poll::Ready(done) => done.expect("a completion"),
        std::task::Poll::Pending => panic!("nothing to wait for"),
    };
    (done, client.is_usable())
}

#[test]
fn every_operation_of_the_named_workloads_is_a_request() {
    for name in STORE_WORKLOADS {
        let options = WorkloadOptions::default();
        let made = Workload::new(name, &Rng::from_seed(1), &options).expect("a workload");
        let history = Simulation::perfect(made.generator.limit(200).clients(), 3).run();
        let history = history.expect("a history");
        for op in history.iter().filter(|op| op.is_invoke()) {
            assert!(DataRequest::of(op).is_ok(), "{name}: {op}");
        }
    }
    let odd = Op::invoke(Process::Client(0), "read", Value::Int(1));
    assert_eq!(
        DataRequest::of(&odd),
        Err("read of 1: no request of a store".into())
    );
}

#[test]
fn completions_say_what_is_known() {
    let key = Key::Int(3);
    let keyed = |value| Value::Keyed(key.clone(), Arc::new(value));
    let write = Op::invoke(Process::Client(0), "write", keyed(Value::Int(7)));
    let read = Op::invoke(Process::Client(0), "read", keyed(Value::Nil));
    let answer = StoreAnswer::value(Value::Int(7)).from(NodeId::server(2));
    let (done, usable) = completion(Ok(answer), &read);
    assert_eq!(
        (done.kind, &done.value, usable),
        (OpType::Ok, &keyed(Value::Int(7)), true)
    );
    assert_eq!(done.extra.get("node"), Some(&Value::text("n2")));
    let (done, _) = completion(Ok(StoreAnswer::done()), &write);
    assert_eq!((done.kind, &done.value), (OpType::Ok, &write.value));
    let (done, usable) = completion(Err(StoreRefusal::unknown("gone")), &write);
    assert_eq!((done.kind, usable), (OpType::Info, true));
    assert_eq!(done.extra.get("error"), Some(&Value::text("gone")));
    let (done, usable) = completion(Err(StoreRefusal::unknown("gone")), &read);
    assert_eq!(
        (done.kind, usable),
        (OpType::Fail, false),
        "a read changes nothing, but its answer may come late"
    );
    let (done, _) = completion(Err(StoreRefusal::failed("no")), &write);
    assert_eq!(done.kind, OpType::Fail);
    let dequeue = Op::invoke(Process::Client(0), "dequeue", Value::Nil);
    let (done, _) = completion(
        Err(StoreRefusal::Perhaps(Value::Int(5), "gone".into())),
        &dequeue,
    );
    assert_eq!((done.kind, done.value), (OpType::Info, Value::Int(5)));
}

#[test]
fn transactions_of_reads_are_reads() {
    let read = Mop::Read {
        key: Key::Int(1),
        observed: Observed::Nil,
    };
    let append = Mop::Append {
        key: Key::Int(1),
        element: 1,
    };
    assert!(DataRequest::Transaction(std::slice::from_ref(&read)).is_read());
    assert!(!DataRequest::Transaction(&[read, append]).is_read());
    assert!(!DataRequest::Drain.is_read());
}

#[test]
fn what_a_drain_took_is_not_forgotten() {
    let failed = || StoreRefusal::failed("lost");
    assert_eq!(failed().after(vec![]), failed());
    let perhaps =
        |elements: &[i64]| StoreRefusal::Perhaps(Value::integers(elements), "lost".into());
    assert_eq!(failed().after(vec![3, 4]), perhaps(&[3, 4]));
    let one = StoreRefusal::Perhaps(Value::Int(5), "lost".into());
    assert_eq!(one.clone().after(vec![3]), perhaps(&[3, 5]));
    assert_eq!(one.after(vec![]), perhaps(&[5]));
}
