//! The values of the keys of the ConfigMap.

mod takeover;
mod triggers;

use super::*;
use crate::config::Changes;

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
}

fn open() -> Options {
    Options {
        insecure_triggers: true,
        ..Options::default()
    }
}

const ORIGINALS: &[(&str, &str)] = &[
    ("gatewayHost", "10.0.0.5:9521"),
    ("engine", "iptables"),
    ("whitelist", "  198.51.100.1 \n\n203.0.113.0/24\n"),
    (
        "trigger",
        "- name: grafana\n  addr: \":8090\"\n  path: \"/trigger/grafana\"\n",
    ),
    ("notifyType", "lark"),
    (
        "notifyWebhookURL",
        "https://open.feishu.cn/open-apis/bot/v2/hook/x",
    ),
    ("notifyTemplate_ban", "/templates/lark/ban.json"),
];

#[test]
fn an_empty_map_is_a_configuration_without_an_engine() {
    let config = parse(&data(&[]), &Options::default()).unwrap();
    assert!(config.place().unwrap_err().contains("set engine"));
    let config = parse(
        &data(&[("engine", "xdp"), ("gatewayHost", " ")]),
        &Options::default(),
    )
    .unwrap();
    assert!(config.place().unwrap_err().contains("set gatewayHost"));
    let config = parse(&data(&[("engine", "dry-run")]), &Options::default()).unwrap();
    assert_eq!(config.place(), Ok(&Place::new("dry-run", "")));
}

#[test]
fn every_error_names_its_key_and_line() {
    for (key, text, expected) in [
        (
            "whitelist",
            "198.51.100.1\n\nexample.com\n",
            "whitelist, line 3: \"example.com\"",
        ),
        ("protectedRanges", "10.0.0.0/33", "protectedRanges, line 1:"),
        ("engine", "nftables", "engine: unknown engine \"nftables\""),
        (
            "gatewayHost",
            "http://u@h:1",
            "gatewayHost: the gateway address has a user name",
        ),
        ("gatewayHost", "127.0.0.1:9521", "--allow-loopback"),
        (
            "gatewayHost",
            "169.254.169.254:80",
            "gatewayHost: the operator must not call 169.254.169.254",
        ),
        (
            "defaultDuration",
            "10",
            "defaultDuration: duration \"10\" has a number without a unit",
        ),
        (
            "maxDuration",
            "-1h",
            "maxDuration: duration \"-1h\" is negative",
        ),
        (
            "maxDuration",
            "59m",
            "defaultDuration: 1h is longer than maxDuration 59m",
        ),
        (
            "debounceEntries",
            "0",
            "debounceEntries: \"0\" is not a number",
        ),
        ("resyncInterval", "1s", "resyncInterval: the minimum is 10s"),
        (
            "protectPrivate",
            "yes",
            "protectPrivate: \"yes\" is neither true nor false",
        ),
        (
            "minPrefixV4",
            "4",
            "minPrefixV4: \"4\" is not a prefix length from 8 to 32",
        ),
        ("minPrefixV6", "x", "minPrefixV6:"),
        ("notifyType", "pigeon", "notifyType: unknown channel"),
        (
            "notifyWebhookURL",
            "",
            "notifyWebhookURL: notifyType is set",
        ),
        (
            "notifyWebhookURL",
            "open.feishu.cn/x",
            "notifyWebhookURL: a URL",
        ),
        (
            "notifyTimezone",
            "Asia/Shanghai",
            "notifyTimezone: an offset",
        ),
        ("trigger", "- name: grafana\n  addr: [\n", "trigger, line"),
        (
            "trigger",
            "- name: other\n  addr: ':1'\n  path: /x\n",
            "trigger: trigger other: unknown type",
        ),
    ] {
        let mut all = data(ORIGINALS);
        all.insert(key.into(), text.into());
        let error = parse(&all, &open()).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}={text:?}: {error}");
    }
}

