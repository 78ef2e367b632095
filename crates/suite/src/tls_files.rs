//! The files of certificates that servers and clients of a suite are given.

use crate::{OptionValues, SuiteError};
use seatrial_host::TlsCredentials;

/// Option with the file of this side's certificate, in PEM.
pub const TLS_CERT: &str = "tls-cert";
/// Option with the file of its private key.
pub const TLS_KEY: &str = "tls-key";
/// Option with the file of the authority that signs all certificates.
pub const TLS_CA: &str = "tls-ca";

/// Reads the certificates that the options name. They are on both sides, so all three files are given, or none.
pub fn read_tls(options: &OptionValues) -> Result<Option<TlsCredentials>, SuiteError> {
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
            let read = read_tls(&options);
            read.map(|it| it.is_some()).map_err(|it| it.to_string())
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
