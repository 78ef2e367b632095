//! Questions to nodes: does it accept a connection, what does a URL answer, does a command succeed?

use crate::definition::{NodeDefinition, Probe, ProbeQuestion};
use crate::short_command as command;
use crate::template::Scope;
use seatrial_runner::OrdinaryUser;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of one question.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// An answer over HTTP is read up to this length.
const ANSWER_MAX: usize = 256 * 1024;

/// Asks once; an error has the reason why the answer is no. Returns the text of the answer, which a connection has not.
pub(crate) async fn ask(
    probe: &Probe,
    node: &NodeDefinition,
    user: Option<&OrdinaryUser>,
    scope: &dyn Scope,
) -> Result<String, String> {
    let answer = match &probe.question {
        ProbeQuestion::Tcp(address) => {
            let address = address.fill(scope)?;
            let connected = timeout(ASK_LIMIT, TcpStream::connect(&address)).await;
            let connected = connected.map_err(|_| format!("{address}: timed out"))?;
            return connected
                .map(|_| String::new())
                .map_err(|error| format!("{address}: {error}"));
        }
        ProbeQuestion::Http(url) => {
            let url = url.fill(scope)?;
            let answer = timeout(ASK_LIMIT, get(&url)).await;
            answer.map_err(|_| format!("{url}: timed out"))??
        }
        ProbeQuestion::Command(asked) => {
            let filled = command::filled(asked, &node.environment, scope)?;
            command::succeed(filled, user, ASK_LIMIT).await?
        }
    };
    let Some(pattern) = &probe.pattern else {
        return Ok(answer);
    };
    if answer.lines().any(|line| pattern.is_match(line)) {
        return Ok(answer);
    }
    let first = answer.lines().find(|line| !line.trim().is_empty());
    let first: String = first.unwrap_or("nothing").chars().take(200).collect();
    Err(format!(
        "no line of the answer matches {:?}: {first}",
        pattern.text()
    ))
}

/// The body of a URL that answers with a status below 400.
async fn get(url: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{url}: {error}");
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| format!("{url}: only http:// is supported"))?;
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, ""), |(host, path)| (host, path));
    let address = if host.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let mut stream = TcpStream::connect(&address).await.map_err(failed)?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    let mut limited = stream.take(ANSWER_MAX as u64);
    limited.read_to_end(&mut answer).await.map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.lines().next().unwrap_or_default().to_owned();
    let code = status
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5)?.parse::<u32>().ok());
    match code {
        Some(code) if code < 400 => Ok(answer),
        Some(_) => Err(format!("{url}: {status}")),
        None => Err(format!("{url}: the answer is not HTTP: {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn urls_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answer in [
                "HTTP/1.1 200 OK\r\n\r\n{\"health\":true}",
                "HTTP/1.1 503 No\r\n\r\n",
                "hello",
            ] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 256];
                let _ = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let url = format!("http://{address}/health");
        assert!(get(&url).await.unwrap().contains("{\"health\":true}"));
        assert!(get(&url).await.unwrap_err().contains("503 No"));
        assert!(
            get(&url)
                .await
                .unwrap_err()
                .contains("the answer is not HTTP: \"hello\"")
        );
        assert!(
            get("https://x/")
                .await
                .unwrap_err()
                .contains("only http://")
        );
    }
}