#[test]
fn a_switch_or_a_limit_that_protects_is_an_error_when_it_is_gone() {
    for (key, protecting, other) in [
        ("protectPrivate", "true", "false"),
        ("minPrefixV4", "28", "22"),
        ("minPrefixV6", "/64", "40"),
    ] {
        let lost = unprotected(&data(&[(key, protecting)]), &data(&[])).unwrap();
        assert!(lost.to_string().starts_with(key), "{lost}");
        assert_eq!(
            unprotected(&data(&[(key, protecting)]), &data(&[(key, "")])),
            None
        );
        assert_eq!(unprotected(&data(&[(key, other)]), &data(&[])), None);
    }
}

#[test]
fn a_protecting_key_that_is_gone_is_an_error_and_an_emptied_one_is_not() {
    let before = data(&[("whitelist", "192.0.2.1"), ("protectedRanges", "# none")]);
    let lost = unprotected(&before, &data(&[("whiteList", "192.0.2.1")])).unwrap();
    assert_eq!(lost.0.len(), 1, "{lost}");
    assert!(
        lost.to_string().starts_with("whitelist: the key is gone"),
        "{lost}"
    );
    for after in [
        data(&[("whitelist", "")]),
        data(&[("whitelist", "192.0.2.2")]),
    ] {
        assert_eq!(unprotected(&before, &after), None);
    }
    assert_eq!(unprotected(&data(&[]), &data(&[])), None);
    assert_eq!(
        unprotected(&data(&[("whitelist", " \n")]), &data(&[])),
        None
    );
}

#[test]
fn files_are_named_below_the_directory_of_secrets_only() {
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let hmac = format!("[{{name: grafana, addr: ':8090', path: /p, hmacSecretFile: {token}}}]");
    let bearer = format!("[{{name: grafana, addr: ':8090', path: /p, bearerTokenFile: {token}}}]");
    for (key, text) in [
        ("gatewayBearerTokenFile", token),
        ("gatewayCAFile", token),
        ("notifyWebhookURLFile", token),
        ("notifySigningSecretFile", token),
        ("notifyTemplate_ban", token),
        (
            "gatewayCAFile",
            "/etc/ipblock-operator/secrets/../../passwd",
        ),
        ("trigger", &hmac),
        ("trigger", &bearer),
    ] {
        let mut all = data(ORIGINALS);
        all.insert(key.into(), text.into());
        let error = parse(&all, &open()).unwrap_err().to_string();
        assert!(error.starts_with(key), "{key}: {error}");
        assert!(
            error.contains("/etc/ipblock-operator/secrets; only files below it"),
            "{key}: {error}"
        );
    }
    let mut all = data(ORIGINALS);
    let inside = "/etc/ipblock-operator/secrets/ca.crt";
    all.insert("gatewayCAFile".into(), inside.into());
    let config = parse(&all, &open()).unwrap().engine.unwrap();
    assert_eq!(config.authority_file.unwrap().to_string(), inside);
}

