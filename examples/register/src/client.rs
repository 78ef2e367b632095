//! How seatrial starts the server's nodes and talks to them.

use seatrial_history::{Op, OpType, Value};
use seatrial_runner::{
    BoxFuture, Client, ClientError, ClientSlot, Clients, NodePlace, NodeState, System,
};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Starts nodes: this same program with the verb `node`.
pub struct Nodes {
    /// The name of the bug to plant.
    pub bug: Option<&'static str>,
}

impl System for Nodes {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "registers", "--listen"]);
        command.arg(place.address.to_string()).arg("--data");
        command.arg(&place.folder);
        if let Some(bug) = self.bug {
            command.args(["--bug", bug]);
        }
        Ok(command)
    }

    fn reports_states(&self) -> bool {
        true
    }

    /// What a node holds at the end of the test. The checker `divergence` compares nodes at the same revision.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let reply = Connection::open(place.address, STATE_TIMEOUT)?.ask("state")?;
            let (revision, hash) = reply.split_once(' ').ok_or("the state has no hash")?;
            Ok(Some(NodeState {
                revision: revision.into(),
                hash: hash.into(),
                contents: None,
            }))
        })
    }
}

/// How long a node may take to report its state.
const STATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens clients.
pub struct Connect {
    /// How long a client waits for an answer.
    pub timeout: Duration,
}

impl Clients for Connect {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async {
            let mut connection = Connection::open(slot.address, self.timeout)?;
            // A first round trip: whatever fails after it may have reached the server, whatever fails here did not.
            connection.ask("read 0")?;
            Ok(Box::new(connection) as Box<dyn Client>)
        })
    }
}

/// One connection. It blocks its thread while it waits, as clients made from a library without `async` do: the runner gives
/// such clients threads of their own.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: SocketAddr, timeout: Duration) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Connection(BufReader::new(stream)))
    }

    fn ask(&mut self, request: &str) -> std::io::Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())?;
        let mut reply = String::new();
        if self.0.read_line(&mut reply)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(reply.trim_end().into())
    }
}

impl Client for Connection {
    /// An error is an operation whose outcome is unknown: the runner records `info` and opens a new client.
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            let Value::Keyed(key, argument) = &op.value else {
                return Err(format!("{}: no key", op.value).into());
            };
            let request = match (op.f.as_str(), &**argument) {
                ("read", _) => format!("read {key}"),
                ("write", Value::Int(value)) => format!("write {key} {value}"),
                ("cas", Value::Cas(old, new)) => format!("cas {key} {old} {new}"),
                (f, other) => return Err(format!("{f} of {other}").into()),
            };
            let reply = self.ask(&request)?;
            let value = match (op.f.as_str(), reply.as_str()) {
                ("read", "nil") => Value::Nil,
                ("read", text) => Value::Int(text.parse()?),
                ("cas", "no") => return Ok(op.complete(OpType::Fail, op.value.clone())),
                (_, "ok") => (**argument).clone(),
                (_, other) => return Err(format!("unexpected reply {other:?}").into()),
            };
            let value = Value::Keyed(key.clone(), Arc::new(value));
            Ok(op.complete(OpType::Ok, value))
        })
    }
}
