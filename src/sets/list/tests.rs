//! The list over a real socket of this machine.

mod reports;

use std::sync::Arc;

use http::StatusCode;
use http::header::CONNECTION;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use reeve_clock::Clock;
use reqwest::Client;
use serde_json::{Value, json};

use super::super::access::Access;
use super::super::desired::{Desired, Source};
use super::super::follower::{Follower, Parts};
use super::super::serve::{Listeners, Site, Surface};
use super::super::set::{Entry, Until};
use super::*;
use crate::mounted::MountedFile;
use crate::target::Target;

struct Case {
    clock: Clock,
    engine: Arc<ListEngine>,
    listeners: Listeners,
    client: Client,
    url: String,
}

impl Case {
    async fn new(access: Access) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let time = Time::new(clock.clone());
        let engine = Arc::new(ListEngine::new("edge", time, Metrics::default()));
        let surface = Arc::new(ListSurface::new(Arc::clone(&engine), access));
        let mut listeners = Listeners::default();
        let loopback = ([127, 0, 0, 1], 0).into();
        let surface = surface as Arc<dyn Surface>;
        let failed = listeners
            .apply([Site::open(loopback, "/bans", surface)])
            .await;
        assert!(failed.is_empty(), "{failed:?}");
        let url = format!("http://{}/bans", listeners.addresses()[0]);
        // Plain HTTP, and a provider of cryptography all the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            clock,
            engine,
            listeners,
            client: Client::builder().no_proxy().build().unwrap(),
            url,
        }
    }

    async fn filled(entries: &[(&str, &str)]) -> Self {
        let case = Self::new(Access::Insecure).await;
        case.set(entries).await;
        case
    }

    /// Makes the list exactly `entries`.
    async fn set(&self, entries: &[(&str, &str)]) {
        let to = entries.iter().map(|(target, until)| Entry {
            target: target.parse().unwrap(),
            until: Until::new((!until.is_empty()).then(|| until.parse().unwrap())),
        });
        let from = self.engine.served.lock().set.clone();
        let to = to.collect();
        self.engine.apply(&Change { from, to }).await.unwrap();
    }

    /// How many agents are current, behind and failed.
    fn agents(&self) -> [i64; 3] {
        self.engine.look();
        self.engine.metrics.agents_of("edge")
    }

    async fn get(&self, query: &str, tag: Option<&str>) -> (StatusCode, Option<String>, String) {
        let mut request = self.client.get(format!("{}{query}", self.url));
        if let Some(tag) = tag {
            request = request.header("If-None-Match", tag);
        }
        let answer = request.send().await.unwrap();
        let tag = answer.headers().get("etag");
        let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
        (answer.status(), tag, answer.text().await.unwrap())
    }

    async fn json(&self, query: &str) -> Value {
        let (status, tag, text) = self.get(query, None).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        let version = value["version"].as_str().unwrap();
        assert_eq!(tag.unwrap(), format!("\"{version}\""));
        value
    }
}

const ENTRIES: &[(&str, &str)] = &[
    ("192.0.2.7", "2026-01-01T00:00:00Z"),
    ("198.51.100.0/24", ""),
    ("2001:db8::7", ""),
];

#[tokio::test]
async fn a_list_that_was_not_filled_is_not_served() {
    let case = Case::new(Access::Insecure).await;
    let (status, _, text) = case.get("", None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("not read yet"));
    case.engine.ready();
    let (status, tag, text) = case.get("", None).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, ""));
    assert!(tag.is_some());
}

