//! Clients written by hand: out of order, too fast, deaf, broken.

use crate::memory_volume::{PATIENCE, ServedVolume, export};
use seatrial_volume_suite::{NbdAddress, NbdLimits};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const BLOCK: usize = 4_096;

/// A client with simple replies.
struct NbdConnection(TcpStream);

impl NbdConnection {
    fn connect(address: &NbdAddress) -> NbdConnection {
        let NbdAddress::Tcp(address) = address else {
            panic!("{address}")
        };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        NbdConnection(stream)
    }

    /// Connects and begins the transmission by the oldest option.
    fn attach(address: &NbdAddress) -> NbdConnection {
        let mut client = NbdConnection::connect(address);
        client
            .0
            .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .unwrap();
        let mut greeting = [0; 28];
        client.0.read_exact(&mut greeting).unwrap();
        assert!(greeting.starts_with(b"NBDMAGICIHAVEOPT\0\x03"));
        client
    }

    fn send(&mut self, kind: u16, cookie: u64, offset: usize, length: u32, payload: &[u8]) {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&u32::from(kind).to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&(offset as u64).to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).unwrap();
    }

    /// The error and the cookie of the next reply.
    fn reply(&mut self) -> (u32, u64) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}

#[test]
fn replies_overtake_each_other() {
    let served = ServedVolume::on_tcp(64 << 20);
    let mut client = NbdConnection::attach(&served.address);
    for number in 0..200_usize {
        let payload = vec![number as u8; 100 * number + 1];
        client.send(
            1,
            number as u64,
            number * 25_000,
            payload.len() as u32,
            &payload,
        );
    }
    let mut order: Vec<u64> = (0..200)
        .map(|_| {
            let (error, cookie) = client.reply();
            assert_eq!(error, 0);
            cookie
        })
        .collect();
    assert!(!order.is_sorted(), "some replies are late");
    order.sort_unstable();
    assert!(order.into_iter().eq(0..200));
    for number in 0..200_usize {
        let length = 100 * number + 1;
        client.send(0, number as u64, number * 25_000, length as u32, &[]);
    }
    let mut seen = BTreeMap::new();
    for _ in 0..200 {
        let (error, cookie) = client.reply();
        assert_eq!(error, 0);
        let bytes = client.bytes(100 * cookie as usize + 1);
        assert!(bytes.iter().all(|&byte| byte == cookie as u8), "{cookie}");
        seen.insert(cookie, bytes.len());
    }
    assert_eq!(seen.len(), 200);
    served.end();
}

