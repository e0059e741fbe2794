//! A run of entries of one family, packed.
//!
//! An entry is the address, the prefix length and the end, each with its highest byte first: 9 bytes for IPv4 and 21 for
//! IPv6.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::{Entry, Until};
use crate::target::Target;

/// Entries that a chunk gets room for at once. Doubling would leave a third of the memory of a large set unused.
const ROOM: usize = 16;

/// The bytes of an end.
const END: usize = size_of::<u32>();

/// The most bytes of an entry.
const WIDEST: usize = size_of::<Ipv6Addr>() + 1 + END;

/// A target in a form that is compared fast. Its order is that of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    ipv6: bool,
    address: u128,
    prefix: u8,
}

/// Entries of one family in the order of their targets, never empty.
#[derive(Clone)]
pub(super) struct Chunk {
    first: Key,
    records: Vec<u8>,
    /// The earliest end of the entries.
    earliest: Until,
}

/// An entry as its bytes.
struct Record {
    bytes: [u8; WIDEST],
    width: usize,
}

// === impl Key ===

impl Key {
    pub(super) fn of(target: &Target) -> Self {
        let address = match target.address() {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        };
        Self {
            ipv6: target.is_ipv6(),
            address,
            prefix: target.prefix_len(),
        }
    }

    /// Of the bytes of an entry.
    fn read(record: &[u8]) -> Self {
        let ipv6 = record.len() == WIDEST;
        let parts = if ipv6 {
            let parts = record.split_first_chunk();
            parts.map(|(address, rest)| (u128::from_be_bytes(*address), rest))
        } else {
            let parts = record.split_first_chunk();
            parts.map(|(address, rest)| (u32::from_be_bytes(*address).into(), rest))
        };
        let (address, rest) = parts.unwrap_or_default();
        Self {
            ipv6,
            address,
            prefix: rest.first().copied().unwrap_or_default(),
        }
    }

    fn target(self) -> Target {
        let address = match u32::try_from(self.address) {
            Ok(bits) if !self.ipv6 => Ipv4Addr::from_bits(bits).into(),
            _ => Ipv6Addr::from_bits(self.address).into(),
        };
        Target::of_canonical(address, self.prefix)
    }
}

// === impl Record ===

impl Record {
    fn new(entry: &Entry) -> Self {
        let mut bytes = [0; WIDEST];
        let mut width = 0;
        let mut push = |part: &[u8]| {
            bytes[width..width + part.len()].copy_from_slice(part);
            width += part.len();
        };
        match entry.target.address() {
            IpAddr::V4(address) => push(&address.octets()),
            IpAddr::V6(address) => push(&address.octets()),
        }
        push(&[entry.target.prefix_len()]);
        push(&entry.until.0.to_be_bytes());
        Self { bytes, width }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.width]
    }
}

fn read(record: &[u8]) -> Entry {
    Entry {
        target: Key::read(record).target(),
        until: end(record),
    }
}

fn end(record: &[u8]) -> Until {
    let end = record.last_chunk();
    Until(end.map_or(u32::MAX, |end| u32::from_be_bytes(*end)))
}

// === impl Chunk ===

impl Chunk {
    /// One entry.
    pub(super) fn of(entry: Entry) -> Self {
        Self {
            first: Key::of(&entry.target),
            records: Record::new(&entry).bytes().to_vec(),
            earliest: entry.until,
        }
    }

    /// Entries of one family, sorted; `None`: there are none.
    pub(super) fn new(entries: &[Entry]) -> Option<Self> {
        let (first, rest) = entries.split_first()?;
        let mut chunk = Self::of(*first);
        chunk.records.reserve_exact(rest.len() * chunk.width());
        for entry in rest {
            let record = Record::new(entry);
            chunk.records.extend_from_slice(record.bytes());
        }
        chunk.find_earliest();
        Some(chunk)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len() / self.width()
    }

    /// The bytes of the entries, with the room for more.
    pub(super) fn bytes(&self) -> usize {
        self.records.capacity()
    }

    pub(super) fn first(&self) -> Key {
        self.first
    }

    pub(super) fn earliest(&self) -> Until {
        self.earliest
    }

    /// Whether it is for targets of this one's family.
    pub(super) fn suits(&self, key: Key) -> bool {
        self.first.ipv6 == key.ipv6
    }

    pub(super) fn get(&self, at: usize) -> Option<Entry> {
        self.records.get(self.range(at)).map(read)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.records.chunks_exact(self.width()).map(read)
    }

    /// Where a target of this family is, or would be.
    pub(super) fn find(&self, key: Key) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match Key::read(&self.records[self.range(middle)]).cmp(&key) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    pub(super) fn until(&self, at: usize) -> Until {
        end(&self.records[self.range(at)])
    }

    /// Returns the earlier end.
    pub(super) fn set_until(&mut self, at: usize, until: Until) -> Until {
        let before = self.until(at);
        let after = self.range(at).end;
        self.records[after - END..after].copy_from_slice(&until.0.to_be_bytes());
        self.ended(before);
        self.earliest = self.earliest.min(until);
        before
    }

    /// Adds an entry of this family at its place.
    pub(super) fn insert(&mut self, at: usize, entry: &Entry) {
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(ROOM * self.width());
        }
        let record = Record::new(entry);
        let from = self.range(at).start;
        self.records
            .splice(from..from, record.bytes().iter().copied());
        self.first = self.first.min(Key::of(&entry.target));
        self.earliest = self.earliest.min(entry.until);
    }

    /// Removes an entry, which is not the only one.
    pub(super) fn remove(&mut self, at: usize) {
        let before = self.until(at);
        self.records.drain(self.range(at));
        let room = ROOM * self.width();
        if self.records.capacity() > 2 * (self.records.len() + room) {
            self.records.shrink_to(self.records.len() + room);
        }
        self.find_first();
        self.ended(before);
    }

    /// Takes out all entries from `at` on, at least one, and leaves at least one.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut upper = Self {
            first: self.first,
            records: self.records.split_off(self.range(at).start),
            earliest: self.earliest,
        };
        self.records.shrink_to_fit();
        self.find_earliest();
        upper.find_first();
        upper.find_earliest();
        upper
    }

    /// Appends the entries of `other`, which are later and of this family.
    pub(super) fn append(&mut self, other: &Self) {
        self.records.extend_from_slice(&other.records);
        self.earliest = self.earliest.min(other.earliest);
    }

    /// The bytes of one entry.
    fn width(&self) -> usize {
        let address = if self.first.ipv6 {
            size_of::<Ipv6Addr>()
        } else {
            size_of::<Ipv4Addr>()
        };
        address + 1 + END
    }

    fn range(&self, at: usize) -> Range<usize> {
        at * self.width()..(at + 1) * self.width()
    }

    /// One of the ends was `until`, and is not any more.
    fn ended(&mut self, until: Until) {
        if until == self.earliest {
            self.find_earliest();
        }
    }

    fn find_earliest(&mut self) {
        let ends = self.records.chunks_exact(self.width()).map(end);
        self.earliest = ends.min().unwrap_or(Until::NEVER);
    }

    fn find_first(&mut self) {
        self.first = Key::read(&self.records[self.range(0)]);
    }
}
