//! Nodes and clients with TLS, as processes.

use super::kv_cluster::{kv, list, start_node, until, until_said};
use super::process::{Server, free_addresses, run};
use super::scratch::Scratch;

/// A file of the certificates of the host's tests.
fn file(name: &str) -> String {
    format!(
        "{}/../host/tests/data/tls/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// The options of TLS with this certificate.
fn tls(name: &str, authority: &str) -> Vec<String> {
    let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
    let options = [("cert", &*certificate), ("key", &*key), ("ca", authority)];
    let options = options.map(|(option, name)| [format!("--tls-{option}"), file(name)]);
    options.concat()
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

#[test]
fn nodes_and_clients_with_certificates_form_a_cluster() {
    let scratch = Scratch::new("kv-tls");
    let key = scratch.file("key", "0123456789abcdef0123456789abcdef\n");
    let all = free_addresses(3);
    let mut servers: Vec<Server> = (1..=3)
        .map(|number| {
            let mut options = tls(&format!("n{number}"), "ca.pem");
            options.extend(["--key-file".to_owned(), key.clone()]);
            start_node(&scratch, &all, number, &words(&options))
        })
        .collect();
    let three = list(&all);
    let mut options = tls("client", "ca.pem");
    options.extend(["--key-file", &key, "--server", &three].map(str::to_owned));
    let client = words(&options);
    let with = |words: &[&'static str]| [words, &client].concat();
    until(&with(&["put", "a", "1"]), 0, "ok");
    until(&with(&["status"]), 0, "members n1 n2 n3; log ");
    drop(servers.remove(0));
    until(&with(&["put", "a", "2"]), 0, "ok");
    until(&with(&["get", "a"]), 0, "2\n");
    // Neither half is enough.
    let at = all[1].to_string();
    let (status, text) = kv(&[
        &["get", "a", "--server", &at],
        &words(&tls("client", "ca.pem"))[..],
    ]
    .concat());
    assert_eq!(status, 254, "{text}");
    assert!(text.contains("a key is needed (--key-file)"), "{text}");
    let (status, text) = kv(&["get", "a", "--server", &at, "--key-file", &key]);
    assert_eq!(status, 254, "{text}");
    assert!(
        text.contains("the server demands TLS (--tls-cert, --tls-key, --tls-ca)"),
        "{text}"
    );
}

#[test]
fn wrong_certificates_end_with_their_reason() {
    let scratch = Scratch::new("kv-tls-wrong");
    let data = scratch.path("data");
    let start = ["node", "kv", "--listen", "127.0.0.1:0", "--data", &data];
    for (options, reason) in [
        (tls("n2", "ca.pem"), "n2.pem: the certificate is not for n1"),
        (tls("none", "ca.pem"), "none.pem: No such file"),
        (
            tls("n1", "ca.pem")[..4].to_vec(),
            "TLS needs --tls-cert, --tls-key and --tls-ca; --tls-ca missing",
        ),
    ] {
        let output = run(&[&start[..], &words(&options)[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(254), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    let options = tls("n1", "ca.pem");
    let server = Server::start(&[&start[..], &words(&options)[..]].concat());
    let at = server.address.to_string();
    for (options, reason) in [
        // The first: the server logs one refusal at once, and the number of others later.
        (
            tls("stranger", "ca.pem"),
            "the server refused the certificate of this side",
        ),
        (
            tls("client", "other-ca.pem"),
            "the server's certificate is not signed by this side's authority (--tls-ca)",
        ),
        (tls("expired", "ca.pem"), "it has expired (--tls-cert)"),
    ] {
        let (status, text) = kv(&[&["get", "a", "--server", &at], &words(&options)[..]].concat());
        assert_eq!(status, 254, "{text}");
        assert!(text.contains(reason), "{text}, expected: {reason}");
    }
    let (status, text) = kv(&[
        &["get", "a", "--server", &at],
        &words(&tls("client", "ca.pem"))[..],
    ]
    .concat());
    assert_eq!(status, 1, "{text}");
    until_said(
        &server,
        "was refused: the client's certificate is not signed",
    );
    drop(server);
    // A client with certificates at a node without.
    let server = Server::start(&start);
    let at = server.address.to_string();
    let (status, text) = kv(&[
        &["get", "a", "--server", &at],
        &words(&tls("client", "ca.pem"))[..],
    ]
    .concat());
    assert_eq!(status, 254, "{text}");
    assert!(
        text.contains("closed the connection during the TLS handshake"),
        "{text}"
    );
    until_said(&server, "it begins a TLS handshake");
}
