//! The files that the process may have open, and what they are for.
//!
//! Each connection and each UDP client takes a file. A process without files accepts no connection, not even on the admin port that
//! would show the reason, so each use has a share of the limit.

use std::fs;

/// The limit where the system does not say it: that of most shells.
const USUAL: usize = 1024;
/// The most that any use needs.
const MOST: usize = 4096;

/// The most files of each use. An eighth of the limit is left for listeners and other processes' pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The connections of the API.
    pub api: usize,
    /// The connections of the admin port.
    pub admin: usize,
    /// The clients of UDP listeners.
    pub udp: usize,
}

// === impl Shares ===

impl Shares {
    /// The shares of this process, by its limit (`ulimit -n`).
    #[must_use]
    pub fn of_process() -> Self {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self::of(open_files(&limits).unwrap_or(USUAL))
    }

    /// The shares of `limit` files.
    #[must_use]
    pub fn of(limit: usize) -> Self {
        let share = |part: usize| part.clamp(4, MOST);
        Self {
            api: share(limit / 4),
            admin: share(limit / 8),
            udp: share(limit / 2),
        }
    }
}

/// The limit that holds now, of the text of `/proc/self/limits`.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_holds_now_is_read() {
        let limits = "Limit            Soft Limit  Hard Limit  Units\n\
                      Max processes    1000        1000        processes\n\
                      Max open files   1024        524288      files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files unlimited unlimited files"),
            Some(usize::MAX)
        );
        assert_eq!(open_files("Max cpu time unlimited"), None);
        assert!(open_files(&fs::read_to_string("/proc/self/limits").unwrap()).is_some());
    }

    #[test]
    fn the_shares_leave_files_for_listeners_and_pipes() {
        for limit in [64, 256, 1024, 20_000, usize::MAX] {
            let Shares { api, admin, udp } = Shares::of(limit);
            assert!(api + admin + udp <= limit - limit / 8, "{limit}");
            assert!(
                [api, admin, udp]
                    .iter()
                    .all(|share| (4..=MOST).contains(share))
            );
        }
    }
}
