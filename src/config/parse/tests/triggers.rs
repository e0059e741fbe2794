//! The keys of triggers.

use super::*;

#[test]
fn alerts_go_only_to_a_namespace_that_is_watched() {
    let read = |namespace: Option<&str>, watched: Option<&str>| {
        let name = namespace.map_or(String::new(), |name| format!(", namespace: {name}"));
        let trigger = format!("[{{name: grafana, addr: ':8090', path: /p{name}}}]");
        let options = Options {
            namespace: "system".into(),
            watch_namespace: watched.map(str::to_owned),
            ..open()
        };
        parse(&data(&[("trigger", &trigger)]), &options)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(read(None, None), Ok(()));
    assert_eq!(read(Some("other"), None), Ok(()));
    assert_eq!(read(None, Some("system")), Ok(()));
    assert_eq!(read(Some("team"), Some("team")), Ok(()));
    for (namespace, made) in [(None, "system"), (Some("other"), "other")] {
        let error = read(namespace, Some("team")).unwrap_err();
        assert!(
            error.contains(&format!("namespace {made}")) && error.contains("only team"),
            "{error}"
        );
    }
}

#[test]
fn a_trigger_does_not_take_a_port_of_the_operator_itself() {
    let options = Options {
        own_ports: vec![(8081, "health")],
        ..open()
    };
    let read = |address: &str| {
        let trigger = format!("[{{name: grafana, addr: '{address}', path: /p}}]");
        parse(&data(&[("trigger", &trigger)]), &options)
    };
    let error = read(":8081").unwrap_err().to_string();
    assert!(
        error.contains("port 8081") && error.contains("health"),
        "{error}"
    );
    assert!(read("127.0.0.1:8081").is_err());
    assert!(read(":8090").is_ok());
}

#[test]
fn a_signature_without_a_time_is_a_warning() {
    let read = |more: &str| {
        let trigger = format!(
            "[{{name: grafana, addr: ':8090', path: /p, hmacSecretFile: /etc/ipblock-operator/secrets/key{more}}}]"
        );
        parse(&data(&[("trigger", &trigger)]), &open())
            .unwrap()
            .warnings
    };
    assert!(read("")[0].contains("hmacTimestampHeader"));
    assert_eq!(read(", hmacTimestampHeader: X-Time"), [""; 0]);
}

#[test]
fn a_debounce_below_a_second_counts_as_a_second_and_not_as_none() {
    for (debounce, seconds) in [("500ms", 1), ("1500ms", 2), ("1m", 60)] {
        let mut all = data(ORIGINALS);
        all.insert("debounce".into(), debounce.into());
        let config = parse(&all, &open()).unwrap();
        assert_eq!(config.triggers[0].debounce, Duration::from_secs(seconds));
    }
}

#[test]
fn a_trigger_in_shadow_mode_is_a_source_in_shadow_mode() {
    let trigger = "[{name: grafana, addr: ':8090', path: /p, insecure: true, shadow: true}]";
    let both = [("trigger", trigger), ("shadowSources", "feed")];
    let config = parse(&data(&both), &open()).unwrap();
    assert!(config.guard.shadow.iter().eq(["feed", "grafana"]));
}

#[test]
fn triggers_need_credentials_unless_configured_otherwise() {
    let error = parse(&data(ORIGINALS), &Options::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("no credentials"), "{error}");
}
