//! The other programs of these tests, all of them this one.

use seatrial_machine::{Fault, NodeId, Rng};
use seatrial_runner::{
    BoxFuture, ClientError, Mesh, NodeLimits, NodePlace, Nodes, ProcessNodes, System,
};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The environment variable with the role of this process.
const ROLE: &str = "SEATRIAL_TEST_ROLE";
/// Where a role listens.
const ADDRESS: &str = "SEATRIAL_TEST_ADDRESS";
/// Where a role keeps its data.
const FOLDER: &str = "SEATRIAL_TEST_FOLDER";

/// Does nothing unless a role is given: the entrance of the other programs.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("register") => serve_register("value"),
        Ok("loner") => serve_register("elsewhere"),
        Ok("broken") => {
            eprintln!("cannot find my configuration");
            std::process::exit(3);
        }
        Ok("mute") => {
            eprintln!("I think, but I do not speak");
            thread::sleep(Duration::from_mins(5));
        }
        Ok("bench") => be_killed(),
        Ok("tester") => {
            let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
            crate::killed::run_for_ever(&folder);
        }
        Ok(other) => panic!("{other} is no role"),
        Err(_) => {}
    }
}

/// The command that runs this program in a role.
pub(crate) fn command(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "roles::role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FOLDER, folder);
    command
}

/// A system whose nodes play this role.
pub(crate) struct Role(pub(crate) &'static str);

impl System for Role {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = command(self.0, &place.folder);
        command.env(ADDRESS, place.address.to_string());
        Ok(command)
    }

    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            match places
                .iter()
                .find(|place| !place.folder.join("value").exists())
            {
                Some(place) => Err(format!("{} has no value yet", place.node).into()),
                None => Ok(()),
            }
        })
    }
}

/// A register with a protocol of text lines: `r` is answered with the value, `w N` with `ok` once N is in the file, `die` not
/// at all. A `loner` keeps its value outside of the shared file.
fn serve_register(file: &str) {
    let path = PathBuf::from(std::env::var(FOLDER).unwrap()).join(file);
    if !path.exists() {
        fs::write(&path, "0").unwrap();
    }
    let value = Arc::new(Mutex::new(fs::read_to_string(&path).unwrap()));
    let listener = TcpListener::bind(std::env::var(ADDRESS).unwrap()).unwrap();
    println!("ready");
    for stream in listener.incoming() {
        let (value, path) = (Arc::clone(&value), path.clone());
        thread::spawn(move || answer(&stream.unwrap(), &value, &path));
    }
}

fn answer(mut stream: &TcpStream, value: &Mutex<String>, path: &Path) {
    stream.set_nodelay(true).unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let reply = match line.split_once(' ') {
            Some(("w", new)) => {
                let mut value = value.lock().unwrap();
                fs::write(path, new).unwrap();
                new.clone_into(&mut value);
                "ok".into()
            }
            None if line == "r" => value.lock().unwrap().clone(),
            None if line == "die" => {
                eprintln!("a bug of mine");
                std::process::exit(7);
            }
            _ => "what?".into(),
        };
        if writeln!(stream, "{reply}").is_err() {
            return;
        }
    }
}

/// Starts three nodes, pauses one, says that it is ready and waits to be killed.
fn be_killed() {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let nodes = nodes("register", 3);
        let mesh = Mesh::new(tokio::runtime::Handle::current());
        nodes.prepare(&folder, &mesh).await.unwrap();
        let mut pids = String::new();
        for &node in nodes.ids() {
            let effect = format!("{:?}", nodes.start(node).await.unwrap());
            let digits = effect.rsplit_once("process ").unwrap().1;
            pids += digits.trim_matches(|c: char| !c.is_ascii_digit());
            pids += "\n";
        }
        nodes
            .inject(&Fault::Pause(NodeId::server(2)), Rng::from_seed(0))
            .await
            .unwrap();
        fs::write(folder.join("pids.new"), pids).unwrap();
        fs::rename(folder.join("pids.new"), folder.join("pids")).unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
    });
}

/// Nodes that play this role, with limits for tests.
pub(crate) fn nodes(role: &'static str, count: u32) -> ProcessNodes {
    ProcessNodes::new(Arc::new(Role(role)), count).with_limits(NodeLimits {
        ready: Duration::from_secs(10),
        stop: Duration::from_secs(2),
    })
}
