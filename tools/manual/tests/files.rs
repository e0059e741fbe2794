//! The files of each program as shells, kubectl and man read them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The files of all programs in a folder of the test's own.
fn written(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    for program in manual::programs() {
        manual::write(&program, &folder).expect("the files");
    }
    folder
}

/// The files in `folder/PROGRAM/kind` of every program.
fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let programs = manual::programs();
    let folders = programs
        .iter()
        .map(|program| folder.join(program.get_name()).join(kind));
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    files.map(|file| file.expect("a file").path()).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs `program` on each file. If it is not installed, the test is skipped from there on; with `REEVE_REQUIRE_ASSETS=1` it
/// fails.
fn accepted(program: &str, arguments: &[&str], files: &[PathBuf]) {
    for file in files {
        let output = Command::new(program).args(arguments).arg(file).output();
        let reason = format!("{program} is not installed");
        let Some(output) = reeve_apiserver::assets::decide(output.ok(), &reason) else {
            return;
        };
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "{program} {}: {complaints}",
            file.display()
        );
    }
}

#[test]
fn every_shell_parses_its_completions() {
    let folder = written("shells");
    let (bash, others): (Vec<_>, Vec<_>) = files(&folder, "completions")
        .into_iter()
        .partition(|file| file.extension().is_some_and(|it| it == "bash"));
    let (fish, zsh): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|file| file.extension().is_some_and(|it| it == "fish"));
    let programs = manual::programs().len();
    assert_eq!([bash.len(), fish.len(), zsh.len()], [programs; 3]);
    accepted("bash", &["-n"], &bash);
    accepted("fish", &["--no-execute"], &fish);
    accepted("zsh", &["-n"], &zsh);
}

#[test]
fn bash_completes_the_options_of_a_command() {
    let folder = written("bash");
    let script = r#"
        . "$1/ipblock-operator/completions/ipblock-operator.bash"
        COMP_WORDS=(ipblock-operator run --leader) COMP_CWORD=2
        $(complete -p ipblock-operator | sed 's/.*-F \([^ ]*\) .*/\1/') ipblock-operator --leader run
        echo "${COMPREPLY[@]}""#;
    let arguments = [
        "-c".as_ref(),
        script.as_ref(),
        "bash".as_ref(),
        folder.as_os_str(),
    ];
    let output = Command::new("bash").args(arguments).output().expect("bash");
    assert_eq!(text(&output), "--leader-elect\n");
}

#[test]
fn kubectl_gets_the_completions_of_the_plugin() {
    let folder = written("plugin");
    let program = folder.join("kubectl-reeve/kubectl_complete-reeve");
    let complete = |words: &[&str]| {
        let output = Command::new(&program).args(words).output().expect("bash");
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    assert_eq!(complete(&["que"]), "queues\n:4\n");
    assert_eq!(complete(&["queues", "--contex"]), "--context\n:4\n");
    assert_eq!(complete(&["--output", "j"]), "json\n:4\n");
    assert_eq!(complete(&["queues", "no-such-word"]), ":0\n");
}

#[test]
fn a_plugin_that_completes_its_words_itself_is_called_for_them() {
    let folder = written("own");
    let program = folder.join("kubectl-ipb/kubectl_complete-ipb");
    let text = std::fs::read_to_string(&program).expect("a program");
    assert_eq!(text, "#!/bin/sh\nexec kubectl-ipb __complete -- \"$@\"\n");
    let page = std::fs::read_to_string(folder.join("kubectl-ipb/man/kubectl-ipb.1"));
    assert!(!page.expect("a page").contains("__complete"));
}

/// Adds the pages of a command and of those below it.
fn expect(name: &str, command: &clap::Command, pages: &mut BTreeSet<String>) {
    pages.insert(format!("{name}.1"));
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        expect(&format!("{name}-{}", below.get_name()), below, pages);
    }
}

#[test]
fn every_command_has_a_page_that_man_formats_without_a_warning() {
    let folder = written("man");
    let pages = files(&folder, "man");
    let names: BTreeSet<String> = pages
        .iter()
        .filter_map(|page| Some(page.file_name()?.to_str()?.to_owned()))
        .collect();
    let mut expected = BTreeSet::new();
    for program in manual::programs() {
        expect(program.get_name(), &program, &mut expected);
    }
    assert_eq!(names, expected);
    // groff's warnings, in a terminal of any width.
    accepted(
        "man",
        &["--warnings=all", "-E", "UTF-8", "-Tutf8", "-l"],
        &pages,
    );
}
