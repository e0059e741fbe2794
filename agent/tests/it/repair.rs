//! Damage of the table and its repair, and tables with many elements.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ipblock_agent::interval::{Left, Span, Timed};
use ipblock_agent::nft::{Change, Hook, Kernel, Layout, Observed, Rebuild};
use ipblock_agent::plan::Plan;

use crate::kernel::{RAW, build, change, list, many, open};
use crate::namespace::{CLIENT, NODE, Pair};

/// The handle of the rule for IPv4; "0" without one.
fn first_rule(pair: &Pair) -> String {
    let listed = pair.node.run("nft -a list ruleset");
    let rule = listed.lines().find(|line| line.contains("saddr @v4"));
    let handle = rule.and_then(|rule| rule.split(' ').next_back());
    handle.unwrap_or("0").to_owned()
}

#[test]
fn damage_is_seen_and_repaired() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    assert_eq!(kernel.standing().unwrap().layout, Layout::Missing);
    build(&mut kernel, &[(CLIENT[0], None)]);
    let repair = Change {
        rebuild: Rebuild::Chain,
        ..Change::default()
    };
    let intact = kernel.standing().unwrap();
    assert!(matches!(intact.layout, Layout::Intact { .. }), "{intact:?}");
    for (damage, found) in [
        ("nft flush ruleset", "all"),
        ("nft flush chain inet ipblock banned", "the rules"),
        ("nft insert rule inet ipblock banned accept", "the rules"),
        (
            "nft replace rule inet ipblock banned handle RULE \
             ip saddr @v4 counter accept comment \"ipblock-agent v4\"",
            "the rules",
        ),
        (
            "nft replace rule inet ipblock banned handle RULE \
             ip saddr != @v4 counter drop comment \"ipblock-agent v4\"",
            "the rules",
        ),
        (
            "nft add set inet ipblock other { type ipv4_addr; flags interval; }; \
             replace rule inet ipblock banned handle RULE \
             ip saddr @other counter drop comment \"ipblock-agent v4\"",
            "the rules",
        ),
        ("nft add table inet ipblock { flags dormant; }", "the table"),
        ("nft add chain inet ipblock other", "a further chain"),
        ("nft delete table inet ipblock", "all"),
    ] {
        let damage = damage.replace("RULE", &first_rule(&pair));
        pair.node.run(&damage);
        let standing = kernel.standing().unwrap();
        let layout = match standing.layout {
            Layout::Damaged { what, .. } => what,
            Layout::Missing => "all",
            Layout::Intact { .. } => "nothing",
        };
        assert_eq!(layout, found, "{damage}");
        assert_ne!(standing.generation, intact.generation, "{damage}");
        let ineffective = !damage.contains("chain inet ipblock other");
        assert!(!ineffective || pair.passes(CLIENT[0]), "{damage}");
        match standing.layout {
            Layout::Damaged {
                repair: Rebuild::Chain,
                ..
            } => kernel.apply(&repair).unwrap(),
            _ => build(&mut kernel, &[(CLIENT[0], None)]),
        }
        assert!(pair.is_dropped(CLIENT[0]), "{damage}, repaired");
        let layout = kernel.standing().unwrap().layout;
        assert!(
            matches!(layout, Layout::Intact { .. }),
            "{damage}: {layout:?}"
        );
    }
    let mut elsewhere = open(&pair, Hook::Prerouting { priority: -150 });
    let other = elsewhere.standing().unwrap().layout;
    let expected = Layout::Damaged {
        what: "the chain",
        repair: Rebuild::Chain,
    };
    assert_eq!(other, expected);
    elsewhere.apply(&repair).unwrap();
    let layout = elsewhere.standing().unwrap().layout;
    assert!(matches!(layout, Layout::Intact { .. }), "{layout:?}");
    assert!(pair.is_dropped(CLIENT[0]), "at another priority");
    assert!(kernel.remove().unwrap());
    assert!(!kernel.remove().unwrap());
}

