//! The page of a running operator.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::page::tests::get;
use crate::page::{self, State};
use crate::why::{Answer, Verdict};

fn at(address: &str) -> page::Settings {
    page::Settings {
        address: address.parse().unwrap(),
        token_file: None,
        certificates: None,
    }
}

/// The document of an answer with this status.
fn document<T: serde::de::DeserializeOwned>(answer: &str, status: &str) -> T {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status}")),
        "{answer}"
    );
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[tokio::test]
async fn the_page_shows_the_blocks_and_answers_about_an_address() {
    let mut world = World::new().await;
    world.configure(&[("whitelist", "203.0.113.10")]).await;
    world
        .start_with(|settings| settings.page = Some(at("127.0.0.1:0")))
        .await;
    world.create("a", "198.51.100.0/24", "1h").await;
    world.until("a", "active", MINUTE).await;
    let address = world.page.unwrap();
    let local = "Host: localhost\r\n";
    let page = get(address, "GET /blocks", local).await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("<script>"),
        "{page}"
    );
    for header in [
        "content-security-policy: default-src 'none';",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(page.to_lowercase().contains(header), "{header}: {page}");
    }
    let state: State = document(&get(address, "GET /blocks/state", local).await, "200");
    assert_eq!(
        (state.counts.active, state.ending[0].name.as_str()),
        (1, "a")
    );
    assert!(state.leads);
    assert_eq!(
        state.configuration.engine.as_deref(),
        Some("iptables at 192.0.2.250:9521")
    );
    for (asked, verdict) in [
        ("198.51.100.7", Verdict::Banned),
        ("203.0.113.10", Verdict::Refused),
        ("2001%3Adb8%3A%3A1", Verdict::Free),
    ] {
        let first = format!("GET /blocks/why?address={asked}");
        let answer: Answer = document(&get(address, &first, local).await, "200");
        assert_eq!(answer.verdict, verdict, "{asked}");
    }
    let wrong: serde_json::Value = document(
        &get(address, "GET /blocks/why?address=%3Cb%3E", local).await,
        "400",
    );
    assert!(
        wrong["error"]
            .as_str()
            .unwrap()
            .contains("neither an IP address")
    );
    assert!(
        get(address, "POST /blocks/state", local)
            .await
            .starts_with("HTTP/1.1 405")
    );
    let home = get(address, "GET /", local).await;
    assert!(home.to_lowercase().contains("location: /blocks"), "{home}");
    let foreign = get(address, "GET /blocks/state", "Host: evil.example\r\n").await;
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");

    world.configure(&[("whitelist", "203.0.113.300")]).await;
    let problem = async || {
        let answer = get(address, "GET /blocks/state", local).await;
        let state: State = document(&answer, "200");
        state
            .configuration
            .problems
            .iter()
            .any(|text| text.contains("whitelist, line 1"))
    };
    let started = Instant::now();
    while !problem().await {
        assert!(started.elapsed() < MINUTE, "the wrong edit is not shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn elsewhere_than_on_loopback_the_page_is_for_users_with_the_right() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world
        .start_with(|settings| settings.page = Some(at("0.0.0.0:0")))
        .await;
    let address = (std::net::Ipv4Addr::LOCALHOST, world.page.unwrap().port()).into();
    let ask = async |line: &str| {
        let lines = format!("Host: page.example\r\n{line}");
        get(address, "GET /blocks", &lines).await
    };
    let refused = ask("").await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    assert!(
        refused.to_lowercase().contains("www-authenticate: basic"),
        "{refused}"
    );
    let unknown = ask("Authorization: Bearer unknown\r\n").await;
    assert!(unknown.starts_with("HTTP/1.1 401"), "{unknown}");
    let basic = format!(
        "Authorization: Basic {}\r\n",
        STANDARD.encode(format!("x:{TOKEN}"))
    );
    let shown = ask(&basic).await;
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
}
