//! The agent of the IPBlock operator for nodes: it follows the operator's list of bans and keeps two nftables sets, whose
//! packets are dropped.
//!
//! The kernel keeps the time of each ban, so bans end without the agent and without the operator. `docs/agent.md` describes
//! the installation and what survives what.
//!
//! | module | what is in it |
//! |---|---|
//! | [`command`] | the command line |
//! | [`agent`] | the loop: request, change, look |
//! | [`enforcer`] | compares the kernel with the list and changes it |
//! | [`list`], [`source`] | the list and its format; HTTP |
//! | [`interval`], [`plan`], [`guard`] | pure decisions: intervals, differences, the brake, refused entries |
//! | [`nft`], [`netlink`] | tables, sets and rules as netlink messages; no C library and no `nft` program is needed |
//! | [`metrics`], [`status`] | what is counted and printed |

#![cfg(target_os = "linux")]

pub mod agent;
pub mod command;
pub mod enforcer;
pub mod guard;
pub mod interval;
pub mod list;
pub mod metrics;
pub mod netlink;
pub mod nft;
pub mod plan;
pub mod source;
pub mod status;
