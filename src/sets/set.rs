//! An ordered set of targets with their ends, whose copies share memory.
//!
//! Entries lie in chunks of at most 512, in the order of targets. A copy shares every chunk until one of the two
//! changes it, so a consumer keeps the set that it has applied, and the difference from a later one costs the chunks
//! that changed. An IPv4 entry takes 9 bytes, and chunks hold little more room than they need: a million take about
//! 10 MB, and a copy of them some kilobytes.

mod chunk;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use self::chunk::{Chunk, Key};
use crate::target::Target;

/// Entries of one chunk. More make copies cheaper, and changes dearer.
const CHUNK: usize = 512;

/// 2020-01-01: ends are counted from here, to reach beyond any ban of a hundred years in four bytes.
const EPOCH: i64 = 1_577_836_800;

/// When a ban ends, in whole seconds; the latest is "indefinitely".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Until(u32);

/// A target and the end of its ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is banned.
    pub target: Target,
    /// Until when.
    pub until: Until,
}

/// A set of targets, each with one end. Copies are cheap and share memory.
#[derive(Clone, Default)]
pub struct TargetSet {
    chunks: Vec<Arc<Chunk>>,
    length: usize,
}

/// One target that differs between two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The target.
    pub target: Target,
    /// Its end in the earlier set; `None`: it is not in there.
    pub before: Option<Until>,
    /// Its end in the later set; `None`: it is not in there.
    pub after: Option<Until>,
}

// === impl Until ===

impl Until {
    /// Without end.
    pub const NEVER: Self = Self(u32::MAX);

    /// `at` rounded up to a whole second; `None`: without end.
    #[must_use]
    pub fn new(at: Option<Timestamp>) -> Self {
        let Some(at) = at else { return Self::NEVER };
        let whole = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
        let seconds = whole
            .saturating_sub(EPOCH)
            .clamp(0, i64::from(u32::MAX) - 1);
        Self(u32::try_from(seconds).unwrap_or(u32::MAX - 1))
    }

    /// The time; `None`: without end.
    #[must_use]
    pub fn at(self) -> Option<Timestamp> {
        let seconds = EPOCH + i64::from(self.0);
        (self != Self::NEVER).then(|| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
    }

    /// How far the two are apart, in seconds.
    pub(super) fn distance(self, other: Self) -> u32 {
        self.0.abs_diff(other.0)
    }

    /// `seconds` later; without end stays so.
    pub(super) fn later(self, seconds: u32) -> Self {
        match self {
            Self::NEVER => Self::NEVER,
            Self(at) => Self(at.saturating_add(seconds).min(u32::MAX - 1)),
        }
    }
}

impl fmt::Debug for Until {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at() {
            Some(at) => write!(formatter, "{at}"),
            None => formatter.write_str("never"),
        }
    }
}

// === impl TargetSet ===

impl TargetSet {
    /// The number of targets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The end of a target; `None`: it is not in the set.
    #[must_use]
    pub fn get(&self, target: &Target) -> Option<Until> {
        let (position, at) = self.find(target)?;
        Some(self.chunks.get(position)?.until(at))
    }

