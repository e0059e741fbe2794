//! The operator's program: see `ipblock-operator --help`.

use std::process::ExitCode;

/// The allocator of a program with the feature `mimalloc`, in place of the system's.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ipblock_operator::command::main()
}
