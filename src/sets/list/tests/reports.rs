//! Agents that report what they apply, and how they are counted.

use super::*;

#[tokio::test]
async fn agents_report_and_are_counted_by_their_version() {
    let case = Case::filled(ENTRIES).await;
    let version = case.json("?format=json&family=4").await["version"].clone();
    let report = async |agent: &str, body: String| {
        let url = format!("{}/agents/{agent}", case.url);
        let answer = case.client.post(url).body(body).send().await.unwrap();
        answer.status()
    };
    let current = json!({"version": version, "count": 2}).to_string();
    assert_eq!(report("node-1", current).await, StatusCode::OK);
    let behind = json!({"version": "old", "count": 2}).to_string();
    assert_eq!(report("node-2", behind).await, StatusCode::OK);
    let failed = json!({"version": "old", "error": "nft: not found"}).to_string();
    assert_eq!(report("node-3", failed).await, StatusCode::OK);
    assert_eq!(case.agents(), [1, 1, 1]);
    assert_eq!(
        report("a%20b", "{\"version\":\"x\"}".into()).await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(report("node-4", "{}".into()).await, StatusCode::BAD_REQUEST);
    let large = format!("{{\"version\":\"{}\"}}", "x".repeat(20_000));
    assert_eq!(report("node-4", large).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(case.agents(), [1, 1, 1]);
    case.set(&ENTRIES[1..]).await;
    assert_eq!(case.agents(), [1, 1, 1]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(case.agents(), [0, 2, 1]);
    case.engine.close();
    case.engine.metrics.forget_agents("edge");
    assert_eq!(case.agents(), [0, 0, 0], "nothing is counted after the end");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_follows_is_never_behind_however_often_the_list_changes() {
    let metrics = Metrics::default();
    let engine = ListEngine::new("edge", Time::new(Clock::system()), metrics.clone());
    let apply = async |number: u8| {
        let from = engine.served.lock().set.clone();
        let mut to = TargetSet::default();
        to.insert(Target::host([192, 0, 2, number].into()), Until::NEVER);
        engine.apply(&Change { from, to }).await.unwrap();
    };
    let report = |version: String| {
        let error = None;
        assert!(engine.report("node-1", &Report { version, error }));
    };
    let version = || {
        let page = engine.page(Family::Both, Content::Entries, None);
        page.unwrap().version
    };
    apply(1).await;
    report(version());
    apply(2).await;
    engine.look();
    assert_eq!(metrics.agents_of("edge"), [1, 0, 0], "it is just reading");
    tokio::time::advance(Duration::from_millis(50)).await;
    report(version());
    tokio::time::advance(Duration::from_secs(20)).await;
    engine.look();
    assert_eq!(metrics.agents_of("edge"), [1, 0, 0]);
    for number in 0..100 {
        apply(number).await;
        if number % 10 == 0 {
            report(version());
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        engine.look();
        assert_eq!(metrics.agents_of("edge"), [1, 0, 0], "change {number}");
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    engine.look();
    assert_eq!(metrics.agents_of("edge"), [0, 1, 0], "it reads no more");
}

#[tokio::test]
async fn an_agent_reports_where_it_polls_and_one_that_polls_elsewhere_counts_here_no_more() {
    let case = Case::filled(ENTRIES).await;
    let version = case.json("?format=json").await["version"].clone();
    let poll = async |report: String| {
        let request = case.client.get(format!("{}?format=json", case.url));
        let request = request
            .header("X-IPBlock-Agent", "node-1")
            .header("X-IPBlock-Agent-Report", report);
        request.send().await.unwrap().status()
    };
    let current = json!({"version": version, "count": 3}).to_string();
    assert_eq!(poll(current).await, StatusCode::OK);
    assert_eq!(case.agents(), [1, 0, 0]);
    let failed = json!({"version": version, "error": "nft: é"}).to_string();
    assert_eq!(poll(failed).await, StatusCode::OK);
    assert_eq!(case.agents(), [0, 0, 1]);
    assert_eq!(poll("nonsense".into()).await, StatusCode::OK);
    assert_eq!(case.agents(), [0, 0, 1]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(90)).await;
    assert_eq!(case.agents(), [0, 0, 0]);
}
