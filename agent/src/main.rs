//! The program: see `ipblock-agent --help`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    ipblock_agent::command::main()
}

/// The crate is empty on other systems, so that the workspace compiles there.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
