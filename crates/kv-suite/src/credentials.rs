//! What both sides of a connection prove to each other: a shared key, certificates, both, or nothing.

use crate::processes::PROTOCOL;
use crate::read_key;
use seatrial_host::{ConnectOptions, SecretKey, TlsCredentials};
use seatrial_kv::message::MESSAGE_LENGTH_MAX;
use seatrial_suite::{OptionValues, SuiteError};
use std::time::Duration;

/// File of this side's certificate, in PEM.
pub(crate) const TLS_CERT: &str = "tls-cert";
/// File of its private key.
pub(crate) const TLS_KEY: &str = "tls-key";
/// File of the authority that signs all certificates.
pub(crate) const TLS_CA: &str = "tls-ca";

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

/// Certificates are on both sides, so all three files are given, or none.
fn read_tls(options: &OptionValues) -> Result<Option<TlsCredentials>, SuiteError> {
    let names = [TLS_CERT, TLS_KEY, TLS_CA];
    let [certificate, key, authority] = names.map(|name| options.path(name));
    match (certificate, key, authority) {
        (Some(certificate), Some(key), Some(authority)) => {
            Ok(Some(TlsCredentials::read(certificate, key, authority)?))
        }
        (None, None, None) => Ok(None),
        _ => {
            let missing = names.into_iter().filter(|name| options.get(name).is_none());
            let missing: Vec<String> = missing.map(|name| format!("--{name}")).collect();
            let missing = missing.join(" and ");
            Err(
                format!("TLS needs --{TLS_CERT}, --{TLS_KEY} and --{TLS_CA}; {missing} missing")
                    .into(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_has_all_of_its_options_or_none() {
        let read = |names: &[&'static str]| {
            let mut options = OptionValues::default();
            for name in names {
                options.insert(name, "nothing".into());
            }
            let read = Credentials::read(&options);
            read.map(|it| it.tls.is_some()).map_err(|it| it.to_string())
        };
        assert_eq!(read(&[]), Ok(false));
        let error = read(&[TLS_CERT, TLS_KEY]).unwrap_err();
        assert!(error.ends_with("--tls-ca; --tls-ca missing"), "{error}");
        let error = read(&[TLS_CA]).unwrap_err();
        assert!(
            error.ends_with("; --tls-cert and --tls-key missing"),
            "{error}"
        );
        let error = read(&[TLS_CA, TLS_CERT, TLS_KEY]).unwrap_err();
        assert!(error.contains("nothing: "), "{error}");
    }
}
