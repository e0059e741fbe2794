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
    pub(crate) admin: SocketAddr,
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
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_slbd")), arguments)
    }

    /// As [`Cloud::start`], with at most `files` open files.
    pub(crate) fn start_with_files(files: u32, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_slbd")]);
        Self::spawn(shell, arguments)
    }

    fn spawn(mut program: Command, arguments: &[&str]) -> Self {
        let mut child = program
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--key", "id=secret", "--lag", "0", "--provision", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = |place| line.trim().split(' ').nth(place)?.parse().ok();
        let (api, admin) = (address(1), address(3));
        Self {
            child,
            api: api.expect("the address of the API"),
            admin: admin.expect("the address of the admin port"),
        }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        self.client_by("http")
    }

    /// A client of it that uses `scheme`.
    pub(crate) fn client_by(&self, scheme: &str) -> Client {
        let endpoint = format!("{scheme}://{}", self.api);
        Client::new(&endpoint, "id", "secret", "cn-loopback", Clock::system()).unwrap()
    }
}
