//! The decisions over a real socket of this machine.

use std::sync::Arc;

use http::StatusCode;
use reqwest::Client;
use serde_json::{Value, json};

use super::super::access::Access;
use super::super::serve::{Listeners, Served, Surface};
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
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let time = Time::new(reeve_clock::Clock::simulated(start, 1));
        let engine = Arc::new(CrowdSecEngine::new("lapi", time, Metrics::default()));
        let surface = Arc::new(CrowdSecSurface::new(Arc::clone(&engine), access));
        let mut listeners = Listeners::default();
        let loopback = ([127, 0, 0, 1], 0).into();
        let surface = surface as Arc<dyn Surface>;
        let served = Served {
            address: loopback,
            tls: None,
            path: String::new(),
            surface,
        };
        let failed = listeners.apply([served]).await;
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
        let from = self.engine.state.lock().set.clone();
        let to = to.collect();
        self.engine.apply(&Change { from, to }).await.unwrap();
    }

    async fn get(&self, path: &str, key: &str) -> (StatusCode, Value) {
        let request = self.client.get(format!("{}{path}", self.url));
        let answer = request.header("X-Api-Key", key).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// The values of new and deleted decisions in the stream.
    async fn stream(&self, query: &str, key: &str) -> [Vec<String>; 2] {
        let (status, value) = self.get(&format!("/v1/decisions/stream{query}"), key).await;
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
    assert_eq!(case.stream("?startup=false", "a").await, lists(&[], &[]));
    case.set(&[("192.0.2.8", ""), ENTRIES[1]]).await;
    let changed = lists(&["192.0.2.8"], &["192.0.2.7", "2001:db8::7"]);
    assert_eq!(case.stream("", "a").await, changed);
    assert_eq!(case.stream("", "a").await, lists(&[], &[]));
    let unknown = lists(&["192.0.2.8", "198.51.100.0/24"], &[]);
    assert_eq!(case.stream("", "b").await, unknown, "it gets all");
    assert_eq!(case.stream("", "b").await, lists(&[], &[]));
    assert_eq!(case.stream("?startup=true", "a").await, unknown);
}

#[tokio::test]
async fn a_moved_end_is_deleted_and_new_in_one_answer() {
    let case = Case::filled(ENTRIES).await;
    case.stream("?startup=true", "a").await;
    let mut moved = ENTRIES.to_vec();
    moved[0].1 = "2026-01-01T02:00:00Z";
    case.set(&moved).await;
    let both = lists(&["192.0.2.7"], &["192.0.2.7"]);
    assert_eq!(case.stream("", "a").await, both);
}

#[tokio::test]
async fn an_answer_that_was_not_read_is_sent_again() {
    let case = Case::filled(ENTRIES).await;
    let address = IpAddr::from([127, 0, 0, 1]);
    let bouncer = Bouncer {
        key: [7; 16],
        address,
    };
    let lost = case.engine.position(&bouncer);
    assert_eq!(lost, None);
    case.engine.advance(bouncer, TargetSet::default());
    let surface = CrowdSecSurface::new(Arc::clone(&case.engine), Access::Insecure);
    drop(surface.unread_for_test(bouncer));
    assert_eq!(case.engine.position(&bouncer), Some(TargetSet::default()));
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
}

#[tokio::test(start_paused = true)]
async fn positions_are_bounded_and_forgotten() {
    let time = Time::new(reeve_clock::Clock::simulated(
        "2026-01-01T00:00:00Z".parse().unwrap(),
        1,
    ));
    let engine = CrowdSecEngine::new("lapi", time, Metrics::default());
    let bouncer = |number: usize| Bouncer {
        key: (number as u128).to_be_bytes(),
        address: IpAddr::from([192, 0, 2, 1]),
    };
    for number in 0..=MOST {
        engine.advance(bouncer(number), TargetSet::default());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(engine.state.lock().positions.len(), MOST);
    assert!(
        engine.position(&bouncer(0)).is_none(),
        "the quietest goes first"
    );
    tokio::time::advance(KEPT).await;
    engine.advance(bouncer(0), TargetSet::default());
    assert_eq!(engine.state.lock().positions.len(), 1);
}
