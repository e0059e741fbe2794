//! The table as the kernel has it: packets, time-outs, transactions, and `nft` as a witness.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ipblock_agent::interval::{Family, Left, Span, Timed, flatten};
use ipblock_agent::nft::{Change, Hook, Kernel, Layout, Nftables, Observed, Rebuild};
use ipblock_agent::plan::Plan;

use crate::namespace::{CLIENT, Pair, wait};

const TABLE: &str = "ipblock";
pub(crate) const RAW: Hook = Hook::Prerouting { priority: -300 };

pub(crate) fn open(pair: &Pair, hook: Hook) -> Nftables {
    pair.node.inside(|| Nftables::open(TABLE, hook).unwrap())
}

/// Entries of a list: ranges or addresses, each with its time, without one indefinitely.
pub(crate) fn list(entries: &[(&str, Option<u64>)]) -> Observed {
    let mut families = [Vec::new(), Vec::new()];
    for (target, millis) in entries {
        let range = match target.contains('/') {
            true => target.parse().unwrap(),
            false => ipnet::IpNet::from(target.parse::<std::net::IpAddr>().unwrap()),
        };
        let (family, span) = Span::of(range);
        let left = millis.map_or(Left::INDEFINITE, |millis| {
            Left::of(Duration::from_millis(millis))
        });
        families[usize::from(family == Family::V6)].push(Timed::new(span, left));
    }
    let [v4, v6] = families.map(flatten);
    Observed { v4, v6 }
}

/// The change from what the kernel has to `wanted`.
pub(crate) fn change(observed: &Observed, wanted: &Observed) -> Change {
    Change {
        rebuild: Rebuild::Nothing,
        v4: Plan::between(&observed.v4, &wanted.v4),
        v6: Plan::between(&observed.v6, &wanted.v6),
    }
}

/// Makes a new table with `entries`.
pub(crate) fn build(kernel: &mut Nftables, entries: &[(&str, Option<u64>)]) {
    let mut change = change(&Observed::default(), &list(entries));
    change.rebuild = Rebuild::Table;
    kernel.apply(&change).unwrap();
}

/// Changes the sets to `entries`.
fn set(kernel: &mut Nftables, entries: &[(&str, Option<u64>)]) {
    let observed = kernel.observe().unwrap();
    kernel.apply(&change(&observed, &list(entries))).unwrap();
}

#[test]
fn packets_of_a_banned_address_are_dropped_until_it_is_lifted() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    for client in [CLIENT[0], CLIENT[2]] {
        assert!(pair.passes(client), "{client} before");
        let (mut ours, mut theirs) = pair.connection(client);
        assert!(Pair::stream_passes(&mut ours, &mut theirs));
        build(&mut kernel, &[(client, None)]);
        assert!(pair.is_dropped(client), "{client} banned");
        assert!(
            !Pair::stream_passes(&mut ours, &mut theirs),
            "an open connection of {client}"
        );
        assert_ne!(pair.ping_passes(client), Some(true), "{client} banned");
        let other = CLIENT[if client == CLIENT[0] { 1 } else { 3 }];
        assert!(pair.passes(other), "{other} is not banned");
        set(&mut kernel, &[]);
        assert!(pair.passes(client), "{client} lifted");
        assert_ne!(pair.ping_passes(client), Some(false), "{client} lifted");
    }
}

/// What runs on a node is mostly in Pods, reached by their addresses or by ports of the node.
#[test]
fn packets_for_pods_and_node_ports_are_dropped_too() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let pod = pair.pod();
    let receiver = pod.inside(|| UdpSocket::bind("10.78.0.2:5000").unwrap());
    for line in [
        "nft add table ip nat",
        "nft add chain ip nat pre { type nat hook prerouting priority dstnat ; }",
        "nft add rule ip nat pre udp dport 30000 dnat to 10.78.0.2:5000",
    ] {
        pair.node.run(line);
    }
    let ways = ["10.78.0.2:5000", "10.77.0.1:30000"].map(|to| to.parse().unwrap());
    // The first packet waits for the neighbours.
    for to in ways {
        assert!(
            (0..20).any(|_| pair.arrives(CLIENT[0], to, &receiver)),
            "{to}"
        );
    }
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[(CLIENT[0], None)]);
    for to in ways {
        assert!(!pair.arrives(CLIENT[0], to, &receiver), "{to}, banned");
        assert!(
            pair.arrives(CLIENT[1], to, &receiver),
            "{to}, another client"
        );
    }
    set(&mut kernel, &[]);
    for to in ways {
        assert!(pair.arrives(CLIENT[0], to, &receiver), "{to}, lifted");
    }
}

