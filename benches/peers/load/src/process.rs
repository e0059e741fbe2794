//! The process of the server: its certificate, its port, and what the kernel records of it.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peer_measure::Stop;
use peer_measure::usage::Cpu;

use crate::client::Client;
use crate::wrong;

/// Ticks of processor time in a second, which Linux fixes for all programs (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The longest time that a server needs to accept connections.
const START: Duration = Duration::from_secs(20);

/// The server's process, ended on drop.
pub(crate) struct Server {
    process: Child,
    directory: PathBuf,
    pub(crate) address: SocketAddr,
    /// The certificate, which clients trust.
    pub(crate) certificate: Vec<u8>,
}

// === impl Server ===

impl Server {
    /// Starts `program` with a certificate of its own, on a port that is free.
    pub(crate) fn start(program: &str, peer: &str) -> Result<Self, Stop> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(wrong)?;
        let directory = std::env::temp_dir().join(format!("peer-load-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(wrong)?;
        let write = |name: &str, text: String| fs::write(directory.join(name), text);
        write("tls.crt", made.cert.pem()).map_err(wrong)?;
        write("tls.key", made.signing_key.serialize_pem()).map_err(wrong)?;
        // controller-runtime does not print its port, so it is chosen here.
        let free = TcpListener::bind("127.0.0.1:0").map_err(wrong)?;
        let address = free.local_addr().map_err(wrong)?;
        drop(free);
        let process = Command::new(program)
            .arg("webhooks")
            .arg(format!("-peer={peer}"))
            .arg(format!("-port={}", address.port()))
            .arg(format!("-certificates={}", directory.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Stop::wrong(format!("-program={program}: {error}")))?;
        Ok(Self {
            process,
            directory,
            address,
            certificate: made.cert.der().to_vec(),
        })
    }

    /// Waits until the server accepts connections.
    pub(crate) async fn wait(&mut self, client: &Client) -> Result<(), Stop> {
        let until = Instant::now() + START;
        loop {
            if let Some(status) = self.process.try_wait().map_err(wrong)? {
                return Err(Stop::wrong(format!("the server ended: {status}")));
            }
            match client.connect().await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > until => return Err(wrong(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Processor time of the server up to now.
    pub(crate) fn cpu(&self) -> Result<Cpu, Stop> {
        let text = self.read("stat")?;
        let ticks = ticks(&text).ok_or_else(|| Stop::wrong(format!("/proc/…/stat: {text}")))?;
        Ok(Cpu {
            all: (ticks.0 + ticks.1) / TICKS,
            system: ticks.1 / TICKS,
            faults: 0.0,
        })
    }

    /// The most memory that was resident since the start, in MB (10⁶ bytes).
    pub(crate) fn peak(&self) -> Result<f64, Stop> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        let kibibytes = kibibytes.ok_or_else(|| Stop::wrong("no VmHWM in /proc/…/status"))?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    fn read(&self, file: &str) -> Result<String, Stop> {
        let path = format!("/proc/{}/{file}", self.process.id());
        fs::read_to_string(&path).map_err(|error| Stop::wrong(format!("{path}: {error}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// User and system time in `/proc/PID/stat`, whose second field may have spaces and parentheses.
fn ticks(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_have_spaces() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 2411 0 0 0 123 45 0 0 20 0 3 0 100 0 0";
        assert_eq!(ticks(stat), Some((123.0, 45.0)));
    }
}
