//! The keys, their order and their delays: equal in all peers.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// The number of keys of the hot scenario.
pub const HOT: usize = 1000;

/// A queue's key: text that is `Arc<str>` (as Go's strings: a copy shares the bytes) or `String`.
pub trait Key: Hash + Eq + Clone + Send + Sync + AsRef<str> + From<String> + 'static {}

impl Key for Arc<str> {}
impl Key for String {}

/// Key number `number`, 23 bytes.
#[must_use]
pub fn text(number: usize) -> String {
    format!("ns-{:04}/name-{number:010}", number % 100)
}

/// The number of a key.
///
/// # Panics
/// If it is not a key of [`text`].
#[must_use]
pub fn number(key: &str) -> usize {
    key.as_bytes()[key.len() - 10..]
        .iter()
        .fold(0, |number, digit| {
            assert!(digit.is_ascii_digit(), "{key:?} is not a key of this bench");
            number * 10 + usize::from(digit - b'0')
        })
}

/// Keys number `first` to `last`, exclusive.
#[must_use]
pub fn range<K: Key>(first: usize, last: usize) -> Vec<K> {
    (first..last).map(|number| text(number).into()).collect()
}

/// The hot key that producer `producer` adds at its `step`.
#[must_use]
pub fn hot(step: usize, producer: usize) -> usize {
    (step * 7 + producer * 251) % HOT
}

/// The delay of key `number`, when all are spread over five seconds.
#[must_use]
pub fn delay(number: usize) -> Duration {
    Duration::from_micros(number as u64 * 2_654_435_761 % 5_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_23_bytes_and_knows_its_number() {
        assert_eq!(text(1_234_567), "ns-0067/name-0001234567");
        assert_eq!(text(0).len(), 23);
        assert_eq!(number(&text(1_234_567)), 1_234_567);
    }

    #[test]
    fn delays_are_spread_over_five_seconds() {
        let longest = (0..100_000).map(delay).max().unwrap();
        assert!(longest < Duration::from_secs(5) && longest > Duration::from_millis(4990));
        assert_eq!(delay(1), Duration::from_micros(4_435_761));
    }
}
