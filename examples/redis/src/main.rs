//! A test of Redis: everything that seatrial needs to test it, in one file. `cargo run -- test my-redis`.

use redis::aio::MultiplexedConnection;
use redis::{Client as Redis, Cmd, ConnectionAddr, RedisResult, cmd};
use seatrial::*;
use std::process::{Command, ExitCode};
use std::sync::Arc;

const SERVER: ServerProgram = ServerProgram {
    name: "redis-server",
    folders: &[],
    install: "apt-get install redis-server",
};

const CAS: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2]) return 1";

/// Starts the node: one server, whose log is in the node's folder.
struct Server;

impl System for Server {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(SERVER.find()?);
        command.arg("--bind").arg(place.address.ip().to_string());
        command.arg("--port").arg(place.address.port().to_string());
        command.args(["--appendonly", "yes", "--save", "", "--dir"]);
        command.arg(&place.folder);
        Ok(command)
    }
}

/// Opens clients. The first round trip shows whether the node lives: what fails here was certainly not sent.
struct Connect;

impl Clients for Connect {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async {
            let place = ConnectionAddr::Tcp(slot.address.ip().to_string(), slot.address.port());
            let client = Redis::open(place)?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let _: String = cmd("PING").query_async(&mut connection).await?;
            Ok(StoreClient::boxed(Connection(connection)))
        })
    }
}

struct Connection(MultiplexedConnection);

impl DataStore for Connection {
    /// A request as a command, and the reply as its answer.
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            match request {
                DataRequest::Read(key) => {
                    let value: Option<i64> = self.ask(cmd("GET").arg(key.to_string())).await?;
                    Ok(StoreAnswer::value(value.map_or(Value::Nil, Value::Int)))
                }
                DataRequest::Write(key, value) => {
                    let _: String = self.ask(cmd("SET").arg(key.to_string()).arg(value)).await?;
                    Ok(StoreAnswer::done())
                }
                DataRequest::CompareAndSet(key, old, new) => {
                    let mut call = cmd("EVAL");
                    call.arg(CAS).arg(1).arg(key.to_string()).arg(old).arg(new);
                    match self.ask(&call).await? {
                        1 => Ok(StoreAnswer::done()),
                        _ => Err(StoreRefusal::failed("the register has another value")),
                    }
                }
                _ => Err(StoreRefusal::failed("not in this test")),
            }
        })
    }
}

impl Connection {
    /// An error reply of the server (it has a code) is definite; without a reply the outcome is unknown.
    async fn ask<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreRefusal> {
        let reply: RedisResult<T> = command.query_async(&mut self.0).await;
        reply.map_err(|error| match error.code() {
            Some(_) => StoreRefusal::failed(error),
            None => StoreRefusal::unknown(error),
        })
    }
}

struct MyRedis;

impl Suite for MyRedis {
    fn name(&self) -> &'static str {
        "my-redis"
    }

    fn about(&self) -> &'static str {
        "Redis, one server, in one file"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["cas-register", "register"]
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        SERVER.find()?;
        Ok(Deployment {
            nodes: Arc::new(ProcessNodes::new(Arc::new(Server), setup.nodes)),
            clients: Arc::new(Connect),
        })
    }
}

fn main() -> ExitCode {
    seatrial::main(&[&MyRedis])
}