    /// Sets the end of a target. Returns the earlier one.
    pub fn insert(&mut self, target: Target, until: Until) -> Option<Until> {
        let entry = Entry { target, until };
        let key = Key::of(&target);
        let position = match self.place(key) {
            Ok(position) => position,
            Err(position) => {
                self.chunks.insert(position, Arc::new(Chunk::of(entry)));
                self.length += 1;
                return None;
            }
        };
        let chunk = &mut self.chunks[position];
        match chunk.find(key) {
            Ok(at) if chunk.until(at) == until => Some(until),
            Ok(at) => Some(Arc::make_mut(chunk).set_until(at, until)),
            Err(at) => {
                let chunk = Arc::make_mut(chunk);
                chunk.insert(at, &entry);
                self.length += 1;
                if chunk.len() > CHUNK {
                    let upper = chunk.split_off(CHUNK / 2);
                    self.chunks.insert(position + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes a target. Returns its end.
    pub fn remove(&mut self, target: &Target) -> Option<Until> {
        let (position, at) = self.find(target)?;
        let chunk = &mut self.chunks[position];
        let until = chunk.until(at);
        self.length -= 1;
        if chunk.len() == 1 {
            self.chunks.remove(position);
        } else {
            Arc::make_mut(chunk).remove(at);
            self.merge(position);
        }
        Some(until)
    }

    /// All entries, in the order of their targets.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The earliest end; `None`: there is no entry.
    #[must_use]
    pub fn earliest(&self) -> Option<Until> {
        self.chunks.iter().map(|chunk| chunk.earliest()).min()
    }

    /// The targets whose end is at or before `now`.
    pub(super) fn ended(&self, now: Until) -> Vec<Target> {
        let due = self.chunks.iter().filter(|chunk| chunk.earliest() <= now);
        due.flat_map(|chunk| chunk.iter())
            .filter(|entry| entry.until <= now)
            .map(|entry| entry.target)
            .collect()
    }

    /// The entries of one chunk, by its position: how a consumer reads a large set in parts.
    pub(super) fn part(&self, position: usize) -> Option<Vec<Entry>> {
        let chunk = self.chunks.get(position)?;
        Some(chunk.iter().collect())
    }

    /// Every target that differs in `later`, in the order of targets. Chunks that the two share are passed over.
    pub fn differences<'a>(&'a self, later: &'a Self) -> Differences<'a> {
        Differences {
            old: Cursor::new(self),
            new: Cursor::new(later),
        }
    }

    /// The bytes of the entries that `later` does not share.
    pub(super) fn replaced(&self, later: &Self) -> u64 {
        let (mut old, mut new) = (
            self.chunks.iter().peekable(),
            later.chunks.iter().peekable(),
        );
        let mut bytes = 0;
        while let Some(chunk) = old.peek() {
            match new.peek() {
                Some(other) if Arc::ptr_eq(chunk, other) => {
                    old.next();
                    new.next();
                }
                Some(other) if other.first() < chunk.first() => {
                    new.next();
                }
                _ => {
                    bytes += chunk.bytes() as u64;
                    old.next();
                }
            }
        }
        bytes
    }

    /// The bytes that the entries take, with the room for more.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter();
        let room = chunks.map(|chunk| chunk.bytes() + size_of::<Chunk>());
        room.sum::<usize>() + self.chunks.capacity() * size_of::<Arc<Chunk>>()
    }

    /// The position of the chunk that holds `target`, and of its entry there.
    fn find(&self, target: &Target) -> Option<(usize, usize)> {
        let key = Key::of(target);
        let position = self.place(key).ok()?;
        let at = self.chunks.get(position)?.find(key).ok()?;
        Some((position, at))
    }

    /// The chunk that holds a target, or would; otherwise where a new chunk for it belongs, as there is none of its family
    /// there.
    fn place(&self, key: Key) -> Result<usize, usize> {
        let after = self.chunks.partition_point(|chunk| chunk.first() <= key);
        let near = [after.checked_sub(1), Some(after)];
        let suits = |position: &usize| {
            let chunk = self.chunks.get(*position);
            chunk.is_some_and(|chunk| chunk.suits(key))
        };
        near.into_iter().flatten().find(suits).ok_or(after)
    }

    /// Joins a small chunk with the one after it.
    fn merge(&mut self, position: usize) {
        let Some([one, other]) = self.chunks.get(position..position + 2) else {
            return;
        };
        if one.suits(other.first()) && one.len() + other.len() <= CHUNK / 4 {
            let other = self.chunks.remove(position + 1);
            Arc::make_mut(&mut self.chunks[position]).append(&other);
        }
    }
}

impl FromIterator<Entry> for TargetSet {
    /// Of entries with the same target the latest end counts.
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut all: Vec<Entry> = entries.into_iter().collect();
        all.sort_unstable_by(|a, b| a.target.cmp(&b.target).then(b.until.cmp(&a.until)));
        all.dedup_by_key(|entry| entry.target);
        let length = all.len();
        let families = all.chunk_by(|a, b| a.target.is_ipv6() == b.target.is_ipv6());
        let chunks = families.flat_map(|entries| entries.chunks(CHUNK * 3 / 4));
        Self {
            chunks: chunks.filter_map(Chunk::new).map(Arc::new).collect(),
            length,
        }
    }
}

impl PartialEq for TargetSet {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.differences(other).next().is_none()
    }
}

impl Eq for TargetSet {}

impl fmt::Debug for TargetSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.iter().take(32).map(|it| (it.target, it.until));
        formatter.debug_map().entries(entries).finish()
    }
}

/// The targets that differ between two sets, of [`TargetSet::differences`].
#[derive(Debug)]
pub struct Differences<'a> {
    old: Cursor<'a>,
    new: Cursor<'a>,
}

/// A place between two entries of a set.
#[derive(Debug)]
struct Cursor<'a> {
    set: &'a TargetSet,
    chunk: usize,
    entry: usize,
}

// === impl Differences ===

impl Iterator for Differences<'_> {
    type Item = Difference;

    fn next(&mut self) -> Option<Difference> {
        let Self { old, new } = self;
        loop {
            if old.skip_shared(new) {
                continue;
            }
            let order = match (old.peek(), new.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => before.target.cmp(&after.target),
            };
            let before = (order != Ordering::Greater).then(|| old.next()).flatten();
            let after = (order != Ordering::Less).then(|| new.next()).flatten();
            let target = before.or(after)?.target;
            let (before, after) = (before.map(|it| it.until), after.map(|it| it.until));
            if before != after {
                return Some(Difference {
                    target,
                    before,
                    after,
                });
            }
        }
    }
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    fn new(set: &'a TargetSet) -> Self {
        Self {
            set,
            chunk: 0,
            entry: 0,
        }
    }

    fn peek(&self) -> Option<Entry> {
        self.set.chunks.get(self.chunk)?.get(self.entry)
    }

    fn next(&mut self) -> Option<Entry> {
        let entry = self.peek()?;
        self.entry += 1;
        if self.entry == self.set.chunks[self.chunk].len() {
            self.chunk += 1;
            self.entry = 0;
        }
        Some(entry)
    }

    /// Passes over the next chunk if it is the same one in both sets.
    fn skip_shared(&mut self, other: &mut Self) -> bool {
        let at_start = self.entry == 0 && other.entry == 0;
        let next = self.set.chunks.get(self.chunk);
        let next = next.zip(other.set.chunks.get(other.chunk));
        let shared = at_start && next.is_some_and(|(one, two)| Arc::ptr_eq(one, two));
        if shared {
            self.chunk += 1;
            other.chunk += 1;
        }
        shared
    }
}

#[cfg(test)]
mod tests;
