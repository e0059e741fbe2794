//! Intervals of addresses with the time that each has left, free of overlaps.
//!
//! The kernel refuses overlapping intervals in one set. An address may be banned by several entries (itself, and ranges
//! around it) that end at different times, so [`flatten`] cuts all entries into pieces, each with the longest time of
//! the entries over it. An address that outlasts a range around it keeps its own piece, and the kernel ends both on
//! time without another change.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;

/// IPv4 or IPv6: each has a set of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The time that a ban has left, in milliseconds. A ban without end is longer than every other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left(u64);

/// Consecutive addresses of one family, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first address.
    pub first: u128,
    /// The last address, inclusive.
    pub last: u128,
}

/// A span that is banned for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timed {
    /// The addresses.
    pub span: Span,
    /// The time left.
    pub left: Left,
}

// === impl Family ===

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The last address as a number.
    #[must_use]
    pub fn last(self) -> u128 {
        match self {
            Self::V4 => u128::from(u32::MAX),
            Self::V6 => u128::MAX,
        }
    }

    /// The name of the set, and the value of the label `family`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The address with this number.
    #[must_use]
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            Self::V6 => Ipv6Addr::from(number).into(),
        }
    }

    /// The family and the number of an address. An IPv4 address that is mapped to IPv6 is IPv4.
    #[must_use]
    pub fn number(address: IpAddr) -> (Self, u128) {
        match address.to_canonical() {
            IpAddr::V4(address) => (Self::V4, u128::from(u32::from(address))),
            IpAddr::V6(address) => (Self::V6, u128::from(address)),
        }
    }
}

// === impl Left ===

impl Left {
    /// A ban without end.
    pub const INDEFINITE: Self = Self(u64::MAX);

    /// The longest time that is passed to the kernel, in milliseconds: thirty years.
    const LONGEST: u64 = reeve_clock::LONGEST.as_secs() * 1000;

    /// A time. One of more than thirty years is without end until less of it is left.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).ok();
        millis
            .filter(|millis| *millis <= Self::LONGEST)
            .map_or(Self::INDEFINITE, Self)
    }

    /// The time, or `None` for a ban without end.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        (self != Self::INDEFINITE).then(|| Duration::from_millis(self.0))
    }

    /// The time rounded up to whole seconds, so that the kernel never ends a ban early.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        match self {
            Self::INDEFINITE => self,
            Self(millis) => Self(millis.div_ceil(1000).max(1) * 1000),
        }
    }

    /// Whether this is longer than `other` by more than `tolerance`.
    #[must_use]
    pub fn exceeds(self, other: Self, tolerance: Duration) -> bool {
        match (self.time(), other.time()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(this), Some(other)) => this > other + tolerance,
        }
    }
}

impl fmt::Debug for Left {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time() {
            Some(time) => write!(formatter, "{time:?}"),
            None => formatter.write_str("indefinitely"),
        }
    }
}

// === impl Span ===

impl Span {
    /// The family and the addresses of a range. A range of mapped addresses (`::ffff:192.0.2.0/120`) is one of IPv4.
    #[must_use]
    pub fn of(range: IpNet) -> (Family, Self) {
        let (mut family, mut first) = Family::number(range.network());
        let (last_family, mut last) = Family::number(range.broadcast());
        if family != last_family {
            // A range around all mapped addresses.
            family = Family::V6;
            let plain = |address: IpAddr| match address {
                IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
                IpAddr::V6(address) => u128::from(address),
            };
            (first, last) = (plain(range.network()), plain(range.broadcast()));
        }
        (family, Self { first, last })
    }

    /// Whether the two have an address in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The span as text: an address, a range, or its first and last address.
    #[must_use]
    pub fn text(self, family: Family) -> String {
        let (first, last) = (family.address(self.first), family.address(self.last));
        if first == last {
            return first.to_string();
        }
        let size = self.last - self.first;
        let bits: u32 = if family == Family::V4 { 32 } else { 128 };
        if size & size.wrapping_add(1) == 0 && self.first & size == 0 {
            format!("{first}/{}", bits - size.count_ones())
        } else {
            format!("{first}-{last}")
        }
    }
}

// === impl Timed ===

impl Timed {
    /// `span` for the time `left`.
    #[must_use]
    pub fn new(span: Span, left: Left) -> Self {
        Self { span, left }
    }
}

/// Cuts `entries` into sorted pieces without overlaps. Each address has the longest time of the entries over it, and
/// pieces that touch and have one time are one piece.
#[must_use]
pub fn flatten(entries: impl IntoIterator<Item = Timed>) -> Vec<Timed> {
    // Where entries begin (+1) and where they have ended (-1). An entry up to the last address of IPv6 never ends here.
    let mut edges: Vec<(u128, bool, Left)> = Vec::new();
    for Timed { span, left } in entries {
        edges.push((span.first, true, left));
        edges.extend(span.last.checked_add(1).map(|after| (after, false, left)));
    }
    edges.sort_unstable();
    let mut open: BTreeMap<Left, usize> = BTreeMap::new();
    let mut pieces: Vec<Timed> = Vec::new();
    let mut edges = edges.into_iter().peekable();
    while let Some((at, begins, left)) = edges.next() {
        if begins {
            *open.entry(left).or_insert(0) += 1;
        } else if let Some(count) = open.get_mut(&left) {
            *count -= 1;
            if *count == 0 {
                open.remove(&left);
            }
        }
        let next = edges.peek().map(|(next, ..)| *next);
        if next == Some(at) {
            continue;
        }
        let Some((left, _)) = open.last_key_value() else {
            continue;
        };
        let last = match next {
            Some(next) => next - 1,
            None => u128::MAX,
        };
        push(&mut pieces, Timed::new(Span { first: at, last }, *left));
    }
    pieces
}

