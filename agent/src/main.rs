//! The program: see `ipblock-agent --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipblock_agent::command::main()
}
