//! The pipes of a node: lines from its standard output become messages, messages become lines of its standard input.

use crate::hub::{Hub, MessageSink, NODE_QUEUE_MAX};
use crate::node_message::{EndpointName, LINE_BYTES_MAX, NodeMessage};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// The ends of the pipes that the node's process gets.
#[derive(Debug)]
pub(crate) struct NodeEnds {
    /// Its standard input.
    pub(crate) input: PipeReader,
    /// Its standard output.
    pub(crate) output: PipeWriter,
}

/// Connects a new process of `node` to the hub: two threads carry its lines until the process ends. A process that was connected
/// before under this name gets no further messages.
///
/// # Errors
///
/// The system has no pipes or threads left.
pub(crate) fn connect(node: &EndpointName, hub: &Hub) -> io::Result<NodeEnds> {
    let (input, to_node) = io::pipe()?;
    let (from_node, output) = io::pipe()?;
    let (lines, queue) = sync_channel(NODE_QUEUE_MAX);
    let (name, reader_hub) = (node.clone(), hub.clone());
    thread::Builder::new()
        .name(format!("{node}-out"))
        .spawn(move || read_lines(&name, from_node, &reader_hub))?;
    thread::Builder::new()
        .name(format!("{node}-in"))
        .spawn(move || write_lines(&queue, to_node))?;
    hub.attach(node.clone(), MessageSink::Node(lines));
    Ok(NodeEnds { input, output })
}

/// Sends each line of the node's output as a message, until its process ends.
fn read_lines(node: &EndpointName, output: PipeReader, hub: &Hub) {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte over the limit is read, as the sign that the line is longer.
        let limit = LINE_BYTES_MAX as u64 + 1;
        match output.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.last() == Some(&b'\n');
        if is_whole {
            line.pop();
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match NodeMessage::parse(node, &line) {
            Ok(message) => hub.send(message),
            // The last line of a process that was killed may be cut short.
            Err(_) if !is_whole && line.len() <= LINE_BYTES_MAX => {}
            Err(error) => hub.violation(error.to_string()),
        }
        if !is_whole && line.len() > LINE_BYTES_MAX && skip_line(&mut output).is_err() {
            return;
        }
    }
}

/// Skips the rest of a line that is too long.
fn skip_line(output: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = output.fill_buf()?;
        let (used, is_end) = match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        output.consume(used);
        if is_end {
            return Ok(());
        }
    }
}

/// Writes the queue's lines to the node's input, until its process ends or another one takes its name.
fn write_lines(queue: &Receiver<Vec<u8>>, mut input: PipeWriter) {
    while let Ok(mut lines) = queue.recv() {
        // What waits is written with it: one system call for many messages.
        while lines.len() < (1 << 16)
            && let Ok(more) = queue.try_recv()
        {
            lines.extend(more);
        }
        if input.write_all(&lines).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_network::TransitOptions;
    use seatrial_machine::Rng;

    #[tokio::test(flavor = "multi_thread")]
    async fn lines_become_messages_and_back() {
        let hub = Hub::new(TransitOptions::default(), &Rng::from_seed(1));
        let name = EndpointName::new("n1");
        let mut inbox = hub.inbox(EndpointName::new("c1"));
        let NodeEnds { input, mut output } = connect(&name, &hub).unwrap();
        let body = crate::node_message::body("echo", [("msg_id", 1.into())]);
        hub.send(NodeMessage {
            src: EndpointName::new("c1"),
            dest: name.clone(),
            body,
        });
        let mut input = BufReader::new(input);
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        assert!(line.contains(r#""src":"c1""#), "{line}");
        output.write_all(b"hello\n\n").unwrap();
        let long = vec![b' '; LINE_BYTES_MAX + 10];
        output
            .write_all(&[b"[", &long[..], b"]\n"].concat())
            .unwrap();
        output
            .write_all(b"{\"src\":\"n1\",\"dest\":\"c1\",\"body\":{\"type\":\"echo_ok\",\"in_reply_to\":1}}\n")
            .unwrap();
        assert_eq!(inbox.recv().await.unwrap().kind(), "echo_ok");
        let violations = hub.take_violations();
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].contains("hello") && violations[1].contains("longer than 1048576"));
        // A line that a kill cut short is no violation.
        output.write_all(b"{\"src\"").unwrap();
        drop(output);
        assert_eq!(hub.take_violations(), [""; 0]);
    }
}
