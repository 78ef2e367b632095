//! The services that nodes can use: `lin-kv`, `seq-kv`, `lww-kv` and `lin-tso`, as Maelstrom has them.

use crate::error_code::{
    KEY_DOES_NOT_EXIST, MALFORMED_REQUEST, NOT_SUPPORTED, PRECONDITION_FAILED,
};
use crate::node_message::{Body, EndpointName, body, kind};
use seatrial_machine::Rng;
use serde_json::Value as Json;
use std::collections::{BTreeMap, VecDeque};

/// One service: it answers requests from anyone, one at a time, and keeps everything in memory.
#[derive(Debug)]
pub(crate) enum Service {
    /// A linearizable key-value store.
    Linearizable(ServiceStore),
    /// A sequentially consistent one: everyone sees the same order of changes, and reads may be stale.
    Sequential(SequentialStore),
    /// A last-write-wins store on several replicas.
    LastWriteWins(Replicas),
    /// Timestamps that only grow: `ts`.
    Timestamps(i64),
}

impl Service {
    /// All services with their names.
    pub(crate) fn all(rng: &Rng) -> BTreeMap<EndpointName, Service> {
        let sequential = SequentialStore::new(rng.fork("seq-kv"));
        let replicas = Replicas::new(rng.fork("lww-kv"));
        BTreeMap::from([
            (
                EndpointName::new("lin-kv"),
                Service::Linearizable(ServiceStore::default()),
            ),
            (EndpointName::new("seq-kv"), Service::Sequential(sequential)),
            (
                EndpointName::new("lww-kv"),
                Service::LastWriteWins(replicas),
            ),
            (EndpointName::new("lin-tso"), Service::Timestamps(0)),
        ])
    }

    /// The body of the reply to a request of `client`.
    pub(crate) fn answer(&mut self, client: &EndpointName, request: &Body) -> Body {
        if let Service::Timestamps(last) = self {
            if kind(request) != "ts" {
                return not_supported(request);
            }
            *last += 1;
            return body("ts_ok", [("ts", (*last - 1).into())]);
        }
        let request = match KeyValueRequest::parse(request) {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        match self {
            Service::Linearizable(store) => store.apply(&request),
            Service::Sequential(store) => store.apply(client, &request),
            Service::LastWriteWins(replicas) => replicas.apply(&request),
            Service::Timestamps(_) => unreachable!("timestamps were answered above"),
        }
    }
}

/// A request to a key-value store.
#[derive(Clone, Debug)]
enum KeyValueRequest {
    Read(Json),
    Write(Json, Json),
    Cas {
        key: Json,
        from: Json,
        to: Json,
        creates: bool,
    },
}

impl KeyValueRequest {
    fn parse(request: &Body) -> Result<KeyValueRequest, Body> {
        let field = |name: &str| {
            let found = request.get(name).cloned();
            found.ok_or_else(|| {
                let text = format!("{} has no field {name}", kind(request));
                error(MALFORMED_REQUEST, text)
            })
        };
        Ok(match kind(request) {
            "read" => KeyValueRequest::Read(field("key")?),
            "write" => KeyValueRequest::Write(field("key")?, field("value")?),
            "cas" => KeyValueRequest::Cas {
                key: field("key")?,
                from: field("from")?,
                to: field("to")?,
                creates: request.get("create_if_not_exists") == Some(&Json::Bool(true)),
            },
            _ => return Err(not_supported(request)),
        })
    }

    const fn key(&self) -> &Json {
        match self {
            KeyValueRequest::Read(key)
            | KeyValueRequest::Write(key, _)
            | KeyValueRequest::Cas { key, .. } => key,
        }
    }

