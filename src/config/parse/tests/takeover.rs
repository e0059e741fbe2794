//! The configuration of the original operator, and the first one of a takeover.

use super::*;

#[test]
fn the_originals_configuration_is_read_whole() {
    let config = parse(&data(ORIGINALS), &open()).unwrap();
    assert_eq!(config.place(), Ok(&Place::new("iptables", "10.0.0.5:9521")));
    assert_eq!(config.policy.allowlist.len(), 2);
    assert_eq!(config.triggers.len(), 1);
    assert_eq!(config.triggers[0].path, "/trigger/grafana");
    assert_eq!(config.notify[0].templates.len(), 1);
    assert!(config.warnings.is_empty());
    assert_eq!(config.default_duration, Duration::from_secs(3_600));
    assert_eq!(config.max_duration, None);
    let gateway = "10.0.0.5".parse().unwrap();
    assert!(
        config
            .policy
            .refusal(&gateway)
            .unwrap()
            .message
            .contains("the gateway")
    );
}

#[test]
fn the_first_configuration_of_a_takeover_leaves_out_what_the_original_let_pass_and_says_so() {
    let mut all = data(ORIGINALS);
    all.insert("whitelist".into(), "198.51.100.1\nexample.com\n".into());
    all.insert("engine".into(), "ipset".into());
    let takeover = Options {
        takeover: true,
        ..open()
    };
    assert_eq!(parse(&all, &takeover).unwrap_err().0.len(), 2, "an edit");
    assert_eq!(
        parse_first(&all, &open()).unwrap_err().0.len(),
        2,
        "a restart is as strict as an edit"
    );
    let config = parse_first(&all, &takeover).unwrap();
    assert_eq!(config.place(), Ok(&Place::new("xdp", "10.0.0.5:9521")));
    let only = config.policy.allowlist.iter().map(|(target, _)| target);
    assert!(only.eq(["198.51.100.1".parse().unwrap()]));
    let [engine, line] = config.dropped.as_slice() else {
        panic!("{:?}", config.dropped);
    };
    assert!(engine.contains("ipset") && engine.contains("xdp is used"));
    assert!(line.contains("whitelist, line 2: \"example.com\""));
    // A key that the original does not have is never left out.
    all.insert("protectedRanges".into(), "nonsense".into());
    assert!(parse_first(&all, &takeover).is_err());
}

#[test]
fn the_two_grafana_entries_that_the_original_accepts_are_served_with_a_warning() {
    let mut all = data(ORIGINALS);
    let twice = "- {name: grafana, addr: ':8090', path: /trigger/grafana}\n- {name: grafana, addr: ':8091', path: /trigger/grafana}\n";
    all.insert("trigger".into(), twice.into());
    let config = parse(&all, &open()).unwrap();
    assert_eq!(config.triggers.len(), 2);
    let [warning] = config.warnings.as_slice() else {
        panic!("{:?}", config.warnings);
    };
    assert!(warning.contains("have the name grafana"), "{warning}");
}
