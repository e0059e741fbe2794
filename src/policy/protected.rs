//! Ranges that are protected without being configured.

/// Never banned, anywhere.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("127.0.0.0/8", "loopback"),
    ("::1/128", "loopback"),
    ("0.0.0.0/8", "unspecified addresses"),
    ("::/128", "the unspecified address"),
    ("169.254.0.0/16", "link-local addresses"),
    ("fe80::/10", "link-local addresses"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
];

/// Protected by the switch `protectPrivate`.
pub const PRIVATE: &[(&str, &str)] = &[
    ("10.0.0.0/8", "private addresses"),
    ("172.16.0.0/12", "private addresses"),
    ("192.168.0.0/16", "private addresses"),
    ("100.64.0.0/10", "carrier-grade NAT addresses"),
    ("fc00::/7", "unique local addresses"),
];
