//! `kubectl-ipb`: see `kubectl ipb --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_ipb::main()
}
