//! The program: see `ccm --help`.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use cloud_loadbalancer::backends::Readiness;
use cloud_loadbalancer::commands::{self, Objects};
use cloud_loadbalancer::dev::{BoxError, Dev};
use cloud_loadbalancer::identity::ClusterId;
use cloud_loadbalancer::provider::Provider;
use cloud_loadbalancer::provider::elbv2;
use cloud_loadbalancer::provider::memory::Cloud;
use cloud_loadbalancer::provider::slb::{self, Slb};
use cloud_loadbalancer::{NAME, Settings};
use reeve_clock::Clock;
use reeve_controller::client::Client;
use reeve_controller::client::connect;
use reeve_controller::client::connect::location::Location;
use reeve_controller::options::{Options, Program};
use reeve_controller::{CancellationToken, Manager};

/// Gives Services of type LoadBalancer a load balancer of a cloud.
#[derive(Debug, Parser)]
#[command(name = "ccm", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller.
    Run(Box<Run>),
    /// Print the calls that the controller would make for a Service.
    Plan(Box<Plan>),
    /// Print the annotations of Services that this controller reads.
    Annotations,
    /// Run an API server, three nodes, a cloud in memory and the controller, and show the calls of the cloud.
    Dev(DevArguments),
}

/// The cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProviderName {
    /// A cloud in memory, which is gone at the end of the process: for trying out.
    Memory,
    /// Alibaba's RPC API for classic load balancers, which slbd has too.
    Slb,
    /// Network load balancers by the Query API of Elastic Load Balancing.
    Elbv2,
}

/// The options of `--provider=slb`.
#[derive(Debug, clap::Args)]
struct SlbArguments {
    /// The address of the API.
    #[arg(long, value_name = "URL", default_value = "https://slb.aliyuncs.com")]
    slb_endpoint: String,
    /// The region.
    #[arg(long, value_name = "REGION", default_value = "cn-hangzhou")]
    slb_region: String,
    /// The file with the access key: ID=SECRET.
    #[arg(long, value_name = "FILE", required_if_eq("provider", "slb"))]
    slb_key_file: Option<PathBuf>,
    /// The authorities of the API's certificate, a PEM file. Those of the system by default.
    #[arg(long, value_name = "FILE")]
    slb_ca_file: Option<PathBuf>,
    /// The seconds until a search shows a load balancer whose creation was not answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    slb_visible_within: u64,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The id of the cluster, unique in the account of the cloud: 1 to 27 of a-z, 0-9 and -. Never change it.
    #[arg(long, value_name = "ID")]
    cluster_id: ClusterId,
    /// The cloud.
    #[arg(long, value_enum, default_value = "memory", value_name = "NAME")]
    provider: ProviderName,
    #[command(flatten)]
    slb: SlbArguments,
    #[command(flatten)]
    elbv2: elbv2::Options,
    /// Leave Services without spec.loadBalancerClass to others: only those with the class reeve.dev/lb are served.
    #[arg(long)]
    no_default_class: bool,
    /// Whether nodes that are not ready get traffic. By default the health checks of the cloud decide.
    #[arg(long, value_enum, default_value = "ignore", value_name = "RULE")]
    node_readiness: Readiness,
}

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
    /// Seconds between two full comparisons of a load balancer whose Service does not change.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..))]
    drift_period: u64,
    /// Seconds between two searches for load balancers without a Service.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..))]
    orphan_period: u64,
    /// Delete load balancers without a Service.
    #[arg(long)]
    gc_orphans: bool,
    /// Report the plan of each Service as an Event and in the log, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// The number of Services that are reconciled at once.
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// The largest number of requests to the cloud in a second.
    #[arg(long, default_value_t = 50, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    calls_per_second: u32,
}

#[derive(Debug, clap::Args)]
struct Plan {
    /// The Service: its name in `default`, or namespace/name.
    service: String,
    /// Read the Service, nodes and EndpointSlices from this YAML file, not from a cluster.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    location: Location,
}

#[derive(Debug, clap::Args)]
struct DevArguments {
    /// The port of the API server; 0 for any.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The file to write the kubeconfig to.
    #[arg(long, default_value = "kubeconfig", value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Show the life of one Service and end.
    #[arg(long)]
    tour: bool,
    /// Run no controller and no cloud: for a controller that `ccm run` starts, since two would serve the same Services.
    #[arg(long, conflicts_with = "tour")]
    no_controller: bool,
}

