//! Table, sets, chain and rules: the messages that make them, and whether they are as they were made.

use rustix::io::Errno;

use super::{Body, CHAIN, FIXED, INET, Sink, fixed, kind};
use crate::interval::Family;
use crate::netlink::{APPEND, Attributes, CREATE, Error, Message, Socket, Writer, text};

/// `NFT_SET_INTERVAL` and `NFT_SET_TIMEOUT`.
const SET_FLAGS: u32 = 0x4 | 0x10;
/// `NF_INET_PRE_ROUTING`.
const PREROUTING: u32 = 0;
/// `NF_INET_INGRESS`.
const INGRESS: u32 = 5;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// `NFT_TABLE_F_DORMANT`.
const DORMANT: u32 = 1;
/// The expressions of a rule, by name. `nft` prints them as `meta nfproto … ip saddr @v4 counter drop`.
const EXPRESSIONS: [&str; 6] = ["meta", "cmp", "payload", "lookup", "counter", "immediate"];

/// Where packets are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before routing, for all devices: packets for the node itself, for NodePorts and for Pods.
    Prerouting {
        /// The priority among the chains of this hook; raw is -300, which is before connection tracking.
        priority: i32,
    },
    /// At these devices, before all else. Linux 5.10.
    Ingress {
        /// The names of the devices, which have to exist.
        devices: Vec<String>,
        /// The priority among the chains of this hook.
        priority: i32,
    },
}

/// Packets and bytes that a rule dropped since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The table without its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// There is no table.
    Missing,
    /// Something in the table is missing, or is not as the agent makes it.
    Damaged {
        /// What it is.
        what: &'static str,
        /// What to make again.
        repair: Rebuild,
    },
    /// As it was made.
    Intact {
        /// The counter of the rule for IPv4.
        v4: Counter,
        /// The counter of the rule for IPv6.
        v6: Counter,
    },
}

/// What of the table is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebuild {
    /// Nothing.
    #[default]
    Nothing,
    /// The chain with its rules, in place of all chains of the table. The sets stay with their elements, so that no packet of
    /// a banned address passes meanwhile.
    Chain,
    /// The table, with empty sets.
    Table,
}

// === impl Hook ===

impl Hook {
    fn number(&self) -> u32 {
        match self {
            Self::Prerouting { .. } => PREROUTING,
            Self::Ingress { .. } => INGRESS,
        }
    }

    fn priority(&self) -> i32 {
        match self {
            Self::Prerouting { priority } | Self::Ingress { priority, .. } => *priority,
        }
    }

    fn devices(&self) -> &[String] {
        match self {
            Self::Prerouting { .. } => &[],
            Self::Ingress { devices, .. } => devices,
        }
    }
}

// === impl Family ===

impl Family {
    /// Bytes of an address.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    /// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
    fn protocol(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// Where the source is in the header.
    fn offset(self) -> u32 {
        match self {
            Self::V4 => 12,
            Self::V6 => 8,
        }
    }

    /// The type of the key by which `nft` prints it: `ipv4_addr` or `ipv6_addr`.
    fn key_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }

    /// The comment of the rule, which `nft list ruleset` shows.
    fn comment(self) -> &'static str {
        match self {
            Self::V4 => "ipblock-agent v4",
            Self::V6 => "ipblock-agent v6",
        }
    }
}

// === impl Layout ===

impl Layout {
    /// Writes the messages that make a new table, without elements. Where the table exists, it is replaced in the same
    /// transaction.
    pub(super) fn write_table(table: &str, hook: &Hook, message: &mut Sink<'_>) {
        let named = |writer: &mut Writer| {
            fixed(writer, INET, 0);
            writer.text(1, table);
        };
        // The first makes sure that there is one to delete.
        message(kind::NEW_TABLE, CREATE, &named);
        message(kind::DELETE_TABLE, 0, &named);
        message(kind::NEW_TABLE, CREATE, &named);
        for (id, family) in (1..).zip(Family::ALL) {
            message(kind::NEW_SET, CREATE, &|writer| {
                named(writer);
                writer.text(2, family.name());
                writer.number(3, SET_FLAGS);
                writer.number(4, family.key_type());
                writer.number(5, u32::try_from(family.bytes()).unwrap_or_default());
                writer.number(10, id);
            });
        }
        Self::write_chain(table, hook, message);
    }