/// Several clients write neighbouring bytes of the same blocks at the same time.
#[test]
fn no_part_of_a_block_is_lost() {
    let served = ServedVolume::on_tcp(1 << 20);
    let writers: Vec<_> = (0..8_usize)
        .map(|writer| {
            let mut client = NbdConnection::attach(&served.address);
            thread::spawn(move || {
                for place in 0..256_usize {
                    let payload = [writer as u8 + 1; 100];
                    client.send(1, place as u64, (place * 8 + writer) * 100, 100, &payload);
                }
                for _ in 0..256 {
                    assert_eq!(client.reply().0, 0);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let mut client = NbdConnection::attach(&served.address);
    let length = 256 * 8 * 100;
    client.send(0, 0, 0, length as u32, &[]);
    assert_eq!(client.reply(), (0, 0));
    for (place, part) in client.bytes(length).chunks(100).enumerate() {
        assert!(
            part.iter().all(|&byte| byte as usize == place % 8 + 1),
            "{place}"
        );
    }
    served.end();
}

#[test]
fn refused_requests_leave_the_connection_in_order() {
    let mut read_only = export(1 << 20);
    read_only.is_read_only = true;
    let address = NbdAddress::parse("127.0.0.1:0").unwrap();
    let served = ServedVolume::start(read_only, address, NbdLimits::default());
    let mut client = NbdConnection::attach(&served.address);
    client.send(1, 1, 0, BLOCK as u32, &[1; BLOCK]);
    assert_eq!(client.reply(), (1, 1));
    client.send(9, 2, 0, 0, &[]);
    assert_eq!(client.reply(), (22, 2));
    client.send(0, 3, 1 << 20, 1, &[]);
    assert_eq!(client.reply(), (22, 3));
    served.end();
    let served = ServedVolume::on_tcp(1 << 20);
    let mut client = NbdConnection::attach(&served.address);
    // 40 MiB, more than a request may have, are skipped; many of them free no memory that was not taken.
    for _ in 0..10 {
        client.send(1, 4, 0, 40 << 20, &vec![1; 40 << 20]);
        assert_eq!(client.reply(), (28, 4));
    }
    client.send(0, 5, 0, BLOCK as u32, &[]);
    assert_eq!(client.reply(), (0, 5));
    assert!(client.bytes(BLOCK).iter().all(|&byte| byte == 0));
    served.end();
}

#[test]
fn a_client_that_does_not_read_keeps_no_other_from_service() {
    let limits = NbdLimits {
        bytes_max: 16 << 20,
        ..NbdLimits::default()
    };
    let address = NbdAddress::parse("127.0.0.1:0").unwrap();
    let served = ServedVolume::start(export(64 << 20), address, limits);
    let mut deaf = NbdConnection::attach(&served.address);
    deaf.0
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut other = NbdConnection::attach(&served.address);
    // Reads of 1 MiB whose replies nobody takes; the server stops reading them.
    for cookie in 0..100 {
        deaf.send(0, cookie, 0, 1 << 20, &[]);
    }
    for cookie in 0..100 {
        other.send(0, cookie, 0, 1 << 20, &[]);
        assert_eq!(other.reply(), (0, cookie));
        other.bytes(1 << 20);
    }
    // All replies come when they are read.
    for _ in 0..100 {
        assert_eq!(deaf.reply().0, 0);
        deaf.bytes(1 << 20);
    }
    drop(deaf);
    // A client that leaves with replies unread frees what they held.
    for _ in 0..10 {
        let mut leaving = NbdConnection::attach(&served.address);
        for cookie in 0..20 {
            leaving.send(0, cookie, 0, 1 << 20, &[]);
        }
    }
    other.send(0, 1, 0, 8 << 20, &[]);
    assert_eq!(other.reply(), (0, 1));
    other.bytes(8 << 20);
    served.end();
}

#[test]
fn a_client_that_speaks_something_else_is_disconnected() {
    let limits = NbdLimits {
        connections_max: 2,
        handshake_patience: Duration::from_millis(200),
        ..NbdLimits::default()
    };
    let address = NbdAddress::parse("127.0.0.1:0").unwrap();
    let served = ServedVolume::start(export(1 << 20), address, limits);
    let ends = |mut client: NbdConnection| {
        let mut rest = Vec::new();
        match client.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    };
    let mut http = NbdConnection::connect(&served.address);
    http.0.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    ends(http);
    ends(NbdConnection::connect(&served.address)); // silent
    let mut broken = NbdConnection::attach(&served.address);
    broken.0.write_all(&[7; 28]).unwrap();
    ends(broken);
    // Places that were left are free again; a third client finds none.
    let mut held = [(); 2].map(|()| NbdConnection::attach(&served.address));
    ends(NbdConnection::connect(&served.address));
    for client in &mut held {
        client.send(3, 6, 0, 0, &[]);
        assert_eq!(client.reply(), (0, 6));
    }
    served.end();
}

#[test]
fn a_unix_socket_is_private_and_replaced_after_a_kill() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("nbd");
    // The file of a server that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let address = NbdAddress::Unix(path.clone());
    let served = ServedVolume::start(export(1 << 20), address, NbdLimits::default());
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert!(greeting.starts_with(b"NBDMAGIC"));
    served.end();
    assert!(!path.exists());
}
