//! Servers as their clients see them, over sockets.

#![allow(
    unreachable_pub,
    reason = "the modules of a test binary share their items"
)]

#[allow(dead_code, reason = "the controller's tests use the rest")]
mod client;
mod floods;
mod streams;

use std::net::SocketAddr;

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}
