//! Checks the links of all pages, and the spelling of all texts that git tracks. It needs no network.
//!
//! `cargo run -p docs-check -- links` checks that each relative link of each `*.md` file leads to a tracked file and to
//! a heading of it, and that each path of a source file in inline code is one of a tracked file.
//! `cargo run -p docs-check -- spelling` reports misspelt words. `.ci/links.allow` and `.ci/spelling.allow` have the
//! exceptions, each with its reason; one that is not needed is reported, too.

#![allow(clippy::print_stdout)]

mod allowed;
mod files;
mod links;
mod markdown;
mod spelling;

use std::error::Error;
use std::process::ExitCode;

use allowed::Allowed;
use files::Files;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let files = Files::tracked()?;
    let found = match std::env::args().nth(1).as_deref() {
        Some("links") => {
            let mut allowed = Allowed::read(&files, ".ci/links.allow")?;
            let mut found = links::check(&files, &mut allowed)?;
            found.extend(allowed.unused());
            found
        }
        Some("spelling") => {
            let mut allowed = Allowed::read(&files, ".ci/spelling.allow")?;
            let mut found = spelling::check(&files, &mut allowed)?;
            found.extend(allowed.unused());
            found
        }
        _ => return Err("the argument is one of: links, spelling".into()),
    };
    found.iter().for_each(|line| println!("{line}"));
    Ok(if found.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
