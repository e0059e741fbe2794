//! The command line.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use reeve_clock::Clock;
use reeve_serve::metrics::handler;
use reeve_serve::metrics_server::{MetricsServer, Parts};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use url::Url;

use crate::agent::Agent;
use crate::enforcer::{Enforcer, Settings};
use crate::metrics::Metrics;
use crate::nft::{Hook, Nftables};
use crate::plan::BrakeSettings;
use crate::source::{Http, HttpSettings};
use crate::status;

/// Enforces the operator's list of bans on this node: two nftables sets, whose time-outs the kernel keeps.
#[derive(Debug, Parser)]
#[command(name = "ipblock-agent", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the list, until SIGTERM. The table stays then, and the kernel goes on ending bans.
    Run(Box<RunArguments>),
    /// Print what the kernel enforces. Exit status 1: the table is missing or damaged.
    Status {
        #[command(flatten)]
        table: TableArguments,
        /// Print each element too.
        #[arg(long)]
        entries: bool,
    },
    /// Remove the table, and with it all bans of this node.
    Flush {
        #[command(flatten)]
        table: TableArguments,
    },
}

/// The table and its chain.
#[derive(Clone, Debug, clap::Args)]
struct TableArguments {
    /// The table of the family inet that the agent owns. Its other chains are removed when the agent repairs it.
    #[arg(long, default_value = "ipblock", value_name = "NAME", value_parser = table_name)]
    table: String,

    /// Where packets are dropped: prerouting (all devices) or ingress (the devices of --device, Linux 5.10).
    #[arg(long, value_enum, default_value = "prerouting", value_name = "HOOK")]
    hook: HookName,

    /// A device for --hook=ingress. May be repeated.
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,

