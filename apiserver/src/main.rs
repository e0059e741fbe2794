//! `reeve-apiserver`: see `reeve-apiserver --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Objects are trees of many small allocations: with the system's allocator of glibc a write costs nearly twice as much.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    reeve_apiserver::program::main()
}
