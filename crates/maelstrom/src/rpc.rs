//! Remote procedure calls of a client: requests to a node, and the replies to them.

use crate::error_code;
use crate::hub::Hub;
use crate::node_message::{Body, EndpointName, NodeMessage, kind};
use serde_json::Value as Json;
use thiserror::Error;
use tokio::sync::mpsc;

/// One client's end of the network: it has one request under way at a time.
#[derive(Debug)]
pub(crate) struct RpcClient {
    name: EndpointName,
    node: EndpointName,
    hub: Hub,
    inbox: mpsc::Receiver<NodeMessage>,
}

/// Why a call returned no result.
#[derive(Debug, Error)]
pub(crate) enum RpcError {
    /// The node answered with an error.
    #[error("{} ({code}){}", error_code::name(*code), colon(text))]
    Answer {
        /// The code.
        code: i64,
        /// The node's text.
        text: String,
    },
    /// The node's reply does not fit the request; the text names both.
    #[error("{0}")]
    Malformed(String),
    /// The operation is not one of the workload.
    #[error("{0}")]
    Operation(String),
    /// The network has ended.
    #[error("the network of the test has ended")]
    Ended,
}

fn colon(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(": {text}")
}

impl RpcError {
    /// Does it say that the request did not take place and never will?
    pub(crate) fn is_definite(&self) -> bool {
        match self {
            RpcError::Answer { code, .. } => error_code::is_definite(*code),
            RpcError::Operation(_) => true,
            RpcError::Malformed(_) | RpcError::Ended => false,
        }
    }

    /// Does it have this code?
    pub(crate) fn has_code(&self, wanted: i64) -> bool {
        matches!(self, RpcError::Answer { code, .. } if *code == wanted)
    }
}

/// A reply that has the expected type.
#[derive(Debug)]
pub(crate) struct CallReply {
    /// The request and its reply, for errors.
    exchange: String,
    body: Body,
}

/// The most characters of a reply that an error shows.
const SHOWN_MAX: usize = 300;

impl RpcClient {
    /// The client called `name`, which talks to `node`.
    pub(crate) fn new(
        name: EndpointName,
        node: EndpointName,
        hub: Hub,
        inbox: mpsc::Receiver<NodeMessage>,
    ) -> RpcClient {
        RpcClient {
            name,
            node,
            hub,
            inbox,
        }
    }

    /// Sends a request to the client's node and waits for its reply. A dropped future abandons the request: its late reply is
    /// ignored.
    ///
    /// # Errors
    ///
    /// The node answered with an error, or with something else than `<type>_ok`.
    pub(crate) async fn call(&mut self, mut request: Body) -> Result<CallReply, RpcError> {
        let asked = kind(&request).to_owned();
        let id = self.hub.next_id();
        request.insert("msg_id".into(), id.into());
        let message = NodeMessage {
            src: self.name.clone(),
            dest: self.node.clone(),
            body: request,
        };
        self.hub.send(message);
        loop {
            let reply = self.inbox.recv().await.ok_or(RpcError::Ended)?;
            if reply.in_reply_to() == Some(id) {
                return self.accept(&asked, id, reply);
            }
        }
    }

    fn accept(&self, asked: &str, id: i64, reply: NodeMessage) -> Result<CallReply, RpcError> {
        let shown: String = Json::Object(reply.body.clone()).to_string();
        let shown: String = shown.chars().take(SHOWN_MAX).collect();
        let (node, name) = (&self.node, &self.name);
        let exchange = format!("{node} answered {asked} (message {id} of {name}) with {shown}");
        let found = CallReply {
            exchange,
            body: reply.body,
        };
        if kind(&found.body) == "error" {
            let code = found.field("code", "an integer", |code| code.as_i64())?;
            let text = found.body.get("text").and_then(Json::as_str);
            let text = text.unwrap_or_default().into();
            return Err(RpcError::Answer { code, text });
        }
        let expected = format!("{asked}_ok");
        if kind(&found.body) != expected {
            return Err(found.malformed(&format!("type {expected} or error")));
        }
        Ok(found)
    }

    /// Violations of the protocol that were found since the last call.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        self.hub.take_violations()
    }
}

impl CallReply {
    /// The field `name` as `decode` reads it.
    ///
    /// # Errors
    ///
    /// It is missing or `decode` does not accept it; the text says that `expected` was expected.
    pub(crate) fn field<T>(
        &self,
        name: &str,
        expected: &str,
        decode: impl Fn(&Json) -> Option<T>,
    ) -> Result<T, RpcError> {
        let decoded = self.body.get(name).and_then(decode);
        decoded.ok_or_else(|| self.malformed(&format!("{name}: {expected}")))
    }

    /// The error that the reply lacks something.
    pub(crate) fn malformed(&self, expected: &str) -> RpcError {
        RpcError::Malformed(format!("{} (expected {expected})", self.exchange))
    }
}
