//! The scripted server, which the peers in `benches/peers` run against too.

pub use reeve_scripted::*;
