//! The operator's program: see `ipblock-operator --help`.

use std::process::ExitCode;

/// The allocator of a program with the feature `jemalloc`, in place of the system's.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ipblock_operator::command::main()
}