#[test]
fn the_kernel_ends_a_ban_without_the_agent() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(
        &mut kernel,
        &[
            (CLIENT[0], Some(1000)),
            (CLIENT[2], Some(1000)),
            (CLIENT[1], Some(60_000)),
        ],
    );
    drop(kernel);
    assert!(pair.is_dropped(CLIENT[0]) && pair.is_dropped(CLIENT[2]));
    assert!(pair.passes(CLIENT[0]));
    assert!(pair.passes(CLIENT[2]));
    assert!(pair.is_dropped(CLIENT[1]), "its time is not over");
    // The address can be banned again where it was.
    let mut kernel = open(&pair, RAW);
    set(
        &mut kernel,
        &[(CLIENT[0], Some(60_000)), (CLIENT[1], Some(60_000))],
    );
    assert!(pair.is_dropped(CLIENT[0]));
}

#[test]
fn a_range_and_an_address_in_it_end_each_at_its_own_time() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(
        &mut kernel,
        &[("10.77.0.0/28", Some(1000)), (CLIENT[0], Some(60_000))],
    );
    assert!(pair.is_dropped(CLIENT[0]) && pair.is_dropped(CLIENT[1]));
    assert!(pair.passes(CLIENT[1]), "the range has ended");
    assert!(pair.is_dropped(CLIENT[0]), "the address outlasts it");
    set(&mut kernel, &[("2001:db8:77::/64", None)]);
    assert!(pair.passes(CLIENT[0]));
    // The node's own neighbour discovery is link-local, or it would be cut off by its own range.
    assert!(pair.is_dropped(CLIENT[2]) && pair.is_dropped(CLIENT[3]));
}

#[test]
fn a_ban_is_prolonged_in_one_transaction() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[(CLIENT[0], Some(2000))]);
    set(&mut kernel, &[(CLIENT[0], Some(60_000))]);
    wait(Duration::from_millis(2200));
    assert!(pair.is_dropped(CLIENT[0]));
    let observed = kernel.observe().unwrap();
    assert!(
        observed.v4[0].left > Left::of(Duration::from_secs(50)),
        "{observed:?}"
    );
    set(&mut kernel, &[(CLIENT[0], None)]);
    assert_eq!(kernel.observe().unwrap(), list(&[(CLIENT[0], None)]));
}

#[test]
fn nft_prints_what_the_agent_wrote() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(
        &mut kernel,
        &[
            ("192.0.2.7", None),
            ("198.51.100.0/24", Some(3_600_000)),
            ("224.0.0.0/3", None),
            ("2001:db8:1::/48", None),
            ("2001:db8:2::7", Some(60_000)),
        ],
    );
    let printed = pair.node.run("nft list table inet ipblock");
    for line in [
        "flags interval,timeout",
        "type ipv4_addr",
        "type ipv6_addr",
        "192.0.2.7, ",
        "198.51.100.0/24 timeout 1h expires",
        "224.0.0.0/3",
        "2001:db8:1::/48",
        "2001:db8:2::7 timeout 1m expires",
        "type filter hook prerouting priority raw; policy accept;",
        "ip saddr @v4 counter packets 0 bytes 0 drop comment \"ipblock-agent v4\"",
        "ip6 saddr @v6 counter packets 0 bytes 0 drop comment \"ipblock-agent v6\"",
    ] {
        assert!(printed.contains(line), "{line} is not in\n{printed}");
    }
}

#[test]
fn what_nft_wrote_is_read_by_the_agent() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[]);
    pair.node.run("nft add element inet ipblock v4 { 192.0.2.7, 198.51.100.0-198.51.100.99 timeout 1h, 255.255.255.255 }");
    pair.node
        .run("nft add element inet ipblock v6 { 2001:db8::/32 }");
    let observed = kernel.observe().unwrap();
    let texts: Vec<String> = observed
        .v4
        .iter()
        .map(|timed| timed.span.text(Family::V4))
        .collect();
    assert_eq!(
        texts,
        ["192.0.2.7", "198.51.100.0-198.51.100.99", "255.255.255.255"]
    );
    assert!(observed.v4[1].left.time().unwrap() > Duration::from_secs(3590));
    assert_eq!(observed.v6, list(&[("2001:db8::/32", None)]).v6);
    // Strays are removed, also those that another program wrote.
    set(&mut kernel, &[("192.0.2.7", None)]);
    assert_eq!(kernel.observe().unwrap(), list(&[("192.0.2.7", None)]));
}

#[test]
fn dropped_packets_are_counted_by_the_kernel() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[(CLIENT[0], None), (CLIENT[2], None)]);
    for _ in 0..3 {
        assert!(pair.is_dropped(CLIENT[0]));
    }
    assert!(pair.is_dropped(CLIENT[2]));
    let Layout::Intact { v4, v6 } = kernel.standing().unwrap().layout else {
        panic!("damaged")
    };
    // One byte in UDP (8) in IPv4 (20) and IPv6 (40).
    assert_eq!((v4.packets, v4.bytes), (3, 3 * 29));
    assert_eq!((v6.packets, v6.bytes), (1, 49));
}

