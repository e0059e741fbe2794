//! Real senders: Prometheus and Alertmanager, and CrowdSec's local API, as Debian packages have them
//! (`apt-get install prometheus prometheus-alertmanager crowdsec`). Without the programs these cases are skipped or fail,
//! see `reeve_apiserver::assets`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use reeve_apiserver::assets;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::process::{free_port, get, print_if_panicking};
use crate::world::World;

on_both_servers!(
    a_rule_of_prometheus_that_fires_bans_and_lifts_when_it_is_resolved,
    a_decision_of_crowdsec_bans_and_its_deletion_lifts,
);

/// The object of 1.2.3.4.
const BLOCK: &str = "ipblock-6465ec74397c9126";

/// A program of the `PATH`; `None` skips the case.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    assets::decide(
        found.into_iter().find(|file| file.is_file()),
        &format!("{name} is not installed; apt-get install has it"),
    )
}

/// A program that is killed with the case; a case that fails prints the end of its log.
struct Sender {
    _child: Child,
    name: String,
    log: PathBuf,
}

impl Drop for Sender {
    fn drop(&mut self) {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        print_if_panicking(&self.name, &log);
    }
}

/// Starts `program` with its output in `log`.
fn start(program: &Path, args: &[String], log: &Path) -> Sender {
    let file = std::fs::File::create(log).expect("a log file");
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a second handle of the log"))
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let name = program.file_name().unwrap_or_default();
    Sender {
        _child: child,
        name: name.to_string_lossy().into_owned(),
        log: log.to_owned(),
    }
}

/// Serves one metric of an address that fails to log in, while `attacks`.
async fn attacked(attacks: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let value = u8::from(attacks.load(Ordering::Relaxed));
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body =
                format!("# TYPE login_failures gauge\nlogin_failures{{ip=\"1.2.3.4\"}} {value}\n");
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// The files of a listener and of its sender, of one authority.
fn certificates(world: &World) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority");
    world.file("ca.crt", &authority.pem());
    let issuer = Issuer::new(params, key);
    for (name, usage) in [
        ("listener", ExtendedKeyUsagePurpose::ServerAuth),
        ("alertmanager", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]);
        let mut params = params.expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        world.file(&format!("{name}.crt"), &certificate.pem());
        world.file(&format!("{name}.key"), &key.serialize_pem());
    }
    let ca = world.cluster.directory();
    ca.display().to_string()
}

async fn a_rule_of_prometheus_that_fires_bans_and_lifts_when_it_is_resolved(world: World) {
    let (Some(prometheus), Some(alertmanager)) =
        (program("prometheus"), program("prometheus-alertmanager"))
    else {
        return;
    };
    let attacks = Arc::new(AtomicBool::new(true));
    let exporter = attacked(Arc::clone(&attacks)).await;
    let files = certificates(&world);
    world.file("token", "s3cr3t\n");
    let (trigger, alerts, own) = (free_port(), free_port(), free_port());

    let _operator = world.operator("ipblock-operator-0").await;
    let list = format!(
        "- name: alertmanager
  addr: \"127.0.0.1:{trigger}\"
  path: /trigger/alertmanager
  bearerTokenFile: {files}/token
  tlsCertFile: {files}/listener.crt
  tlsKeyFile: {files}/listener.key
  clientCAFile: {files}/ca.crt
  clientNames: [alertmanager]
  resolved: lift
"
    );
    world.configure(json!({ "trigger": list })).await;

    let config = world.file(
        "alertmanager.yml",
        &format!(
            "route: {{receiver: ipblock, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 5s}}
receivers:
  - name: ipblock
    webhook_configs:
      - url: https://localhost:{trigger}/trigger/alertmanager
        send_resolved: true
        http_config:
          authorization: {{credentials_file: {files}/token}}
          tls_config: {{ca_file: {files}/ca.crt, cert_file: {files}/alertmanager.crt, key_file: {files}/alertmanager.key}}
"
        ),
    );
    let args = [
        format!("--config.file={}", config.display()),
        format!("--storage.path={files}/alertmanager"),
        format!("--web.listen-address=127.0.0.1:{alerts}"),
        "--cluster.listen-address=".to_owned(),
    ];
    let log = world.cluster.directory().join("alertmanager.log");
    let _alertmanager = start(&alertmanager, &args, &log);

    world.file(
        "rules.yml",
        "groups:
  - name: bans
    interval: 1s
    rules:
      - alert: ManyFailedLogins
        expr: login_failures > 0
        labels: {duration: 30m}
        annotations: {summary: \"failed logins from {{ $labels.ip }}\"}
",
    );
    let config = world.file(
        "prometheus.yml",
        &format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{files}/rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alerts}']}}]}}]}}
scrape_configs: [{{job_name: logins, static_configs: [{{targets: ['{exporter}']}}]}}]
"
        ),
    );
    let args = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={files}/prometheus"),
        format!("--web.listen-address=127.0.0.1:{own}"),
    ];
    let log = world.cluster.directory().join("prometheus.log");
    let _prometheus = start(&prometheus, &args, &log);

    let block = world.phase(BLOCK, "active").await;
    assert_eq!(block["spec"]["ip"], "1.2.3.4");
    assert_eq!(block["spec"]["source"], "alertmanager");
    assert_eq!(block["spec"]["duration"], "30m");
    let reason = "Alertmanager alert: failed logins from 1.2.3.4";
    assert_eq!(block["spec"]["reason"], reason);
    world.enforces(&["1.2.3.4"]).await;

    attacks.store(false, Ordering::Relaxed);
    let block = world.phase(BLOCK, "expired").await;
    assert!(block["metadata"]["annotations"]["ops.yiiong.top/resolved-at"].is_string());
    world.enforces(&[]).await;

    // The lift is no lift by hand: the next alert bans at once.
    attacks.store(true, Ordering::Relaxed);
    let block = world.phase(BLOCK, "active").await;
    assert_eq!(block["status"]["banCount"], 2);
    world.enforces(&["1.2.3.4"]).await;
}

