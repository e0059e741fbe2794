//! `cargo run -p manual -- FOLDER` writes the completions and manual pages of each program to `FOLDER/PROGRAM/`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        return Err("the argument is the folder to write to".into());
    };
    for program in manual::programs() {
        manual::write(&program, Path::new(folder))?;
    }
    Ok(())
}