    /// Writes the messages that replace `chains`, which are all chains of the table, by the agent's.
    pub(super) fn replace_chains(
        table: &str,
        hook: &Hook,
        chains: &[String],
        message: &mut Sink<'_>,
    ) {
        // The rules of all chains first: a rule of one may jump to another.
        for delete in [kind::DELETE_RULE, kind::DELETE_CHAIN] {
            let attribute = if delete == kind::DELETE_RULE { 2 } else { 3 };
            for chain in chains {
                message(delete, 0, &|writer| {
                    fixed(writer, INET, 0);
                    writer.text(1, table);
                    writer.text(attribute, chain);
                });
            }
        }
        Self::write_chain(table, hook, message);
    }

    fn write_chain(table: &str, hook: &Hook, message: &mut Sink<'_>) {
        let named = |writer: &mut Writer| {
            fixed(writer, INET, 0);
            writer.text(1, table);
        };
        message(kind::NEW_CHAIN, CREATE, &|writer| {
            named(writer);
            writer.text(3, CHAIN);
            writer.nested(4, |writer| {
                writer.number(1, hook.number());
                writer.attribute(2, &hook.priority().to_be_bytes());
                if !hook.devices().is_empty() {
                    writer.nested(4, |writer| {
                        for device in hook.devices() {
                            writer.text(1, device);
                        }
                    });
                }
            });
            writer.number(5, ACCEPT);
            writer.text(7, "filter");
        });
        for family in Family::ALL {
            message(kind::NEW_RULE, CREATE | APPEND, &|writer| {
                named(writer);
                writer.text(2, CHAIN);
                writer.nested(4, |writer| expressions(writer, family));
                writer.attribute(7, &user_data(family.comment()));
            });
        }
    }

    /// Reads the table.
    ///
    /// # Errors
    /// The kernel's, except for objects that are missing.
    pub(super) fn read(socket: &mut Socket, table: &str, hook: &Hook) -> Result<Self, Error> {
        // The packets of a dormant table pass.
        let awake = |table: Attributes<'_>| table.number(2).unwrap_or_default() & DORMANT == 0;
        match exists(socket, kind::GET_TABLE, table, None, awake)? {
            (false, _) => return Ok(Self::Missing),
            (true, false) => return Ok(Self::damaged("the table", Rebuild::Table)),
            (true, true) => {}
        }
        for family in Family::ALL {
            let intact = |set: Attributes<'_>| {
                set.number(3).map(|flags| flags & 0xff) == Some(SET_FLAGS)
                    && set.number(5).and_then(|bytes| usize::try_from(bytes).ok())
                        == Some(family.bytes())
            };
            let name = Some((2, family.name()));
            if exists(socket, kind::GET_SET, table, name, intact)? != (true, true) {
                return Ok(Self::damaged("a set", Rebuild::Table));
            }
        }
        let intact = |chain: Attributes<'_>| {
            let there = chain.inside(4);
            let mut devices: Vec<&str> = there
                .inside(4)
                .filter_map(|(_, device)| text(device))
                .collect();
            let mut wanted: Vec<&str> = hook.devices().iter().map(String::as_str).collect();
            devices.sort_unstable();
            wanted.sort_unstable();
            there.number(1) == Some(hook.number())
                && there.number(2).map(u32::cast_signed) == Some(hook.priority())
                && devices == wanted
                && chain.number(5) == Some(ACCEPT)
                && chain.text(7) == Some("filter")
        };
        if exists(socket, kind::GET_CHAIN, table, Some((3, CHAIN)), intact)? != (true, true) {
            return Ok(Self::damaged("the chain", Rebuild::Chain));
        }
        if Self::chains(socket, table)?.len() > 1 {
            return Ok(Self::damaged("a further chain", Rebuild::Chain));
        }
        let rules = socket.dump(
            kind::GET_RULE,
            |writer| {
                fixed(writer, INET, 0);
                writer.text(1, table);
                writer.text(2, CHAIN);
            },
            |message, rules| {
                let rule = message.attributes(FIXED);
                // Old kernels answer with the rules of all tables.
                if rule.text(1) == Some(table) && rule.text(2) == Some(CHAIN) {
                    rules.push(read_rule(rule));
                }
                Ok(())
            },
        )?;
        Ok(match rules.as_slice() {
            [Some((Family::V4, v4)), Some((Family::V6, v6))] => Self::Intact { v4: *v4, v6: *v6 },
            _ => Self::damaged("the rules", Rebuild::Chain),
        })
    }

    fn damaged(what: &'static str, repair: Rebuild) -> Self {
        Self::Damaged { what, repair }
    }

    /// The names of all chains of the table.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn chains(socket: &mut Socket, table: &str) -> Result<Vec<String>, Error> {
        socket.dump(
            kind::GET_CHAIN,
            |writer| fixed(writer, INET, 0),
            |message, chains| {
                let chain = message.attributes(FIXED);
                let name = chain.text(3).filter(|_| chain.text(1) == Some(table));
                chains.extend(name.map(str::to_owned));
                Ok(())
            },
        )
    }
}

