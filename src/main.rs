//! The operator's program: see `ipblock-operator --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipblock_operator::command::main()
}
