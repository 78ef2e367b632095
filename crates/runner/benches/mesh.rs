//! Round trips per second and bytes per second of a TCP echo, directly and through a route of the mesh.
//! Arguments: number of connections, round trips of each; a short run unless `--bench` is given.

use seatrial_machine::NodeId;
use seatrial_runner::Mesh;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Sends back what it gets, for ever.
async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await
        });
    }
}

/// Sends `length` bytes and reads them again, `count` times.
async fn exchange(address: SocketAddr, length: usize, count: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut read, mut write) = stream.split();
    let (sent, mut heard) = (vec![7; length], vec![0; length]);
    for _ in 0..count {
        let (wrote, got) = tokio::join!(write.write_all(&sent), read.read_exact(&mut heard));
        wrote?;
        got?;
    }
    Ok(())
}

/// Exchanges per second over several connections.
async fn rate(
    address: SocketAddr,
    connections: u64,
    length: usize,
    count: u64,
) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..connections {
        all.spawn(exchange(address, length, count));
    }
    for result in all.join_all().await {
        result?;
    }
    Ok((connections * count) as f64 / began.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments
        .iter()
        .filter_map(|argument| argument.parse::<u64>().ok());
    let connections = numbers.next().unwrap_or(10);
    let count = numbers.next().unwrap_or(if whole { 10_000 } else { 50 });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let direct = listener.local_addr()?;
    tokio::spawn(echo(listener));
    let mesh = Mesh::new(tokio::runtime::Handle::current());
    mesh.add_node(NodeId::server(1), direct);
    let proxied = mesh.route(NodeId::client(0), NodeId::server(1))?;
    for (name, address) in [("direct", direct), ("mesh", proxied)] {
        let small = rate(address, connections, 100, count).await?;
        let megabyte = rate(address, connections, 1 << 20, count / 200 + 1).await?;
        println!(
            "{connections} connections, {name}: {small:.0} round trips/s of 100 bytes, \
             {megabyte:.0} MiB/s there and back"
        );
    }
    Ok(())
}
