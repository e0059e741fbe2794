//! What is banned: one address or one range, in the only form that is ever sent, compared or stored.
//!
//! Two spellings of one address must never become two bans, so a [`Target`] is canonical from birth:
//! IPv4-mapped IPv6 becomes IPv4, host bits of a range are masked, `/32` and `/128` are addresses,
//! zone ids and leading zeros are refused. A `Target` is always valid.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use md5::{Digest, Md5};

/// The longest text that is parsed: an IPv6 address with a prefix needs 43 characters.
pub const MAX_TEXT: usize = 64;

/// A canonical address or range. Displays as `192.0.2.7`, `2001:db8::7` or `192.0.2.0/24`.
///
/// The order is by family, network address, then prefix length: what lies inside a range follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target(IpNet);

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was given.
    #[error(
        "the address is empty; write an IP address such as 192.0.2.7 or a range such as 192.0.2.0/24"
    )]
    Empty,
    /// Longer than any address can be.
    #[error("the address has {0} characters, more than any IP address or range has")]
    TooLong(usize),
    /// `fe80::1%eth0` names an interface of one machine.
    #[error(
        "{0} carries a zone id (the part after %), which has no meaning at a gateway; leave it out"
    )]
    Zone(Quoted),
    /// Neither an address nor a range: a host name, a typing mistake, leading zeros.
    #[error(
        "{0} is neither an IP address nor a CIDR range; write for example 192.0.2.7, 2001:db8::7 or 192.0.2.0/24"
    )]
    NotAnAddress(Quoted),
    /// The part after `/` is not a prefix length of this family.
    #[error("{text} has no valid prefix length: /0 to /{longest} is possible for this address")]
    Prefix {
        /// The text.
        text: Quoted,
        /// 32 or 128.
        longest: u8,
    },
}

/// Foreign text inside a message: quoted, control characters escaped, cut at 80 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

// === impl Target ===

impl Target {
    /// The target that is this one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::canonical(IpNet::from(address.to_canonical()))
    }

    /// The target that is this range, canonicalised.
    #[must_use]
    pub fn range(range: IpNet) -> Self {
        Self::canonical(range)
    }

    /// The target of the [`address`](Self::address) and [`prefix_len`](Self::prefix_len) of another.
    pub(crate) fn of_canonical(address: IpAddr, prefix_len: u8) -> Self {
        let range = IpNet::new(address, prefix_len);
        Self::canonical(range.unwrap_or_else(|_| IpNet::from(address)))
    }

    fn canonical(range: IpNet) -> Self {
        let range = range.trunc();
        if let IpNet::V6(v6) = range
            && let Some(v4) = unmapped(v6)
        {
            return Self(IpNet::V4(v4));
        }
        Self(range)
    }

    /// The range this is; an address is a range of one.
    #[must_use]
    pub fn net(&self) -> IpNet {
        self.0
    }

    /// The first address: of a single address, itself.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Whether this is one single address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
    }

    /// Whether this is IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        matches!(self.0, IpNet::V6(_))
    }

    /// The prefix length; 32 or 128 for an address.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether every address of `other` is in this target.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether the two share an address. Of two ranges one then contains the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// The name of the object for this target, the original's: see [`object_name`].
    #[must_use]
    pub fn object_name(&self) -> String {
        object_name(&self.to_string())
    }
}

/// The original's object name for a raw text: `ipblock-` and the first eight bytes of its MD5 in hex.
///
/// MD5 only makes an identifier here: for a name that exists, compare `spec.ip`.
///
/// ```
/// assert_eq!(ipblock_operator::target::object_name("1.2.3.4"), "ipblock-6465ec74397c9126");
/// ```
#[must_use]
pub fn object_name(raw: &str) -> String {
    let digest = Md5::digest(raw.as_bytes());
    let mut name = String::with_capacity(24);
    name.push_str("ipblock-");
    for byte in digest.iter().take(8) {
        use fmt::Write as _;
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// `::ffff:a.b.c.d/96+n` is `a.b.c.d/n`; a shorter prefix also covers addresses that are not mapped.
fn unmapped(range: Ipv6Net) -> Option<Ipv4Net> {
    let v4 = range.addr().to_ipv4_mapped()?;
    let prefix = range.prefix_len().checked_sub(96)?;
    Ipv4Net::new(v4, prefix).ok().map(|net| net.trunc())
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Empty);
        }
        if text.len() > MAX_TEXT {
            return Err(Error::TooLong(text.chars().count()));
        }
        if text.contains('%') {
            return Err(Error::Zone(Quoted::new(text)));
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| Error::NotAnAddress(Quoted::new(text)))?;
        let Some(prefix) = prefix else {
            return Ok(Self::host(address));
        };
        let longest = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let wrong = || Error::Prefix {
            text: Quoted::new(text),
            longest,
        };
        let plain = !prefix.is_empty()
            && prefix.bytes().all(|byte| byte.is_ascii_digit())
            && (prefix.len() == 1 || !prefix.starts_with('0'));
        if !plain {
            return Err(wrong());
        }
        let length: u8 = prefix.parse().map_err(|_| wrong())?;
        let range = IpNet::new(address, length).map_err(|_| wrong())?;
        Ok(Self::canonical(range))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            write!(formatter, "{}", self.0.addr())
        } else {
            write!(formatter, "{}", self.0)
        }
    }
}

