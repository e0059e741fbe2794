//! Completions and manual pages of the programs, made of their command lines.
//!
//! `FOLDER/PROGRAM/completions` has one file for each of bash, zsh and fish, `FOLDER/PROGRAM/man` a page for the program
//! and one for each of its commands. A plugin of kubectl also has `FOLDER/PROGRAM/kubectl_complete-PLUGIN`.

mod plugin;

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate_to};

/// The command lines of all programs of a release, by their names.
#[must_use]
pub fn programs() -> Vec<Command> {
    vec![
        reeve_apiserver::program::command(),
        ipblock_operator::command::command(),
        kubectl_reeve::command(),
        kubectl_ipb::command(),
        ipblock_agent::command::command(),
    ]
}

/// Writes the files of `program` to its folder in `folder`.
///
/// # Errors
/// If a file or folder cannot be written.
pub fn write(program: &Command, folder: &Path) -> io::Result<()> {
    let name = program.get_name().to_owned();
    let folder = folder.join(&name);
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    // The name in a plugin's usage has a space, and completions are found by the name of the program.
    let mut completed = program.clone().bin_name(&name);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut completed, &name, &completions)?;
    }
    let bash = completions.join(format!("{name}.bash"));
    let completion = with_labels_of_hyphens(&fs::read_to_string(&bash)?, &name);
    fs::write(bash, &completion)?;
    let man = folder.join("man");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(program.clone(), &man)?;
    // The pages of hidden commands are for programs only.
    for hidden in program.get_subcommands().filter(|one| one.is_hide_set()) {
        let page = man.join(format!("{name}-{}.1", hidden.get_name()));
        if page.exists() {
            fs::remove_file(page)?;
        }
    }
    if let Some(plugin) = name.strip_prefix("kubectl-") {
        let path = folder.join(format!("kubectl_complete-{plugin}"));
        if program.find_subcommand("__complete").is_some() {
            plugin::write_call(&path, &name)?;
        } else {
            plugin::write(&path, &name, &completion)?;
        }
    }
    Ok(())
}

/// The completion for bash whose states have the names that it compares them with: a hyphen in the name of the program
/// becomes `__` in one place and `__subcmd__` in the other, so that no command completed its options (clap#6421).
fn with_labels_of_hyphens(completion: &str, name: &str) -> String {
    completion.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}
