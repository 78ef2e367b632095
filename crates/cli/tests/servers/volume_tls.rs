//! A volume whose owner and replicas show each other certificates, as processes.

use super::process::{PATIENCE, Server, binary};
use super::scratch::Scratch;
use super::volume::{Attached, GuestConnection, assert_volume, await_status, create_with};
use crate::spoken;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The options of TLS with a certificate of the host's tests.
fn tls(name: &str, authority: &str) -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/tests/data/tls");
    let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
    let options = [("cert", &*certificate), ("key", &*key), ("ca", authority)];
    let options =
        options.map(|(option, file)| [format!("--tls-{option}"), format!("{folder}/{file}")]);
    options.concat()
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

fn replica(folder: &str, number: u32) -> Server {
    let node = number.to_string();
    let options = tls(&format!("n{number}"), "ca.pem");
    let start = ["volume", "downstairs", folder, "--node", &node];
    Server::start(&[&start[..], &words(&options)].concat())
}

/// A copy of what an owner needs, as on another machine; its description is changed.
fn copy(folder: &str, to: &str, change: impl FnOnce(String) -> String) {
    fs::create_dir(to).unwrap();
    for name in ["key", "link-key"] {
        fs::copy(format!("{folder}/{name}"), format!("{to}/{name}")).unwrap();
    }
    let text = fs::read_to_string(format!("{folder}/volume.toml")).unwrap();
    let changed = change(text.clone());
    fs::write(Path::new(to).join("volume.toml"), changed).unwrap();
}

/// An owner that no replica accepts reports the reason, and does not attach.
fn assert_refused(folder: &str, options: &[String], reason: &str) {
    let mut command = Command::new(binary());
    command
        .args(["volume", "attach", folder, "--nbd", "127.0.0.1:0"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = spoken::spawn(&mut command);
    let (begun, mut said) = (Instant::now(), String::new());
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while !said.contains(reason) && !said.contains("attached:") && begun.elapsed() < PATIENCE {
        assert!(lines.read_line(&mut said).unwrap() > 0, "it ended: {said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains(reason), "{said}\nexpected: {reason}");
    assert!(!said.contains("attached:"), "{said}");
}

/// Writes, reads and the repair of a replica that was away, all of them encrypted.
#[test]
fn a_volume_with_certificates_is_written_and_repaired() {
    let scratch = Scratch::new("volume-tls");
    let folder = create_with(&scratch, "disk", &["--tls"]);
    let mut replicas: Vec<Server> = (1..=3).map(|it| replica(&folder, it)).collect();
    let client = tls("client", "ca.pem");
    let owner = Attached::start(&folder, &words(&client));
    await_status(&folder, 0);
    let mut guest = GuestConnection::attach(&folder);
    guest.write(0, &[1; 4_096].repeat(256));
    guest.flush();
    drop(replicas.remove(1));
    guest.write(4_096, &[2; 4_096]);
    guest.flush();
    let text = await_status(&folder, 1);
    assert!(text.contains("n2 offline"), "{text}");
    replicas.push(replica(&folder, 2));
    await_status(&folder, 0);
    // What it missed came through the repair: it serves with one other.
    drop(replicas.remove(0));
    guest.write(8_192, &[3; 4_096]);
    guest.flush();
    assert_eq!(guest.read(4_096, 4_096), Ok(vec![2; 4_096]));
    assert_eq!(guest.read(8_192, 4_096), Ok(vec![3; 4_096]));
    assert_eq!(owner.terminate().0, Some(0));
}

#[test]
fn strangers_and_wrong_certificates_are_refused() {
    let scratch = Scratch::new("volume-tls-wrong");
    let folder = create_with(&scratch, "disk", &["--tls"]);
    // Without certificates, or with those of another node, nothing starts.
    let attach = ["attach", &folder];
    let start = ["downstairs", &folder, "--node", "1"];
    for command in [&attach[..], &start] {
        assert_volume(command, 254, "this volume needs TLS (tls = true)");
    }
    let other = tls("n2", "ca.pem");
    let with_other = [&start[..], &words(&other)].concat();
    assert_volume(&with_other, 254, "the certificate is not for n1");
    let half = [&start[..], &words(&other)[..2]].concat();
    assert_volume(&half, 254, "--tls-key and --tls-ca missing");
    let _replicas: Vec<Server> = (1..=3).map(|it| replica(&folder, it)).collect();
    // A stranger with the keys of the volume, but a certificate of another authority.
    let stranger = tls("stranger", "ca.pem");
    let reason = "the server refused the certificate of this side";
    assert_refused(&folder, &stranger, reason);
    // A replica that the owner's authority has not signed.
    let wrong = tls("client", "other-ca.pem");
    assert_refused(&folder, &wrong, "is not signed by this side's authority");
    // n2 in the place of n1.
    let swapped = scratch.path("swapped");
    copy(&folder, &swapped, |text| {
        let quoted: Vec<&str> = text.lines().filter(|it| it.starts_with("    \"")).collect();
        let [first, second, _] = quoted[..] else {
            panic!("three replicas: {text}");
        };
        let held = text.replace(first, "    first,").replace(second, first);
        held.replace("    first,", second)
    });
    let client = tls("client", "ca.pem");
    assert_refused(&swapped, &client, "certificate is refused");
    // An owner that knows nothing of TLS.
    let plain = scratch.path("plain");
    copy(&folder, &plain, |text| text.replace("tls = true\n", ""));
    assert_refused(&plain, &[], "the server demands TLS");
    // The right certificate is accepted all the same.
    let _owner = Attached::start(&folder, &words(&client));
    await_status(&folder, 0);
}
