//! IPBlock objects become bans at a gateway, and are lifted when due.
//!
//! ```text
//! alerts ─▶ trigger ─┐
//! kubectl ───────────┴▶ IPBlock objects ─▶ reconcile ─▶ decide ─▶ engine ─▶ gateway
//!                                            ▲   └────▶ status, Events, notify
//!                         ConfigMap ─▶ config┘
//! ```
//!
//! The parts, in the order in which a ban passes them:
//!
//! * [`api`]: the IPBlock kind. [`target`], [`duration`]: what a user may write, in canonical form.
//! * [`trigger`]: alerts become objects. [`config`]: the ConfigMap, read all or nothing.
//! * [`pulled`]: lists of addresses that become objects: CrowdSec, feeds.
//! * [`policy`]: which targets may be banned at all. [`prefix`]: values by address range.
//! * [`decide`]: what is to be done for a block, a pure machine, and what may stand at the gateway.
//! * [`reconcile`]: the thin shell that performs its steps. [`lock`]: one lock an address.
//! * [`guard`]: how much may be banned, how fast, and what holds back a mass of bans or lifts.
//! * [`time`]: the clock that bans end by, compared with the API server's.
//! * [`mounted`]: which files the ConfigMap may name.
//! * [`names`]: the addresses behind a name.
//! * [`engine`]: what makes an address blocked. [`outbound`]: HTTP requests, with limits and address checks.
//! * [`sets`]: engines that follow a whole set, such as a list over HTTP.
//! * [`audit`]: what was done for which block, as lines in a file. [`notify`]: notifications. [`metrics`]: counters.
//! * [`why`]: whether an address is banned, and why.
//! * [`page`]: the read-only page of the operator. [`operator`]: all of it put together. [`command`]: the command line. [`manifest`]: CRD and access rules.
//! * `dev`: everything in one process without a cluster, with the gateway of [`ipblock_simulator`].

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/alerts.md")]
pub mod alerts {}
pub mod api;
pub mod audit;
pub mod command;
pub mod config;
#[cfg(test)]
mod contract;
pub mod decide;
#[cfg(feature = "dev")]
pub mod dev;
#[cfg(test)]
mod documentation;
pub mod duration;
pub mod engine;
pub mod guard;
pub mod inbound;
pub mod lists;
pub mod lock;
#[cfg(test)]
mod logged;
pub mod manifest;
pub mod metrics;
pub mod mounted;
pub mod names;
pub mod notify;
pub mod operator;
pub mod outbound;
#[cfg(test)]
mod packaging;
pub mod page;
pub mod policy;
pub mod prefix;
pub mod pulled;
pub mod reconcile;
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/runbook.md")]
pub mod runbook {}
#[cfg(test)]
mod random_cases;
#[cfg(test)]
mod reasons;
mod sampled;
pub mod secret;
pub mod sets;
pub mod target;
pub mod time;
pub mod trigger;
pub mod why;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
