//! The decisions over a real socket of this machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::access::Access;
use super::super::desired::Source;
use super::super::serve::{Listeners, Site, Surface};
use super::super::set::{Entry, Until};
use super::*;
use crate::mounted::MountedFile;

struct Case {
    engine: Arc<CrowdSecEngine>,
    _listeners: Listeners,
    client: Client,
    url: String,
}

impl Case {
    async fn new(access: Access) -> Self {
        Self::with_ranges(access, true).await
    }

    async fn with_ranges(access: Access, ranges: bool) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let time = Time::new(reeve_clock::Clock::simulated(start, 1));
        let desired = Desired::new([]);
        let metrics = Metrics::default();
        let engine = CrowdSecEngine::new("lapi", time, desired, metrics);
        let engine = Arc::new(engine.with_ranges(ranges));
        let surface = Arc::new(CrowdSecSurface::new(Arc::clone(&engine), access));
        let mut listeners = Listeners::default();
        let loopback = ([127, 0, 0, 1], 0).into();
        let surface = surface as Arc<dyn Surface>;
        let failed = listeners.apply([Site::open(loopback, "", surface)]).await;
        assert!(failed.is_empty(), "{failed:?}");
        let url = format!("http://{}", listeners.addresses()[0]);
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            engine,
            _listeners: listeners,
            client: Client::builder().no_proxy().build().unwrap(),
            url,
        }
    }

    async fn filled(entries: &[(&str, &str)]) -> Self {
        let case = Self::new(Access::Insecure).await;
        case.set(entries).await;
        case.engine.ready();
        case
    }

    async fn set(&self, entries: &[(&str, &str)]) {
        let to = entries.iter().map(|(target, until)| Entry {
            target: target.parse().unwrap(),
            until: Until::new((!until.is_empty()).then(|| until.parse().unwrap())),
        });
        let from = self.engine.state.lock().current.set.clone();
        let to = to.collect();
        self.engine.apply(&Change { from, to }).await.unwrap();
    }

    async fn get(&self, path: &str, key: &str) -> (StatusCode, Value) {
        self.get_as("bouncer/1", path, key).await
    }

    async fn get_as(&self, agent: &str, path: &str, key: &str) -> (StatusCode, Value) {
        let request = self.client.get(format!("{}{path}", self.url));
        let request = request.header("User-Agent", agent);
        let answer = request.header("X-Api-Key", key).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// The values of new and deleted decisions in the stream.
    async fn stream(&self, query: &str, key: &str) -> [Vec<String>; 2] {
        self.stream_as("bouncer/1", query, key).await
    }

    async fn stream_as(&self, agent: &str, query: &str, key: &str) -> [Vec<String>; 2] {
        let path = format!("/v1/decisions/stream{query}");
        let (status, value) = self.get_as(agent, &path, key).await;
        assert_eq!(status, StatusCode::OK, "{value}");
        ["new", "deleted"].map(|list| {
            let decisions = value[list].as_array().unwrap();
            let values = decisions.iter().map(|it| it["value"].as_str().unwrap());
            values.map(str::to_owned).collect()
        })
    }
}

const ENTRIES: &[(&str, &str)] = &[
    ("192.0.2.7", "2026-01-01T01:00:00Z"),
    ("198.51.100.0/24", ""),
    ("2001:db8::7", ""),
];

