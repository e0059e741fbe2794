//! The kernel's side of the agent: what it has, and transactions that change it.

use std::net::IpAddr;

use rustix::net::netlink;

use super::{Body, FIXED, Hook, INET, Layout, Rebuild, SUBSYSTEM, elements, fixed, kind, name};
use crate::interval::{Family, Timed};
use crate::netlink::{ACK, Error, Message, REQUEST, Socket, Writer};
use crate::plan::{Group, Plan};

/// The elements of one transaction, in bytes, unless it makes the table. A larger one holds the kernel's lock on all tables
/// for longer.
const TRANSACTION: usize = 2 << 20;
/// `RTM_GETADDR`.
const GET_ADDRESSES: u16 = 22;
/// The bytes of `struct ifaddrmsg`.
const ADDRESS_FIXED: usize = 8;

/// The table, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The table without its elements.
    pub layout: Layout,
    /// The number of the last transaction of any program. An element that ends does not change it.
    pub generation: u32,
}

/// The elements of both sets, sorted and free of overlaps; none where there is no table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// IPv4.
    pub v4: Vec<Timed>,
    /// IPv6.
    pub v6: Vec<Timed>,
}

/// What to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What to make again before. With [`Rebuild::Table`] the plans start from empty sets.
    pub rebuild: Rebuild,
    /// IPv4.
    pub v4: Plan,
    /// IPv6.
    pub v6: Plan,
}

/// What the agent needs of the kernel. Calls block, for milliseconds.
pub trait Kernel: Send + 'static {
    /// Reads the table without its elements.
    ///
    /// # Errors
    /// When the kernel does not answer; a missing table is none.
    fn standing(&mut self) -> Result<Standing, Error>;

    /// Reads both sets.
    ///
    /// # Errors
    /// When the kernel does not answer, or a set is missing.
    fn observe(&mut self) -> Result<Observed, Error>;

    /// Makes a change: all of it, or in several transactions when it is large, each of which is in force or not. A new table
    /// comes with all its elements at once, as far as the socket takes them.
    ///
    /// # Errors
    /// The kernel's first error. Transactions before it are in force.
    fn apply(&mut self, change: &Change) -> Result<(), Error>;

    /// The addresses of this node's interfaces.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn addresses(&mut self) -> Result<Vec<IpAddr>, Error>;
}

/// The kernel's nf_tables, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Nftables {
    tables: Socket,
    addresses: Socket,
    table: String,
    hook: Hook,
}

/// Collects the messages of one transaction.
struct Transaction {
    writer: Writer,
    first: u32,
    last: u32,
}

// === impl Observed ===

impl Observed {
    /// The elements of one family.
    #[must_use]
    pub fn of(&self, family: Family) -> &[Timed] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether both sets are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === impl Change ===

impl Change {
    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rebuild == Rebuild::Nothing && self.v4.is_empty() && self.v6.is_empty()
    }