/// The configuration of a local API that talks to no other.
fn lapi(files: &str, port: u16) -> String {
    format!(
        "common: {{daemonize: false, log_media: stdout, log_level: info, working_dir: .}}
config_paths:
  config_dir: {files}/crowdsec/
  data_dir: {files}/crowdsec/
  simulation_path: {files}/crowdsec/simulation.yaml
  hub_dir: {files}/crowdsec/hub/
  index_path: {files}/crowdsec/hub/.index.json
  notification_dir: {files}/crowdsec/notifications/
  plugin_dir: {files}/crowdsec/notifications/
crowdsec_service: {{acquisition_path: {files}/crowdsec/acquis.yaml, parser_routines: 1}}
cscli: {{output: human}}
db_config: {{log_level: info, type: sqlite, db_path: {files}/crowdsec/crowdsec.db}}
api:
  client: {{insecure_skip_verify: false, credentials_path: {files}/crowdsec/credentials.yaml}}
  server: {{log_level: info, listen_uri: '127.0.0.1:{port}', profiles_path: {files}/crowdsec/profiles.yaml}}
prometheus: {{enabled: false}}
"
    )
}

async fn a_decision_of_crowdsec_bans_and_its_deletion_lifts(world: World) {
    let (Some(crowdsec), Some(cscli)) = (program("crowdsec"), program("cscli")) else {
        return;
    };
    let port = free_port();
    let files = world.cluster.directory().display().to_string();
    let folder = world.cluster.directory().join("crowdsec");
    for name in ["hub", "notifications"] {
        std::fs::create_dir_all(folder.join(name)).expect("a folder");
    }
    for (name, text) in [
        ("config.yaml", lapi(&files, port)),
        ("simulation.yaml", "simulation: false\n".to_owned()),
        (
            "profiles.yaml",
            "name: default\nfilters: [\"Alert.Remediation == true\"]\ndecisions: [{type: ban, duration: 4h}]\non_success: break\n".to_owned(),
        ),
        ("credentials.yaml", String::new()),
    ] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let config = folder.join("config.yaml").display().to_string();
    let cscli = async |args: &str| {
        let output = Command::new(&cscli)
            .args(["-c", &config])
            .args(args.split(' '))
            .output()
            .await
            .expect("cscli runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "cscli {args}: {text}");
    };
    let credentials = folder.join("credentials.yaml");
    let credentials = credentials.display();
    cscli(&format!(
        "machines add test --password secret-of-a-test -f {credentials} --force -u http://127.0.0.1:{port}"
    ))
    .await;
    cscli("bouncers add ipblock -k 0123456789abcdef0123456789abcdef").await;
    world.file("crowdsec-key", "0123456789abcdef0123456789abcdef\n");
    let args = ["-c".to_owned(), config.clone(), "-no-cs".to_owned()];
    let _lapi = start(&crowdsec, &args, &folder.join("log"));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    world
        .until("the local API answers", async move |_| {
            get(address, "/v1/decisions").await.is_some()
        })
        .await;
    // A decision from before the first pull, one of each family.
    cscli("decisions add -i 1.2.3.4 -d 4h -R brute-force").await;
    cscli("decisions add -i 2001:db8::1 -d 4h -t captcha").await;
    // A longer one of an origin that is not taken must not hide the first.
    world.file(
        "longer.csv",
        "duration,scope,value,reason\n10h,ip,1.2.3.4,longer\n",
    );
    cscli(&format!("decisions import -i {files}/longer.csv")).await;

    let _operator = world.operator("ipblock-operator-0").await;
    let sources = format!(
        "[{{name: crowdsec, url: 'http://127.0.0.1:{port}', apiKeyFile: {files}/crowdsec-key, interval: 1s}}]"
    );
    world.configure(json!({ "sources": sources })).await;
    let block = world.phase(BLOCK, "active").await;
    assert_eq!(block["spec"]["source"], "crowdsec");
    assert_eq!(block["spec"]["reason"], "CrowdSec: brute-force (cscli)");
    world.enforces(&["1.2.3.4"]).await;

    cscli("decisions add -i 192.0.2.9 -d 4h -R scan").await;
    world.enforces(&["1.2.3.4", "192.0.2.9"]).await;
    cscli("decisions delete -i 1.2.3.4").await;
    world.phase(BLOCK, "expired").await;
    world.enforces(&["192.0.2.9"]).await;
    assert_eq!(world.blocks().await.len(), 2, "no captcha");
}
