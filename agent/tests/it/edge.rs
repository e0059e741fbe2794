//! The script of docs/edge.md with Debian's nginx and HAProxy on the node, and a double of the operator on the client.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::StatusCode;
use reeve_apiserver::assets;

use crate::namespace::{CLIENT, Pair, wait};
use crate::operator::Operator;

const OPERATOR: &str = "10.77.0.3:8093";
/// Two seconds of pauses in the script, and the reload.
const TRIES: usize = 150;
/// Equal answers in succession: workers with the last configuration may answer until they have ended.
const STEADY: usize = 8;

/// The server and the script, with their files.
struct Edge {
    pair: Pair,
    operator: Operator,
    directory: PathBuf,
    url: String,
    processes: Vec<Child>,
}

impl Edge {
    /// Starts `server` with the configuration `text`, in which `DIRECTORY` is replaced.
    fn start(server: &str, text: &str, flags: &[&str], url: &str) -> Option<Self> {
        let pair = Pair::new()?;
        for program in [server, "curl"] {
            let found = Command::new(program).arg("-v").output().ok();
            assets::decide(found, &format!("{program} is not installed"))?;
        }
        let directory =
            std::env::temp_dir().join(format!("ipblock-{server}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let place = directory.to_str().unwrap();
        std::fs::write(directory.join("index.html"), "welcome\n").unwrap();
        std::fs::write(directory.join("banned"), "").unwrap();
        std::fs::write(
            directory.join("server.conf"),
            text.replace("DIRECTORY", place),
        )
        .unwrap();
        let guide = include_str!("../../../docs/edge.md");
        let (_, script) = guide.split_once("```sh\n#!").unwrap();
        let (script, _) = script.split_once("\n```").unwrap();
        std::fs::write(directory.join("refresh"), format!("#!{script}\n")).unwrap();
        let operator = Operator::start(&pair.client, OPERATOR, None);
        operator.require("t0ken");
        std::fs::write(directory.join("headers"), "Authorization: Bearer t0ken\n").unwrap();
        let mut edge = Self {
            pair,
            operator,
            url: format!("http://{OPERATOR}/bans{url}"),
            directory,
            processes: Vec::new(),
        };
        let flags: Vec<String> = flags
            .iter()
            .map(|flag| flag.replace("DIRECTORY", edge.place()))
            .collect();
        let mut command = edge.pair.node.command(server);
        edge.spawn(command.args(flags));
        assert!(edge.becomes(CLIENT[0], "200"), "{server} serves");
        Some(edge)
    }

    fn place(&self) -> &str {
        self.directory.to_str().unwrap()
    }

    fn spawn(&mut self, command: &mut Command) {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(quiet.spawn().unwrap());
    }

    /// Runs the script with a command that checks and reloads the server.
    fn refresh(&mut self, reload: &str) {
        let file = self.directory.join("banned");
        let mut command = self.pair.node.command("sh");
        command
            .arg(self.directory.join("refresh"))
            .args([self.url.as_str(), file.to_str().unwrap(), "sh", "-c"])
            .arg(reload.replace("DIRECTORY", self.place()))
            .env("HEADERS", self.directory.join("headers"))
            .env("PAUSE", "1");
        self.spawn(&mut command);
    }

    /// The status that the client with this address gets; 000 for none.
    fn status(&self, client: &str) -> String {
        let output = self
            .pair
            .client
            .command("curl")
            .args(["--silent", "--max-time", "5", "--output", "/dev/null"])
            .args([
                "--write-out",
                "%{http_code}",
                "--interface",
                client,
                "http://10.77.0.1:8080/",
            ])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    fn becomes(&self, client: &str, status: &str) -> bool {
        let mut equal = 0;
        (0..TRIES).any(|_| {
            equal = if self.status(client) == status {
                equal + 1
            } else {
                0
            };
            wait(Duration::from_millis(50));
            equal == STEADY
        })
    }

    /// Bans, lifts, and what must change nothing. `refused` is the status of a banned client.
    fn follows_the_list(&mut self, refused: &str) {
        let [first, second, ..] = CLIENT;
        self.operator
            .publish(&[(first, None), ("192.0.2.0/24", None)]);
        assert!(self.becomes(first, refused));
        assert_eq!(self.status(second), "200");
        for fault in [
            (StatusCode::OK, ""),
            (StatusCode::OK, "a page of a proxy"),
            (StatusCode::SERVICE_UNAVAILABLE, "the bans are not read yet"),
        ] {
            self.operator.break_with(Some(fault));
            wait(Duration::from_millis(1500));
            assert_eq!(self.status(first), refused, "{fault:?}");
        }
        self.operator.break_with(None);
        // The server refuses this file, and keeps what it has.
        self.operator.publish(&[("not an address", None)]);
        wait(Duration::from_millis(2500));
        assert_eq!(self.status(first), refused);
        // While the server checks a file, that one is in its place.
        let put_back = (0..TRIES).any(|_| {
            let file = std::fs::read_to_string(self.directory.join("banned"));
            let found = file.is_ok_and(|text| text.contains(first));
            if !found {
                wait(Duration::from_millis(20));
            }
            found
        });
        assert!(put_back, "the file that the server refuses is not kept");
        self.operator.publish(&[("10.77.0.0/31", None)]);
        assert!(self.becomes(first, "200"));
        self.operator.publish(&[("10.77.0.2/31", None)]);
        assert!(self.becomes(first, refused));
        self.operator.publish(&[]);
        assert!(self.becomes(first, "200"), "an empty list lifts all");
        self.operator.stop();
        wait(Duration::from_millis(500));
        assert_eq!(self.status(first), "200");
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SIGTERM, so that their workers end with them.
        for process in self.processes.iter_mut().rev() {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn nginx_refuses_what_is_on_the_list() {
    let text = "daemon off; pid DIRECTORY/pid; error_log DIRECTORY/log; user root; events {}\n\
        http { access_log off; client_body_temp_path DIRECTORY/1; proxy_temp_path DIRECTORY/2;\n\
        fastcgi_temp_path DIRECTORY/3; uwsgi_temp_path DIRECTORY/4; scgi_temp_path DIRECTORY/5;\n\
        server { listen 10.77.0.1:8080; include DIRECTORY/banned; root DIRECTORY; } }\n";
    let flags = ["-e", "DIRECTORY/log", "-c", "DIRECTORY/server.conf"];
    let Some(mut edge) = Edge::start("nginx", text, &flags, "?format=nginx&wait=30") else {
        return;
    };
    let nginx = "nginx -e DIRECTORY/log -c DIRECTORY/server.conf";
    edge.refresh(&format!("{nginx} -t -q && {nginx} -s reload"));
    edge.follows_the_list("403");
}

#[test]
fn haproxy_refuses_what_is_on_the_list() {
    let text = "global\n  maxconn 100\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
        frontend web\n  bind 10.77.0.1:8080\n  tcp-request connection reject if { src -f DIRECTORY/banned }\n\
        \x20 http-request return status 200 content-type text/plain string welcome\n";
    let flags = ["-W", "-db", "-f", "DIRECTORY/server.conf"];
    let Some(mut edge) = Edge::start("haproxy", text, &flags, "?wait=30") else {
        return;
    };
    let id = edge.processes[0].id();
    edge.refresh(&format!(
        "haproxy -c -q -f DIRECTORY/server.conf && kill -USR2 {id}"
    ));
    edge.follows_the_list("000");
}