    const fn changes(&self) -> bool {
        !matches!(self, KeyValueRequest::Read(_))
    }
}

/// Keys (as JSON texts) and values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceStore(BTreeMap<String, Json>);

impl ServiceStore {
    fn apply(&mut self, request: &KeyValueRequest) -> Body {
        let absent = |key: &Json| error(KEY_DOES_NOT_EXIST, format!("key {key} does not exist"));
        match request {
            KeyValueRequest::Read(key) => match self.0.get(&key.to_string()) {
                Some(value) => body("read_ok", [("value", value.clone())]),
                None => absent(key),
            },
            KeyValueRequest::Write(key, value) => {
                self.0.insert(key.to_string(), value.clone());
                body("write_ok", [])
            }
            KeyValueRequest::Cas {
                key,
                from,
                to,
                creates,
            } => {
                match self.0.get(&key.to_string()) {
                    None if !creates => return absent(key),
                    Some(value) if value != from => {
                        let text = format!("expected {from}, but had {value}");
                        return error(PRECONDITION_FAILED, text);
                    }
                    _ => {}
                }
                self.0.insert(key.to_string(), to.clone());
                body("cas_ok", [])
            }
        }
    }
}

/// States that a sequential store keeps for stale reads.
const STATES_MAX: usize = 64;

/// A sequentially consistent store. A change applies to the newest state; a read sees a random state between the last one that
/// its
/// client saw and the newest. Its downside: it copies the state at every change.
#[derive(Debug)]
pub(crate) struct SequentialStore {
    rng: Rng,
    /// The newest states, oldest first, and the number of the first.
    states: VecDeque<ServiceStore>,
    first: u64,
    /// Number of the newest state that each client has seen.
    seen: BTreeMap<EndpointName, u64>,
}

impl SequentialStore {
    fn new(rng: Rng) -> SequentialStore {
        SequentialStore {
            rng,
            states: VecDeque::from([ServiceStore::default()]),
            first: 0,
            seen: BTreeMap::new(),
        }
    }

    fn apply(&mut self, client: &EndpointName, request: &KeyValueRequest) -> Body {
        let newest = self.first + self.states.len() as u64 - 1;
        if !request.changes() {
            let seen = self.seen.get(client).copied().unwrap_or(0).max(self.first);
            let number = seen + self.rng.below(newest - seen + 1);
            self.seen.insert(client.clone(), number);
            return self.states[(number - self.first) as usize].apply(request);
        }
        let mut state = self.states.back().cloned().unwrap_or_default();
        let reply = state.apply(request);
        // A comparison that failed has seen the newest state too.
        let mut number = newest;
        if kind(&reply) != "error" {
            self.states.push_back(state);
            number += 1;
            if self.states.len() > STATES_MAX {
                self.states.pop_front();
                self.first += 1;
            }
        }
        self.seen.insert(client.clone(), number);
        reply
    }
}

/// Number of replicas of the last-write-wins store.
const REPLICAS: usize = 5;

/// A value with the time of its write.
type Stamped = (u64, Json);

/// Replicas of a last-write-wins store. Each request goes to a random one, and after it two random ones are merged: for each key
/// the later write wins.
#[derive(Debug)]
pub(crate) struct Replicas {
    rng: Rng,
    copies: Vec<BTreeMap<String, Stamped>>,
    clock: u64,
}

impl Replicas {
    fn new(rng: Rng) -> Replicas {
        Replicas {
            rng,
            copies: vec![BTreeMap::new(); REPLICAS],
            clock: 0,
        }
    }

    fn apply(&mut self, request: &KeyValueRequest) -> Body {
        self.clock += 1;
        let at = self.rng.index(REPLICAS);
        let key = request.key().to_string();
        let mut store = ServiceStore::default();
        if let Some((_, value)) = self.copies[at].get(&key) {
            store.0.insert(key.clone(), value.clone());
        }
        let reply = store.apply(request);
        if request.changes()
            && kind(&reply) != "error"
            && let Some(value) = store.0.remove(&key)
        {
            self.copies[at].insert(key, (self.clock, value));
        }
        self.merge();
        reply
    }

