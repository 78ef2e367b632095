//! One connection to one broker.

use crate::kafka_error::KafkaError;
use crate::kafka_messages::{KafkaRequest, decoded, encoded};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// A connection to one broker, with one request at a time. After an error it is of no more use: the answer may still come.
pub(crate) struct KafkaConnection {
    stream: TcpStream,
    /// The number of the last request.
    number: i32,
}

/// Longest answer that is read: more than any fetch asks for.
const ANSWER_BYTES_MAX: u32 = 16 << 20;

impl KafkaConnection {
    pub(crate) async fn open(
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<KafkaConnection, KafkaError> {
        let connected = timeout_at(deadline, TcpStream::connect(address)).await;
        let not_sent = |reason: String| KafkaError::NotSent(format!("no connection: {reason}"));
        let stream = connected.map_err(|_| not_sent("timed out".into()))?;
        let stream = stream.map_err(|error| not_sent(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| not_sent(error.to_string()))?;
        Ok(KafkaConnection { stream, number: 0 })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask<R: KafkaRequest>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Answer, KafkaError> {
        let frame = self.next_frame(request)?;
        let answer = timeout_at(deadline, self.exchange(&frame)).await;
        let answer = answer.map_err(|_| KafkaError::Late)?;
        let answer = answer.map_err(|error| KafkaError::Lost(error.to_string()))?;
        decoded::<R>(&answer, self.number).map_err(KafkaError::Lost)
    }

    /// Sends a request that nothing answers: a message with `acks=0`.
    pub(crate) async fn tell<R: KafkaRequest>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<(), KafkaError> {
        let frame = self.next_frame(request)?;
        let sent = timeout_at(deadline, self.stream.write_all(&frame)).await;
        let sent = sent.map_err(|_| KafkaError::Late)?;
        sent.map_err(|error| KafkaError::Lost(error.to_string()))
    }

    fn next_frame<R: KafkaRequest>(&mut self, request: &R) -> Result<Bytes, KafkaError> {
        self.number = self.number.wrapping_add(1);
        encoded(request, self.number)
    }

    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Bytes> {
        self.stream.write_all(frame).await?;
        let length = self.stream.read_u32().await?;
        if length > ANSWER_BYTES_MAX {
            let text = format!("an answer of {length} bytes, at most {ANSWER_BYTES_MAX} are read");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        // It grows with the bytes that arrive, not with the length that is claimed.
        let mut answer = Vec::new();
        let mut limited = (&mut self.stream).take(length.into());
        limited.read_to_end(&mut answer).await?;
        if answer.len() < length as usize {
            let text = "the connection was closed in the middle of an answer";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(answer.into())
    }
}
