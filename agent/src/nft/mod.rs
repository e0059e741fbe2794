//! The table in the kernel: how it is built, read, changed and removed.
//!
//! | object | what it is |
//! |---|---|
//! | table `inet ipblock` | everything that the agent owns |
//! | sets `v4`, `v6` | the banned addresses, with `flags interval,timeout` |
//! | chain `banned` | at hook prerouting (priority raw) or ingress |
//! | two rules | drop packets whose source is in the set, and count them |
//!
//! Message types, attributes and their numbers are those of the kernel's `linux/netfilter/nf_tables.h`.

mod elements;
mod kernel;
mod layout;

pub use kernel::{Change, Kernel, Nftables, Observed, Standing};
pub use layout::{Counter, Hook, Layout, Rebuild};

use crate::netlink::Writer;

/// The family `inet`: `NFPROTO_INET`.
const INET: u8 = 1;
/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// The bytes before the attributes: `struct nfgenmsg`.
const FIXED: usize = 4;
/// The name of the chain.
const CHAIN: &str = "banned";

/// Writes the body of a message.
type Body<'a> = dyn Fn(&mut Writer) + 'a;
/// Takes the type, the flags and the body of a message.
type Sink<'a> = dyn FnMut(u16, u16, &Body<'_>) + 'a;

/// Message types.
mod kind {
    use super::SUBSYSTEM;

    pub(super) const BATCH_BEGIN: u16 = 0x10;
    pub(super) const BATCH_END: u16 = 0x11;

    pub(super) const NEW_TABLE: u16 = SUBSYSTEM << 8;
    pub(super) const GET_TABLE: u16 = SUBSYSTEM << 8 | 1;
    pub(super) const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
    pub(super) const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
    pub(super) const GET_CHAIN: u16 = SUBSYSTEM << 8 | 4;
    pub(super) const DELETE_CHAIN: u16 = SUBSYSTEM << 8 | 5;
    pub(super) const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
    pub(super) const GET_RULE: u16 = SUBSYSTEM << 8 | 7;
    pub(super) const DELETE_RULE: u16 = SUBSYSTEM << 8 | 8;
    pub(super) const NEW_SET: u16 = SUBSYSTEM << 8 | 9;
    pub(super) const GET_SET: u16 = SUBSYSTEM << 8 | 10;
    pub(super) const NEW_ELEMENT: u16 = SUBSYSTEM << 8 | 12;
    pub(super) const GET_ELEMENT: u16 = SUBSYSTEM << 8 | 13;
    pub(super) const DELETE_ELEMENT: u16 = SUBSYSTEM << 8 | 14;
    pub(super) const GET_GENERATION: u16 = SUBSYSTEM << 8 | 16;
}

/// The name of a message type.
fn name(kind: u16) -> &'static str {
    match kind {
        kind::BATCH_BEGIN => "NFNL_MSG_BATCH_BEGIN",
        kind::BATCH_END => "NFNL_MSG_BATCH_END",
        kind::NEW_TABLE => "NFT_MSG_NEWTABLE",
        kind::GET_TABLE => "NFT_MSG_GETTABLE",
        kind::DELETE_TABLE => "NFT_MSG_DELTABLE",
        kind::NEW_CHAIN => "NFT_MSG_NEWCHAIN",
        kind::GET_CHAIN => "NFT_MSG_GETCHAIN",
        kind::DELETE_CHAIN => "NFT_MSG_DELCHAIN",
        kind::NEW_RULE => "NFT_MSG_NEWRULE",
        kind::GET_RULE => "NFT_MSG_GETRULE",
        kind::DELETE_RULE => "NFT_MSG_DELRULE",
        kind::NEW_SET => "NFT_MSG_NEWSET",
        kind::GET_SET => "NFT_MSG_GETSET",
        kind::NEW_ELEMENT => "NFT_MSG_NEWSETELEM",
        kind::GET_ELEMENT => "NFT_MSG_GETSETELEM",
        kind::DELETE_ELEMENT => "NFT_MSG_DELSETELEM",
        kind::GET_GENERATION => "NFT_MSG_GETGEN",
        _ => "a message",
    }
}

/// `struct nfgenmsg`: family, version, and for the ends of a transaction the subsystem.
fn fixed(writer: &mut Writer, family: u8, resource: u16) {
    let [high, low] = resource.to_be_bytes();
    writer.raw(&[family, 0, high, low]);
}
