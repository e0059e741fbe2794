//! What is written to a status and read from it.

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn times_are_written_in_utc_to_the_millisecond() {
    assert_eq!(
        write(at("2026-01-01T08:00:00.1239+08:00")),
        "2026-01-01T00:00:00.123Z"
    );
    assert_eq!(write(at("2026-01-01T00:00:00Z")), "2026-01-01T00:00:00Z");
}

#[test]
fn times_of_any_zone_are_read_and_nonsense_is_none() {
    let status = |text: &str| IPBlockStatus {
        blocked_at: Some(text.to_owned()),
        ..IPBlockStatus::default()
    };
    assert_eq!(
        status("2025-12-16T10:00:00+08:00").blocked_at(),
        Some(at("2025-12-16T02:00:00Z"))
    );
    for nonsense in ["", "yesterday", "2025-12-16", "2025-12-16 10:00"] {
        assert_eq!(status(nonsense).blocked_at(), None, "{nonsense}");
    }
}

#[test]
fn an_unknown_phase_is_kept_as_it_is() {
    let status: IPBlockStatus =
        serde_json::from_value(serde_json::json!({"phase": "frozen", "result": ""})).unwrap();
    assert_eq!(status.phase, Some(Phase::Other("frozen".into())));
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        serde_json::json!({"phase": "frozen", "result": ""})
    );
}

#[test]
fn phases_and_results_are_written_in_the_words_of_the_original() {
    for (phase, word) in [
        (Phase::Pending, "pending"),
        (Phase::Active, "active"),
        (Phase::Expired, "expired"),
        (Phase::Skipped, "skipped"),
        (Phase::Failed, "failed"),
    ] {
        assert_eq!(serde_json::to_value(&phase).unwrap(), word);
        let read: Phase = serde_json::from_value(word.into()).unwrap();
        assert_eq!(read, phase);
    }
    for (result, word) in [
        (ResultCode::Success, "success"),
        (ResultCode::Failed, "failed"),
        (ResultCode::Unblocked, "unblocked"),
        (ResultCode::Skipped, "skipped"),
    ] {
        assert_eq!(serde_json::to_value(&result).unwrap(), word);
        let read: ResultCode = serde_json::from_value(word.into()).unwrap();
        assert_eq!(read, result);
    }
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let mut status = IPBlockStatus::default();
    let (first, later) = (at("2026-01-01T00:00:00.5Z"), at("2026-01-01T01:00:00Z"));
    status.set_condition("Ready", ConditionStatus::False, "A", "a", first);
    status.set_condition("Ready", ConditionStatus::False, "B", "b", later);
    let ready = status.condition("Ready").unwrap();
    assert_eq!(
        (ready.reason.as_str(), ready.last_transition_time.as_str()),
        ("B", "2026-01-01T00:00:00Z")
    );
    status.set_condition("Ready", ConditionStatus::True, "C", "c", later);
    assert_eq!(
        status.condition("Ready").unwrap().last_transition_time,
        "2026-01-01T01:00:00Z"
    );
    assert_eq!(status.conditions.len(), 1);
}