    /// The priority of the chain: -300 is raw, before connection tracking and NAT.
    #[arg(
        long,
        default_value_t = -300,
        allow_negative_numbers = true,
        value_name = "NUMBER"
    )]
    priority: i32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HookName {
    Prerouting,
    Ingress,
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// The list of the operator's engine `list`: https://HOST:PORT/PATH.
    #[arg(long, env = "IPBLOCK_LIST_URL", value_name = "URL")]
    list_url: Url,

    /// A file with a bearer token for the list. It is read for each request.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// A PEM file with the certificate authorities of the list's server, read again when it changes. Unset: those of the
    /// system.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Send the token over plain HTTP too. On loopback it is sent without this flag.
    #[arg(long)]
    allow_bearer_over_http: bool,

    /// The name of this node in reports to the operator.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,

    /// How long the operator may wait for a change before it answers, at most 60 s.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = time_within(1, 60))]
    wait: Duration,

    /// How often the table is looked at.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = time_within(1, 3600))]
    check_interval: Duration,

    /// How often all elements are compared with the list. After a change of tables by another program they are compared
    /// within 10 s.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = time_within(1, 86_400))]
    resync_interval: Duration,

    /// Entries beyond this number are not enforced; those that end first are left out.
    #[arg(long, default_value_t = 200_000, value_name = "NUMBER")]
    max_entries: usize,

    /// A range that this node never bans: Pods and Services of the cluster, addresses of administrators. May be repeated
    /// or separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "RANGE", value_parser = range)]
    protect: Vec<IpNet>,

    /// The percentage of the elements that one answer may lift. More wait for an answer after --brake-pause that confirms
    /// it. 100: no brake.
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    brake_percent: u8,

    /// Up to this number of elements there is no brake.
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    brake_above: usize,

    /// How long the brake waits.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = time_within(0, 86_400))]
    brake_pause: Duration,

    /// Where /metrics, /healthz and /readyz are served. `[::]` is IPv4, too, and `0.0.0.0` on a node without IPv6.
    #[arg(long, default_value = "[::]:9478", value_name = "ADDRESS:PORT")]
    bind_address: SocketAddr,

    /// Remove the table at SIGTERM, for an uninstallation. A restart then leaves the node without bans for its time.
    #[arg(long)]
    flush_on_exit: bool,

    /// text or json.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// Levels of the log: info, or TARGET=LEVEL, separated by commas.
    #[arg(long, default_value = "info", value_name = "LEVELS")]
    log_level: String,

    #[command(flatten)]
    table: TableArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

// === impl TableArguments ===

impl TableArguments {
    fn hook(&self) -> Result<Hook, String> {
        match (self.hook, self.devices.as_slice()) {
            (HookName::Prerouting, []) => Ok(Hook::Prerouting {
                priority: self.priority,
            }),
            (HookName::Prerouting, _) => Err("--device needs --hook=ingress".into()),
            (HookName::Ingress, []) => Err("--hook=ingress needs --device".into()),
            (HookName::Ingress, devices) => Ok(Hook::Ingress {
                devices: devices.to_vec(),
                priority: self.priority,
            }),
        }
    }

    fn open(&self) -> Result<Nftables, String> {
        Nftables::open(&self.table, self.hook()?).map_err(|error| error.to_string())
    }
}

/// The command line, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line of the process.
#[must_use]
pub fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(code) => code,
        Err(message) => {
            #[allow(
                clippy::print_stderr,
                reason = "the log may not be set up, and the terminal shows the reason"
            )]
            {
                eprintln!("ipblock-agent: {message}");
            }
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Run(arguments) => {
            start_log(&arguments)?;
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .map_err(|error| format!("cannot start the runtime: {error}"))?;
            runtime.block_on(run(*arguments))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status { table, entries } => {
            let mut kernel = table.open()?;
            let (text, intact) =
                status::print(&mut kernel, &table.table, entries).map_err(|error| hint(&error))?;
            print(&text)?;
            Ok(if intact {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Flush { table } => {
            let removed = table.open()?.remove().map_err(|error| hint(&error))?;
            print(if removed {
                "the table is removed; this node bans nothing now\n"
            } else {
                "there is no table\n"
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn run(arguments: RunArguments) -> Result<(), String> {
    let clock = Clock::system();
    let kernel = arguments.table.open()?;
    let source = Http::new(HttpSettings {
        url: arguments.list_url.clone(),
        token_file: arguments.token_file,
        authority_file: arguments.ca_file,
        token_over_http: arguments.allow_bearer_over_http,
        wait: arguments.wait,
        node: arguments.node_name.clone(),
        largest: largest(arguments.max_entries),
    })?;
    let settings = Settings {
        resync: arguments.resync_interval,
        brake: BrakeSettings {
            above: arguments.brake_above,
            percent: arguments.brake_percent,
            pause: arguments.brake_pause,
        },
        most: arguments.max_entries,
        protected: arguments.protect,
    };
    let metrics = Metrics::new();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let enforcer = Enforcer::new(kernel, clock.clone(), settings);
    let agent = Agent::new(
        enforcer,
        source,
        clock.clone(),
        metrics.clone(),
        arguments.check_interval,
    );
    let health = agent.health().handler();
    let scrape = handler(move || metrics.scrape(&registry));
    let address = without_v6(arguments.bind_address);
    let server = MetricsServer::at(address)
        .handler("/healthz", Arc::clone(&health))
        .handler("/readyz", health)
        .bind(Parts::new(scrape, clock))
        .await
        .map_err(|error| format!("cannot serve {address}: {error}"))?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        list = %without_secrets(&arguments.list_url),
        node = arguments.node_name,
        table = arguments.table.table,
        serving = server.local_addr().ok().map(tracing::field::display),
        "starting"
    );
    let signals = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    };
    let (served, (), ()) = tokio::join!(server.run(stop.clone()), agent.run(stop.clone()), signals);
    served.map_err(|error| format!("the server of metrics failed: {error}"))?;
    if arguments.flush_on_exit {
        arguments
            .table
            .open()?
            .remove()
            .map_err(|error| error.to_string())?;
        tracing::info!("stopped; the table is removed, and this node bans nothing now");
    } else {
        tracing::info!(
            "stopped; the table stays, and the kernel ends bans at their time. `ipblock-agent flush` removes it"
        );
    }
    Ok(())
}

/// `0.0.0.0` in place of `[::]` on a node whose kernel has no IPv6.
fn without_v6(address: SocketAddr) -> SocketAddr {
    let any = address.ip() == Ipv6Addr::UNSPECIFIED;
    if any && std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
        return SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    }
    address
}

/// A URL without its user, password and query, for the log.
fn without_secrets(url: &Url) -> String {
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

/// The largest answer, in bytes, so that a list takes a bounded amount of memory: twice as many entries as are enforced, and
/// room for small numbers.
fn largest(max_entries: usize) -> usize {
    max_entries.saturating_mul(160).max(1 << 20)
}

fn start_log(arguments: &RunArguments) -> Result<(), String> {
    let levels = EnvFilter::try_new(&arguments.log_level)
        .map_err(|error| format!("--log-level: {error}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(levels)
        .with_writer(std::io::stderr);
    match arguments.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

fn print(text: &str) -> Result<(), String> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| error.to_string())
}

/// The error, and what is usually missing.
fn hint(error: &crate::netlink::Error) -> String {
    let denied = rustix::io::Errno::PERM.raw_os_error();
    if error.number() == Some(denied) {
        format!("{error}; this needs CAP_NET_ADMIN in the node's network namespace")
    } else {
        error.to_string()
    }
}

fn table_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.is_empty() && text.len() <= 32 && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("1 to 32 letters, digits, _ and -".into())
    }
}

fn range(text: &str) -> Result<IpNet, String> {
    let host = |_| {
        let address: std::net::IpAddr = text.parse().map_err(|_| "not an address or a range")?;
        Ok(address.into())
    };
    text.parse::<IpNet>()
        .map(|range| range.trunc())
        .or_else(host)
}

/// A parser of `30s`, `5m` or `1h` between two numbers of seconds.
fn time_within(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
        let seconds = match &text[digits.len()..] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err("a whole number of s, m or h: 30s, 5m, 1h".into()),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_| "a whole number of s, m or h: 30s, 5m, 1h")?;
        match number.checked_mul(seconds) {
            Some(time) if (least..=most).contains(&time) => Ok(Duration::from_secs(time)),
            _ => Err(format!("it is between {least}s and {most}s")),
        }
    }
}

#[cfg(test)]
mod tests;
