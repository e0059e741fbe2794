//! The fingerprint of what is enforced.

use sha2::{Digest, Sha256};

use crate::target::Target;

/// Changes when the meaning of the fingerprint does; the original's has no prefix.
const VERSION: &str = "v1:";

/// Fingerprint of the fields that make a ban what it is: canonical target and engine.
///
/// Reason, tags, source, the two flags and the duration are not in it: editing them never bans again.
#[must_use]
pub fn effective_hash(target: &Target, engine: &str) -> String {
    use std::fmt::Write as _;
    let mut digest = Sha256::new();
    digest.update(target.to_string());
    digest.update([0]);
    digest.update(engine);
    let mut text = String::with_capacity(VERSION.len() + 64);
    text.push_str(VERSION);
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_target_have_one_fingerprint_and_engines_differ() {
        let hash = |target: &str, engine| effective_hash(&target.parse().unwrap(), engine);
        assert_eq!(hash("192.0.2.7/32", "xdp"), hash("::ffff:192.0.2.7", "xdp"));
        assert_ne!(hash("192.0.2.7", "xdp"), hash("192.0.2.7", "iptables"));
        assert_ne!(hash("192.0.2.7", "xdp"), hash("192.0.2.0/24", "xdp"));
        assert!(hash("192.0.2.7", "xdp").starts_with("v1:"));
        assert_eq!(hash("192.0.2.7", "xdp").len(), 3 + 64);
    }
}
