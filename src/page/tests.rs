use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use reeve_serve::http::{Handler, Running};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::state::Summary;
use super::*;
use crate::api::write_time;
use crate::api::{ConditionStatus, IPBlock, IPBlockSpec, IPBlockStatus, Phase, condition};
use crate::inbound;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn block(place: i64, phase: Phase) -> IPBlock {
    let spec = IPBlockSpec {
        ip: format!("192.0.2.{}", place % 256),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new(&format!("b{place:03}"), spec);
    let minutes = |count| write_time(now() + SignedDuration::from_mins(count));
    let active = phase == Phase::Active;
    block.status = Some(IPBlockStatus {
        phase: Some(phase),
        blocked_at: active.then(|| minutes(-place)),
        expires_at: active.then(|| minutes(place)),
        ..IPBlockStatus::default()
    });
    block
}

fn failing(place: i64, phase: Phase, kind: &str) -> IPBlock {
    let mut block = block(place, phase);
    let since = now() - SignedDuration::from_mins(place);
    let status = block.status.as_mut().unwrap();
    status.set_condition(kind, ConditionStatus::False, "Refused", "refused", since);
    block
}

fn state(blocks: &[IPBlock]) -> State {
    let mut summary = Summary::new(now());
    blocks.iter().for_each(|block| summary.add(block));
    summary.into_state("pod-0", true, Configuration::default())
}

#[test]
fn rows_are_the_next_the_longest_and_the_latest_and_bounded() {
    let mut blocks: Vec<IPBlock> = (0..100).map(|place| block(place, Phase::Active)).collect();
    blocks.extend((0..50).map(|place| failing(place, Phase::Pending, condition::READY)));
    blocks.reverse();
    let state = state(&blocks);
    let names = |rows: &[crate::why::Entry]| -> Vec<String> {
        rows.iter().map(|entry| entry.name.clone()).collect()
    };
    let first: Vec<String> = (0..20).map(|place| format!("b{place:03}")).collect();
    assert_eq!(names(&state.ending), first);
    assert_eq!(names(&state.latest), first);
    let longest: Vec<String> = (30..50).rev().map(|place| format!("b{place:03}")).collect();
    assert_eq!(names(&state.failing), longest);
    let counts = Counts {
        blocks: 150,
        active: 100,
        due: 1,
        pending: 50,
        failing: 50,
        ..Counts::default()
    };
    assert_eq!(state.counts, counts);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
}

#[test]
fn a_block_fails_while_something_is_tried_again() {
    for (phase, kind, fails) in [
        (Phase::Pending, condition::READY, true),
        (Phase::Active, condition::READY, true),
        (Phase::Active, condition::LIFTED, true),
        (Phase::Failed, condition::READY, false),
        (Phase::Expired, condition::LIFTED, true),
        (Phase::Active, condition::ENFORCED, false),
    ] {
        let shown = format!("{phase} {kind}");
        let state = state(&[failing(1, phase, kind)]);
        assert_eq!(state.counts.failing, usize::from(fails), "{shown}");
        assert_eq!(state.failing.len(), usize::from(fails), "{shown}");
    }
    let mut unread = block(1, Phase::Active);
    unread.spec.ip = "nonsense".into();
    assert_eq!(
        state(&[unread]).ending.len(),
        0,
        "its address cannot be shown"
    );
}

#[test]
fn the_page_has_no_external_part_and_its_policy_allows_the_one_script() {
    let page = page();
    for external in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(external), "{external}");
    }
    let (_, script) = page.split_once("<script>").unwrap();
    let (script, _) = script.split_once("</script>").unwrap();
    let hash = STANDARD.encode(Sha256::digest(script));
    let policy = super::server::policy();
    let policy = policy.to_str().unwrap();
    assert!(
        policy.contains(&format!("script-src 'sha256-{hash}';")),
        "{policy}"
    );
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
    for danger in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "eval(",
        "document.write",
    ] {
        assert!(!page.contains(danger), "{danger}");
    }
    for id in page.split("part(\"").skip(1) {
        let (id, _) = id.split_once('"').unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

/// A server that answers `shown` behind `guard`.
fn serve(guard: &Guard) -> Running {
    let shown: Handler = Arc::new(|_| Box::pin(async { inbound::text(StatusCode::OK, "shown") }));
    let handler = guard.protect(shown);
    let address = ([127, 0, 0, 1], 0).into();
    inbound::serve(address, inbound::limits(), move |request| handler(request)).unwrap()
}

/// Status and headers of the answer to a request with these lines.
pub(crate) async fn get(address: SocketAddr, first: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{first} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn an_open_page_is_for_this_machine_under_its_own_names() {
    let running = serve(&Guard::Local);
    for (host, status) in [
        ("localhost:8080", "200"),
        ("127.0.0.1", "200"),
        ("[::1]:8080", "200"),
        ("10.0.0.7:80", "200"),
        ("evil.example:8080", "403"),
        ("localhost.evil.example", "403"),
    ] {
        let answer = get(running.local_addr(), "GET /", &format!("Host: {host}\r\n")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_page_with_tokens_takes_them_as_bearer_and_as_password() {
    let file = std::env::temp_dir().join(format!("page-tokens-{}", std::process::id()));
    std::fs::write(&file, "first\nsecond\n").unwrap();
    let running = serve(&Guard::Token(Arc::new(file.clone())));
    let basic = |pair: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(pair));
    let twice = "Authorization: Bearer first\r\nAuthorization: Bearer first\r\n";
    for (line, status) in [
        ("Authorization: Bearer first\r\n".to_owned(), "200"),
        ("Authorization: Bearer second\r\n".to_owned(), "200"),
        (basic("alice:second"), "200"),
        (basic("alice"), "401"),
        ("Authorization: Bearer third\r\n".to_owned(), "401"),
        ("Authorization: Digest first\r\n".to_owned(), "401"),
        (twice.to_owned(), "401"),
        (String::new(), "401"),
    ] {
        let lines = format!("Host: page.example\r\n{line}");
        let answer = get(running.local_addr(), "GET /", &lines).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {answer}"
        );
        let asks = answer
            .to_lowercase()
            .contains("www-authenticate: basic realm=");
        assert_eq!(asks, status == "401", "{line}: {answer}");
    }
    let line = "Host: page.example\r\nAuthorization: Bearer third\r\n";
    for (text, status) in [(Some("third"), "200"), (Some(" \n"), "503"), (None, "503")] {
        match text {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let answer = get(running.local_addr(), "GET /", line).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{text:?}: {answer}"
        );
    }
}

#[test]
fn a_page_is_open_on_loopback_only() {
    let review = || {
        let clock = reeve_clock::Clock::system();
        reeve_serve::access::Access::new(Nothing, clock)
    };
    for (address, file, wanted) in [
        ("127.0.0.1:8082", None, "Local"),
        ("[::1]:8082", None, "Local"),
        ("0.0.0.0:8082", None, "Review"),
        ("[::]:8082", Some("/tokens"), "Token"),
        ("127.0.0.1:8082", Some("/tokens"), "Token"),
    ] {
        let guard = Guard::of(address.parse().unwrap(), file.map(PathBuf::from), review);
        assert_eq!(format!("{guard:?}"), wanted, "{address}");
    }
}

/// A reviewer that is never asked.
struct Nothing;

impl reeve_serve::access::Reviewer for Nothing {
    fn review_token<'a>(
        &'a self,
        _: &'a str,
    ) -> futures::future::BoxFuture<
        'a,
        Result<reeve_serve::access::TokenReview, reeve_serve::access::ReviewError>,
    > {
        Box::pin(std::future::pending())
    }

    fn review_access<'a>(
        &'a self,
        _: &'a reeve_serve::access::User,
        _: &'a str,
        _: &'a str,
    ) -> futures::future::BoxFuture<
        'a,
        Result<reeve_serve::access::AccessReview, reeve_serve::access::ReviewError>,
    > {
        Box::pin(std::future::pending())
    }
}
