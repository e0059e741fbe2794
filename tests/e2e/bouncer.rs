//! CrowdSec's firewall bouncer, as Debian has it, against the operator: what it puts into the kernel.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reeve_apiserver::assets;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::cluster::Kind;
use crate::namespace;
use crate::sets::address;
use crate::world::{World, until};

mod builtin {
    #[test]
    fn an_unmodified_firewall_bouncer_enforces_the_bans_and_the_kernel_lifts_them() {
        super::in_namespace(crate::cluster::Kind::Builtin);
    }
}

mod real {
    #[test]
    fn an_unmodified_firewall_bouncer_enforces_the_bans_and_the_kernel_lifts_them() {
        super::in_namespace(crate::cluster::Kind::Real);
    }
}

/// The program in `REEVE_BOUNCER`; `None` skips the test.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("REEVE_BOUNCER").filter(|name| !name.is_empty());
    assets::decide(
        program.map(PathBuf::from).filter(|path| path.is_file()),
        "REEVE_BOUNCER names no program; tests/e2e/bouncer.sh sets it, or prints why it cannot",
    )
}

/// The bouncer changes the packet filter, so everything runs where that harms nothing.
fn in_namespace(kind: Kind) {
    if let Some(program) = program() {
        namespace::run(kind, async |world| bouncer(world, program).await);
    }
}

async fn bouncer(world: World, program: PathBuf) {
    let keys = world.file("bouncer-keys", "another\nthe-key\n");
    let address = address();
    let engines = format!(
        "- name: lapi\n  type: crowdsec\n  addr: \"{address}\"\n  bearerTokenFile: {}\n",
        keys.display()
    );
    world
        .configure(json!({"engines": engines, "engine": "", "gatewayHost": ""}))
        .await;
    let operator = world.operator("ipblock-operator-0").await;
    for (name, ip, duration) in [
        ("host", "192.0.2.7", "1h"),
        ("range", "198.51.100.0/24", "2h"),
        ("six", "2001:db8::7", ""),
        ("soon", "192.0.2.9", "25s"),
    ] {
        world
            .create(name, json!({"ip": ip, "duration": duration}))
            .await;
        world.phase(name, "active").await;
    }
    let configuration = world.file(
        "bouncer.yaml",
        &format!(
            "mode: nftables\nupdate_frequency: 1s\ndaemonize: false\nlog_mode: stdout\n\
             log_level: info\napi_url: http://{address}/\napi_key: the-key\ndisable_ipv6: false\n\
             deny_action: DROP\nsupported_decisions_types: [ban]\npid_dir: {0}/\nlog_dir: {0}/\n\
             blacklists_ipv4: crowdsec-blacklists\nblacklists_ipv6: crowdsec6-blacklists\n\
             nftables:\n  ipv4: {{enabled: true, set-only: false, table: crowdsec, chain: crowdsec-chain}}\n  \
             ipv6: {{enabled: true, set-only: false, table: crowdsec6, chain: crowdsec6-chain}}\n\
             prometheus: {{enabled: false}}\n",
            world.cluster.directory().display()
        ),
    );
    let log = world.file("bouncer.log", "");
    let _bouncer = start(&program, &configuration, log);
    until("the kernel has the bans", async || {
        let rules = ruleset().await;
        [
            "192.0.2.7 ",
            // Of a range, this version blocks the first address with nftables.
            "198.51.100.0 ",
            "2001:db8::7 ",
            "192.0.2.9 ",
        ]
        .iter()
        .all(|target| rules.contains(target))
    })
    .await;
    // A lift, a new ban, and a longer one.
    world.delete("range").await;
    world
        .create("late", json!({"ip": "203.0.113.7", "duration": "1h"}))
        .await;
    world
        .patch("host", json!({"spec": {"duration": "10h"}}))
        .await;
    until("the kernel follows", async || {
        let rules = ruleset().await;
        !rules.contains("198.51.100.0 ")
            && rules.contains("203.0.113.7 ")
            && rules.contains("192.0.2.7 timeout 9h59m")
    })
    .await;
    // Without the operator the kernel keeps the time.
    operator.process.kill().await;
    until("the kernel lifts what is over", async || {
        !ruleset().await.contains("192.0.2.9 ")
    })
    .await;
    let rules = ruleset().await;
    assert!(
        rules.contains("192.0.2.7 ") && rules.contains("2001:db8::7 "),
        "{rules}"
    );
}

/// The bouncer at work; its log and what it did are shown when the case fails.
struct Bouncer {
    _child: Child,
    log: PathBuf,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("the bouncer's log:\n{log}");
            let rules = std::process::Command::new("nft")
                .args(["list", "ruleset"])
                .output();
            let rules = rules.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            eprintln!("the rules of the kernel:\n{}", rules.unwrap_or_default());
        }
    }
}

fn start(program: &Path, configuration: &Path, log: PathBuf) -> Bouncer {
    let file = std::fs::File::create(&log).expect("a log");
    let errors = file.try_clone().expect("a second handle");
    let child = Command::new(program)
        .arg("-c")
        .arg(configuration)
        .stdout(Stdio::from(file))
        .stderr(Stdio::from(errors))
        .kill_on_drop(true)
        .spawn()
        .expect("the bouncer starts");
    Bouncer { _child: child, log }
}

/// The rules of the kernel, in the namespace of this process.
async fn ruleset() -> String {
    let listed = Command::new("nft").args(["list", "ruleset"]).output();
    let listed = tokio::time::timeout(Duration::from_secs(10), listed).await;
    let output = listed.expect("nft answers").expect("nft runs");
    String::from_utf8_lossy(&output.stdout).replace(',', " ")
}
