//! The cloud as a process: see `slbd --help`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ipnet::Ipv4Net;
use jiff::SignedDuration;
use reeve_clock::Clock;
use reeve_serve::certificates::Certificates;
use slbd::cloud::Rules;
use slbd::dataplane::{HaProxy, udp::Udp};
use slbd::files::Shares;
use slbd::server::{Ports, Server, Settings, World};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The time that the data plane has to end.
const STOP: Duration = Duration::from_secs(5);

/// A load balancer cloud: the API of a vendor, its rules and its faults, and HAProxy for the bytes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The address of the API.
    #[arg(long, default_value = "127.0.0.1:7001")]
    listen: SocketAddr,
    /// The address of the admin port, which has no access control.
    #[arg(long, default_value = "127.0.0.1:7002")]
    admin: SocketAddr,
    /// The certificate of the API with its chain, a PEM file. The API is HTTPS then. The file is read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The file of the state. In memory only if absent.
    #[arg(long)]
    state: Option<PathBuf>,
    /// An access key and its secret, as ID=SECRET. May be repeated.
    #[arg(long = "key", value_name = "ID=SECRET", env = "SLBD_KEYS", value_delimiter = ',', required = true, value_parser = pair::<String>, hide_env_values = true)]
    keys: Vec<(String, String)>,
    /// An instance and its address, as ID=ADDRESS. May be repeated.
    #[arg(long = "instance", value_name = "ID=ADDRESS", value_parser = pair::<Ipv4Addr>)]
    instances: Vec<(String, Ipv4Addr)>,
    /// The addresses of load balancers.
    #[arg(long, default_value = "127.66.0.0/16")]
    addresses: Ipv4Net,
    /// The milliseconds until a new load balancer accepts edits.
    #[arg(long, default_value_t = 200)]
    provision: u32,
    /// The milliseconds that a listener or a server group is busy after each edit.
    #[arg(long, default_value_t = 0)]
    settle: u32,
    /// The milliseconds until lists and searches see a creation or a tag.
    #[arg(long, default_value_t = 500)]
    lag: u32,
    /// The calls a second that are granted. All if absent.
    #[arg(long)]
    calls_per_second: Option<u32>,
    /// Refuse a second load balancer of the same name.
    #[arg(long)]
    unique_names: bool,
    /// The executable of HAProxy, such as /usr/sbin/haproxy. No data plane if absent.
    #[arg(long, requires = "folder")]
    haproxy: Option<PathBuf>,
    /// The folder of HAProxy's files.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// `NAME=VALUE`.
fn pair<T: std::str::FromStr>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.split_once('=').ok_or("it has no =")?;
    let value = value.parse().map_err(|_| "the value is not valid")?;
    Ok((name.to_owned(), value))
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slbd: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    // Before anything is served: a signal that comes early would end the process without its data plane.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let millis = |millis: u32| SignedDuration::from_millis(i64::from(millis));
    let settings = Settings {
        rules: Rules {
            addresses: arguments.addresses,
            provision: millis(arguments.provision),
            settle: millis(arguments.settle),
            lag: millis(arguments.lag),
            calls_per_second: arguments.calls_per_second,
            unique_names: arguments.unique_names,
            ..Rules::default()
        },
        keys: arguments.keys.into_iter().collect(),
        file: arguments.state,
        clock: Clock::system(),
    };
    let mut ports = Ports::new(arguments.listen, arguments.admin);
    if let Some((chain, key)) = arguments.tls_cert.zip(arguments.tls_key) {
        ports = ports.certificates(Certificates::from_files(chain, key).await?);
    }
    let server = Server::start_on(ports, settings)?;
    let instances: BTreeMap<String, Ipv4Addr> = arguments.instances.into_iter().collect();
    server.world().set_instances(&instances)?;
    let stop = CancellationToken::new();
    let haproxy = arguments.haproxy.zip(arguments.folder);
    let haproxy = match haproxy {
        // HAProxy changes its folder, and reads all files by their names.
        Some((program, folder)) => Some(HaProxy::new(program, std::path::absolute(folder)?)),
        None => None,
    };
    let mut dataplane = haproxy.map(|haproxy| dataplane(server.world(), haproxy, &stop));
    let mut out = std::io::stdout();
    writeln!(out, "api {} admin {}", server.api(), server.admin())?;
    out.flush()?;
    let failed = async {
        match &mut dataplane {
            Some(task) => task.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // It ends before the signal only if it failed.
        ended = failed => return Ok(ended??),
    }
    stop.cancel();
    server.stop().await;
    if let Some(dataplane) = dataplane {
        let ended = timeout(STOP, dataplane).await;
        ended.map_err(|_| "the data plane did not end")???;
    }
    Ok(())
}

/// Starts the data plane, and shows it at the admin port.
fn dataplane(
    world: &World,
    haproxy: HaProxy,
    stop: &CancellationToken,
) -> JoinHandle<std::io::Result<()>> {
    let udp = Udp::new(Shares::of_process().udp);
    world.show_dataplane(haproxy.progress(), udp.clone());
    let (states, stop) = (world.states(), stop.child_token());
    tokio::spawn(async move {
        let bytes = async {
            let ended = haproxy.run(states.clone(), stop.clone()).await;
            // A failure ends both.
            stop.cancel();
            ended
        };
        tokio::join!(bytes, udp.run(states.clone(), stop.clone())).0
    })
}