/// Appends a piece, or makes the last one longer.
fn push(pieces: &mut Vec<Timed>, piece: Timed) {
    if let Some(before) = pieces.last_mut()
        && before.left == piece.left
        && before.span.last.checked_add(1) == Some(piece.span.first)
    {
        before.span.last = piece.span.last;
        return;
    }
    pieces.push(piece);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timed(first: u128, last: u128, seconds: u64) -> Timed {
        let left = match seconds {
            0 => Left::INDEFINITE,
            seconds => Left::of(Duration::from_secs(seconds)),
        };
        Timed::new(Span { first, last }, left)
    }

    #[test]
    fn an_address_in_a_range_is_a_piece_of_its_own_only_while_it_outlasts_the_range() {
        let range = timed(10, 20, 60);
        assert_eq!(flatten([range, timed(15, 15, 30)]), [range]);
        assert_eq!(flatten([range, timed(15, 15, 60)]), [range]);
        assert_eq!(
            flatten([range, timed(15, 15, 0)]),
            [timed(10, 14, 60), timed(15, 15, 0), timed(16, 20, 60)]
        );
        assert_eq!(
            flatten([range, timed(20, 20, 90)]),
            [timed(10, 19, 60), timed(20, 20, 90)]
        );
    }

    #[test]
    fn neighbours_with_one_end_are_one_piece() {
        let pieces = flatten([timed(1, 1, 5), timed(2, 3, 5), timed(4, 4, 6)]);
        assert_eq!(pieces, [timed(1, 3, 5), timed(4, 4, 6)]);
    }

    #[test]
    fn the_last_address_of_ipv6_has_no_successor() {
        let all = timed(0, u128::MAX, 5);
        let last = timed(u128::MAX, u128::MAX, 9);
        assert_eq!(flatten([last, all]), [timed(0, u128::MAX - 1, 5), last]);
    }

    #[test]
    fn a_time_is_rounded_up_and_limited() {
        let millis = |millis| Left::of(Duration::from_millis(millis));
        assert_eq!(millis(1).rounded_up(), millis(1000));
        assert_eq!(millis(0).rounded_up(), millis(1000));
        assert_eq!(millis(2000).rounded_up(), millis(2000));
        assert_eq!(Left::INDEFINITE.rounded_up(), Left::INDEFINITE);
        assert_eq!(
            Left::of(reeve_clock::LONGEST).time(),
            Some(reeve_clock::LONGEST)
        );
        // The kernel has no such time, and one of thirty years would be set again and again.
        let longer = reeve_clock::LONGEST + Duration::from_secs(1);
        assert_eq!(Left::of(longer), Left::INDEFINITE);
        assert_eq!(Left::of(Duration::MAX), Left::INDEFINITE);
        assert!(Left::INDEFINITE.exceeds(millis(1), Duration::MAX / 2));
        assert!(!Left::INDEFINITE.exceeds(Left::INDEFINITE, Duration::ZERO));
    }

    #[test]
    fn spans_are_printed_as_they_are_written() {
        for (text, family) in [
            ("192.0.2.7/32", Family::V4),
            ("192.0.2.0/24", Family::V4),
            ("0.0.0.0/0", Family::V4),
            ("2001:db8::/32", Family::V6),
            ("2001:db8::1/128", Family::V6),
        ] {
            let (found, span) = Span::of(text.parse().unwrap());
            assert_eq!(found, family);
            let host = text.trim_end_matches("/32").trim_end_matches("/128");
            let expected = if span.first == span.last { host } else { text };
            assert_eq!(span.text(family), expected);
        }
        let odd = Span { first: 1, last: 4 };
        assert_eq!(odd.text(Family::V4), "0.0.0.1-0.0.0.4");
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        for mapped in ["::ffff:192.0.2.0/120", "192.0.2.0/24"] {
            let (family, span) = Span::of(mapped.parse().unwrap());
            assert_eq!(
                (family, span.text(family)),
                (Family::V4, "192.0.2.0/24".into())
            );
        }
        let (family, span) = Span::of("::/0".parse().unwrap());
        assert_eq!((family, span.last), (Family::V6, u128::MAX));
    }

    proptest! {
        /// Checked address by address, against the entries themselves.
        #[test]
        fn each_address_has_the_longest_time_of_its_entries(
            entries in prop::collection::vec((0_u128..40, 0_u128..12, 0_u64..5), 0..12)
        ) {
            let entries: Vec<Timed> = entries
                .into_iter()
                .map(|(first, size, seconds)| timed(first, first + size, seconds))
                .collect();
            let pieces = flatten(entries.iter().copied());
            for address in 0..60 {
                let at = |all: &[Timed]| all
                    .iter()
                    .filter(|entry| entry.span.first <= address && address <= entry.span.last)
                    .map(|entry| entry.left)
                    .max();
                prop_assert_eq!(at(&entries), at(&pieces));
            }
            for pair in pieces.windows(2) {
                prop_assert!(pair[0].span.last < pair[1].span.first);
                let touching = pair[0].span.last + 1 == pair[1].span.first;
                prop_assert!(!(touching && pair[0].left == pair[1].left), "could be one piece: {:?}", pair);
            }
        }
    }
}
