//! Addresses in the texts of alerts. Pure.

use std::net::Ipv4Addr;

use super::alerts::Unusable;
use crate::target::{self, Target};

/// Addresses past this number in one text are not read.
pub(super) const MOST_IN_A_TEXT: usize = 100;

/// The addresses of a text: one, or several between commas, semicolons and blanks. Each comes with its own text, or
/// with the reason why it cannot be banned.
pub(super) fn addresses(text: &str, allow_ranges: bool) -> Vec<Result<(Target, &str), Unusable>> {
    let entries = text
        .split(|c: char| c == ',' || c == ';' || c.is_whitespace())
        .filter(|entry| !entry.is_empty());
    let mut found: Vec<_> = entries
        .take(MOST_IN_A_TEXT + 1)
        .map(|entry| target(entry, allow_ranges).map(|target| (target, entry)))
        .collect();
    if found.len() > MOST_IN_A_TEXT {
        found.truncate(MOST_IN_A_TEXT);
        let why = format!("only the first {MOST_IN_A_TEXT} addresses of a text are used");
        found.push(Err(Unusable(why)));
    }
    found
}

/// The target in one entry of a text.
pub(super) fn target(entry: &str, allow_ranges: bool) -> Result<Target, Unusable> {
    let target = address(entry).map_err(|error| Unusable(error.to_string()))?;
    if target.is_host() || allow_ranges {
        return Ok(target);
    }
    Err(Unusable(format!(
        "{target} is a range, and this trigger bans single addresses (allowRanges: true changes that)"
    )))
}

/// `192.0.2.7`, `192.0.2.7:443`, `[2001:db8::1]`, `[2001:db8::1]:443`.
fn address(raw: &str) -> Result<Target, target::Error> {
    if let Some(inner) = raw.strip_prefix('[')
        && let Some((address, rest)) = inner.split_once(']')
        && (rest.is_empty() || is_port(rest))
    {
        return address.parse();
    }
    if let Some((address, _)) = raw.split_once(':')
        && address.parse::<Ipv4Addr>().is_ok()
        && is_port(&raw[address.len()..])
    {
        return address.parse();
    }
    raw.parse()
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let found = addresses(text, false).into_iter();
        found
            .map(|entry| match entry {
                Ok((target, raw)) => format!("{target} of {raw}"),
                Err(Unusable(why)) => why,
            })
            .collect()
    }

    #[test]
    fn a_text_may_list_several_addresses() {
        assert_eq!(
            shown(" 192.0.2.7, 192.0.2.8:443;[2001:DB8::1]\n198.51.100.1 ,"),
            [
                "192.0.2.7 of 192.0.2.7",
                "192.0.2.8 of 192.0.2.8:443",
                "2001:db8::1 of [2001:DB8::1]",
                "198.51.100.1 of 198.51.100.1",
            ]
        );
        assert!(shown(" , ").is_empty());
    }

    #[test]
    fn a_wrong_entry_costs_only_itself() {
        let found = shown("192.0.2.7,example.com,192.0.2.0/24");
        assert_eq!(found[0], "192.0.2.7 of 192.0.2.7");
        assert!(found[1].contains("example.com"), "{}", found[1]);
        assert!(found[2].contains("allowRanges"), "{}", found[2]);
    }

    #[test]
    fn no_text_makes_more_addresses_than_the_limit() {
        let text = "192.0.2.7 ".repeat(5000);
        let found = addresses(&text, false);
        assert_eq!(found.len(), MOST_IN_A_TEXT + 1);
        assert!(found[MOST_IN_A_TEXT].is_err(), "the cut is reported");
        let exactly = "192.0.2.7 ".repeat(MOST_IN_A_TEXT);
        assert!(addresses(&exactly, false).iter().all(Result::is_ok));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_label_says_only_an_address_comes_out(label in "[0-9a-fA-F:./\\[\\]%x ]{0,48}") {
            if let Ok(target) = address(label.trim()) {
                proptest::prop_assert_eq!(address(&target.to_string()), Ok(target));
            }
        }

        #[test]
        fn a_port_changes_nothing(bytes in proptest::prelude::any::<[u8; 16]>(), port in 0_u16.., four in proptest::bool::ANY) {
            let (plain, with_port) = if four {
                let v4 = std::net::Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
                (v4.to_string(), format!("{v4}:{port}"))
            } else {
                let v6 = std::net::Ipv6Addr::from(bytes);
                (v6.to_string(), format!("[{v6}]:{port}"))
            };
            proptest::prop_assert_eq!(address(&plain), address(&with_port));
        }
    }
}
