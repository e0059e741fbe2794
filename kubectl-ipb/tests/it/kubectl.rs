//! The plugin as kubectl finds it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reeve_apiserver::assets;
use tokio::process::Command;

use super::world::World;

/// kubectl, with the plugin and its completion in `PATH`; `None` when the test is skipped for want of kubectl.
fn kubectl(world: &World, words: &[&str]) -> Option<Command> {
    let program = assets::kubectl()?;
    let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-ipb"))
        .parent()
        .unwrap();
    // As tools/manual writes it.
    let script = "#!/bin/sh\nexec kubectl-ipb __complete -- \"$@\"\n";
    let complete = world.file("kubectl_complete-ipb", script);
    std::fs::set_permissions(complete, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        plugin.display(),
        world.folder().display()
    );
    let mut command = Command::new(program);
    command.args(words).env("PATH", path);
    Some(command)
}

#[tokio::test]
async fn kubectl_runs_the_plugin_and_completes_its_words() {
    let world = World::new().await;
    let name = ipblock_operator::target::object_name("192.0.2.7");
    for (line, text) in [
        (
            "ipb ban 192.0.2.7 --wait",
            format!("ipblock.ops.yiiong.top/{name} created\n"),
        ),
        (
            "ipb list -o name",
            format!("ipblock.ops.yiiong.top/{name}\n"),
        ),
        ("__complete ipb unb", "unban\n:4\n".to_owned()),
        ("__complete ipb unban 192", "192.0.2.7\n:4\n".to_owned()),
        ("__complete ipb list -n we", "web\n:4\n".to_owned()),
        (
            "ipb unban 192.0.2.7 --wait",
            format!("ipblock.ops.yiiong.top/{name} unbanned\n"),
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(command) = kubectl(&world, &words) else {
            return;
        };
        let output = world.run(command, "").await;
        assert_eq!(
            (output.code, &output.text),
            (Some(0), &text),
            "{line}: {output:?}"
        );
    }
    let Some(get) = kubectl(&world, &["get", "ipb", &name]) else {
        return;
    };
    let output = world.run(get, "").await;
    assert!(output.text.contains("expired"), "{output:?}");
}
