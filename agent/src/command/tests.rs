use std::collections::BTreeSet;

use super::*;

fn parsed(flags: &[&str]) -> Result<RunArguments, String> {
    let start = [
        "ipblock-agent",
        "run",
        "--list-url=https://operator:8093/bans",
        "--node-name=n",
    ];
    let arguments = Arguments::try_parse_from(start.iter().chain(flags));
    match arguments.map_err(|error| error.to_string())?.command {
        Command::Run(arguments) => Ok(*arguments),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn times_have_a_unit_and_limits() {
    assert_eq!(
        parsed(&["--wait=45s"]).unwrap().wait,
        Duration::from_secs(45)
    );
    assert_eq!(
        parsed(&["--resync-interval=1h"]).unwrap().resync_interval,
        Duration::from_secs(3600)
    );
    for wrong in [
        "--wait=0s",
        "--wait=61s",
        "--wait=2",
        "--wait=s",
        "--wait=1.5s",
        "--resync-interval=9999999999999999999h",
    ] {
        assert!(parsed(&[wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn the_log_shows_the_list_without_its_secrets() {
    let shown = |url: &str| without_secrets(&url.parse().unwrap());
    assert_eq!(
        shown("https://me:hunter2@operator:8093/bans?token=hunter2"),
        "https://operator:8093/bans"
    );
    assert_eq!(
        shown("http://[2001:db8::1]/bans"),
        "http://[2001:db8::1]/bans"
    );
}

#[test]
fn an_address_without_ipv6_is_that_of_ipv4_alone() {
    let given: SocketAddr = "127.0.0.1:9478".parse().unwrap();
    assert_eq!(without_v6(given), given);
    let any = parsed(&[]).unwrap().bind_address;
    assert_eq!(any, "[::]:9478".parse().unwrap());
    assert_eq!(without_v6(any).port(), 9478);
}

#[test]
fn the_hook_ingress_needs_a_device_and_prerouting_has_none() {
    let hook = |flags: &[&str]| parsed(flags).unwrap().table.hook();
    assert_eq!(hook(&[]), Ok(Hook::Prerouting { priority: -300 }));
    assert_eq!(
        hook(&["--priority", "-150"]),
        Ok(Hook::Prerouting { priority: -150 })
    );
    let devices = vec!["eth0".to_owned(), "eth1".to_owned()];
    assert_eq!(
        hook(&[
            "--hook=ingress",
            "--device=eth0",
            "--device=eth1",
            "--priority=0"
        ]),
        Ok(Hook::Ingress {
            devices,
            priority: 0
        })
    );
    assert!(hook(&["--hook=ingress"]).is_err());
    assert!(hook(&["--device=eth0"]).is_err());
}

#[test]
fn protected_ranges_are_separated_by_commas() {
    let ranges = parsed(&["--protect=10.0.0.1/8,192.0.2.7", "--protect=2001:db8::/32"])
        .unwrap()
        .protect;
    let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]);
    assert!(parsed(&["--protect=nonsense"]).is_err());
    for wrong in ["--table=", "--table=a b", "--table=a;b"] {
        assert!(parsed(&[wrong]).is_err(), "{wrong}");
    }
}

/// The container of the DaemonSet.
fn container() -> serde_json::Value {
    let text = include_str!("../../../manifests/agent/daemonset.yaml");
    let daemon_set: serde_json::Value = serde_saphyr::from_str(text).unwrap();
    let pod = &daemon_set["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(pod["automountServiceAccountToken"], false);
    pod["containers"][0].clone()
}

#[test]
fn the_daemon_set_starts_the_program_with_one_capability() {
    let container = container();
    let flags = container["args"].as_array().unwrap();
    let mut line = vec!["ipblock-agent", "--node-name=n"];
    line.splice(1..1, flags.iter().map(|flag| flag.as_str().unwrap()));
    let arguments = Arguments::try_parse_from(line).unwrap();
    let Command::Run(run) = arguments.command else {
        panic!("{arguments:?}")
    };
    assert!(run.token_file.is_some() && !run.flush_on_exit);
    let port = &container["ports"][0]["containerPort"];
    assert_eq!(*port, run.bind_address.port());
    assert_eq!(container["env"][0]["name"], "NODE_NAME");
    let security = &container["securityContext"];
    let capabilities = serde_json::json!({"drop": ["ALL"], "add": ["NET_ADMIN"]});
    assert_eq!(security["capabilities"], capabilities);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
}

/// The names of all metrics, as queries have them.
fn metrics() -> BTreeSet<String> {
    let mut registry = Registry::default();
    let metrics = Metrics::new();
    metrics.error("connect");
    metrics.register(&mut registry);
    let text = reeve_serve::metrics::encode(&registry);
    let names: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .map(str::to_owned)
        .collect();
    assert_eq!(names.len(), 10, "{names:?}");
    names
}

#[test]
fn the_dashboard_shows_every_metric_and_the_alerts_name_existing_ones() {
    let used = |page: &str| -> BTreeSet<String> {
        let found = page.match_indices("ipblock_agent_");
        let names = found.filter_map(|(at, _)| {
            page[at..]
                .split(|c: char| c != '_' && !c.is_ascii_lowercase())
                .next()
        });
        names.map(str::to_owned).collect()
    };
    let dashboard = include_str!("../../../manifests/monitoring/dashboard.json");
    assert_eq!(used(dashboard), metrics());
    let alerts = used(include_str!(
        "../../../manifests/agent/monitoring/prometheusrule.yaml"
    ));
    assert_eq!(alerts.difference(&metrics()).next(), None);
    assert!(alerts.len() > 3, "{alerts:?}");
}

#[test]
fn the_guide_has_every_flag_and_every_metric() {
    let guide = include_str!("../../../docs/agent.md");
    let command = command();
    for command in command.get_subcommands() {
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let flag = format!("--{flag}");
            assert!(flag == "--help" || guide.contains(&flag), "{flag}");
        }
    }
    for name in metrics() {
        assert!(guide.contains(&name), "{name}");
    }
}
