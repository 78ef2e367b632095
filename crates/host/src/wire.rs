//! Messages on a stream of bytes: a length (4 bytes, little-endian, without itself) before each.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of the length before each message.
pub const PREFIX_LENGTH: usize = 4;

/// Puts a message with its length onto `out`.
pub fn write(out: &mut Vec<u8>, message: &[u8]) {
    assert!(
        u32::try_from(message.len()).is_ok(),
        "a message of {} bytes",
        message.len()
    );
    out.extend_from_slice(&(message.len() as u32).to_le_bytes());
    out.extend_from_slice(message);
}

/// The next message; `None` when the stream ended between two. Fails on a stream that ends within a message, and on a length
/// above `length_max` before anything is allocated for it; memory grows only with what arrives.
pub async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    length_max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut prefix = [0; PREFIX_LENGTH];
    let first = stream.read(&mut prefix).await?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut prefix[first..]).await?;
    let length = u32::from_le_bytes(prefix) as usize;
    if length > length_max {
        let problem = format!("a message of {length} bytes, at most {length_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut message = Vec::with_capacity(length.min(4096));
    let got = stream.take(length as u64).read_to_end(&mut message).await?;
    if got < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8], length_max: usize) -> Vec<Result<Vec<u8>, io::ErrorKind>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut all = Vec::new();
            loop {
                match read(&mut bytes, length_max).await {
                    Ok(Some(message)) => all.push(Ok(message)),
                    Ok(None) => return all,
                    Err(error) => {
                        all.push(Err(error.kind()));
                        return all;
                    }
                }
            }
        })
    }

    #[test]
    fn messages_come_back_one_by_one() {
        let mut bytes = Vec::new();
        for message in [&b"one"[..], b"", &[7; 10_000]] {
            write(&mut bytes, message);
        }
        let all = read_all(&bytes, 10_000);
        assert_eq!(
            all,
            [Ok(b"one".to_vec()), Ok(Vec::new()), Ok(vec![7; 10_000])]
        );
    }

    #[test]
    fn a_cut_stream_and_a_claim_too_large_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello");
        for end in 1..bytes.len() {
            assert_eq!(
                read_all(&bytes[..end], 10),
                [Err(io::ErrorKind::UnexpectedEof)],
                "{end}"
            );
        }
        assert_eq!(read_all(&bytes, 4), [Err(io::ErrorKind::InvalidData)]);
        assert_eq!(
            read_all(&[255; 8], 1 << 20),
            [Err(io::ErrorKind::InvalidData)]
        );
    }
}