    /// How many elements are deleted and added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The plan of one family.
    #[must_use]
    pub fn of(&self, family: Family) -> &Plan {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

// === impl Nftables ===

impl Nftables {
    /// Opens the sockets. Reading and changing tables needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// When the kernel has no nf_tables or netlink.
    pub fn open(table: impl Into<String>, hook: Hook) -> Result<Self, Error> {
        Ok(Self {
            tables: Socket::open(Some(netlink::NETFILTER), name)?,
            addresses: Socket::open(None, |_| "RTM_GETADDR")?,
            table: table.into(),
            hook,
        })
    }

    /// Removes the table. Returns whether there was one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&mut self) -> Result<bool, Error> {
        let mut transaction = Transaction::begin(&mut self.tables);
        transaction.add(&mut self.tables, kind::DELETE_TABLE, 0, &|writer| {
            fixed(writer, INET, 0);
            writer.text(1, &self.table);
        });
        match transaction.commit(&mut self.tables) {
            Ok(()) => Ok(true),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn generation(&mut self) -> Result<u32, Error> {
        let mut generation = None;
        self.tables.request(
            kind::GET_GENERATION,
            |writer| fixed(writer, 0, 0),
            |message| {
                generation = generation.or(message.attributes(FIXED).number(1));
                Ok(())
            },
        )?;
        generation.ok_or(Error::Malformed("the generation of the tables"))
    }
}

impl Kernel for Nftables {
    fn standing(&mut self) -> Result<Standing, Error> {
        // Before the table, so that a change in between shows at the next look.
        let generation = self.generation()?;
        let layout = Layout::read(&mut self.tables, &self.table, &self.hook)?;
        Ok(Standing { layout, generation })
    }

    fn observe(&mut self) -> Result<Observed, Error> {
        Ok(Observed {
            v4: elements::read(&mut self.tables, &self.table, Family::V4)?,
            v6: elements::read(&mut self.tables, &self.table, Family::V6)?,
        })
    }

    fn apply(&mut self, change: &Change) -> Result<(), Error> {
        let mut limit = self.tables.limit()? / 2;
        if change.rebuild != Rebuild::Table {
            limit = limit.min(TRANSACTION);
        }
        let (table, hook) = (self.table.clone(), self.hook.clone());
        let socket = &mut self.tables;
        let chains = match change.rebuild {
            Rebuild::Chain => Layout::chains(socket, &table)?,
            Rebuild::Nothing | Rebuild::Table => Vec::new(),
        };
        let mut transaction = Transaction::begin(socket);
        let add_to = &mut |kind, flags, body: &Body<'_>| {
            transaction.add(socket, kind, flags, body);
        };
        match change.rebuild {
            Rebuild::Nothing => {}
            Rebuild::Chain => Layout::replace_chains(&table, &hook, &chains, add_to),
            Rebuild::Table => Layout::write_table(&table, &hook, add_to),
        }
        for family in Family::ALL {
            let groups = change.of(family).groups();
            let mut groups = groups.as_slice();
            while !groups.is_empty() {
                let (some, rest) = split(groups, family, limit.saturating_sub(transaction.len()));
                groups = rest;
                let add_to = &mut |kind, flags, body: &Body<'_>| {
                    transaction.add(socket, kind, flags, body);
                };
                let spans: Vec<_> = some
                    .iter()
                    .flat_map(|group| group.remove)
                    .copied()
                    .collect();
                elements::delete(&table, family, &spans, add_to);
                let added: Vec<_> = some.iter().flat_map(|group| group.add).copied().collect();
                elements::add(&table, family, &added, add_to);
                if !groups.is_empty() {
                    let full = std::mem::replace(&mut transaction, Transaction::begin(socket));
                    full.commit(socket)?;
                }
            }
        }
        transaction.commit(socket)
    }

    fn addresses(&mut self) -> Result<Vec<IpAddr>, Error> {
        self.addresses.dump(
            GET_ADDRESSES,
            |writer| writer.raw(&[0; ADDRESS_FIXED]),
            |message, found| {
                found.extend(address(message));
                Ok(())
            },
        )
    }
}

/// The address of one interface: `IFA_LOCAL`, or `IFA_ADDRESS` where there is none.
fn address(message: &Message<'_>) -> Option<IpAddr> {
    let attributes = message.attributes(ADDRESS_FIXED);
    let bytes = attributes.get(2).or_else(|| attributes.get(1))?;
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Takes as many groups as fit into `bytes`, but at least one.
fn split<'a, 'b>(
    groups: &'a [Group<'b>],
    family: Family,
    bytes: usize,
) -> (&'a [Group<'b>], &'a [Group<'b>]) {
    let each = 2 * (24 + family.bytes());
    let mut size = 0;
    let fitting = groups
        .iter()
        .take_while(|group| {
            size += (group.remove.len() + group.add.len()) * each;
            size <= bytes
        })
        .count();
    groups.split_at(fitting.max(1))
}

// === impl Transaction ===

impl Transaction {
    fn begin(socket: &mut Socket) -> Self {
        let mut writer = Writer::default();
        let first = socket.next_sequence();
        writer.message(kind::BATCH_BEGIN, REQUEST, first, |writer| {
            fixed(writer, 0, SUBSYSTEM);
        });
        Self {
            writer,
            first,
            last: first,
        }
    }

    fn add(&mut self, socket: &mut Socket, kind: u16, flags: u16, body: &Body<'_>) {
        self.last = socket.next_sequence();
        self.writer.message(kind, REQUEST | flags, self.last, body);
    }

    fn len(&self) -> usize {
        self.writer.len()
    }

    /// Commits it; an empty one is left alone.
    fn commit(mut self, socket: &mut Socket) -> Result<(), Error> {
        if self.last == self.first {
            return Ok(());
        }
        self.writer.flag_last(ACK);
        let end = socket.next_sequence();
        self.writer
            .message(kind::BATCH_END, REQUEST, end, |writer| {
                fixed(writer, 0, SUBSYSTEM);
            });
        socket.transact(&self.writer, self.last)
    }
}