// === impl SlbArguments ===

impl SlbArguments {
    fn provider(&self) -> Result<Slb, BoxError> {
        let file = self
            .slb_key_file
            .as_ref()
            .ok_or("--slb-key-file is missing")?;
        let (id, secret) = slb::read_key(file)?;
        let (endpoint, region) = (&self.slb_endpoint, &self.slb_region);
        let mut client =
            slbd::client::Client::new(endpoint, &id, &secret, region, Clock::system())?;
        if let Some(file) = &self.slb_ca_file {
            client = client.ca_file(file)?;
        }
        let visible_within = Duration::from_secs(self.slb_visible_within);
        Ok(Slb::new(client, visible_within))
    }
}

// === impl Run ===

impl Run {
    /// Refuses options that contradict each other.
    fn check(&self) -> Result<(), BoxError> {
        if self.common.provider == ProviderName::Memory && self.options.leader_elect {
            let message = "--provider=memory has its load balancers in this process, so another copy cannot take over: \
                           leave out --leader-elect, or choose another provider";
            return Err(message.into());
        }
        Ok(())
    }
}

// === impl Common ===

impl Common {
    fn provider(&self) -> Result<Arc<dyn Provider>, BoxError> {
        match self.provider {
            ProviderName::Memory => Ok(Arc::new(Cloud::default())),
            ProviderName::Slb => Ok(Arc::new(self.slb.provider()?)),
            ProviderName::Elbv2 => {
                let variable = |name: &str| std::env::var(name).ok();
                Ok(Arc::new(self.elbv2.provider(variable, Clock::system())?))
            }
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            default_class: !self.no_default_class,
            readiness: self.node_readiness,
            ..Settings::new(self.cluster_id.clone())
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run(*arguments).await,
        Command::Plan(arguments) => plan(*arguments).await,
        Command::Annotations => print(&commands::annotations()),
        Command::Dev(arguments) => dev(arguments).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ccm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> Result<(), BoxError> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

async fn run(arguments: Run) -> Result<(), BoxError> {
    arguments.options.log.start();
    arguments.check()?;
    let settings = Settings {
        drift_period: Duration::from_secs(arguments.drift_period),
        orphan_period: Duration::from_secs(arguments.orphan_period),
        gc_orphans: arguments.gc_orphans,
        dry_run: arguments.dry_run,
        workers: usize::from(arguments.workers),
        calls_per_second: arguments.calls_per_second,
        ..arguments.common.settings()
    };
    if arguments.common.provider == ProviderName::Memory {
        tracing::warn!(
            "the cloud is in memory: its load balancers carry no traffic and end with this process"
        );
    }
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"));
    let builder = Manager::from_options(&arguments.options, program).await?;
    let provider = arguments.common.provider()?;
    let manager = cloud_loadbalancer::build(builder, provider, settings).await?;
    Ok(manager.run_until_signal().await?)
}

async fn plan(arguments: Plan) -> Result<(), BoxError> {
    let key = commands::key(&arguments.service);
    let objects = match &arguments.file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("read {}: {error}", file.display()))?;
            Objects::read(&key, &text)?
        }
        None => {
            let options = connect::Options::new();
            let kube = connect::locate(&arguments.location, &options).await?;
            Objects::fetch(&key, &Client::new(kube)).await?
        }
    };
    let provider = arguments.common.provider()?;
    print(
        &objects
            .plan(&*provider, &arguments.common.settings())
            .await?,
    )
}