/// Datagrams of a banned address are sent while the chain is replaced again and again.
#[test]
fn no_packet_of_a_banned_address_passes_while_the_chain_is_repaired() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    let mut wanted = list(&[(CLIENT[0], None)]);
    wanted.v4.extend(many(20_000));
    let mut repair = change(&Observed::default(), &wanted);
    repair.rebuild = Rebuild::Table;
    kernel.apply(&repair).unwrap();
    repair = Change {
        rebuild: Rebuild::Chain,
        ..Change::default()
    };
    let node: IpAddr = NODE[0].parse().unwrap();
    let receiver = pair.node.inside(|| UdpSocket::bind((node, 0)).unwrap());
    receiver.set_nonblocking(true).unwrap();
    let to = receiver.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let from: IpAddr = CLIENT[0].parse().unwrap();
            let sender = pair.client.inside(|| UdpSocket::bind((from, 0)).unwrap());
            let mut sent = 0;
            while !stop.load(Relaxed) {
                sender.send_to(b"?", to).unwrap();
                sent += 1;
            }
            sent
        });
        for _ in 0..50 {
            // Damage that lets no packet pass. Its chains refer to each other.
            pair.node.run("nft add chain inet ipblock other; add chain inet ipblock more; add rule inet ipblock other jump more");
            let Layout::Damaged { what, repair: of } = kernel.standing().unwrap().layout else {
                panic!("the further chains are not seen")
            };
            assert_eq!((what, of), ("a further chain", Rebuild::Chain));
            kernel.apply(&repair).unwrap();
            let layout = kernel.standing().unwrap().layout;
            assert!(matches!(layout, Layout::Intact { .. }), "{layout:?}");
        }
        stop.store(true, Relaxed);
        sending.join().unwrap()
    });
    assert!(sent > 1000, "only {sent} datagrams were sent");
    assert!(receiver.recv(&mut [0; 8]).is_err(), "a datagram passed");
    assert_eq!(kernel.observe().unwrap().len(), 20_001);
}

/// A map whose verdicts name a chain keeps the kernel from deleting it.
#[test]
fn a_chain_that_a_map_refers_to_goes_with_the_whole_table_only() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[(CLIENT[0], None)]);
    pair.node.run("nft add chain inet ipblock other; add map inet ipblock m { type ipv4_addr : verdict ; }; add element inet ipblock m { 192.0.2.1 : jump other }");
    let repair = Change {
        rebuild: Rebuild::Chain,
        ..Change::default()
    };
    let error = kernel.apply(&repair).unwrap_err();
    assert!(!error.is_stale(), "{error}");
    assert!(pair.is_dropped(CLIENT[0]), "nothing of it is in force");
    build(&mut kernel, &[(CLIENT[0], None)]);
    let layout = kernel.standing().unwrap().layout;
    assert!(matches!(layout, Layout::Intact { .. }), "{layout:?}");
}

#[test]
fn a_large_table_is_made_in_one_transaction() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    let mut make = change(&Observed::default(), &list(&[(CLIENT[2], None)]));
    make.rebuild = Rebuild::Table;
    make.v4 = Plan::between(&[], &many(60_000));
    let before = kernel.standing().unwrap().generation;
    kernel.apply(&make).unwrap();
    assert_eq!(kernel.standing().unwrap().generation, before + 1);
    assert_eq!(kernel.observe().unwrap().len(), 60_001);
    assert!(pair.is_dropped(CLIENT[2]));
}

#[test]
fn a_large_table_that_is_refused_reports_the_first_error_and_keeps_the_one_before() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut kernel = open(&pair, RAW);
    build(&mut kernel, &[(CLIENT[0], None)]);
    // Each message is refused: its elements overlap the first one. The kernel's answers repeat them, which is more than the
    // buffer for answers takes.
    let all = Span {
        first: 0,
        last: u32::MAX.into(),
    };
    let mut add = vec![Timed::new(all, Left::INDEFINITE)];
    add.extend(many(400_000));
    let plan = Plan {
        remove: Vec::new(),
        add,
    };
    let error = kernel
        .apply(&Change {
            rebuild: Rebuild::Table,
            v4: plan,
            ..Change::default()
        })
        .unwrap_err();
    assert!(error.is_stale(), "{error}");
    assert_eq!(kernel.observe().unwrap(), list(&[(CLIENT[0], None)]));
    assert!(pair.is_dropped(CLIENT[0]));
}
