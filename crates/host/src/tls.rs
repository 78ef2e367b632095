//! Certificates of nodes and clients, and TLS 1.3 over their connections (RFC 8446), by the crate `rustls`.

use crate::key;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name that every server's certificate has besides its own, and by which clients know it.
const SERVER_NAME: &str = "seatrial";
/// Maximum length of a file of certificates or keys.
const FILE_LENGTH_MAX: u64 = 1 << 20;

/// A certificate, its private key, and the authority that signs the certificates of all nodes and clients. Both sides of every
/// connection show a certificate (mutual TLS), so a server without clients' certificates is not possible.
///
/// | certificate of | DNS names (subjectAltName) |
/// | --- | --- |
/// | node 2 | `n2`, by which other nodes know it, and `seatrial`, by which clients do |
/// | a client | none of these |
///
/// TLS 1.3 only; no resumption, so that each connection is authenticated; no revocation: an authority of one cluster is
/// replaced. A clone is another handle of the same.
#[derive(Clone)]
pub struct TlsCredentials {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    certificate: CertificateDer<'static>,
    path: PathBuf,
}

impl fmt::Debug for TlsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCredentials")
            .field("certificate", &self.path)
            .finish_non_exhaustive()
    }
}

/// Why certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The private key belongs to another certificate.
    #[error("{}: the key does not belong to the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The certificate of a node lacks one of its names.
    #[error("{}: the certificate is not for {name} (a node's certificate has the DNS names {name} and {SERVER_NAME})", path.display())]
    Name {
        /// The file of the certificate.
        path: PathBuf,
        /// The name.
        name: String,
    },
}

impl TlsCredentials {
    /// Reads PEM files: the certificate with those between it and the authority, its key, and the authority's certificate.
    /// Logs a warning if other users may read the key.
    pub fn read(
        certificate: &Path,
        key: &Path,
        authority: &Path,
    ) -> Result<TlsCredentials, TlsError> {
        let chain = read_certificates(certificate)?;
        let roots = Arc::new(read_authority(authority)?);
        let private = read_key(key)?;
        key::warn_if_readable(key);
        let wrong = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::OtherKey {
                key: key.to_owned(),
                certificate: certificate.to_owned(),
            },
            error => file_error(certificate, error),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(|it| file_error(authority, it))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), private.clone_key());
        let mut server = server.map_err(wrong)?;
        server.send_tls13_tickets = 0; // nothing is resumed
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let servers = servers.build().map_err(|it| file_error(authority, it))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain.clone(), private);
        let mut client = client.map_err(wrong)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false; // a server has one certificate
        let first = chain.into_iter().next();
        Ok(TlsCredentials {
            server: Arc::new(server),
            client: Arc::new(client),
            certificate: first.ok_or_else(|| no_certificate(certificate))?,
            path: certificate.to_owned(),
        })
    }

    /// Checks that the certificate has the names of a node: those that other nodes and clients will ask for.
    pub fn check_node(&self, node: &str) -> Result<(), TlsError> {
        for name in [node, SERVER_NAME] {
            if !is_for(&self.certificate, name) {
                return Err(TlsError::Name {
                    path: self.path.clone(),
                    name: name.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The server's side of a new connection.
    pub(crate) fn accept(&self) -> io::Result<Connection> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        connection.map(Connection::Server).map_err(io::Error::other)
    }

    /// The client's side of a new connection, to a server with this name; `None`: any server.
    pub(crate) fn connect(&self, name: Option<&str>) -> io::Result<Connection> {
        let name = name.unwrap_or(SERVER_NAME).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        connection.map(Connection::Client).map_err(io::Error::other)
    }
}

/// Is the certificate valid for this DNS name?
pub(crate) fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    let (Ok(parsed), Ok(name)) = (parsed, ServerName::try_from(name)) else {
        return false;
    };
    rustls::client::verify_server_name(&parsed, &name).is_ok()
}

fn file_error(path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn no_certificate(path: &Path) -> TlsError {
    file_error(path, "no certificate (expected PEM: BEGIN CERTIFICATE)")
}

/// The bytes of a file, which is short: a wrong path must not fill the memory.
fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(FILE_LENGTH_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LENGTH_MAX {
            let text = format!("longer than {FILE_LENGTH_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(bytes)
    };
    read().map_err(|error| file_error(path, error))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read_file(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| file_error(path, error))?;
    if all.is_empty() {
        return Err(no_certificate(path));
    }
    Ok(all)
}

fn read_authority(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| file_error(path, error))?;
    }
    Ok(roots)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read_file(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            file_error(path, "no private key (expected PEM: BEGIN PRIVATE KEY)")
        }
        error => file_error(path, error),
    })
}
