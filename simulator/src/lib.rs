//! A simulated gateway: both APIs that the engines call, with bans in memory only.
//!
//! It replaces the iptables agent and the XDP gateway in development, in tests and in the demo, and
//! behaves as they do where it matters: failures with HTTP 200, entries that end only at the next sync of
//! a minute, expired entries that stay as holes in the longest-prefix map, and no memory after a restart. [`Faults`] make it refuse, reset, hang, fail or answer late.
//!
//! | request | |
//! |---|---|
//! | `GET /limit?ip=`, `/unlimit?ip=`, `/limits` | the iptables agent |
//! | `GET /update?cidr=&ban_type=&ban_time=`, `/remove?cidr=`, `/status` | the XDP gateway |
//! | `GET /`, `/enforced` | what is enforced now, for people and as JSON |
//! | `POST /faults?fault=hang\|reset\|500\|fail\|slow[&target=][&times=][&millis=]`, `DELETE /faults` | faults |
//! | `POST /lose-state` | forget every ban, as a restarted machine does |

mod api;
mod faults;
mod gateway;
mod listener;
mod page;
mod state;
mod world;

pub use faults::{Fault, Faults, Operation, Rule};
pub use gateway::Gateway;
pub use state::{Api, Entry};
pub use world::Call;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
