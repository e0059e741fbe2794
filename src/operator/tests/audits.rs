//! The audit log of a running operator.

use super::*;
use crate::audit::{self, Action, Line};

#[tokio::test(start_paused = true)]
async fn a_life_of_blocks_is_written_line_by_line_and_to_its_end() {
    let path = std::env::temp_dir().join(format!("operator-audit-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let destination = audit::Destination::File(path.clone());
    let log = audit::Log::open(&destination, "pod-0").unwrap();
    let mut world = World::new().await;
    world.configure(&[("whitelist", "203.0.113.10")]).await;
    let used = log.clone();
    world.start_with(|settings| settings.audit = used).await;
    world.create("a", "192.0.2.7", "1m").await;
    world.until("a", "active", MINUTE).await;
    let longer = Patch::Merge(json!({"spec": {"duration": "2m"}}));
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    world.blocks.patch("a", &params, &longer).await.unwrap();
    world.create("b", "203.0.113.10", "1h").await;
    world.until("b", "skipped", MINUTE).await;
    world.create("c", "192.0.2.9", "1h").await;
    world.until("c", "active", MINUTE).await;
    let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
    world.blocks.patch("c", &params, &unblock).await.unwrap();
    world.until("a", "expired", 3 * MINUTE).await;
    world.until("c", "expired", MINUTE).await;
    log.flush(MINUTE).await;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<Line> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str| {
        let lines = lines.iter().filter(|line| line.name == name);
        lines.map(|line| line.action).collect::<Vec<_>>()
    };
    assert_eq!(of("a"), [Action::Banned, Action::Extended, Action::Lifted]);
    assert_eq!(of("b"), [Action::Skipped]);
    assert_eq!(of("c"), [Action::Banned, Action::Lifted]);
    let one = |name: &str, action| {
        let mut found = lines
            .iter()
            .filter(|line| line.name == name && line.action == action);
        found.next().unwrap().clone()
    };
    let banned = one("a", Action::Banned);
    assert_eq!(banned.target, "192.0.2.7");
    assert_eq!(banned.replica, "pod-0");
    assert!(banned.uid.is_some() && banned.until.is_some());
    assert_eq!(
        one("a", Action::Extended).changed_with.as_deref(),
        Some("kubectl-edit")
    );
    assert_eq!(one("a", Action::Lifted).cause.as_deref(), Some("expired"));
    let by_hand = one("c", Action::Lifted);
    assert_eq!(by_hand.cause.as_deref(), Some("unblocked"));
    assert_eq!(by_hand.changed_with.as_deref(), Some("kubectl-edit"));
    assert!(lines.iter().map(|line| line.time).is_sorted());
}