async fn dev(arguments: DevArguments) -> Result<(), BoxError> {
    let mut dev = Dev::start(Clock::system(), std::io::stdout()).await?;
    if arguments.tour {
        return dev.run(Dev::tour).await;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let serving = dev.server().serve(address).await?;
    let file = &arguments.kubeconfig;
    std::fs::write(file, serving.kubeconfig())?;
    dev.say(&format!(
        "API server at {}, kubeconfig in {}",
        serving.url(),
        file.display()
    ))?;
    if arguments.no_controller {
        dev.say("No controller runs; Ctrl-C ends.")?;
        tokio::signal::ctrl_c().await?;
        serving.stop().await;
        return Ok(());
    }
    dev.say("Create a Service of type LoadBalancer; Ctrl-C ends.")?;
    let stop = CancellationToken::new();
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
        Ok::<_, BoxError>(())
    };
    let run = dev.run(async |dev| dev.follow(&stop).await);
    tokio::try_join!(run, interrupted).map(drop)?;
    serving.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn authorities_that_cannot_be_read_are_named() {
        let key = std::env::temp_dir().join(format!("ccm-key-{}", std::process::id()));
        std::fs::write(&key, "id=secret").unwrap();
        let flags = |file| {
            let key = key.to_str().unwrap();
            let slb = [
                "--provider",
                "slb",
                "--slb-key-file",
                key,
                "--slb-ca-file",
                file,
            ];
            let all = ["ccm", "plan", "web", "--cluster-id", "a"].into_iter();
            let arguments = Arguments::try_parse_from(all.chain(slb)).unwrap();
            let Command::Plan(plan) = arguments.command else {
                panic!("another command");
            };
            plan.common.provider().map(drop)
        };
        // A key is no certificate.
        for file in ["/none/ca.crt", key.to_str().unwrap()] {
            let error = flags(file).unwrap_err().to_string();
            assert!(error.contains(file), "{error}");
        }
        std::fs::remove_file(&key).unwrap();
    }

    #[test]
    fn a_creation_without_an_answer_needs_time_to_be_found() {
        let arguments = |seconds| {
            let seconds = format!("--slb-visible-within={seconds}");
            Arguments::try_parse_from(["ccm", "run", "--cluster-id=c", &seconds])
        };
        for refused in ["0", "3601", "-1"] {
            assert!(arguments(refused).is_err(), "{refused}");
        }
        assert!(arguments("1").is_ok());
    }

    #[test]
    fn the_flags_of_the_deployment_exist() {
        Arguments::command().debug_assert();
        let deployment = include_str!("../manifests/deploy.yaml");
        let mut lines = deployment.lines().map(str::trim);
        lines.by_ref().find(|line| *line == "args:").unwrap();
        let flags = lines.take_while(|line| *line != "env:");
        let flags = flags.filter_map(|line| line.strip_prefix("- "));
        let arguments = Arguments::try_parse_from(["ccm"].into_iter().chain(flags)).unwrap();
        let Command::Run(run) = arguments.command else {
            panic!("the Deployment runs the controller");
        };
        assert!(run.options.leader_elect && !run.options.metrics.secure);
        assert_eq!(run.common.cluster_id.as_str(), "my-cluster");
        run.check().unwrap();
        // The key is that of the Secret.
        let folder = deployment
            .lines()
            .find_map(|line| line.trim().strip_prefix("mountPath: "));
        let file = run.common.slb.slb_key_file.unwrap();
        assert_eq!(file.parent(), folder.map(std::path::Path::new));
    }

    #[test]
    fn a_cloud_in_memory_has_one_process() {
        for (more, allowed) in [
            (&["--leader-elect"][..], false),
            (&[], true),
            (
                &["--leader-elect", "--provider=slb", "--slb-key-file=key"],
                true,
            ),
        ] {
            let first = ["ccm", "run", "--cluster-id=c"];
            let arguments = Arguments::try_parse_from(first.iter().chain(more)).unwrap();
            let Command::Run(run) = arguments.command else {
                panic!("run");
            };
            assert_eq!(run.check().is_ok(), allowed, "{more:?}");
        }
    }

    #[test]
    fn the_commands_of_the_readme_are_valid() {
        let readme = include_str!("../README.md");
        let shell = readme.split("```sh\n").skip(1);
        let shell = shell.filter_map(|block| block.split_once("```"));
        let text: String = shell.map(|(block, _)| block).collect();
        let text = text.replace("\\\n", " ");
        let mut found = Vec::new();
        for line in text.lines() {
            let line = line.trim_end_matches(" &");
            let cargo = line.strip_prefix("cargo run -p cloud-loadbalancer -- ");
            let Some(arguments) = cargo.or_else(|| line.strip_prefix("ccm ")) else {
                continue;
            };
            let words = arguments.split_whitespace();
            let parsed = Arguments::try_parse_from(std::iter::once("ccm").chain(words));
            let parsed = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
            if let Command::Run(run) = parsed.command {
                run.check().unwrap();
                found.push("run");
            } else {
                found.push("another");
            }
        }
        assert!(found.len() >= 4 && found.contains(&"run"), "{found:?}");
    }
}