#[test]
fn a_bearer_token_goes_over_plain_http_only_when_a_flag_says_so() {
    let read = |host: &str, options: &Options| {
        let mut all = data(ORIGINALS);
        all.insert("gatewayHost".into(), host.into());
        let token = "/etc/ipblock-operator/secrets/token";
        all.insert("gatewayBearerTokenFile".into(), token.into());
        parse(&all, options)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let flag = Options {
        bearer_over_http: true,
        allow_loopback: true,
        ..open()
    };
    let error = read("gateway.example:9521", &open()).unwrap_err();
    assert!(error.contains("--allow-bearer-over-http"), "{error}");
    assert_eq!(read("https://gateway.example", &open()), Ok(()));
    assert_eq!(read("gateway.example:9521", &flag), Ok(()));
    let local = Options {
        bearer_over_http: false,
        ..flag
    };
    assert_eq!(
        read("127.0.0.1:9521", &local),
        Ok(()),
        "it leaves no machine"
    );
}

#[test]
fn more_former_gateways_than_the_record_holds_are_refused() {
    let lines = |count: usize| {
        let all = (1..=count).map(|n| format!("xdp 192.0.2.{n}:80"));
        all.collect::<Vec<_>>().join("\n")
    };
    let with = |count| parse(&data(&[("formerGateways", lines(count).as_str())]), &open());
    assert_eq!(with(31).unwrap().former.len(), 31);
    assert_eq!(
        with(32).unwrap_err().to_string(),
        "formerGateways, line 32: xdp at 192.0.2.32:80 is one too many: at most 31 are followed; drop those without bans"
    );
}

#[test]
fn former_gateways_are_read_as_they_are_recorded() {
    let text = "iptables 192.0.2.1:9521  # until May\n\nxdp https://gw.example\n";
    let config = parse(&data(&[("formerGateways", text)]), &open()).unwrap();
    let expected = [
        Place::new("iptables", "192.0.2.1:9521"),
        Place::new("xdp", "https://gw.example:443"),
    ];
    assert_eq!(config.former, expected);
    for wrong in ["192.0.2.1:9521", "nft 192.0.2.1:9521", "xdp http://u@h"] {
        let error = parse(&data(&[("formerGateways", wrong)]), &open()).unwrap_err();
        assert!(
            error.to_string().starts_with("formerGateways, line 1:"),
            "{error}"
        );
    }
}

#[test]
fn a_gateway_is_withdrawn_only_if_it_is_neither_configured_nor_named_as_a_former_one() {
    let with = |withdrawn: &str| {
        let map = data(&[
            ("engine", "xdp"),
            ("gatewayHost", "192.0.2.1:8080"),
            ("formerGateways", "xdp 192.0.2.2:8080"),
            ("withdrawnGateways", withdrawn),
        ]);
        parse(&map, &open())
    };
    let config = with("# scrapped\niptables 192.0.2.1:8080").unwrap();
    assert_eq!(
        config.withdrawn,
        [Place::new("iptables", "192.0.2.1:8080")],
        "another engine"
    );
    for (text, message) in [
        (
            "xdp 192.0.2.1:8080",
            "withdrawnGateways, line 1: xdp at 192.0.2.1:8080 is the configured gateway; configure another one first",
        ),
        (
            "xdp 192.0.2.3:8080\nxdp 192.0.2.2:8080",
            "withdrawnGateways, line 2: xdp at 192.0.2.2:8080 is in formerGateways too; drop it there",
        ),
        ("xdp", "withdrawnGateways, line 1:"),
    ] {
        let error = with(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn all_errors_come_at_once() {
    let errors = parse(
        &data(&[("engine", "x"), ("whitelist", "a\nb"), ("maxDuration", "z")]),
        &open(),
    )
    .unwrap_err();
    assert_eq!(errors.0.len(), 4);
}

#[test]
fn the_whitelist_takes_comments() {
    let config = parse(
        &data(&[("whitelist", "# office\n192.0.2.1 # door\n")]),
        &open(),
    )
    .unwrap();
    assert_eq!(config.policy.allowlist.len(), 1);
}

#[test]
fn the_default_duration_may_be_the_limit_and_not_longer() {
    let config = |default| {
        let pairs = [("maxDuration", "2h"), ("defaultDuration", default)];
        parse(&data(&pairs), &open())
    };
    let two_hours = Duration::from_secs(2 * 3_600);
    assert_eq!(config("120m").unwrap().default_duration, two_hours);
    let error = config("7201s").unwrap_err().to_string();
    assert!(
        error.contains("defaultDuration") && error.contains("longer than maxDuration 2h"),
        "{error}"
    );
}

#[test]
fn what_becomes_of_blocks_after_their_ban_is_configured() {
    let config = |pairs: &[(&str, &str)]| parse(&data(pairs), &open()).unwrap();
    let (day, minute) = (Duration::from_secs(86_400), Duration::from_secs(60));
    let default = config(&[]);
    assert_eq!(default.retention, Some(7 * day));
    assert_eq!(default.unblock_grace, 10 * minute);
    assert_eq!(default.repeated_alert, Repeat::Extend);
    let set = config(&[
        ("retention", "30d"),
        ("unblockGrace", "1h"),
        ("repeatedAlert", "ignore"),
    ]);
    assert_eq!(set.retention, Some(30 * day));
    assert_eq!(set.unblock_grace, 60 * minute);
    assert_eq!(set.repeated_alert, Repeat::Ignore);
    let changes = set.changes(&default);
    assert!(changes.blocks && changes.triggers);
    let off = config(&[("retention", "never"), ("unblockGrace", "none")]);
    assert_eq!(off.retention, None);
    assert_eq!(off.unblock_grace, Duration::ZERO);
    for (key, text) in [
        ("retention", "0s"),
        ("unblockGrace", "soon"),
        ("repeatedAlert", "x"),
    ] {
        let error = parse(&data(&[(key, text)]), &open()).unwrap_err();
        assert!(error.to_string().starts_with(key), "{error}");
    }
}

#[test]
fn alerts_that_escalate_need_the_key_that_says_by_how_much() {
    let escalate = ("repeatedAlert", "escalate");
    let error = parse(&data(&[escalate]), &open()).unwrap_err();
    let expected = "repeatedAlert: escalate needs the key escalation, which says by how much";
    assert_eq!(error.to_string(), expected);
    let growing = ("escalation", "{factor: 2}");
    let config = parse(&data(&[escalate, growing]), &open()).unwrap();
    assert_eq!(config.repeated_alert, Repeat::Escalate);
}

#[test]
fn a_new_grace_reaches_the_triggers_and_the_blocks_that_are_kept_for_it() {
    let config = |grace| parse(&data(&[("unblockGrace", grace)]), &open()).unwrap();
    let changes = config("2h").changes(&config("1h"));
    assert!(changes.triggers && changes.blocks);
}

#[test]
fn a_new_limit_reaches_the_triggers() {
    let config = |most| parse(&data(&[("maxDuration", most)]), &open()).unwrap();
    let changes = config("2h").changes(&config("24h"));
    assert!(changes.triggers && changes.blocks);
}

#[test]
fn a_default_as_long_as_the_limit_is_right() {
    let both = data(&[("maxDuration", "1h"), ("defaultDuration", "60m")]);
    assert!(parse(&both, &open()).is_ok());
}

#[test]
fn an_unknown_key_is_a_warning() {
    let config = parse(&data(&[("whiteList", "192.0.2.1")]), &open()).unwrap();
    assert!(config.warnings[0].contains("whiteList"));
}

#[test]
fn a_tls_gateway_is_recorded_with_its_scheme() {
    let config = parse(
        &data(&[("engine", "xdp"), ("gatewayHost", "https://gw.example")]),
        &open(),
    )
    .unwrap();
    let recorded = &config.place().unwrap().endpoint;
    assert_eq!(recorded, "https://gw.example:443");
    assert!(
        Endpoint::parse(recorded).is_ok(),
        "a recorded gateway can be called again"
    );
}

#[test]
fn a_change_says_what_it_is_about() {
    let before = parse(&data(ORIGINALS), &open()).unwrap();
    let with = |key: &str, text: &str| {
        let mut all = data(ORIGINALS);
        all.insert(key.into(), text.into());
        parse(&all, &open()).unwrap().changes(&before)
    };
    let blocks = Changes {
        blocks: true,
        ..Changes::default()
    };
    let notify = Changes {
        notify: true,
        ..Changes::default()
    };
    assert_eq!(with("whitelist", "192.0.2.1"), blocks);
    assert_eq!(with("formerGateways", "xdp 192.0.2.1:80"), blocks);
    assert_eq!(with("withdrawnGateways", "xdp 192.0.2.1:80"), blocks);
    assert_eq!(with("notifyWebhookURL", "https://other"), notify);
    assert_eq!(with("unknown", "x"), Changes::default());
    assert!(with("engine", "xdp").engine && with("engine", "xdp").blocks);
    assert!(with("trigger", "").triggers && !with("trigger", "").blocks);
    assert!(with("defaultDuration", "5m").triggers);
}

#[test]
fn the_configmap_of_the_manifests_is_right_and_gives_no_warning() {
    let text = include_str!("../../../manifests/base/configmap.yaml");
    let map: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(text).unwrap();
    let config = parse(&map.data.unwrap(), &Options::default()).unwrap();
    assert_eq!(config.warnings, [""; 0]);
    let options = Options {
        own_ports: vec![(8080, "metrics"), (8081, "health")],
        ..Options::default()
    };
    assert_eq!(config.triggers.len(), 1);
    let again: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(text).unwrap();
    assert!(parse(&again.data.unwrap(), &options).is_ok());
}
