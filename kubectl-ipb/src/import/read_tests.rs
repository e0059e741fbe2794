use std::time::Duration;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Each entry as `LINE ADDRESS LENGTH REASON` or `LINE ! PROBLEM`.
fn shown(text: &str, format: Format) -> Vec<String> {
    let entries = read(text, format, now()).unwrap();
    let lines = entries.into_iter().map(|Entry { line, item }| match item {
        Ok(None) => format!("{line} over"),
        Ok(Some(item)) => {
            let length = match item.length {
                None => "default".to_owned(),
                Some(Length(None)) => "forever".to_owned(),
                Some(Length(Some(length))) => duration::display(length),
            };
            let reason = item.reason.unwrap_or_default();
            format!("{line} {} {length} {reason}", item.target)
        }
        Err(problem) => format!("{line} ! {problem}"),
    });
    lines.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_plain_list_has_comments_and_errors_with_their_lines() {
    let text = "# feed\n192.0.2.7\n\n 192.0.2.0/24 ; net\n2001:DB8::1 # six\n192.0.2.999\n";
    let read = shown(text, Format::Auto);
    assert_eq!(
        read[..3],
        [
            "2 192.0.2.7 default",
            "4 192.0.2.0/24 default",
            "5 2001:db8::1 default"
        ]
    );
    assert!(
        read[3].starts_with("6 ! \"192.0.2.999\" is neither"),
        "{}",
        read[3]
    );
}

#[test]
fn csv_has_the_columns_that_its_first_line_names_or_ours() {
    let plain = "192.0.2.7,2h,port scan\n192.0.2.8\n192.0.2.9,soon,x\n";
    let read = shown(plain, Format::Auto);
    assert_eq!(
        read[..2],
        ["1 192.0.2.7 2h port scan", "2 192.0.2.8 default"]
    );
    assert!(
        read[2].starts_with("3 ! \"soon\" is not a duration"),
        "{}",
        read[2]
    );
    let named = "reason,ip,until\n\"a, b\",192.0.2.7,2026-01-01T12:30:00Z\nx,192.0.2.8,2025-01-01T00:00:00Z\n";
    assert_eq!(
        shown(named, Format::Auto),
        ["2 192.0.2.7 30m a, b", "3 over"]
    );
}

#[test]
fn the_end_that_an_export_names_counts_and_not_the_time_that_was_left_then() {
    let export = r#"{"bans": [{"ip": "192.0.2.7", "duration": "3h", "until": "2026-01-01T12:30:00Z"},
        {"ip": "192.0.2.8", "duration": "3h", "until": "2026-01-01T11:30:00Z"},
        {"ip": "192.0.2.9", "duration": 86400}]}"#;
    assert_eq!(
        shown(export, Format::Auto),
        [
            "1 192.0.2.7 30m",
            "2 over",
            "3 ! duration is the number 86400: write it as a text, 24h or 2026-01-31T12:00:00Z"
        ]
    );
    let csv = "ip,duration,until\n192.0.2.7,3h,2026-01-01T12:30:00Z\n192.0.2.8,1h,\n";
    assert_eq!(
        shown(csv, Format::Auto),
        ["2 192.0.2.7 30m", "3 192.0.2.8 1h"]
    );
}

#[test]
fn decisions_of_crowdsec_are_read_as_its_tool_prints_them() {
    let raw = "id,source,ip,reason,action,country,as,events_count,expiration,simulated,alert_id\n\
        7,crowdsec,Ip:192.0.2.7,crowdsecurity/ssh-bf,ban,FR,,6,3h59m49s,false,3\n\
        8,cscli,Range:198.51.100.0/24,manual,ban,,,0,2h,false,4\n\
        9,crowdsec,Ip:192.0.2.8,x,captcha,,,0,2h,false,5\n\
        10,crowdsec,Country:FR,x,ban,,,0,2h,false,6\n\
        11,crowdsec,Ip:2001:db8::7,x,ban,,,0,-5m,false,7\n";
    assert_eq!(
        shown(raw, Format::Auto),
        [
            "2 192.0.2.7 3h59m49s crowdsecurity/ssh-bf",
            "3 198.51.100.0/24 2h manual",
            "4 ! \"captcha\" is not a ban",
            "5 ! the scope \"Country\" is neither Ip nor Range",
            "6 over",
        ]
    );
    let alerts = r#"[{"id": 3, "scenario": "of the alert", "decisions": [
        {"duration": "3h59m49.5s", "id": 7, "origin": "crowdsec", "scenario": "crowdsecurity/ssh-bf",
         "scope": "Ip", "simulated": false, "type": "ban", "value": "192.0.2.7"},
        {"duration": "1h", "scenario": "x", "scope": "AS", "type": "ban", "value": "64500"}]}]"#;
    assert_eq!(
        shown(alerts, Format::Auto),
        [
            "1 192.0.2.7 3h59m50s crowdsecurity/ssh-bf",
            "2 ! the scope \"AS\" is neither Ip nor Range"
        ]
    );
    let import = "duration,scope,value\n24h,ip,192.0.2.7\n";
    assert_eq!(shown(import, Format::Auto), ["2 192.0.2.7 1d"]);
    assert!(shown("null", Format::Json).is_empty());
}

