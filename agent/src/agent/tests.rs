use std::collections::VecDeque;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::*;
use crate::enforcer::Settings;
use crate::interval::{Left, Span, Timed};
use crate::list::Entry;
use crate::nft::{Change, Layout, Observed, Rebuild, Standing};
use crate::plan::BrakeSettings;

mod doubles;

use doubles::{CLOCK, Memory, Operator};

const START: &str = "2026-01-01T00:00:00Z";

struct Test {
    kernel: Memory,
    operator: Operator,
    metrics: Metrics,
    health: Health,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Test {
    fn start(kernel: Memory, operator: Operator) -> Self {
        let clock = Clock::simulated(START.parse().unwrap(), 3);
        CLOCK.set(Some(clock.clone()));
        let settings = Settings {
            resync: Duration::from_secs(300),
            brake: BrakeSettings {
                above: 100,
                percent: 50,
                pause: Duration::from_secs(60),
            },
            most: 10_000,
            protected: Vec::new(),
        };
        let enforcer = Enforcer::new(kernel.clone(), clock.clone(), settings);
        let metrics = Metrics::new();
        let agent = Agent::new(
            enforcer,
            operator.clone(),
            clock,
            metrics.clone(),
            Duration::from_secs(2),
        );
        let (health, stop) = (agent.health(), CancellationToken::new());
        Self {
            kernel,
            operator,
            metrics,
            health,
            stop: stop.clone(),
            running: tokio::spawn(agent.run(stop)),
        }
    }

    fn ready(&self) -> bool {
        self.health.ready().check().is_ok()
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.metrics.register(&mut registry);
        let text = self.metrics.scrape(&registry);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

async fn seconds(count: u64) {
    // Step by step, so that blocking calls get their turn.
    for _ in 0..count * 4 {
        advance(Duration::from_millis(250)).await;
        sleep(Duration::from_nanos(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bans_come_and_go_with_the_list_and_each_state_is_reported() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None), ("2001:db8::/48", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7", "2001:db8::/48"]);
    assert!(test.ready());
    test.operator
        .set(&[("192.0.2.9", Some("2026-01-01T00:01:00Z"))]);
    seconds(2).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.9"]);
    test.operator.0.lock().up = false;
    seconds(62).await;
    assert_eq!(
        test.kernel.targets(),
        Vec::<String>::new(),
        "the kernel ends it"
    );
    let reports: Vec<_> = test
        .operator
        .0
        .lock()
        .reports
        .iter()
        .map(|report| (report.version.clone(), report.count))
        .collect();
    assert_eq!(&reports[..2], [("1".into(), 2), ("2".into(), 1)]);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_away_changes_nothing() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    test.operator.0.lock().up = false;
    seconds(600).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    assert!(test.ready(), "the node enforces what it has");
    assert!(test.metric("ipblock_agent_list_age_seconds") > 500.0);
    let asks = test.operator.0.lock().asks.len();
    assert!((15..40).contains(&asks), "{asks} requests in ten minutes");
    test.operator.set(&[]);
    seconds(45).await;
    assert_eq!(test.kernel.targets(), Vec::<String>::new());
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn before_the_first_list_the_bans_of_an_earlier_run_stay() {
    let kernel = Memory::default();
    kernel.outside(|state| {
        state.table = true;
        let (family, span) = Span::of("192.0.2.9/32".parse().unwrap());
        state.elements.push((family, span, None));
    });
    let test = Test::start(kernel, Operator::default());
    seconds(20).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.9"]);
    assert!(!test.ready());
    test.operator.set(&[("192.0.2.7", None)]);
    seconds(31).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_keeps_the_list_from_the_node_ends_without_one() {
    let kernel = Memory::default();
    kernel.outside(|state| {
        state.table = true;
        for target in ["192.0.2.7/32", "198.51.100.100/30", "198.51.100.200/32"] {
            let (family, span) = Span::of(target.parse().unwrap());
            state.elements.push((family, span, None));
        }
    });
    // The operator's address is in the range, and the node's is banned.
    let test = Test::start(kernel, Operator::default());
    seconds(5).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_moves_to_a_banned_address_is_reached_again() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.0/24", None), ("203.0.113.9", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    assert_eq!(test.kernel.targets().len(), 2);
    {
        let mut script = test.operator.0.lock();
        script.up = false;
        script.address = Some("192.0.2.8".parse().unwrap());
    }
    seconds(60).await;
    assert_eq!(test.kernel.targets(), ["203.0.113.9"]);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flushed_table_is_back_at_the_next_look() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    // Without an operator, too.
    test.operator.0.lock().up = false;
    test.kernel.outside(|state| {
        state.table = false;
        state.elements.clear();
    });
    seconds(3).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    assert_eq!(
        test.metric("ipblock_agent_table_restored_total"),
        2.0,
        "made, and made again"
    );
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_soon_after_another_program_changed_tables() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    test.kernel.outside(|state| {
        let span = Span { first: 9, last: 9 };
        state.elements = vec![(Family::V6, span, None)];
    });
    seconds(13).await;
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    assert_eq!(test.metric("ipblock_agent_drift_repaired_total"), 2.0);
    // A program that changes its own tables all the time costs a comparison each ten seconds, and no change.
    let applied = test.kernel.0.lock().applied;
    for _ in 0..20 {
        test.kernel.outside(|_| {});
        seconds(2).await;
    }
    assert_eq!(test.kernel.0.lock().applied, applied);
    assert_eq!(test.metric("ipblock_agent_drift_repaired_total"), 2.0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_many_bans_at_once_is_neither_drift_nor_a_mass_lift() {
    let operator = Operator::default();
    let hosts: Vec<String> = (0..150).map(|at| format!("192.0.{at}.1")).collect();
    let soon = Some("2026-01-01T00:00:20.500Z");
    let entries: Vec<_> = hosts.iter().map(|host| (host.as_str(), soon)).collect();
    operator.set(&entries);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    assert_eq!(test.kernel.targets().len(), 150);
    for _ in 0..24 {
        test.kernel.outside(|_| {});
        seconds(1).await;
        assert_eq!(test.metric("ipblock_agent_held_lifts"), 0.0);
    }
    assert_eq!(test.kernel.targets().len(), 0);
    assert_eq!(test.metric("ipblock_agent_drift_repaired_total"), 0.0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_lift_is_held_until_it_is_confirmed_and_new_bans_are_not() {
    let operator = Operator::default();
    operator.hosts(200);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    test.operator.set(&[("198.51.100.1", None)]);
    seconds(3).await;
    assert_eq!(test.kernel.targets().len(), 201);
    assert_eq!(test.metric("ipblock_agent_held_lifts"), 200.0);
    seconds(50).await;
    assert_eq!(test.kernel.targets().len(), 201);
    // The next answer after the pause, which is one that nothing changed.
    seconds(45).await;
    assert_eq!(test.kernel.targets(), ["198.51.100.1"]);
    assert_eq!(test.metric("ipblock_agent_held_lifts"), 0.0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_lift_that_is_taken_back_lifts_nothing() {
    let operator = Operator::default();
    operator.hosts(200);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    test.operator.set(&[]);
    seconds(20).await;
    test.operator.hosts(200);
    seconds(120).await;
    assert_eq!(test.kernel.targets().len(), 200);
    assert_eq!(test.metric("ipblock_agent_held_lifts"), 0.0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_holds_a_mass_lift_too() {
    let operator = Operator::default();
    operator.hosts(200);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    let (kernel, operator) = (test.kernel.clone(), test.operator.clone());
    test.stop().await;
    assert_eq!(kernel.targets().len(), 200, "the table stays");
    operator.set(&[]);
    let test = Test::start(kernel, operator);
    seconds(30).await;
    assert_eq!(test.kernel.targets().len(), 200);
    seconds(65).await;
    assert_eq!(test.kernel.targets().len(), 0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_node_and_the_operator_are_never_banned() {
    let operator = Operator::default();
    operator.set(&[
        ("198.51.100.200", None),
        ("198.51.100.100", None),
        ("198.51.100.128/25", None),
        ("127.0.0.0/8", None),
        ("198.51.100.1", None),
    ]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    assert_eq!(test.kernel.targets(), ["198.51.100.1"]);
    assert_eq!(test.metric("ipblock_agent_refused{reason=\"node\"}"), 2.0);
    assert_eq!(
        test.metric("ipblock_agent_refused{reason=\"operator\"}"),
        1.0
    );
    assert_eq!(
        test.metric("ipblock_agent_refused{reason=\"special\"}"),
        1.0
    );
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn damage_is_repaired_without_the_sets_and_with_them_where_the_kernel_refuses_that() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    test.kernel.outside(|state| state.damaged = true);
    seconds(3).await;
    // EBUSY: a map of the table refers to one of the chains.
    test.kernel.outside(|state| {
        state.damaged = true;
        state.errors.push_back(16);
    });
    seconds(5).await;
    test.kernel.outside(|state| state.damaged = true);
    seconds(3).await;
    let rebuilt = test.kernel.0.lock().rebuilt.clone();
    assert_eq!(
        rebuilt,
        [
            Rebuild::Table,
            Rebuild::Chain,
            Rebuild::Table,
            Rebuild::Chain
        ]
    );
    assert!(test.ready());
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    assert_eq!(test.metric("ipblock_agent_table_restored_total"), 4.0);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_kernel_refuses_is_repeated_and_reported() {
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(Memory::default(), operator);
    seconds(1).await;
    // EEXIST is resolved at once, ENOMEM at the next looks.
    test.kernel.0.lock().errors.extend([17, 12, 12]);
    test.operator.set(&[("192.0.2.9", None)]);
    seconds(3).await;
    assert!(!test.ready());
    assert_eq!(test.kernel.targets(), ["192.0.2.7"]);
    seconds(5).await;
    assert!(test.ready());
    assert_eq!(test.kernel.targets(), ["192.0.2.9"]);
    assert_eq!(
        test.metric("ipblock_agent_errors_total{kind=\"netlink_refused\"}"),
        2.0
    );
    // The next request is due after the wait.
    seconds(31).await;
    let reports = test.operator.0.lock().reports.clone();
    assert!(reports.iter().any(|report| {
        report
            .error
            .as_ref()
            .is_some_and(|error| error.contains("NFT_MSG_NEWSETELEM"))
    }));
    assert_eq!(reports.last().unwrap().error, None);
    test.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_dropped_packet_is_counted_once_and_those_before_the_start_are_not() {
    let kernel = Memory::default();
    kernel.outside(|state| (state.table, state.packets, state.rate) = (true, 1000, 7));
    let operator = Operator::default();
    operator.set(&[("192.0.2.7", None)]);
    let test = Test::start(kernel, operator);
    let counted = "ipblock_agent_dropped_packets_total{family=\"v4\"}";
    let dropped = |test: &Test| test.kernel.0.lock().packets as f64;
    seconds(1).await;
    let offset = dropped(&test) - test.metric(counted);
    for _ in 0..30 {
        test.kernel.outside(|_| {});
        seconds(2).await;
    }
    // The last reading is that of the generation, without counters.
    let since = dropped(&test) - test.metric(counted) - offset;
    assert!(
        (-14.0..=14.0).contains(&since),
        "{since} of {}",
        dropped(&test)
    );
    // A new table counts from zero.
    test.kernel
        .outside(|state| (state.table, state.packets, state.rate) = (false, 0, 0));
    let before = test.metric(counted);
    seconds(3).await;
    test.kernel.outside(|state| state.packets = 5);
    seconds(3).await;
    assert_eq!(test.metric(counted) - before, 5.0);
    test.stop().await;
}