/// Whether an object of the table exists, and whether `intact` accepts it.
fn exists(
    socket: &mut Socket,
    get: u16,
    table: &str,
    name: Option<(u16, &str)>,
    intact: impl Fn(Attributes<'_>) -> bool,
) -> Result<(bool, bool), Error> {
    let mut accepted = false;
    let body = |writer: &mut Writer| {
        fixed(writer, INET, 0);
        writer.text(1, table);
        if let Some((attribute, name)) = name {
            writer.text(attribute, name);
        }
    };
    let each = |message: &Message<'_>| {
        accepted |= intact(message.attributes(FIXED));
        Ok(())
    };
    match socket.request(get, body, each) {
        Ok(()) => Ok((true, accepted)),
        Err(error) if error.number() == Some(Errno::NOENT.raw_os_error()) => Ok((false, false)),
        Err(error) => Err(error),
    }
}

/// The expressions of one rule: the protocol is compared, the source is looked up in the set, counted and dropped.
fn expressions(writer: &mut Writer, family: Family) {
    let mut expression = |name: &str, data: &Body<'_>| {
        writer.nested(1, |writer| {
            writer.text(1, name);
            writer.nested(2, data);
        });
    };
    // NFT_META_NFPROTO into register 1.
    expression("meta", &|writer| {
        writer.number(1, 1);
        writer.number(2, 15);
    });
    expression("cmp", &|writer| {
        writer.number(1, 1);
        writer.number(2, 0);
        writer.nested(3, |writer| writer.attribute(1, &[family.protocol()]));
    });
    // From the network header (1) into register 1.
    expression("payload", &|writer| {
        writer.number(1, 1);
        writer.number(2, 1);
        writer.number(3, family.offset());
        writer.number(4, u32::try_from(family.bytes()).unwrap_or_default());
    });
    expression("lookup", &|writer| {
        writer.text(1, family.name());
        writer.number(2, 1);
    });
    expression("counter", &|writer| {
        writer.attribute(1, &[0; 8]);
        writer.attribute(2, &[0; 8]);
    });
    // NF_DROP (0) into the register of the verdict (0).
    expression("immediate", &|writer| {
        writer.number(1, 0);
        writer.nested(2, |writer| {
            writer.nested(2, |writer| writer.number(1, 0));
        });
    });
}

/// A comment as `nft` reads it: type 0, the length, a text with a zero at its end.
fn user_data(comment: &str) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
    [&[0, length], comment.as_bytes(), &[0]].concat()
}

/// Whether an expression has the parameters that [`expressions`] writes. The kernel chooses how it shows registers.
fn is_intact(name: &str, data: Attributes<'_>, family: Family) -> bool {
    let bytes = u32::try_from(family.bytes()).ok();
    match name {
        "meta" => data.number(2) == Some(15),
        "cmp" => data.number(2) == Some(0) && data.inside(3).get(1) == Some(&[family.protocol()]),
        "payload" => {
            data.number(2) == Some(1)
                && data.number(3) == Some(family.offset())
                && data.number(4) == bytes
        }
        // Its flag inverts the lookup.
        "lookup" => data.text(1) == Some(family.name()) && data.number(5).unwrap_or_default() == 0,
        "immediate" => data.inside(2).inside(2).number(1) == Some(0),
        _ => true,
    }
}

/// The family and the counter of a rule, if the agent made it.
fn read_rule(rule: Attributes<'_>) -> Option<(Family, Counter)> {
    let comment = rule.get(7)?;
    let family = Family::ALL
        .into_iter()
        .find(|family| comment == user_data(family.comment()))?;
    let expressions = rule.inside(4).map(|(_, value)| Attributes::of(value));
    let mut counter = Counter::default();
    let mut names = Vec::new();
    for expression in expressions {
        let name = expression.text(1)?;
        let data = expression.inside(2);
        if !is_intact(name, data, family) {
            return None;
        }
        if name == "counter" {
            counter.bytes = data.long(1)?;
            counter.packets = data.long(2)?;
        }
        names.push(name);
    }
    (names == EXPRESSIONS).then_some((family, counter))
}
