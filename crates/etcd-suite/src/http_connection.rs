//! One HTTP/1.1 connection with one request at a time, in the task of its client.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that carries one request after the other. After an error it must not be used again: the reply may still come.
///
/// Heads and chunks are read by the crate `httparse`. A whole client of HTTP hands each request to the task of its connection and
/// the reply back, and makes tables of fields that are not read here: with typed JSON in addition, the bench takes a third less
/// for a request without it (`docs/decisions/0131-etcd-in-one-task.md`).
#[derive(Debug)]
pub(crate) struct HttpConnection {
    stream: TcpStream,
    /// What each request begins with after its path.
    fields: String,
    /// The request that is sent.
    request: Vec<u8>,
    /// What was received of a reply.
    received: Vec<u8>,
    /// Has the server said that it closes the connection?
    is_last: bool,
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpReply {
    /// Is its status a success (200 to 299)?
    pub(crate) is_success: bool,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// Bytes that are read at once.
const PIECE: usize = 4 * 1024;
/// Bytes of a reply that are read at most.
const REPLY_MAX: usize = 16 << 20;
/// Fields of a head that are read at most.
const FIELDS_MAX: usize = 64;

impl HttpConnection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<HttpConnection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(HttpConnection {
            stream,
            fields: format!(" HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"),
            request: Vec::new(),
            received: Vec::new(),
            is_last: false,
        })
    }

