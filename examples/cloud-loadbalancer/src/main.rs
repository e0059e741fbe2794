//! The program: see `ccm --help`.

fn main() {}
