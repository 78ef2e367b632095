//! Commands: filled-in templates that run for a moment, and their output.

use crate::definition::CommandTemplate;
use crate::template::{Scope, Template, TemplateWord};
use seatrial_runner::{Child, OrdinaryUser};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// The output of a command is kept up to this length.
const OUTPUT_MAX: usize = 256 * 1024;
/// Lines of output in an error.
const LINES_SHOWN: usize = 20;

/// The end of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: ExitStatus,
    /// Standard output and standard error, as they came.
    pub(crate) text: String,
}

/// A command with its environment, for this scope.
pub(crate) fn filled(
    command: &CommandTemplate,
    environment: &[(String, Template)],
    scope: &dyn Scope,
) -> Result<Command, String> {
    assert!(!command.words.is_empty(), "a command has a program");
    let words = command.words.iter().map(|word| word.fill(scope));
    let words: Vec<String> = words.collect::<Result<_, _>>()?;
    let mut program = PathBuf::from(&words[0]);
    if words[0].contains('/') && program.is_relative() {
        // The process has a folder of its own; the file means the folder that it is in.
        program = Path::new(&scope.word(TemplateWord::Home)?).join(program);
    }
    let mut filled = Command::new(program);
    filled.args(&words[1..]);
    for (name, value) in environment {
        filled.env(name, value.fill(scope)?);
    }
    Ok(filled)
}

/// Runs a command to its end, at most for `limit`, as `user`.
pub(crate) async fn run(
    mut command: Command,
    user: Option<&OrdinaryUser>,
    limit: Duration,
) -> Result<CommandOutput, String> {
    let shown = shown(&command);
    let failed = |error: io::Error| format!("`{shown}`: {error}");
    if let Some(user) = user {
        user.run(&mut command);
    }
    let (output, input) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null());
    command
        .stdout(input.try_clone().map_err(failed)?)
        .stderr(input);
    let mut output = pipe::Receiver::from_owned_fd(output.into()).map_err(failed)?;
    let child = Child::spawn(command).map_err(failed)?;
    let mut text = Vec::new();
    let reading = async {
        let mut piece = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = output.read(&mut piece).await {
            let room = OUTPUT_MAX - text.len();
            text.extend_from_slice(&piece[..length.min(room)]);
        }
    };
    let ending = async {
        tokio::pin!(reading);
        let mut is_read = false;
        let status = tokio::select! {
            status = child.end() => status,
            () = &mut reading => {
                is_read = true;
                child.end().await
            }
        };
        if !is_read {
            // A process that the command left running may hold the pipe: its output is not waited for.
            let _ = timeout(Duration::from_millis(50), &mut reading).await;
        }
        status
    };
    let status = timeout(limit, ending).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    match status {
        Ok(status) => Ok(CommandOutput { status, text }),
        Err(_) => Err(format!(
            "`{shown}` did not end within {} s{}",
            limit.as_secs_f64(),
            tail(&text)
        )),
    }
}

/// Runs a command and fails unless it succeeds; returns its output.
pub(crate) async fn succeed(
    command: Command,
    user: Option<&OrdinaryUser>,
    limit: Duration,
) -> Result<String, String> {
    let name = shown(&command);
    let output = run(command, user, limit).await?;
    if output.status.success() {
        return Ok(output.text);
    }
    Err(format!(
        "`{name}` failed ({}){}",
        output.status,
        tail(&output.text)
    ))
}

/// The last lines of an output as the end of a message.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return "; it printed nothing".into();
    }
    let kept = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    let kept: Vec<String> = kept
        .iter()
        .map(|line| format!("    {}", clipped(line)))
        .collect();
    format!("; its last lines:\n{}", kept.join("\n"))
}

/// A line of at most 400 characters.
fn clipped(line: &str) -> String {
    line.chars().take(400).collect()
}

/// A command as people type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    clipped(&words.join(" "))
}

/// The file of a program: a path, or a name that is looked up in `PATH`.
pub(crate) fn find_program(name: &str, home: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        let path = home.join(name);
        return is_program(&path).then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| is_program(path)))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[tokio::test]
    async fn commands_end_with_their_output() {
        let second = Duration::from_secs(10);
        let text = succeed(sh("echo a; echo b >&2"), None, second)
            .await
            .unwrap();
        assert_eq!(text, "a\nb\n");
        let error = succeed(sh("echo why; exit 3"), None, second)
            .await
            .unwrap_err();
        assert!(
            error.contains("failed (exit status: 3); its last lines:\n    why"),
            "{error}"
        );
        let error = run(sh("sleep 60"), None, Duration::from_millis(50))
            .await
            .unwrap_err();
        assert!(error.contains("did not end within 0.05 s"), "{error}");
        let error = run(Command::new("/nowhere/x"), None, second)
            .await
            .unwrap_err();
        assert!(error.contains("`/nowhere/x`: No such file"), "{error}");
        // The process in the background holds the pipe, and is not waited for.
        let left = run(sh("sleep 60 & echo done"), None, second).await.unwrap();
        assert_eq!(left.text, "done\n");
    }

    #[test]
    fn programs_are_found() {
        assert!(find_program("sh", Path::new("/")).is_some());
        assert!(find_program("no-such-program", Path::new("/")).is_none());
        assert!(find_program("bin/sh", Path::new("/")).is_some());
        assert!(
            find_program("./etc/passwd", Path::new("/")).is_none(),
            "not executable"
        );
    }
}
