//! The pictures of the README and of the guides.
//!
//! `cargo run -p pictures` writes `docs/pictures/data-flow.svg`. `ipblock-operator dev --demo | cargo run -p pictures --
//! demo` writes `docs/pictures/demo.svg` from the demo's output. With `--check` each compares instead, and fails if the
//! picture is not current. `cargo run -p pictures -- debug-page` prints the page `/debug` of fixed reports;
//! `tools/pictures/debug.sh` photographs it with Chromium and runs `pictures debug`, which records the hashes of page and
//! picture. `pictures debug --check` compares them, without Chromium. `blocks-page`, `blocks.sh` and `blocks` do the same for
//! the page of the IPBlock operator with fixed blocks. Of the demo it compares the steps and what was expected of them, because times, ports and the
//! order of independent events differ from run to run.

#![allow(clippy::print_stdout, reason = "the page is printed")]

mod blocks_page;
mod data_flow;
mod debug_page;
mod terminal;

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let named: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| *argument != "--check")
        .collect();
    match named[..] {
        [] => data_flow(check),
        ["demo"] => {
            let mut output = String::new();
            std::io::stdin().read_to_string(&mut output)?;
            demo(&output, check)
        }
        ["debug"] => {
            let page = debug_page::page()?;
            recorded(check, "debug", &page)
        }
        ["blocks"] => recorded(check, "blocks", &blocks_page::shown()?),
        ["blocks-page"] => {
            print!("{}", blocks_page::page());
            Ok(())
        }
        ["debug-page"] => {
            print!("{}", debug_page::page()?);
            Ok(())
        }
        _ => Err("the arguments are: [demo|debug|debug-page|blocks|blocks-page] [--check]".into()),
    }
}

fn data_flow(check: bool) -> Result<(), Box<dyn Error>> {
    let (file, picture) = (path("data-flow.svg"), data_flow::picture());
    if !check {
        return Ok(std::fs::write(file, picture)?);
    }
    if std::fs::read_to_string(&file)? == picture {
        return Ok(());
    }
    Err("docs/pictures/data-flow.svg is not current: run `cargo run -p pictures`".into())
}

fn demo(output: &str, check: bool) -> Result<(), Box<dyn Error>> {
    let file = path("demo.svg");
    if !check {
        return Ok(std::fs::write(file, terminal::picture(output))?);
    }
    let picture = std::fs::read_to_string(&file)?;
    match terminal::missing(&picture, output) {
        None => Ok(()),
        Some(line) => Err(format!(
            "docs/pictures/demo.svg is not current, it lacks {line:?}: run \
             `cargo run -- dev --demo | cargo run -p pictures -- demo`"
        )
        .into()),
    }
}

/// Writes or checks the record of the picture `name`, which was made from `page`.
fn recorded(check: bool, name: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let picture = std::fs::read(path(&format!("{name}.png")))?;
    let record = debug_page::record(name, page, &picture);
    let file = path(&format!("{name}.sha256"));
    if !check {
        return Ok(std::fs::write(file, record)?);
    }
    if std::fs::read_to_string(&file)? == record {
        return Ok(());
    }
    Err(format!("docs/pictures/{name}.png is not current: run `tools/pictures/{name}.sh` (it needs Chromium and Node)").into())
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/pictures")
        .join(name)
}

/// The text as SVG shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
