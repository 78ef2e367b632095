//! What both sides of a connection prove to each other: a shared key, certificates, both, or nothing.

use crate::processes::PROTOCOL;
use crate::read_key;
use seatrial_host::{ConnectOptions, SecretKey, TlsCredentials};
use seatrial_kv_protocol::message::MESSAGE_LENGTH_MAX;
use seatrial_suite::{OptionValues, SuiteError, read_tls};
use std::time::Duration;

/// Key and certificates of one side; nothing by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) key: Option<SecretKey>,
    pub(crate) tls: Option<TlsCredentials>,
}

impl Credentials {
    /// Reads the options of a node or a client.
    pub(crate) fn read(options: &OptionValues) -> Result<Credentials, SuiteError> {
        Ok(Credentials {
            key: read_key(options)?,
            tls: read_tls(options)?,
        })
    }

    /// How a client of the store connects, with this time limit.
    pub(crate) fn connect_options(&self, timeout: Duration) -> ConnectOptions {
        ConnectOptions {
            key: self.key.clone(),
            tls: self.tls.clone(),
            timeout,
            ..ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX)
        }
    }
}
