//! The programs as processes, which are killed at the end of a test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use reeve_clock::Clock;
use slbd::client::Client;

/// The cloud as a process. SIGKILL ends it when this is dropped.
pub(crate) struct Cloud {
    pub(crate) child: Child,
    pub(crate) api: SocketAddr,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cloud {
    /// Starts slbd with free ports, the key `id=secret` and `arguments`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_slbd"))
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--key", "id=secret", "--lag", "0", "--provision", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let api = line
            .split(' ')
            .nth(1)
            .expect("the addresses")
            .parse()
            .unwrap();
        Self { child, api }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let endpoint = format!("http://{}", self.api);
        Client::new(&endpoint, "id", "secret", "cn-loopback", Clock::system()).unwrap()
    }
}