fn lists(new: &[&str], deleted: &[&str]) -> [Vec<String>; 2] {
    [new, deleted].map(|list| list.iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn each_bouncer_has_a_position_of_its_own() {
    let case = Case::filled(ENTRIES).await;
    let all = ["192.0.2.7", "198.51.100.0/24", "2001:db8::7"];
    assert_eq!(case.stream("?startup=true", "a").await, lists(&all, &[]));
    for _ in 0..REPEATED {
        assert_eq!(case.stream("?startup=false", "a").await, lists(&[], &[]));
    }
    case.set(&[("192.0.2.8", ""), ENTRIES[1]]).await;
    let changed = lists(&["192.0.2.8"], &["192.0.2.7", "2001:db8::7"]);
    for _ in 0..REPEATED {
        assert_eq!(case.stream("", "a").await, changed);
    }
    assert_eq!(case.stream("", "a").await, lists(&[], &[]));
    let unknown = lists(&["192.0.2.8", "198.51.100.0/24"], &[]);
    assert_eq!(case.stream("", "b").await, unknown, "it gets all");
    assert_eq!(case.stream("", "b").await, lists(&[], &[]));
    assert_eq!(case.stream("?startup=true", "a").await, unknown);
}

/// What a bouncer blocks after an answer, taking in what is `new` before or after what is `deleted`.
fn taken(
    mut blocked: BTreeSet<String>,
    answer: &[Vec<String>; 2],
    new_first: bool,
) -> BTreeSet<String> {
    let [new, deleted] = answer;
    if new_first {
        blocked.extend(new.iter().cloned());
    }
    blocked.retain(|value| !deleted.contains(value));
    if !new_first {
        blocked.extend(new.iter().cloned());
    }
    blocked
}

#[tokio::test]
async fn a_longer_ban_stays_blocked_whichever_list_a_bouncer_takes_in_first() {
    let case = Case::filled(ENTRIES).await;
    let plugin = "Crowdsec-Bouncer-Traefik-Plugin/1.X.X";
    for (agent, new_first, deletes) in [
        (plugin, true, false),
        ("cs-nginx-bouncer/1", false, false),
        ("crowdsec-firewall-bouncer/-", false, true),
    ] {
        case.set(ENTRIES).await;
        let all = case.stream_as(agent, "?startup=true", "a").await;
        let blocked = taken(BTreeSet::new(), &all, new_first);
        let mut moved = ENTRIES.to_vec();
        moved[0].1 = "2026-01-01T02:00:00Z";
        case.set(&moved).await;
        let answer = case.stream_as(agent, "", "a").await;
        assert_eq!(answer[0], ["192.0.2.7"]);
        assert_eq!(answer[1].is_empty(), !deletes, "{agent}");
        assert_eq!(
            taken(blocked.clone(), &answer, new_first),
            blocked,
            "{agent}"
        );
    }
}

/// A request whose client reads the first bytes of the answer and hangs up.
async fn hang_up(case: &Case) {
    let address = case.url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /v1/decisions/stream HTTP/1.1\r\nHost: a\r\nUser-Agent: bouncer/1\r\nX-Api-Key: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut some = [0; 20];
    stream.read_exact(&mut some).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_lost_is_made_up_for_by_the_next_also_twice_in_a_row() {
    let case = Case::filled(ENTRIES).await;
    case.stream("?startup=true", "a").await;
    case.set(&[("192.0.2.8", ""), ENTRIES[1]]).await;
    hang_up(&case).await;
    hang_up(&case).await;
    let changed = lists(&["192.0.2.8"], &["192.0.2.7", "2001:db8::7"]);
    assert_eq!(case.stream("", "a").await, changed);
    // A target that comes back in between is not deleted.
    case.set(ENTRIES).await;
    let changed = lists(&["192.0.2.7", "2001:db8::7"], &["192.0.2.8"]);
    assert_eq!(case.stream("", "a").await, changed);
}

#[tokio::test]
async fn a_bouncer_whose_position_is_not_known_gets_the_lifts_too() {
    let hosts = [ENTRIES[0], ENTRIES[2]];
    // The first that is lifted is banned by now, as the engine has it.
    for (ranges, entries, all, lifted) in [
        (
            true,
            ENTRIES,
            &["192.0.2.7", "198.51.100.0/24", "2001:db8::7"][..],
            &["203.0.113.7", "203.0.113.8", "203.0.113.128/25"][..],
        ),
        // An engine without ranges has never sent one.
        (
            false,
            &hosts,
            &["192.0.2.7", "2001:db8::7"],
            &["203.0.113.7", "203.0.113.8"],
        ),
    ] {
        let case = Case::with_ranges(Access::Insecure, ranges).await;
        case.set(entries).await;
        case.engine.ready();
        let source = Source::List("feed".into());
        let desired = &case.engine.desired;
        for target in [
            "192.0.2.7",
            "203.0.113.7",
            "203.0.113.8",
            "203.0.113.128/25",
        ] {
            let target = target.parse().unwrap();
            desired.insert(&source, target, Until::NEVER);
            desired.remove(&source, target);
        }
        assert_eq!(case.stream("", "a").await, lists(all, lifted));
        assert_eq!(case.stream("", "a").await, lists(&[], &[]));
        let start = case.stream("?startup=true", "a").await;
        assert_eq!(start, lists(all, &[]), "it has nothing yet");
    }
}

#[tokio::test]
async fn bouncers_of_one_key_and_address_differ_by_agent_and_filters() {
    let case = Case::filled(ENTRIES).await;
    let all = case.stream_as("one/1", "?startup=true", "a").await;
    assert_eq!(case.stream_as("two/1", "", "a").await, all);
    let ranges = lists(&["198.51.100.0/24"], &[]);
    assert_eq!(case.stream_as("one/1", "?scopes=range", "a").await, ranges);
    case.set(&[]).await;
    assert_eq!(case.stream_as("one/1", "", "a").await[1], all[0]);
    assert_eq!(case.stream_as("two/1", "", "a").await[1], all[0]);
    let answer = case.stream_as("one/1", "?scopes=range", "a").await;
    assert_eq!(answer[1], ranges[0]);
}

#[tokio::test]
async fn a_ban_with_less_than_a_second_left_is_not_served() {
    let soon = ("192.0.2.9", "2026-01-01T00:00:00Z");
    let case = Case::filled(&[soon]).await;
    assert_eq!(case.stream("?startup=true", "a").await, lists(&[], &[]));
    let (_, one) = case.get("/v1/decisions?ip=192.0.2.9", "a").await;
    assert!(one.is_null(), "{one}");
    case.set(&[("192.0.2.9", "2026-01-01T01:00:00Z")]).await;
    assert_eq!(case.stream("", "a").await, lists(&["192.0.2.9"], &[]));
}

#[tokio::test]
async fn scopes_origins_and_types_are_respected() {
    let case = Case::filled(ENTRIES).await;
    let addresses = lists(&["192.0.2.7", "2001:db8::7"], &[]);
    assert_eq!(case.stream("?startup=true&scopes=Ip", "a").await, addresses);
    let ours = "?startup=true&scopes=ip,range&origins=cscli,ipblock-operator";
    assert_eq!(case.stream(ours, "a").await[0].len(), 3);
    let others = "?startup=true&origins=CAPI";
    assert_eq!(case.stream(others, "a").await, lists(&[], &[]));
}

#[tokio::test]
async fn decisions_about_an_address_or_a_range_are_found() {
    let case = Case::filled(ENTRIES).await;
    let values = async |query: &str| {
        let (status, value) = case.get(&format!("/v1/decisions{query}"), "a").await;
        assert_eq!(status, StatusCode::OK, "{value}");
        let list = value.as_array().cloned().unwrap_or_default();
        let values = list
            .iter()
            .map(|it| it["value"].as_str().unwrap().to_owned());
        (value.is_null(), values.collect::<Vec<_>>())
    };
    let found = |values: &[&str]| (false, values.iter().map(ToString::to_string).collect());
    assert_eq!(values("?ip=192.0.2.7").await, found(&["192.0.2.7"]));
    assert_eq!(
        values("?ip=198.51.100.9").await,
        found(&["198.51.100.0/24"])
    );
    assert_eq!(values("?ip=203.0.113.9").await, (true, Vec::new()));
    let inside = values("?range=198.51.0.0/16&contains=false").await;
    assert_eq!(inside, found(&["198.51.100.0/24"]));
    assert_eq!(values("?range=198.51.0.0/16").await, (true, Vec::new()));
    assert_eq!(
        values("?scope=ip&value=192.0.2.7").await,
        found(&["192.0.2.7"])
    );
    assert_eq!(
        values("?ip=192.0.2.7&type=captcha").await,
        (true, Vec::new())
    );
    assert_eq!(values("").await.1.len(), 3);
    let (status, _) = case.get("/v1/decisions?ip=nonsense", "a").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_wrong_key_is_forbidden_in_the_words_of_crowdsec() {
    let path = std::env::temp_dir().join(format!("lapi-keys-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let case = Case::new(Access::Secret(MountedFile::alone(&path))).await;
    case.engine.ready();
    for key in ["", "three"] {
        let (status, value) = case.get("/v1/decisions/stream?startup=true", key).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(value, json!({"message": "access forbidden"}));
    }
    let (status, value) = case.get("/v1/decisions", "two").await;
    assert_eq!((status, value), (StatusCode::OK, json!([])));
    let head = case.client.head(format!("{}/v1/decisions", case.url));
    let head = head.header("X-Api-Key", "one").send().await.unwrap();
    assert_eq!(head.status(), StatusCode::OK);
    let usage = case.client.post(format!("{}/v1/usage-metrics", case.url));
    let usage = usage
        .header("X-Api-Key", "one")
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(usage.status(), StatusCode::CREATED);
    let (status, value) = case.get("/health", "").await;
    assert_eq!((status, value), (StatusCode::OK, json!({"status": "up"})));
    std::fs::remove_file(&path).unwrap();
    let (status, _) = case.get("/v1/decisions", "two").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn decisions_that_are_not_read_yet_are_not_served_and_an_empty_set_is() {
    let case = Case::new(Access::Insecure).await;
    let (status, _) = case.get("/v1/decisions/stream?startup=true", "a").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    case.engine.ready();
    assert_eq!(case.stream("?startup=true", "a").await, lists(&[], &[]));
    case.engine.fresh.set_stale(true);
    let stale = case.client.get(format!("{}/v1/decisions", case.url));
    let stale = stale.header("X-Api-Key", "a").send().await.unwrap();
    assert_eq!(stale.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(stale.headers()["connection"], "close");
}

#[tokio::test(start_paused = true)]
async fn positions_are_bounded_and_forgotten() {
    let time = Time::new(reeve_clock::Clock::simulated(
        "2026-01-01T00:00:00Z".parse().unwrap(),
        1,
    ));
    let engine = CrowdSecEngine::new("lapi", time, Desired::new([]), Metrics::default());
    let bouncer = |number: usize| Bouncer {
        digest: (number as u128).to_be_bytes(),
        address: IpAddr::from([192, 0, 2, 1]),
    };
    for number in 0..=MOST {
        engine.advance(bouncer(number), Arc::default(), false);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(engine.state.lock().positions.len(), MOST);
    assert!(
        engine.position(&bouncer(0)).is_none(),
        "the quietest goes first"
    );
    tokio::time::advance(KEPT).await;
    engine.advance(bouncer(0), Arc::default(), false);
    assert_eq!(engine.state.lock().positions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_keeps_much_of_what_was_replaced_is_forgotten() {
    let time = Time::new(reeve_clock::Clock::system());
    let mut engine = CrowdSecEngine::new("lapi", time, Desired::new([]), Metrics::default());
    let batch = async |engine: &CrowdSecEngine, second: i64| {
        let until = Until::new(Some(
            jiff::Timestamp::from_second(1_800_000_000 + second).unwrap(),
        ));
        let entries = ["192.0.2.7", "192.0.2.8"].map(|target| Entry {
            target: target.parse().unwrap(),
            until,
        });
        let from = engine.state.lock().current.set.clone();
        let to = entries.into_iter().collect();
        engine.apply(&Change { from, to }).await.unwrap();
        Arc::clone(&engine.state.lock().current)
    };
    let bouncer = |number: u8| Bouncer {
        digest: [number; 16],
        address: IpAddr::from([192, 0, 2, 1]),
    };
    let first = batch(&engine, 0).await;
    let size = batch(&engine, 1).await.replaced - first.replaced;
    assert_eq!(size, 2 * 9, "two addresses of IPv4");
    engine.most_replaced = 3 * size;
    engine.advance(bouncer(0), Arc::clone(&first), true);
    for second in 2..4 {
        let current = batch(&engine, second).await;
        engine.advance(bouncer(1), current, true);
        assert!(engine.position(&bouncer(0)).is_some(), "{second}");
    }
    for second in 4..9 {
        let current = batch(&engine, second).await;
        engine.advance(bouncer(1), current, false);
        assert!(engine.position(&bouncer(0)).is_none(), "it asks no more");
        assert!(engine.position(&bouncer(1)).is_some(), "it follows");
    }
    engine.advance(bouncer(1), first, false);
    assert!(
        engine.position(&bouncer(1)).is_none(),
        "its answer took too long"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bouncer_is_behind_when_it_was_not_answered_for_a_minute_after_a_change() {
    let metrics = Metrics::default();
    let time = Time::new(reeve_clock::Clock::system());
    let engine = CrowdSecEngine::new("lapi", time, Desired::new([]), metrics.clone());
    let bouncer = Bouncer {
        digest: [0; 16],
        address: IpAddr::from([192, 0, 2, 1]),
    };
    let counted = || {
        engine.look();
        metrics.agents_of("lapi")
    };
    engine.advance(bouncer, Arc::default(), true);
    tokio::time::advance(BEHIND).await;
    assert_eq!(counted(), [1, 0, 0], "nothing has changed");
    engine.advance(bouncer, Arc::default(), true);
    let mut to = TargetSet::default();
    to.insert("192.0.2.7".parse().unwrap(), Until::NEVER);
    let from = TargetSet::default();
    engine.apply(&Change { from, to }).await.unwrap();
    assert_eq!(counted(), [1, 0, 0], "it did not ask again yet");
    tokio::time::advance(BEHIND).await;
    assert!(engine.position(&bouncer).is_some());
    assert_eq!(counted(), [0, 1, 0], "it asks, and takes no answer");
    let current = Arc::clone(&engine.state.lock().current);
    engine.advance(bouncer, current, false);
    assert_eq!(counted(), [1, 0, 0]);
    tokio::time::advance(FOLLOWS).await;
    assert_eq!(counted(), [0, 0, 0]);
}
