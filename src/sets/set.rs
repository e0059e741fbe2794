//! An ordered set of targets with their ends, whose copies share memory.
//!
//! Entries lie in chunks of at most 512, in the order of targets. A copy shares every chunk until one of the two
//! changes it, so a consumer keeps the set that it has applied, and the difference from a later one costs the chunks
//! that changed. An entry takes 24 bytes, and chunks hold little more room than they need: a million take about 25 MB, and
//! a copy of them some kilobytes.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::target::Target;

/// Entries of one chunk. More make copies cheaper, and changes dearer.
const CHUNK: usize = 512;

/// Entries that a full chunk gets room for at once. Doubling would leave a third of the memory of a large set unused.
const ROOM: usize = 16;

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

/// Entries in the order of their targets, never empty.
#[derive(Clone)]
struct Chunk {
    entries: Vec<Entry>,
    /// At most the earliest end of the entries.
    earliest: Until,
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

// === impl Chunk ===

impl Chunk {
    fn new(entries: Vec<Entry>) -> Self {
        let ends = entries.iter().map(|entry| entry.until);
        let earliest = ends.min().unwrap_or(Until::NEVER);
        Self { entries, earliest }
    }

    fn first(&self) -> Option<Target> {
        self.entries.first().map(|entry| entry.target)
    }

    fn find(&self, target: &Target) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|entry| entry.target.cmp(target))
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
        let chunk = self.chunks.get(self.position(target)?)?;
        let at = chunk.find(target).ok()?;
        chunk.entries.get(at).map(|entry| entry.until)
    }

    /// Sets the end of a target. Returns the earlier one.
    pub fn insert(&mut self, target: Target, until: Until) -> Option<Until> {
        let Some(position) = self.position(&target) else {
            let chunk = Chunk::new(vec![Entry { target, until }]);
            self.chunks.push(Arc::new(chunk));
            self.length += 1;
            return None;
        };
        let found = self.chunks[position].find(&target);
        if let Ok(at) = found
            && self.chunks[position].entries[at].until == until
        {
            return Some(until);
        }
        let chunk = Arc::make_mut(&mut self.chunks[position]);
        chunk.earliest = chunk.earliest.min(until);
        match found {
            Ok(at) => {
                let before = std::mem::replace(&mut chunk.entries[at].until, until);
                if before == chunk.earliest {
                    *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
                }
                Some(before)
            }
            Err(at) => {
                if chunk.entries.len() == chunk.entries.capacity() {
                    chunk.entries.reserve_exact(ROOM);
                }
                chunk.entries.insert(at, Entry { target, until });
                self.length += 1;
                if chunk.entries.len() > CHUNK {
                    let upper = Chunk::new(chunk.entries.split_off(CHUNK / 2));
                    chunk.entries.shrink_to_fit();
                    *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
                    self.chunks.insert(position + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes a target. Returns its end.
    pub fn remove(&mut self, target: &Target) -> Option<Until> {
        let position = self.position(target)?;
        let at = self.chunks[position].find(target).ok()?;
        self.length -= 1;
        if self.chunks[position].entries.len() == 1 {
            let chunk = self.chunks.remove(position);
            return chunk.entries.first().map(|entry| entry.until);
        }
        let chunk = Arc::make_mut(&mut self.chunks[position]);
        let removed = chunk.entries.remove(at);
        if chunk.entries.capacity() > 2 * (chunk.entries.len() + ROOM) {
            chunk.entries.shrink_to(chunk.entries.len() + ROOM);
        }
        if removed.until == chunk.earliest {
            *chunk = Chunk::new(std::mem::take(&mut chunk.entries));
        }
        self.merge(position);
        Some(removed.until)
    }

    /// All entries, in the order of their targets.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.entries.iter().copied())
    }

    /// At most the earliest end; `None`: there is no entry.
    #[must_use]
    pub fn earliest(&self) -> Option<Until> {
        self.chunks.iter().map(|chunk| chunk.earliest).min()
    }

    /// The targets whose end is at or before `now`.
    pub(super) fn ended(&self, now: Until) -> Vec<Target> {
        let due = self.chunks.iter().filter(|chunk| chunk.earliest <= now);
        due.flat_map(|chunk| &chunk.entries)
            .filter(|entry| entry.until <= now)
            .map(|entry| entry.target)
            .collect()
    }

    /// The number of chunks, and the entries of one of them: how a consumer reads a large set in parts.
    pub(super) fn part(&self, position: usize) -> Option<&[Entry]> {
        self.chunks.get(position).map(|chunk| &chunk.entries[..])
    }

    /// Calls `each` for every target that differs in `later`, in the order of targets. Chunks that the two share are
    /// passed over.
    pub fn differences(&self, later: &Self, mut each: impl FnMut(Difference)) {
        let (mut old, mut new) = (Cursor::new(self), Cursor::new(later));
        loop {
            if old.skip_shared(&mut new) {
                continue;
            }
            let order = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => before.target.cmp(&after.target),
            };
            let before = (order != Ordering::Greater).then(|| old.next()).flatten();
            let after = (order != Ordering::Less).then(|| new.next()).flatten();
            let Some(either) = before.or(after) else {
                return;
            };
            let (before, after) = (before.map(|it| it.until), after.map(|it| it.until));
            if before != after {
                let target = either.target;
                each(Difference {
                    target,
                    before,
                    after,
                });
            }
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
                    bytes += (chunk.entries.capacity() * size_of::<Entry>()) as u64;
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
        let room = chunks.map(|it| it.entries.capacity() * size_of::<Entry>() + size_of::<Chunk>());
        room.sum::<usize>() + self.chunks.capacity() * size_of::<Arc<Chunk>>()
    }

    /// The chunk that holds `target`, or would; `None`: there is no chunk.
    fn position(&self, target: &Target) -> Option<usize> {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|first| first <= *target));
        (!self.chunks.is_empty()).then(|| after.saturating_sub(1))
    }

    /// Joins a small chunk with the one after it.
    fn merge(&mut self, position: usize) {
        let small = |at: usize| self.chunks.get(at).map(|chunk| chunk.entries.len());
        let together = small(position).zip(small(position + 1));
        if together.is_some_and(|(one, other)| one + other <= CHUNK / 4) {
            let other = self.chunks.remove(position + 1);
            let chunk = Arc::make_mut(&mut self.chunks[position]);
            chunk.entries.extend_from_slice(&other.entries);
            chunk.earliest = chunk.earliest.min(other.earliest);
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
        let chunks = all.chunks(CHUNK * 3 / 4);
        let chunks = chunks.map(|entries| Arc::new(Chunk::new(entries.to_vec())));
        Self {
            chunks: chunks.collect(),
            length,
        }
    }
}

impl PartialEq for TargetSet {
    fn eq(&self, other: &Self) -> bool {
        let mut equal = self.length == other.length;
        if equal {
            self.differences(other, |_| equal = false);
        }
        equal
    }
}

impl Eq for TargetSet {}

impl fmt::Debug for TargetSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.iter().take(32).map(|it| (it.target, it.until));
        formatter.debug_map().entries(entries).finish()
    }
}

/// A place between two entries of a set.
struct Cursor<'a> {
    set: &'a TargetSet,
    chunk: usize,
    entry: usize,
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
        let chunk = self.set.chunks.get(self.chunk)?;
        chunk.entries.get(self.entry).copied()
    }

    fn next(&mut self) -> Option<Entry> {
        let entry = self.peek()?;
        self.entry += 1;
        if self.entry == self.set.chunks[self.chunk].entries.len() {
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