#[test]
fn json_is_an_export_a_list_or_what_kubectl_prints() {
    for (text, wanted) in [
        (
            r#"{"bans": [{"ip": "192.0.2.7", "duration": "10m", "reason": "r"}, {"ip": "192.0.2.8", "duration": "forever"}]}"#,
            vec!["1 192.0.2.7 10m r", "2 192.0.2.8 forever"],
        ),
        (
            r#"["192.0.2.7", 7, {"reason": "x"}]"#,
            vec![
                "1 192.0.2.7 default",
                "2 ! neither a text nor an object",
                "3 ! it has no address",
            ],
        ),
        (
            r#"{"kind": "List", "items": [{"spec": {"ip": "192.0.2.7", "reason": "r"}}]}"#,
            vec!["1 192.0.2.7 forever r"],
        ),
    ] {
        assert_eq!(shown(text, Format::Auto), wanted);
    }
    let block = |spec: &str, status: &str| {
        format!(
            r#"{{"items": [{{"spec": {{"ip": "192.0.2.7", "duration": "1h"{spec}}}, "status": {status}}}]}}"#
        )
    };
    for (spec, status, wanted) in [
        (
            "",
            r#"{"phase": "active", "expiresAt": "2026-01-01T12:10:00Z"}"#,
            "1 192.0.2.7 10m",
        ),
        (
            "",
            r#"{"phase": "active", "expiresAt": "2026-01-01T12:00:00Z"}"#,
            "1 over",
        ),
        ("", r#"{"phase": "pending"}"#, "1 192.0.2.7 1h"),
        ("", "{}", "1 192.0.2.7 1h"),
        ("", r#"{"phase": "expired"}"#, "1 over"),
        ("", r#"{"phase": "failed"}"#, "1 over"),
        ("", r#"{"phase": "skipped"}"#, "1 over"),
        (
            r#", "trigger": true"#,
            r#"{"phase": "expired"}"#,
            "1 192.0.2.7 1h",
        ),
        (r#", "unblock": true"#, r#"{"phase": "active"}"#, "1 over"),
    ] {
        assert_eq!(
            shown(&block(spec, status), Format::Auto),
            [wanted],
            "{spec} {status}"
        );
    }
    let deleted = r#"{"items": [{"metadata": {"deletionTimestamp": "2026-01-01T11:59:00Z"},
        "spec": {"ip": "192.0.2.7", "trigger": true}, "status": {"phase": "active"}}]}"#;
    assert_eq!(shown(deleted, Format::Auto), ["1 over"]);
    for (text, part) in [
        ("[", "not JSON"),
        ("7", "a list is expected"),
        ("{}", "none of the lists"),
    ] {
        let error = read(text, Format::Json, now()).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_colon_is_a_scope_only_after_a_word_that_no_address_begins_with() {
    for (text, scope) in [
        ("Ip", true),
        ("Range", true),
        ("dead", false),
        ("2001", false),
        ("", false),
    ] {
        assert_eq!(is_scope(text), scope, "{text}");
    }
    assert_eq!(shown("dead::1\n", Format::Csv), ["1 dead::1 default"]);
}

#[test]
fn the_time_that_is_left_is_rounded_up_and_the_end_stays_as_it_is_named() {
    let fields = Fields {
        until: Some("2026-01-01T12:00:00.2Z".into()),
        ..Fields::default()
    };
    let one = Length(Some(Duration::from_secs(1)));
    let named = "2026-01-01T12:00:00.2Z".parse().unwrap();
    let end = fields.end(now()).unwrap().unwrap();
    assert_eq!((end.length, end.until), (Some(one), Some(named)));
}
