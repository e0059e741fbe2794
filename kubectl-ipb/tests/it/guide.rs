//! The commands of docs/kubectl-ipb.md, one after another, and what they print.

use std::fmt::Write as _;

use super::world::{World, steady};

const GUIDE: &str = include_str!("../guide.md");

/// The page with the output of this run under each command. `$ cat FILE` writes the file from its output.
async fn played(world: &World) -> String {
    let mut page = String::new();
    let mut console = false;
    let mut lines = GUIDE.lines().peekable();
    while let Some(line) = lines.next() {
        page.push_str(line);
        page.push('\n');
        if line.starts_with("```") {
            console = line == "```console";
        }
        let Some(command) = line.strip_prefix("$ ").filter(|_| console) else {
            continue;
        };
        let mut output = String::new();
        while let Some(line) = lines.next_if(|next| !next.starts_with(['$', '`'])) {
            let _ = writeln!(output, "{line}");
        }
        if let Some(file) = command.strip_prefix("cat ") {
            world.file(file, &output);
        } else {
            let words = command.strip_prefix("kubectl ipb ").expect(command);
            output = world.printed(words).await;
            // `import` does not wait for the operator, and `export` has the bans that stand.
            if words.starts_with("import") {
                world.decided().await;
            }
        }
        page.push_str(&output);
    }
    page
}

/// Lines without what differs from run to run: times, spans, the widths that they give columns, and the user.
fn comparable(page: &str) -> Vec<String> {
    // The administrator's name on each server.
    let steady = steady(page).replace("reeve-admin", "system:admin");
    let lines = steady.lines();
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[tokio::test]
async fn the_commands_of_the_guide_print_what_it_shows() {
    compare(&World::new().await).await;
}

#[tokio::test]
async fn the_commands_of_the_guide_print_the_same_on_a_real_server() {
    if let Some(world) = World::real().await {
        compare(&world).await;
    }
}

async fn compare(world: &World) {
    let played = played(world).await;
    if comparable(&played) != comparable(GUIDE) {
        let path = std::env::temp_dir().join("kubectl-ipb.md");
        std::fs::write(&path, &played).unwrap();
        panic!("the guide differs from {}:\n{played}", path.display());
    }
}
