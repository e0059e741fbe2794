//! `kubectl-reeve`: see `kubectl reeve --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_reeve::main()
}
