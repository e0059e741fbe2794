//! The script and the configurations of docs/edge.md with Debian's nginx and HAProxy, and the list of the operator.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tokio::process::{Child, Command};

use crate::cluster::Kind;
use crate::namespace;
use crate::process::{free_port, print_if_panicking};
use crate::senders::program;
use crate::sets::address;
use crate::world::{World, until};

/// The clients, which are addresses of the loopback device of the namespace.
const BANNED: &str = "203.0.113.7";
const OTHER: &str = "203.0.113.8";

/// Equal answers in succession: workers with the last configuration may answer until they have ended.
const STEADY: usize = 8;

mod builtin {
    #[test]
    fn nginx_and_haproxy_refuse_a_banned_address_until_the_lift() {
        super::case(crate::cluster::Kind::Builtin);
    }
}

mod real {
    #[test]
    fn nginx_and_haproxy_refuse_a_banned_address_until_the_lift() {
        super::case(crate::cluster::Kind::Real);
    }
}

fn case(kind: Kind) {
    let programs = ["nginx", "haproxy", "curl"].map(program);
    let [Some(nginx), Some(haproxy), Some(_)] = programs else {
        return;
    };
    namespace::run(kind, async |world| {
        edges(world, &nginx, &haproxy).await;
    });
}

async fn edges(world: World, nginx: &Path, haproxy: &Path) {
    for client in [BANNED, OTHER] {
        let added = Command::new("ip")
            .args(["address", "add", client, "dev", "lo"])
            .status();
        assert!(added.await.expect("ip runs").success());
    }
    let list = address();
    let token = world.file("list-token", "t0ken\n");
    let engines = format!(
        "- name: edge\n  type: list\n  addr: \"{list}\"\n  bearerTokenFile: {}\n",
        token.display()
    );
    world
        .configure(json!({"engines": engines, "engine": "", "gatewayHost": ""}))
        .await;
    let _operator = world.operator("ipblock-operator-0").await;
    let script = script(&world);
    let edges = [
        Edge::nginx(&world, nginx, &script, &format!("http://{list}/bans")),
        Edge::haproxy(&world, haproxy, &script, &format!("http://{list}/bans")),
    ];
    for edge in &edges {
        edge.answers(BANNED, "200").await;
    }
    world
        .create("client", json!({"ip": BANNED, "duration": "1h"}))
        .await;
    world.phase("client", "active").await;
    for edge in &edges {
        edge.answers(BANNED, edge.refusal).await;
        assert_eq!(edge.status(OTHER).await, "200", "{}", edge.name);
    }
    world
        .patch("client", json!({"spec": {"unblock": true}}))
        .await;
    world.phase("client", "expired").await;
    for edge in &edges {
        edge.answers(BANNED, "200").await;
    }
}

/// The script of the guide, and the file with its header.
fn script(world: &World) -> PathBuf {
    world.file("headers", "Authorization: Bearer t0ken\n");
    let guide = include_str!("../../docs/edge.md");
    let (_, script) = guide.split_once("```sh\n#!").expect("a script");
    let (script, _) = script.split_once("\n```").expect("its end");
    world.file("refresh", &format!("#!{script}\n"))
}

/// A web server, and the script that keeps its file at the list. Both end when this is dropped.
struct Edge {
    name: &'static str,
    /// What curl reports for a banned client: a status, or 000 for a closed connection.
    refusal: &'static str,
    url: String,
    server: Child,
    /// Held until it is dropped, which kills it.
    _script: Child,
    log: PathBuf,
}

impl Edge {
    fn nginx(world: &World, program: &Path, script: &Path, list: &str) -> Self {
        let port = free_port();
        let place = world.cluster.directory().display();
        let banned = world.file("banned.conf", "");
        world.file("index.html", "welcome\n");
        let text = format!(
            "daemon off; pid {place}/nginx.pid; error_log {place}/nginx.log; user root; events {{}}\n\
             http {{ access_log off; client_body_temp_path {place}/1; proxy_temp_path {place}/2;\n\
             fastcgi_temp_path {place}/3; uwsgi_temp_path {place}/4; scgi_temp_path {place}/5;\n\
             server {{ listen {port}; include {}; root {place}; }} }}\n",
            banned.display()
        );
        let configuration = world.file("nginx.conf", &text);
        let configuration = configuration.display().to_string();
        let log = world.file("nginx.log", "");
        let flags = format!("-e {} -c {configuration}", log.display());
        let mut command = Command::new(program);
        let server = start(command.args(flags.split(' ')));
        let nginx = format!("{} {flags}", program.display());
        let reload = format!("{nginx} -t -q && {nginx} -s reload");
        Self {
            name: "nginx",
            refusal: "403",
            url: format!("http://127.0.0.1:{port}/"),
            server,
            _script: refresh(
                world,
                script,
                &format!("{list}?format=nginx&wait=30"),
                &banned,
                &reload,
            ),
            log,
        }
    }

    fn haproxy(world: &World, program: &Path, script: &Path, list: &str) -> Self {
        let port = free_port();
        let banned = world.file("banned.lst", "");
        let text = format!(
            "global\n  maxconn 100\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             frontend web\n  bind :{port}\n  tcp-request connection reject if {{ src -f {} }}\n\
             \x20 http-request return status 200 content-type text/plain string welcome\n",
            banned.display()
        );
        let configuration = world.file("haproxy.cfg", &text);
        let log = world.file("haproxy.log", "");
        let file = std::fs::File::create(&log).expect("a log");
        let mut command = Command::new(program);
        let server = start(
            command
                .args(["-W", "-db", "-f"])
                .arg(&configuration)
                .stderr(file),
        );
        let id = server.id().expect("it runs");
        let reload = format!(
            "{} -c -q -f {} && kill -USR2 {id}",
            program.display(),
            configuration.display()
        );
        Self {
            name: "haproxy",
            refusal: "000",
            url: format!("http://127.0.0.1:{port}/"),
            server,
            _script: refresh(world, script, &format!("{list}?wait=30"), &banned, &reload),
            log,
        }
    }

    /// The status that the client with this address gets; 000 for none.
    async fn status(&self, client: &str) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "5", "--output", "/dev/null"])
            .args([
                "--write-out",
                "%{http_code}",
                "--interface",
                client,
                &self.url,
            ])
            .output();
        String::from_utf8(output.await.expect("curl runs").stdout).expect("a status")
    }

    /// Waits until the client gets `status`, and goes on to get it.
    async fn answers(&self, client: &str, status: &str) {
        until(
            &format!("{} answers {status} to {client}", self.name),
            async || {
                for _ in 0..STEADY {
                    if self.status(client).await != status {
                        return false;
                    }
                }
                true
            },
        )
        .await;
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SIGTERM, so that the workers end with the server.
        if let Some(id) = self.server.id() {
            let _ = std::process::Command::new("kill")
                .arg(id.to_string())
                .status();
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        print_if_panicking(self.name, &log);
    }
}

fn start(command: &mut Command) -> Child {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    quiet.spawn().expect("the server starts")
}

/// Runs the script with a command that checks and reloads the server.
fn refresh(world: &World, script: &Path, url: &str, file: &Path, reload: &str) -> Child {
    Command::new("sh")
        .arg(script)
        .arg(url)
        .arg(file)
        .args(["sh", "-c", reload])
        .env("HEADERS", world.cluster.directory().join("headers"))
        .env("PAUSE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("sh runs")
}
