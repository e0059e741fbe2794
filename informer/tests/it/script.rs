//! The scripted server, which the peers in `benches/peers` are run against too.

pub use reeve_scripted::*;
