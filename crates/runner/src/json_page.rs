//! What a server says of itself over HTTP, as JSON.

use crate::ClientError;
use serde_json::Value as Json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a question.
const LIMIT: Duration = Duration::from_millis(800);
/// Bytes of an answer that are read at most.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The JSON at a path such as `/healthz`, for a suite that asks a server for its state: one connection, one question, at most
/// 0.8 s. `fields` are further lines of the request's head, each with its `\r\n`, such as an authorization.
pub async fn json_page(address: SocketAddr, path: &str, fields: &str) -> Result<Json, ClientError> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        // In this version of HTTP the server closes the connection after its answer.
        let request = format!("GET {path} HTTP/1.0\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(LIMIT, asked)
        .await
        .map_err(|_| format!("{path}: no answer within {LIMIT:?}"))??;
    Ok(body(&answer).map_err(|reason| format!("{path}: {reason}"))?)
}

/// The JSON of an answer.
fn body(answer: &[u8]) -> Result<Json, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or("the answer has no end of its head")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("status {status}: {}", body.trim()));
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_json_after_their_head() {
        let good = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"status\": \"ok\"}";
        assert_eq!(body(good).unwrap()["status"], "ok");
        let bad = b"HTTP/1.0 503 Service Unavailable\r\n\r\n{\"status\": \"unavailable\"}";
        assert!(body(bad).unwrap_err().starts_with("status 503: {"));
        assert!(body(b"HTTP/1.0 200 OK\r\n").is_err());
        assert!(body(b"HTTP/1.0 200 OK\r\n\r\n<html>").is_err());
        assert!(body(b"\xff\xfe\r\n\r\n").is_err());
    }
}