#[test]
fn at_ingress_packets_are_dropped_at_the_named_device() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let devices = vec!["gate".to_owned()];
    let mut kernel = open(
        &pair,
        Hook::Ingress {
            devices,
            priority: -500,
        },
    );
    build(&mut kernel, &[(CLIENT[0], None), (CLIENT[2], None)]);
    assert!(matches!(
        kernel.standing().unwrap().layout,
        Layout::Intact { .. }
    ));
    assert!(pair.is_dropped(CLIENT[0]) && pair.is_dropped(CLIENT[2]));
    assert!(pair.passes(CLIENT[1]) && pair.passes(CLIENT[3]));
    kernel
        .apply(&Change {
            rebuild: Rebuild::Chain,
            ..Change::default()
        })
        .unwrap();
    assert!(pair.is_dropped(CLIENT[0]), "the chain is replaced");
    // A name may have 15 characters. A device that does not exist is refused by kernels before 6.16 only.
    let missing = Hook::Ingress {
        devices: vec!["a-name-that-is-too-long".into()],
        priority: -500,
    };
    let change = Change {
        rebuild: Rebuild::Table,
        ..Change::default()
    };
    let error = open(&pair, missing).apply(&change).unwrap_err();
    assert_eq!(error.kind(), "netlink_refused", "{error}");
    assert!(
        pair.is_dropped(CLIENT[0]),
        "the old table stays when the new one is refused"
    );
}

#[test]
fn a_transaction_that_is_refused_changes_nothing() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[("192.0.2.0/24", None)]);
    let plan = Plan {
        remove: Vec::new(),
        add: list(&[("198.51.100.1", None), ("192.0.2.7", None)]).v4,
    };
    let error = kernel
        .apply(&Change {
            v4: plan,
            ..Change::default()
        })
        .unwrap_err();
    assert!(error.is_stale(), "{error}");
    let plan = Plan {
        remove: vec![Span { first: 1, last: 1 }],
        add: list(&[("198.51.100.1", None)]).v4,
    };
    let error = kernel
        .apply(&Change {
            v4: plan,
            ..Change::default()
        })
        .unwrap_err();
    assert!(error.is_missing(), "{error}");
    assert_eq!(kernel.observe().unwrap(), list(&[("192.0.2.0/24", None)]));
}

/// Single addresses of IPv4, each with an hour, in order and none beside another.
pub(crate) fn many(count: u128) -> Vec<Timed> {
    (0..count)
        .map(|at| {
            let address = 0xcb00_7100 + at * 3;
            let span = Span {
                first: address,
                last: address,
            };
            Timed::new(span, Left::of(Duration::from_secs(3600)))
        })
        .collect()
}

#[test]
fn the_addresses_of_the_node_are_read() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let found = open(&pair, RAW).addresses().unwrap();
    for address in [
        crate::namespace::NODE[0],
        crate::namespace::NODE[1],
        "127.0.0.1",
        "::1",
    ] {
        assert!(
            found.contains(&address.parse().unwrap()),
            "{address} is not in {found:?}"
        );
    }
}

/// Ten thousand addresses of each kind, written, read, compared and replaced. The times are printed:
/// `cargo test -p ipblock-agent --release --test it ten_thousand -- --nocapture`.
#[test]
fn ten_thousand_elements_are_written_read_and_prolonged() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    let spans = |family: Family, start: u128, seconds| {
        let spread = |at: u128| Span {
            first: start + at * 3,
            last: start + at * 3,
        };
        let left = Left::of(Duration::from_secs(seconds));
        let timed = (0..10_000).map(|at| Timed::new(spread(at), left)).collect();
        match family {
            Family::V4 => Observed {
                v4: timed,
                v6: Vec::new(),
            },
            Family::V6 => Observed {
                v4: Vec::new(),
                v6: timed,
            },
        }
    };
    build(&mut kernel, &[]);
    for (family, start) in [
        (Family::V4, 0xcb00_7100),
        (Family::V6, 0x2001_0db8_u128 << 96),
    ] {
        let hour = spans(family, start, 3600);
        let before = kernel.observe().unwrap();
        let written = timed(|| kernel.apply(&change(&before, &hour)).unwrap());
        let mut observed = Observed::default();
        let read = timed(|| observed = kernel.observe().unwrap());
        assert_eq!(observed.len(), 10_000);
        assert!(change(&observed, &hour).is_empty());
        let longer = change(&observed, &spans(family, start, 7200));
        assert_eq!(longer.len(), 20_000);
        let prolonged = timed(|| kernel.apply(&longer).unwrap());
        let observed = kernel.observe().unwrap();
        let lifted = timed(|| {
            kernel
                .apply(&change(&observed, &Observed::default()))
                .unwrap();
        });
        assert!(kernel.observe().unwrap().is_empty());
        println!(
            "10,000 elements of {family:?}: written in {written:?}, read in {read:?}, prolonged in {prolonged:?}, lifted in {lifted:?}"
        );
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the kernel's work takes real time"
)]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