    /// Copies later writes from one random replica to another.
    fn merge(&mut self) {
        let (from, to) = (self.rng.index(REPLICAS), self.rng.index(REPLICAS));
        for (key, stamped) in self.copies[from].clone() {
            let known = self.copies[to]
                .entry(key)
                .or_insert_with(|| stamped.clone());
            if known.0 < stamped.0 {
                *known = stamped;
            }
        }
    }
}

fn not_supported(request: &Body) -> Body {
    let text = format!("this service has no request of type {:?}", kind(request));
    error(NOT_SUPPORTED, text)
}

/// The body of an error.
pub(crate) fn error(code: i64, text: String) -> Body {
    body("error", [("code", code.into()), ("text", text.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(services: &mut BTreeMap<EndpointName, Service>, name: &str, request: Json) -> Json {
        let Json::Object(request) = request else {
            panic!("no object");
        };
        let service = services.get_mut(&EndpointName::new(name)).unwrap();
        Json::Object(service.answer(&EndpointName::new("n1"), &request))
    }

    fn services() -> BTreeMap<EndpointName, Service> {
        Service::all(&Rng::from_seed(3))
    }

    #[test]
    fn the_linearizable_store_reads_writes_and_compares() {
        let mut services = services();
        let mut ask = |request| ask(&mut services, "lin-kv", request);
        assert_eq!(ask(json!({"type": "read", "key": 1}))["code"], 20);
        let cas = |from: i64, to: i64, creates: bool| json!({"type": "cas", "key": 1, "from": from, "to": to, "create_if_not_exists": creates});
        assert_eq!(ask(cas(1, 2, false))["code"], 20);
        assert_eq!(ask(cas(1, 2, true)), json!({"type": "cas_ok"}));
        assert_eq!(ask(cas(1, 3, true))["code"], 22);
        assert_eq!(ask(json!({"type": "read", "key": 1}))["value"], 2);
        // A key of another type is another key.
        assert_eq!(ask(json!({"type": "read", "key": "1"}))["code"], 20);
        let write = json!({"type": "write", "key": 1, "value": [1]});
        assert_eq!(ask(write), json!({"type": "write_ok"}));
        assert_eq!(ask(json!({"type": "read"}))["code"], 12);
        assert_eq!(ask(json!({"type": "txn"}))["code"], 10);
    }

    #[test]
    fn timestamps_grow() {
        let mut services = services();
        for expected in 0..3 {
            let reply = ask(&mut services, "lin-tso", json!({"type": "ts"}));
            assert_eq!(reply, json!({"type": "ts_ok", "ts": expected}));
        }
        assert_eq!(
            ask(&mut services, "lin-tso", json!({"type": "read"}))["code"],
            10
        );
    }

    #[test]
    fn the_sequential_store_is_stale_and_never_goes_back() {
        let mut store = SequentialStore::new(Rng::from_seed(3));
        let (writer, reader) = (EndpointName::new("n1"), EndpointName::new("n2"));
        let (mut last, mut stale) = (-1, 0);
        for value in 0..500 {
            store.apply(&writer, &KeyValueRequest::Write(json!("x"), json!(value)));
            let own = store.apply(&writer, &KeyValueRequest::Read(json!("x")));
            assert_eq!(own["value"], value, "a client sees its own writes");
            let seen = store.apply(&reader, &KeyValueRequest::Read(json!("x")));
            let seen = seen.get("value").and_then(Json::as_i64).unwrap_or(-1);
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
            stale += u64::from(seen < value);
        }
        assert!(stale > 100, "{stale}");
        assert!(store.states.len() <= STATES_MAX);
    }

    #[test]
    fn the_replicated_store_forgets_for_a_while_and_converges() {
        let mut replicas = Replicas::new(Rng::from_seed(3));
        replicas.apply(&KeyValueRequest::Write(json!("x"), json!(1)));
        let mut read = || {
            replicas
                .apply(&KeyValueRequest::Read(json!("x")))
                .contains_key("value")
        };
        let early = (0..10).filter(|_| read()).count();
        assert!(early < 10, "all replicas have it at once");
        for _ in 0..200 {
            read();
        }
        assert!((0..50).all(|_| read()));
    }
}
