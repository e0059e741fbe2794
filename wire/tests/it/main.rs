//! Objects of client-go in both directions, the traps of the format one by one, and arbitrary bytes.

#![allow(
    unreachable_pub,
    reason = "the modules of a test binary share their items"
)]

mod bytes;
mod corpus;
mod damaged;
mod errors;
mod reading;
mod trimming;
mod typed;
mod writing;