    /// Can a request be sent? Not when the server has closed the connection, or sent what was not asked for.
    pub(crate) fn is_open(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        !self.is_last && read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends this body and returns the reply.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<HttpReply> {
        self.request.clear();
        for part in ["POST ", path, &self.fields, "Content-Length: "] {
            self.request.extend_from_slice(part.as_bytes());
        }
        self.request
            .extend_from_slice(format!("{}\r\n\r\n", body.len()).as_bytes());
        self.request.extend_from_slice(body);
        self.stream.write_all(&self.request).await?;
        self.receive().await
    }

    async fn receive(&mut self) -> io::Result<HttpReply> {
        self.received.clear();
        let mut reading = ReplyReader::default();
        loop {
            self.received.reserve(PIECE);
            let is_end = self.stream.read_buf(&mut self.received).await? == 0;
            if let Some(reply) = reading.read(&self.received, is_end)? {
                self.is_last = reading.is_last;
                return Ok(reply);
            }
            if is_end {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if self.received.len() > REPLY_MAX {
                return Err(wrong("the reply is longer than 16 MiB"));
            }
        }
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Reads one reply (RFC 9112) of which more and more has been received.
///
/// The head is read again when more of it arrives; of the body, what was read of chunks stays.
#[derive(Debug, Default)]
struct ReplyReader {
    head: Option<ReplyHead>,
    /// Bytes that need no more reading.
    at: usize,
    /// The chunks so far.
    body: Vec<u8>,
    /// Does the connection end with this reply?
    is_last: bool,
}

#[derive(Clone, Copy, Debug)]
struct ReplyHead {
    status: u16,
    length: BodyLength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLength {
    Bytes(usize),
    Chunks,
    /// All until the connection ends.
    Rest,
}

impl ReplyReader {
    /// The reply, if it is complete in `received`, all bytes so far. `is_end`: no more will come.
    fn read(&mut self, received: &[u8], is_end: bool) -> io::Result<Option<HttpReply>> {
        let head = match self.head {
            Some(head) => head,
            None => match self.read_head(received)? {
                Some(head) => *self.head.insert(head),
                None => return Ok(None),
            },
        };
        let rest = received.get(self.at..).unwrap_or_default();
        let body = match head.length {
            BodyLength::Bytes(length) => match rest.get(..length) {
                Some(body) if body.len() == rest.len() => body.to_vec(),
                Some(_) => return Err(wrong("there is more than the reply")),
                None => return Ok(None),
            },
            BodyLength::Chunks => match self.read_chunks(received)? {
                Some(body) => body,
                None => return Ok(None),
            },
            BodyLength::Rest if is_end => rest.to_vec(),
            BodyLength::Rest => return Ok(None),
        };
        Ok(Some(HttpReply {
            is_success: (200..300).contains(&head.status),
            body,
        }))
    }

    /// The head that is not one of an interim reply (100 to 199), and where its body begins.
    fn read_head(&mut self, received: &[u8]) -> io::Result<Option<ReplyHead>> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut response = httparse::Response::new(&mut fields);
            let parsed = response.parse(received.get(self.at..).unwrap_or_default());
            let parsed = parsed.map_err(|error| wrong(&format!("no head of a reply: {error}")))?;
            let httparse::Status::Complete(length) = parsed else {
                return Ok(None);
            };
            self.at += length;
            let status = response.code.unwrap_or(0);
            if (100..200).contains(&status) {
                continue;
            }
            let (length, closes) = described(response.headers)?;
            let has_body = !matches!(status, 204 | 304);
            let length = if has_body {
                length
            } else {
                BodyLength::Bytes(0)
            };
            self.is_last = closes || response.version != Some(1) || length == BodyLength::Rest;
            return Ok(Some(ReplyHead { status, length }));
        }
    }

    /// The body, once the last chunk and the fields behind it are there.
    fn read_chunks(&mut self, received: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            let rest = received.get(self.at..).unwrap_or_default();
            let size = httparse::parse_chunk_size(rest);
            let size = size.map_err(|_| wrong("a chunk has no size"))?;
            let httparse::Status::Complete((begin, length)) = size else {
                return Ok(None);
            };
            let length = usize::try_from(length).map_err(|_| wrong("a chunk is too long"))?;
            if length == 0 {
                let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
                let behind = httparse::parse_headers(&rest[begin..], &mut fields);
                let behind = behind.map_err(|error| wrong(&format!("the last chunk: {error}")))?;
                return match behind {
                    httparse::Status::Complete((end, _)) if begin + end == rest.len() => {
                        Ok(Some(std::mem::take(&mut self.body)))
                    }
                    httparse::Status::Complete(_) => Err(wrong("there is more than the reply")),
                    httparse::Status::Partial => Ok(None),
                };
            }
            let end = begin.checked_add(length).and_then(|end| end.checked_add(2));
            let end = end.ok_or_else(|| wrong("a chunk is too long"))?;
            let Some(chunk) = rest.get(begin..end) else {
                return Ok(None);
            };
            let chunk = chunk.strip_suffix(b"\r\n");
            let chunk = chunk.ok_or_else(|| wrong("a chunk is longer than its size"))?;
            self.body.extend_from_slice(chunk);
            self.at += end;
        }
    }
}

/// The length of the body that these fields describe, and whether the connection ends with it.
fn described(fields: &[httparse::Header<'_>]) -> io::Result<(BodyLength, bool)> {
    let mut length = BodyLength::Rest;
    let mut closes = false;
    for field in fields {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(wrong(&format!("an unknown transfer encoding: {value}")));
            }
            length = BodyLength::Chunks;
        } else if field.name.eq_ignore_ascii_case("content-length") {
            let bytes = value.parse();
            let bytes = bytes.map_err(|_| wrong(&format!("not a length: {value:?}")))?;
            // Chunks outrank it.
            if length == BodyLength::Rest {
                length = BodyLength::Bytes(bytes);
            } else if length != BodyLength::Chunks && length != BodyLength::Bytes(bytes) {
                return Err(wrong("two lengths"));
            }
        } else if field.name.eq_ignore_ascii_case("connection") {
            closes |= value.eq_ignore_ascii_case("close");
        }
    }
    Ok((length, closes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// The reply in these bytes, which arrive in pieces of at most `piece`, and whether the connection ends with it.
    fn read(bytes: &[u8], piece: usize) -> io::Result<Option<(HttpReply, bool)>> {
        let mut reader = ReplyReader::default();
        let mut there = 0;
        while there < bytes.len() {
            there = bytes.len().min(there + piece);
            if let Some(reply) = reader.read(&bytes[..there], false)? {
                return Ok(Some((reply, reader.is_last)));
            }
        }
        let reply = reader.read(bytes, true)?;
        Ok(reply.map(|reply| (reply, reader.is_last)))
    }

    /// As etcd 3.4 answers a read, and a long one.
    const SHORT: &str = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\n\
        Grpc-Metadata-Content-Type: application/grpc\r\nContent-Length: 8\r\n\r\n{\"a\": 1}";
    const LONG: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\n{\"a\r\n5;x=y\r\n\": 1}\r\n0\r\nGrpc-Trailer: 1\r\n\r\n";

    #[test]
    fn replies_are_the_same_in_any_pieces() {
        let whole = HttpReply {
            is_success: true,
            body: br#"{"a": 1}"#.to_vec(),
        };
        let interim = format!("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n{SHORT}");
        let until_end = "HTTP/1.0 200 OK\r\n\r\n{\"a\": 1}";
        let closing = SHORT.replace("Content-Length", "Connection: close\r\ncontent-length");
        for (text, is_last) in [
            (SHORT, false),
            (LONG, false),
            (&interim, false),
            (until_end, true),
            (&closing, true),
        ] {
            for piece in 1..=text.len() {
                let (reply, last) = read(text.as_bytes(), piece)
                    .expect("a reply")
                    .expect("all of it");
                assert_eq!((&reply, last), (&whole, is_last), "{piece}: {text}");
            }
            for cut in 0..text.len() {
                let reply = read(&text.as_bytes()[..cut], 7);
                assert!(!matches!(reply, Ok(Some((reply, _))) if reply == whole));
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for (from, to) in [
            ("HTTP/1.1", "SMTP"),
            ("Content-Length: 8", "Content-Length: 7"),
            (
                "Content-Length: 8",
                "Content-Length: 8\r\nContent-Length: 9",
            ),
            ("Content-Length: 8", "Content-Length: -8"),
            ("Content-Length: 8", "Transfer-Encoding: gzip"),
            ("Content-Length: 8", "Transfer-Encoding: chunked"),
        ] {
            let text = SHORT.replace(from, to);
            assert!(read(text.as_bytes(), 1_000).is_err(), "{text}");
        }
        for size in ["2", "ffffffffffffffff", "fffffffffffffffff", "g"] {
            let text = LONG.replace("\n3\r", &format!("\n{size}\r"));
            let reply = read(text.as_bytes(), 1_000);
            assert!(!matches!(reply, Ok(Some(_))), "{text}: {reply:?}");
        }
    }

    #[test]
    fn damaged_replies_are_read_or_refused() {
        let mut rng = Rng::from_seed(1);
        for round in 0..20_000 {
            let mut bytes = [SHORT, LONG][round % 2].as_bytes().to_vec();
            for _ in 0..=rng.below(3) {
                let at = rng.index(bytes.len());
                match rng.below(3) {
                    0 => bytes[at] = rng.word() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, rng.word() as u8),
                }
            }
            let piece = 1 + rng.below(40) as usize;
            if let Ok(Some((reply, _))) = read(&bytes, piece) {
                assert!(reply.body.len() <= bytes.len());
            }
        }
    }
}
