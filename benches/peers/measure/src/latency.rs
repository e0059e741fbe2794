//! Delays of a peer, and their percentiles.

/// Sorted durations in nanoseconds.
#[derive(Debug)]
pub struct Sorted(Vec<u64>);

// === impl Sorted ===

impl Sorted {
    /// Sorts the measured times.
    #[must_use]
    pub fn new(mut nanoseconds: Vec<u64>) -> Self {
        nanoseconds.sort_unstable();
        Self(nanoseconds)
    }

    /// The smallest that at least `share` of all (0 to 1) do not exceed, in µs; 0 if there are none.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        let index = rank.saturating_sub(1).min(self.0.len().saturating_sub(1));
        self.0
            .get(index)
            .map_or(0.0, |&nanoseconds| nanoseconds as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let sorted = Sorted::new((1..=1000).rev().map(|number| number * 1000).collect());
        assert_eq!(sorted.quantile_us(0.5), 500.0);
        assert_eq!(sorted.quantile_us(0.99), 990.0);
        assert_eq!(sorted.quantile_us(1.0), 1000.0);
        assert_eq!(Sorted::new(Vec::new()).quantile_us(0.5), 0.0);
    }
}
