//! The blocks that wait, and brakes over restarts and edits.

use super::*;
use crate::guard::{Brake, Limit, Limits};

const SECOND: Duration = Duration::from_secs(1);

fn ask(source: &str) -> Ask<'_> {
    Ask {
        namespace: "default",
        source,
        full: None,
    }
}

fn limited(sources: &[(&str, Limit)]) -> Settings {
    let sources = sources
        .iter()
        .map(|(name, limit)| ((*name).to_owned(), *limit));
    Settings {
        limits: Limits {
            sources: sources.collect(),
            ..Limits::default()
        },
        ..Settings::default()
    }
}

fn a_minute(most: usize) -> Limit {
    Limit {
        active: None,
        per_minute: Some(most),
    }
}

impl Guard {
    fn asks(&self, key: &str, source: &str, settings: &Settings) -> Result<(), Hold> {
        let now = Timestamp::UNIX_EPOCH;
        self.admit(key, ask(source), settings, &Coverage::default(), now)
    }
}

fn names(called: Vec<Arc<str>>) -> Vec<String> {
    called.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_once_and_again_when_it_is_lost_and_keeps_its_turn() {
    let settings = limited(&[("feed", a_minute(1))]);
    let guard = Guard::new(Metrics::default());
    assert!(guard.asks("ns/a", "feed", &settings).is_ok());
    for key in ["ns/b", "ns/c", "ns/d"] {
        assert!(guard.asks(key, "feed", &settings).is_err());
    }
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(names(guard.due()), ["ns/b"]);
    tokio::time::sleep(SECOND).await;
    assert!(guard.due().is_empty(), "there is room for one");
    // The channel was full.
    guard.uncalled(&"ns/b".into());
    assert_eq!(names(guard.due()), ["ns/b"]);
    // The run was lost.
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(names(guard.due()), ["ns/b"]);
    assert!(guard.asks("ns/b", "feed", &settings).is_ok());
    assert!(guard.due().is_empty());
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(names(guard.due()), ["ns/c"]);
    // Another ban took the room: the turn is kept.
    assert!(guard.asks("ns/x", "feed", &settings).is_ok());
    assert!(guard.asks("ns/c", "feed", &settings).is_err());
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(names(guard.due()), ["ns/c"]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_channel_does_not_take_keep_their_order() {
    let settings = limited(&[("feed", a_minute(3))]);
    let guard = Guard::new(Metrics::default());
    for number in 0..9 {
        let admitted = guard.asks(&format!("ns/{number}"), "feed", &settings);
        assert_eq!(admitted.is_ok(), number < 3);
    }
    tokio::time::sleep(61 * SECOND).await;
    let (again, _requests) = reeve_controller::source::channel::<Request>(1);
    guard.pass_on(&again);
    let next = names(guard.due());
    assert_eq!(next, ["ns/4", "ns/5"], "the first one was sent");
}

#[tokio::test(start_paused = true)]
async fn room_that_a_called_block_does_not_use_goes_to_the_next_one_within_seconds() {
    let active = Limit {
        active: Some(0),
        per_minute: None,
    };
    let settings = limited(&[("feed", active), ("other", a_minute(0))]);
    let feed = [Scope::Source("feed".into())];
    let wait = || {
        let guard = Guard::new(Metrics::default());
        for key in ["ns/a", "ns/b", "ns/c"] {
            assert!(guard.asks(key, "feed", &settings).is_err());
        }
        assert_eq!(names(guard.freed("ns/gone", &feed)), ["ns/a"]);
        assert!(guard.due().is_empty(), "its answer is awaited");
        guard
    };
    let gone = wait();
    gone.forget("ns/a");
    assert_eq!(names(gone.due()), ["ns/b"]);
    assert!(gone.due().is_empty());
    let lost = wait();
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(names(lost.due()), ["ns/a"]);
    let banned = wait();
    let free = Settings::default();
    assert!(banned.asks("ns/a", "feed", &free).is_ok());
    assert!(banned.due().is_empty(), "it has used the room");
    let taken = wait();
    assert!(taken.asks("ns/a", "feed", &settings).is_err());
    assert!(taken.due().is_empty(), "another one has taken the room");
    assert_eq!(
        names(taken.freed("ns/gone", &feed)),
        ["ns/a"],
        "its turn is kept"
    );
    let full = wait();
    full.uncalled(&"ns/a".into());
    assert_eq!(names(full.due()), ["ns/a"], "the channel was full");
    assert!(full.due().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_blocks_behind_a_brake_ask_again_more_rarely_than_each_minute() {
    let mut settings = Settings::default();
    settings.brake.bans_per_minute = Some(1);
    let guard = Guard::new(Metrics::default());
    assert!(guard.asks("ns/first", "feed", &settings).is_ok());
    let (mut rounds, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..2 {
        let mut a_second = 0.0;
        for number in 0..10_000 {
            let hold = guard.asks(&format!("ns/{number}"), "feed", &settings);
            let retry_in = hold.unwrap_err().retry_in;
            longest = longest.max(retry_in);
            a_second += 1.0 / retry_in.as_secs_f64();
        }
        rounds.push(a_second);
    }
    assert!(rounds[1] < 60.0, "{rounds:?}");
    assert_eq!(longest, 300 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_of_one_source_delays_no_other() {
    let settings = limited(&[("feed", a_minute(1)), ("other", a_minute(1))]);
    let guard = Guard::new(Metrics::default());
    for number in 0..1000 {
        let _ = guard.asks(&format!("ns/feed-{number}"), "feed", &settings);
    }
    assert!(guard.asks("ns/other-0", "other", &settings).is_ok());
    let hold = guard.asks("ns/other-1", "other", &settings).unwrap_err();
    assert!(hold.retry_in <= 60 * SECOND, "{:?}", hold.retry_in);
    tokio::time::sleep(61 * SECOND).await;
    let mut called = names(guard.due());
    called.sort();
    assert_eq!(called, ["ns/feed-1", "ns/other-1"]);
}

#[tokio::test(start_paused = true)]
async fn queues_shrink_with_the_blocks_that_wait() {
    let cap = Limit {
        active: Some(0),
        per_minute: None,
    };
    let settings = limited(&[("feed", cap), ("other", cap)]);
    let guard = Guard::new(Metrics::default());
    assert!(guard.asks("ns/stays", "feed", &settings).is_err());
    for number in 0..1000 {
        let key = format!("ns/feed-{number}");
        assert!(guard.asks(&key, "feed", &settings).is_err());
        guard.forget(&key);
    }
    let scope = |name: &str| Scope::Source(name.to_owned());
    let length = |name: &str| {
        let state = guard.state.lock();
        state
            .queues
            .get(&("active", scope(name)))
            .map_or(0, Queue::len)
    };
    assert!(length("feed") <= 3, "{}", length("feed"));
    // It waits for another cap now.
    assert!(guard.asks("ns/stays", "other", &settings).is_err());
    assert!(guard.freed("ns/gone", &[scope("feed")]).is_empty());
    assert_eq!(
        names(guard.freed("ns/gone", &[scope("other")])),
        ["ns/stays"]
    );
    guard.forget("ns/stays");
    assert!(guard.state.lock().queues.is_empty());
}

#[test]
fn the_brake_of_an_earlier_process_keeps_its_id_and_its_release() {
    let mut settings = Settings::default();
    settings.brake.bans_per_minute = Some(1);
    let message = Held::Braked {
        most: 1,
        id: "bans-7".into(),
    }
    .to_string();
    let now = Timestamp::UNIX_EPOCH;
    let guard = Guard::new(Metrics::default());
    guard.recall_brake(Some(&settings), &message, now);
    assert_eq!(guard.braked().as_deref(), Some("bans-7"));
    let guard = Guard::new(Metrics::default());
    guard.state.lock().released = Some("bans-7".into());
    guard.recall_brake(Some(&settings), &message, now);
    assert_eq!(guard.braked(), None);
    for key in ["ns/a", "ns/b", "ns/c"] {
        assert!(guard.asks(key, "feed", &settings).is_ok(), "released");
    }
}

fn config(data: &[(&str, &str)]) -> Arc<Config> {
    let engine = [
        ("engine", "xdp"),
        ("gatewayHost", "10.0.0.1"),
        ("gatewayPort", "8080"),
    ];
    let all = engine.iter().chain(data);
    let data = all.map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    let options = crate::config::Options::default();
    Arc::new(crate::config::parse(&data.collect(), &options).unwrap())
}

#[test]
fn what_was_read_before_there_was_a_configuration_counts_with_it() {
    let guard = Guard::new(Metrics::default());
    let coverage = standing(4);
    let one = config(&[
        ("maxBansPerMinute", "1"),
        ("brake", "{bansPerMinute: 5, liftLeast: 3}"),
        ("whitelist", "192.0.2.0/24"),
    ]);
    let configured = |before: Option<&Config>, released: Option<&str>| {
        let released = released.map(str::to_owned);
        guard.configured(
            &coverage,
            Part::default(),
            &one,
            before,
            "lifts-1".into(),
            released,
        )
    };
    // It is put in force before the blocks are read, and only seen again.
    configured(None, None);
    guard.recall(ask("feed"), None, Duration::ZERO);
    guard.recall_brake(
        None,
        "to bans-7, or raise bansPerMinute",
        Timestamp::UNIX_EPOCH,
    );
    guard.seeded(&coverage, None);
    configured(Some(&one), None);
    assert_eq!(guard.braked().as_deref(), Some("bans-7"));
    assert_eq!(guard.lifts().map(|lifts| lifts.blocks.refused), Some(4));
    configured(Some(&one), Some("bans-7"));
    let held = guard.asks("ns/a", "feed", &one.guard).unwrap_err();
    assert_eq!(held.reason, "Limited", "the last minute counts");
}

#[test]
fn an_edit_while_the_blocks_are_read_is_judged_as_soon_as_they_are_read() {
    let guard = Guard::new(Metrics::default());
    let coverage = standing(200);
    let right = config(&[]);
    let wrong = config(&[("whitelist", "192.0.2.0/24")]);
    let configured = |config: &Arc<Config>, before: Option<&Config>, id: &str| {
        guard.configured(
            &coverage,
            Part::default(),
            config,
            before,
            id.to_owned(),
            None,
        )
    };
    configured(&right, None, "lifts-1");
    // A run has read this configuration, and reads the blocks.
    configured(&wrong, Some(&right), "lifts-2");
    let held = || guard.lifts().map(|lifts| (lifts.id, lifts.blocks.refused));
    guard.seeded(&coverage, Some(&right));
    assert_eq!(held(), Some(("lifts-2".to_owned(), 200)));
    configured(&wrong, Some(&wrong), "lifts-2");
    assert_eq!(held(), Some(("lifts-2".to_owned(), 200)));
}

fn standing(bans: u8) -> Coverage {
    let mut coverage = Coverage::default();
    for last in 0..bans {
        let standing = crate::api::Standing {
            target: format!("192.0.2.{last}").parse().unwrap(),
            place: crate::api::Place::new("xdp", "g:1"),
        };
        coverage.recall(&format!("default/{last}"), standing, None);
    }
    coverage
}

fn lifting() -> Brake {
    Brake {
        lift_least: 3,
        ..Brake::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_of_a_block_that_was_lifted_is_not_held_by_the_brake_on_resolved_alerts() {
    let guard = Guard::new(Metrics::default());
    let mut coverage = standing(6);
    let lift = |number: u8, coverage: &Coverage| {
        let key = format!("default/{number}");
        let now = Timestamp::UNIX_EPOCH;
        let of = ("am", coverage.len());
        guard.admit_lift(&key, Some(of), lifting(), coverage, now)
    };
    for number in 0..2 {
        assert_eq!(lift(number, &coverage), Ok(()));
        let key = format!("default/{number}");
        assert!(coverage.remove(&key).is_some());
        guard.freed(&key, &[]);
    }
    assert!(lift(2, &coverage).is_err());
    assert_eq!(lift(0, &coverage), Ok(()), "it has no claim");
}

#[test]
fn a_brake_on_lifts_of_an_earlier_process_holds_the_few_bans_that_are_left() {
    let guard = Guard::new(Metrics::default());
    let coverage = standing(2);
    let one = config(&[("whitelist", "192.0.2.0/24")]);
    guard.configured(
        &coverage,
        Part::default(),
        &one,
        None,
        "lifts-1".into(),
        None,
    );
    guard.recall_lifts(1);
    guard.seeded(&coverage, Some(&one));
    assert_eq!(guard.lifts().map(|lifts| lifts.id), Some("lifts-1".into()));
}

#[test]
fn lifts_stay_braked_until_the_configuration_that_releases_them_is_in_force() {
    let guard = Guard::new(Metrics::default());
    let coverage = standing(200);
    let right = config(&[]);
    let wrong = config(&[("whitelist", "192.0.2.0/24")]);
    guard.seeded(&coverage, Some(&right));
    guard.configured(
        &coverage,
        Part::default(),
        &wrong,
        Some(&right),
        "lifts-1".into(),
        None,
    );
    assert!(guard.lifts().is_some());
    let freed = guard.configured(
        &coverage,
        Part::default(),
        &right,
        Some(&wrong),
        "lifts-2".into(),
        None,
    );
    assert!(
        freed && guard.lifts().is_some(),
        "the wrong one is in force"
    );
    guard.in_force();
    assert_eq!(guard.lifts(), None);
}

#[test]
fn only_a_brake_that_is_raised_or_removed_lets_bans_go_on() {
    let of = |text: &str| config(&[("brake", text)]);
    let Brake { lift_least, .. } = Brake::default();
    for (edited, freed) in [
        (
            format!("{{bansPerMinute: 5, liftLeast: {}}}", lift_least + 1),
            false,
        ),
        ("{bansPerMinute: 4}".to_owned(), false),
        ("{bansPerMinute: 6}".to_owned(), true),
        ("{liftPercent: 50}".to_owned(), true),
    ] {
        let guard = Guard::new(Metrics::default());
        let before = of("{bansPerMinute: 5}");
        guard.recall_brake(Some(&before.guard), "bans-7", Timestamp::UNIX_EPOCH);
        let after = of(&edited);
        let none = Coverage::default();
        let answer = guard.configured(
            &none,
            Part::default(),
            &after,
            Some(&before),
            String::new(),
            None,
        );
        assert_eq!(
            (answer, guard.braked().is_none()),
            (freed, freed),
            "{edited}"
        );
    }
}

#[test]
fn a_replica_without_blocks_judges_the_entries_of_lists_and_is_notified_of_the_end() {
    let guard = Guard::new(Metrics::default());
    let holds = guard.holds();
    let none = Coverage::default();
    let (right, wrong) = (config(&[]), config(&[("whitelist", "192.0.2.0/24")]));
    let configured = |refused, config, before, released: Option<&str>| {
        let standing = 200;
        let lists = Part { refused, standing };
        let released = released.map(str::to_owned);
        guard.configured(
            &none,
            lists,
            config,
            Some(before),
            "lifts-1".into(),
            released,
        )
    };
    configured(0, &right, &right, None);
    assert!(!*holds.borrow());
    configured(150, &wrong, &right, None);
    assert!(*holds.borrow());
    let freed = configured(150, &wrong, &wrong, Some("lifts-1"));
    assert!(freed && *holds.borrow(), "it is not in force");
    guard.in_force();
    assert!(!*holds.borrow() && guard.lifts().is_none());
}
