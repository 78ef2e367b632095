//! Where a reply ends: the framing of Redis' protocol, version 2.

use std::io;

/// Lists within lists that are followed.
const DEPTH_MAX: usize = 8;

/// The length of the reply at the beginning of these bytes; `None` if more of it is to come. An error: it is no reply.
pub(crate) fn reply_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    reply_end(bytes, 0, 0)
}

/// The end of the reply that begins at `from`.
fn reply_end(bytes: &[u8], from: usize, depth: usize) -> io::Result<Option<usize>> {
    if depth > DEPTH_MAX {
        return Err(wrong("lists within lists"));
    }
    let Some(line) = bytes.get(from..).and_then(line) else {
        return Ok(None);
    };
    let after = from + line.len() + 2;
    let Some((kind, rest)) = line.split_first() else {
        return Err(wrong("an empty line"));
    };
    match kind {
        b'+' | b'-' | b':' => Ok(Some(after)),
        b'$' => {
            let Ok(length) = usize::try_from(number(rest)?) else {
                return Ok(Some(after)); // nil
            };
            let end = after.checked_add(length).and_then(|end| end.checked_add(2));
            let end = end.ok_or_else(|| wrong("a text of impossible length"))?;
            Ok((end <= bytes.len()).then_some(end))
        }
        b'*' => {
            let mut end = after;
            for _ in 0..number(rest)?.max(0) {
                match reply_end(bytes, end, depth + 1)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        other => Err(wrong(&format!(
            "a reply that begins with {:?}",
            char::from(*other)
        ))),
    }
}

/// The bytes before the first line break.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    (bytes.get(end + 1) == Some(&b'\n')).then(|| &bytes[..end])
}

fn number(digits: &[u8]) -> io::Result<i64> {
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| wrong("a length that is no number"))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server sent {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_where_the_protocol_says() {
        for reply in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-17\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+QUEUED\r\n",
        ] {
            let more = format!("{reply}:1\r\n");
            assert_eq!(
                reply_length(more.as_bytes()).unwrap(),
                Some(reply.len()),
                "{reply:?}"
            );
            for length in 0..reply.len() {
                let part = &reply.as_bytes()[..length];
                assert_eq!(reply_length(part).unwrap(), None, "{length} of {reply:?}");
            }
            redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let deep = "*1\r\n".repeat(20);
        for wrong in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            "$x\r\n",
            "*1x\r\n",
            "$9223372036854775807\r\n",
            &deep,
        ] {
            let length = reply_length(wrong.as_bytes());
            // A text of 8 EiB never comes, so it is waited for.
            assert!(length.is_err() || length.unwrap().is_none(), "{wrong:?}");
        }
        assert!(reply_length(deep.as_bytes()).is_err());
        assert!(reply_length(b"HTTP/1.1 400\r\n").is_err());
    }
}
