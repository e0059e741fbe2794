//! The end of the program.

use std::process::Stdio;

use super::{PATIENCE, Program, command, first_line};
use tokio::time::timeout;

#[tokio::test]
async fn the_program_ends_with_standard_input() {
    let mut child = command(&["--exit-with-stdin"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let line = first_line(&mut child).await;
    let ready = serde_json::from_str(&line).unwrap();
    let input = child.stdin.take().unwrap();
    let program = Program { child, ready };
    assert!(program.get("/version").await.is_ok());
    drop(input);
    program.ends().await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_program_ends_with_its_parent_also_when_that_is_killed() {
    use tokio::io::AsyncReadExt as _;
    // A shell starts the program and waits; standard error stays open as long as the program runs.
    let program = env!("CARGO_BIN_EXE_reeve-apiserver");
    let script = format!("'{program}' --output json --exit-with-parent & wait");
    let mut shell = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let line = first_line(&mut shell).await;
    assert!(line.contains("\"url\""), "{line}");
    let mut errors = shell.stderr.take().unwrap();
    shell.start_kill().unwrap();
    shell.wait().await.unwrap();
    let mut text = String::new();
    let end = errors.read_to_string(&mut text);
    timeout(PATIENCE, end)
        .await
        .expect("it ends with its parent")
        .unwrap();
    assert_eq!(text, "");
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_ends_the_program_with_success() {
    let program = Program::start(&[]).await;
    let id = program.child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill").arg(id).status().await;
    assert!(sent.unwrap().success());
    program.ends().await;
}
