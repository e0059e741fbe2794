//! The completion of a kubectl plugin: a program `kubectl_complete-PLUGIN`, which kubectl runs with the words after the
//! plugin's name.

use std::fs;
use std::io;
use std::path::Path;

/// What follows the completion for bash: it is called as bash calls it, and its words are printed as kubectl reads them.
///
/// The last line is a directive of cobra: 4 leaves out the names of files, 0 adds them.
const CALL: &str = r#"
COMP_WORDS=(PROGRAM "$@")
COMP_CWORD=$#
COMPREPLY=()
FUNCTION PROGRAM "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
if ((${#COMPREPLY[@]})); then
  printf '%s\n' "${COMPREPLY[@]}" :4
else
  echo :0
fi
"#;

/// Writes the program to `path`, from the completion of the plugin `program` for bash.
pub(crate) fn write(path: &Path, program: &str, completion: &str) -> io::Result<()> {
    let function = completion.split("()").next().unwrap_or_default();
    let mut text = String::from("#!/usr/bin/env bash\n");
    text.push_str(completion);
    text.push_str(
        &CALL
            .replace("PROGRAM", program)
            .replace("FUNCTION", function),
    );
    write_program(path, &text)
}

/// Writes the program of a plugin that completes its words itself, with what the cluster has.
pub(crate) fn write_call(path: &Path, program: &str) -> io::Result<()> {
    write_program(
        path,
        &format!("#!/bin/sh\nexec {program} __complete -- \"$@\"\n"),
    )
}

fn write_program(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
