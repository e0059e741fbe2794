//! `reeve-apiserver`: see `reeve-apiserver --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    reeve_apiserver::program::main()
}