impl From<Ipv6Addr> for Target {
    fn from(address: Ipv6Addr) -> Self {
        Self::host(IpAddr::V6(address))
    }
}

// === impl Quoted ===

impl Quoted {
    /// Wraps `text` for a message.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept: String = text.chars().take(80).collect();
        if kept.len() < text.len() {
            kept.push('…');
        }
        Self(kept)
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

/// A target inside JSON.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::Target;

    pub(crate) fn serialize<S: Serializer>(
        target: &Target,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(target)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Target, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn every_spelling_of_a_target_has_one_form() {
        for (given, canonical) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:0DB8:0:0::7", "2001:db8::7"),
            ("2001:db8::7/128", "2001:db8::7"),
            ("2001:db8::7/48", "2001:db8::/48"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::ffff:c000:207", "192.0.2.7"),
            ("::ffff:192.0.2.7/120", "192.0.2.0/24"),
            ("::ffff:192.0.2.7/128", "192.0.2.7"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(target(given).to_string(), canonical, "{given}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused_with_its_reason() {
        for (given, part_of_message) in [
            ("", "empty"),
            ("example.com", "neither an IP address nor a CIDR"),
            ("192.0.2.256", "neither"),
            ("192.0.2.07", "neither"),
            ("192.0.2", "neither"),
            (" 192.0.2.7", "neither"),
            ("192.0.2.7 ", "neither"),
            ("192.0.2.7&ip=10.0.0.1", "neither"),
            ("[2001:db8::7]", "neither"),
            ("192.0.2.7:80", "neither"),
            ("192.0.2.0/33", "/0 to /32"),
            ("192.0.2.0/", "/0 to /32"),
            ("192.0.2.0/024", "/0 to /32"),
            ("192.0.2.0/+8", "/0 to /32"),
            ("192.0.2.0/24/24", "/0 to /32"),
            ("2001:db8::/129", "/0 to /128"),
            ("fe80::1%eth0", "zone id"),
        ] {
            let error = given.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part_of_message), "{given:?}: {error}");
        }
        assert_eq!("1".repeat(65).parse::<Target>(), Err(Error::TooLong(65)));
    }

    #[test]
    fn a_message_never_carries_control_characters() {
        let error = "a\nb\u{1b}[31m".parse::<Target>().unwrap_err().to_string();
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }

    #[test]
    fn names_are_those_of_the_original() {
        assert_eq!(object_name("1.2.3.4"), "ipblock-6465ec74397c9126");
        assert_eq!(object_name("2001:db8::1"), "ipblock-1d64d10fff2ff210");
        assert_eq!(object_name("2001:0db8::1"), "ipblock-a8cf2281064b410e");
        assert_eq!(
            target("2001:0db8::1").object_name(),
            object_name("2001:db8::1")
        );
    }

    #[test]
    fn ranges_contain_and_overlap_within_their_family_only() {
        let wide = target("192.0.0.0/16");
        let inner = target("192.0.2.0/24");
        let address = target("192.0.2.7");
        assert!(wide.contains(&inner) && wide.contains(&address) && inner.contains(&inner));
        assert!(!inner.contains(&wide));
        assert!(inner.overlaps(&wide) && address.overlaps(&wide));
        assert!(!target("192.0.3.0/24").overlaps(&inner));
        assert!(!target("::/0").overlaps(&address));
    }

    proptest! {
        #[test]
        fn a_canonical_target_reads_back_as_itself(bits: u128, prefix in 0u8..=128, v4: bool) {
            let net = if v4 {
                IpNet::V4(Ipv4Net::new((bits as u32).into(), prefix % 33).unwrap())
            } else {
                IpNet::V6(Ipv6Net::new(bits.into(), prefix).unwrap())
            };
            let target = Target::range(net);
            prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
        }

        #[test]
        fn no_text_at_all_panics_or_makes_an_unclean_target(text in ".{0,70}") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert!(target.to_string().bytes().all(
                    |byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b'/')
                ));
            }
        }
    }
}