#[tokio::test]
async fn a_reader_of_a_list_that_cannot_be_served_is_hung_up_on_and_may_reach_another_replica() {
    let case = Case::new(Access::Insecure).await;
    let get = async || case.client.get(&case.url).send().await.unwrap();
    let unread = get().await;
    assert_eq!(unread.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unread.headers()[CONNECTION], "close");
    case.engine.ready();
    assert!(!get().await.headers().contains_key(CONNECTION));
    case.engine.fresh.set_stale(true);
    let stale = get().await;
    assert_eq!(stale.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(stale.headers()[CONNECTION], "close");
}

#[tokio::test]
async fn every_format_and_family_is_served_sorted() {
    let case = Case::filled(ENTRIES).await;
    let text = async |query| case.get(query, None).await.2;
    assert_eq!(text("").await, "192.0.2.7\n198.51.100.0/24\n2001:db8::7\n");
    assert_eq!(text("?family=4").await, "192.0.2.7\n198.51.100.0/24\n");
    assert_eq!(text("?format=haproxy&family=6").await, "2001:db8::7\n");
    let nginx = text("?format=nginx&family=4").await;
    assert_eq!(nginx, "deny 192.0.2.7;\ndeny 198.51.100.0/24;\n");
    let value = case.json("?format=json").await;
    let expected = json!([
        {"target": "192.0.2.7", "until": "2026-01-01T00:00:00Z"},
        {"target": "198.51.100.0/24"},
        {"target": "2001:db8::7"},
    ]);
    assert_eq!(value["entries"], expected);
    let accepting = case
        .client
        .get(&case.url)
        .header("Accept", "application/json");
    let accepted: Value = accepting.send().await.unwrap().json().await.unwrap();
    assert_eq!(accepted, value);
}

#[tokio::test]
async fn a_reader_with_the_version_gets_304_and_a_moved_end_is_news_for_json_only() {
    let case = Case::filled(ENTRIES).await;
    let (_, plain, _) = case.get("", None).await;
    let (_, json, _) = case.get("?format=json", None).await;
    let status = async |query, tag: &Option<String>| case.get(query, tag.as_deref()).await.0;
    assert_eq!(status("", &plain).await, StatusCode::NOT_MODIFIED);
    assert_eq!(
        status("?format=json", &json).await,
        StatusCode::NOT_MODIFIED
    );
    let weak = Some(format!("\"x\", W/{}", plain.as_deref().unwrap()));
    assert_eq!(status("", &weak).await, StatusCode::NOT_MODIFIED);
    let mut moved = ENTRIES.to_vec();
    moved[0].1 = "2026-01-01T01:00:00Z";
    case.set(&moved).await;
    assert_eq!(status("", &plain).await, StatusCode::NOT_MODIFIED);
    assert_eq!(status("?format=json", &json).await, StatusCode::OK);
    case.set(&moved[1..]).await;
    assert_eq!(status("", &plain).await, StatusCode::OK);
}

#[tokio::test]
async fn a_waiting_reader_is_answered_by_the_change() {
    let case = Case::filled(ENTRIES).await;
    let (_, tag, _) = case.get("?format=json", None).await;
    let tag = tag.unwrap();
    let (answer, ()) = tokio::join!(case.get("?format=json&wait=60", Some(&tag)), async {
        // The reader waits by now, or asks after the change: the answer is the same.
        tokio::task::yield_now().await;
        case.set(&ENTRIES[1..]).await;
    });
    assert_eq!(answer.0, StatusCode::OK);
    assert!(!answer.2.contains("192.0.2.7"));
    let (status, same, _) = case.get("?format=json&wait=0", answer.1.as_deref()).await;
    assert_eq!((status, same), (StatusCode::NOT_MODIFIED, answer.1));
}

#[tokio::test]
async fn other_tasks_run_while_a_large_batch_is_hashed() {
    let time = Time::new(reeve_clock::Clock::system());
    let engine = ListEngine::new("edge", time, Metrics::default());
    let entries = (0..20 * HASHED).map(|number| Entry {
        target: Target::host(std::net::Ipv4Addr::from(u32::try_from(number).unwrap()).into()),
        until: Until::NEVER,
    });
    let change = Change {
        from: TargetSet::default(),
        to: entries.collect(),
    };
    let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let counting = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    engine.apply(&change).await.unwrap();
    let turns = turns.load(std::sync::atomic::Ordering::Relaxed);
    counting.abort();
    assert!(turns >= 10, "{turns} turns");
    assert_eq!(engine.served.lock().set, change.to);
}

#[tokio::test]
async fn waiting_readers_are_answered_when_the_engine_ends() {
    let case = Case::filled(ENTRIES).await;
    let (_, tag, _) = case.get("", None).await;
    let (status, ..) = tokio::join!(case.get("?wait=60", tag.as_deref()), async {
        tokio::task::yield_now().await;
        case.engine.close();
    })
    .0;
    assert_eq!(status, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn changes_since_a_known_version_are_served_and_the_list_for_another_one() {
    let case = Case::filled(ENTRIES).await;
    let first = case.json("?format=json").await;
    let version = first["version"].as_str().unwrap();
    case.set(&[("192.0.2.8", "2026-01-01T00:00:00Z"), ("2001:db8::7", "")])
        .await;
    let changes = case.json(&format!("?format=json&since={version}")).await;
    assert_eq!(changes["since"], first["version"]);
    let added = json!([{"target": "192.0.2.8", "until": "2026-01-01T00:00:00Z"}]);
    assert_eq!(changes["added"], added);
    assert_eq!(changes["removed"], json!(["192.0.2.7", "198.51.100.0/24"]));
    let whole = case.json("?format=json&since=unknown").await;
    assert!(whole.get("since").is_none() && whole["entries"].as_array().unwrap().len() == 2);
    assert_eq!(whole["version"], changes["version"]);
}

#[tokio::test]
async fn a_long_list_comes_in_pieces_and_whole() {
    let case = Case::new(Access::Insecure).await;
    let to = (0..20_000_u32).map(|number| Entry {
        target: Target::host(std::net::Ipv4Addr::from(0x0a00_0000 + number).into()),
        until: Until::NEVER,
    });
    let change = Change {
        from: TargetSet::default(),
        to: to.collect(),
    };
    case.engine.apply(&change).await.unwrap();
    let (_, _, text) = case.get("", None).await;
    assert_eq!(text.lines().count(), 20_000);
    let value = case.json("?format=json").await;
    assert_eq!(value["entries"].as_array().unwrap().len(), 20_000);
}

#[tokio::test]
async fn after_a_batch_that_is_too_large_to_remember_no_earlier_version_is_known() {
    let case = Case::filled(ENTRIES).await;
    let version = case.json("?format=json").await["version"].clone();
    let batch = |number: usize| {
        let addresses = (0_u32..).take(number).map(|it| 0x0a00_0000 + it);
        let entries = addresses.map(|address| Entry {
            target: Target::host(std::net::Ipv4Addr::from(address).into()),
            until: Until::NEVER,
        });
        entries.collect::<TargetSet>()
    };
    let from = case.engine.served.lock().set.clone();
    // As many changes as are remembered: the entries from before leave.
    let change = Change {
        to: batch(MOST_CHANGES - from.len()),
        from,
    };
    case.engine.apply(&change).await.unwrap();
    assert_eq!(case.engine.served.lock().history.len(), MOST_CHANGES);
    let query = format!("?format=json&since={}", version.as_str().unwrap());
    assert_eq!(case.json(&query).await["since"], version);
    let change = Change {
        from: TargetSet::default(),
        to: batch(MOST_CHANGES + 1),
    };
    case.engine.apply(&change).await.unwrap();
    assert_eq!(case.engine.served.lock().history.len(), 0);
    assert!(case.json(&query).await.get("since").is_none());
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_with_the_reason() {
    let case = Case::filled(ENTRIES).await;
    for (query, words) in [
        ("?format=xml", "format is"),
        ("?family=5", "family is"),
        ("?wait=61", "at most 60"),
        ("?wait=-1", "at most 60"),
        ("?since=x", "format=json"),
    ] {
        let (status, _, text) = case.get(query, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        assert!(text.contains(words), "{query}: {text}");
    }
    let (status, ..) = case.get("/other", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let deleted = case.client.delete(&case.url).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::METHOD_NOT_ALLOWED);
    let head = case.client.head(&case.url).send().await.unwrap();
    assert!(head.status().is_success() && head.headers().contains_key("etag"));
}

#[tokio::test]
async fn readers_that_wait_for_the_same_changes_share_one_text() {
    let case = Case::filled(ENTRIES).await;
    let since = case.json("?format=json").await["version"].clone();
    let since = since.as_str().unwrap();
    case.set(&ENTRIES[1..]).await;
    let page = |family| {
        let page = case.engine.page(family, Content::Entries, Some(since));
        page.unwrap().changes
    };
    let (one, two) = (page(Family::Both).unwrap(), page(Family::Both).unwrap());
    assert_eq!(one.as_ptr(), two.as_ptr(), "it is written once");
    assert!(page(Family::V4).is_none(), "that version is of both");
    case.set(ENTRIES).await;
    assert_ne!(page(Family::Both).unwrap(), one);
}

#[tokio::test]
async fn readers_show_a_token_of_the_mounted_file() {
    let path = std::env::temp_dir().join(format!("list-token-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let case = Case::new(Access::Secret(MountedFile::alone(&path))).await;
    case.set(ENTRIES).await;
    let status = async |token: Option<&str>| {
        let mut request = case.client.get(&case.url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status()
    };
    assert_eq!(status(None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(Some("three")).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(Some("two")).await, StatusCode::OK);
    let url = format!("{}/agents/node-1", case.url);
    let report = case
        .client
        .post(url)
        .body("{\"version\":\"x\"}")
        .send()
        .await;
    assert_eq!(report.unwrap().status(), StatusCode::UNAUTHORIZED);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(status(Some("two")).await, StatusCode::SERVICE_UNAVAILABLE);
    let mut listeners = case.listeners;
    listeners.apply([]).await;
    assert!(
        case.client.get(&case.url).send().await.is_err(),
        "it is not served any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_304_after_its_seconds() {
    let case = ListEngine::new("edge", Time::new(Clock::system()), Metrics::default());
    case.ready();
    let page = case.page(Family::Both, Content::Targets, None).unwrap();
    let surface = ListSurface::new(Arc::new(case), Access::Insecure);
    let began = Instant::now();
    let answer = surface.read_for_test("wait=30", &page.version).await;
    assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[tokio::test]
async fn the_date_of_an_answer_is_the_time_that_bans_end_by_and_not_a_wrong_wall_clock() {
    let case = Case::filled(ENTRIES).await;
    let date = async |tag: Option<&str>| -> (StatusCode, Timestamp) {
        let request = case.client.get(format!("{}?format=json", case.url));
        let answer = request
            .header("If-None-Match", tag.unwrap_or_default())
            .send()
            .await
            .unwrap();
        let dates: Vec<_> = answer.headers().get_all("date").iter().collect();
        assert_eq!(dates.len(), 1);
        let date = rfc2822::DateTimeParser::new().parse_timestamp(dates[0].as_bytes());
        (answer.status(), date.unwrap())
    };
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let near = |date: Timestamp| date.duration_since(start).abs() < SignedDuration::from_mins(5);
    // Nothing has confirmed this jump, so ends are computed as before it.
    case.clock.jump(SignedDuration::from_hours(2));
    let (status, all) = date(None).await;
    assert!(status == StatusCode::OK && near(all), "{all}");
    let (_, tag, _) = case.get("?format=json", None).await;
    let (status, unchanged) = date(tag.as_deref()).await;
    assert!(
        status == StatusCode::NOT_MODIFIED && near(unchanged),
        "{unchanged}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_follow_the_blocks_answers_503_also_to_waiting_readers() {
    let fresh = Freshness::default();
    let time = Time::new(Clock::system());
    let engine = ListEngine::new("edge", time, Metrics::default()).while_fresh(fresh.clone());
    engine.ready();
    let page = engine.page(Family::Both, Content::Targets, None).unwrap();
    let surface = ListSurface::new(Arc::new(engine), Access::Insecure);
    let read = surface.read_for_test("wait=30", &page.version);
    let (answer, ()) = tokio::join!(read, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fresh.set_stale(true);
    });
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let answer = surface.read_for_test("", "other").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    fresh.set_stale(false);
    let answer = surface.read_for_test("", "other").await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn workers_have_thousands_of_calls_a_second_confirmed() {
    let desired = Desired::new([]);
    let metrics = Metrics::default();
    let time = Time::new(Clock::system());
    let engine = Arc::new(ListEngine::new("edge", time, metrics.clone()));
    let parts = Parts {
        desired: desired.clone(),
        metrics,
        counts: crate::metrics::Metrics::new(),
        leading: None,
    };
    let hour = Duration::from_secs(3600);
    let follower = Follower::start("edge", engine, parts, hour);
    let began = Instant::now();
    let workers = (0..32_u8).map(|worker| {
        let (follower, desired) = (&follower, &desired);
        async move {
            let source = Source::List("feed".into());
            for call in 0..100_u8 {
                let target = format!("192.0.{worker}.{call}").parse().unwrap();
                let changed = desired.insert(&source, target, Until::NEVER);
                assert!(follower.confirm(&changed).await.unwrap().enforced);
                let changed = desired.remove(&source, target);
                follower.confirm(&changed).await.unwrap();
            }
        }
    });
    futures::future::join_all(workers).await;
    let took = began.elapsed();
    assert!(
        took < Duration::from_millis(1280),
        "{took:?} for 6400 calls"
    );
}
