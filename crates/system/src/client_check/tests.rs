//! Clients with one fault each, as programs of the shell.

use super::*;

/// A client whose conversation is this program of the shell.
async fn findings(program: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let command = ["sh", "-c", program].map(str::to_owned);
    let check = ClientCheck {
        command: &command,
        workload: "register",
        address: None,
        folder: folder.path(),
    };
    check_client(&check).await.unwrap().findings
}

/// Answers every message of the bench; `$1` is the answer to an invocation, with the id in `$id`.
fn client(answer: &str) -> String {
    format!(
        r#"while read -r line; do
  id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  w=$(echo "$line" | sed 's/.*"worker":\([0-9]*\).*/\1/')
  case "$line" in
    *'"hello"'*) echo '{{"type":"hello","protocol":1}}' ;;
    *'"open"'*) echo "{{\"type\":\"opened\",\"worker\":$w}}" ;;
    *no-such-function*) echo "{{\"type\":\"fail\",\"id\":$id,\"error\":\"unknown\"}}" ;;
    *'"invoke"'*'"read"'*) {answer} ;;
    *'"invoke"'*) echo "{{\"type\":\"ok\",\"id\":$id}}" ;;
  esac
done"#
    )
}

#[tokio::test]
async fn a_client_that_keeps_the_protocol_has_no_findings() {
    let found = findings(&client(
        r#"echo "{\"type\":\"ok\",\"id\":$id,\"value\":null}""#,
    ))
    .await;
    assert_eq!(found, [""; 0]);
}

#[tokio::test]
async fn each_fault_is_a_finding() {
    let faults = [
        ("exit 3".to_owned(), "(exit status: 3)"),
        (
            "echo ready; sleep 60".to_owned(),
            "hello: expected a line with a JSON object, got \"ready\"",
        ),
        (
            "echo '{\"type\":\"hello\",\"protocol\":9}'; cat >/dev/null".to_owned(),
            "hello: expected protocol 1, got 9",
        ),
        (
            client(r#"echo "{\"type\":\"ok\",\"id\":$id,\"value\":\"x\"}""#),
            "expected an integer or null as its value",
        ),
        (
            client(r#"echo "{\"type\":\"ok\",\"id\":$id}""#),
            "got nothing",
        ),
        (
            client(r#"echo "{\"type\":\"ok\",\"id\":999,\"value\":1}""#),
            "got one to id 999",
        ),
        (
            client("echo oops"),
            "expected a line with a JSON object, got \"oops\"",
        ),
        (client("exit 0"), "end: it ended "),
        (
            client(r#"echo "{\"type\":\"ok\",\"id\":$id,\"value\":null}""#) + "\nsleep 60",
            "end: it did not end within 2 s",
        ),
        (
            client(r#"echo "{\"type\":\"ok\",\"id\":$id,\"value\":null}""#) + "\nexit 5",
            "expected status 0",
        ),
    ];
    // All at once: they mostly wait.
    let tasks = tokio::task::LocalSet::new();
    let mut checks = tokio::task::JoinSet::new();
    for (program, expected) in faults {
        checks.spawn_local_on(async move { (expected, findings(&program).await) }, &tasks);
    }
    let found = tasks.run_until(checks.join_all()).await;
    for (expected, found) in found {
        assert!(
            found.iter().any(|one| one.contains(expected)),
            "{expected}: {found:?}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let command = ["/nowhere/client".to_owned()];
    let check = ClientCheck {
        command: &command,
        workload: "register",
        address: None,
        folder: folder.path(),
    };
    let found = check_client(&check).await.unwrap().findings;
    assert!(
        found[0].contains("/nowhere/client: cannot be started: No such file"),
        "{found:?}"
    );
}
