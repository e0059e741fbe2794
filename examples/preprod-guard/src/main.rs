//! The program: see `preprod-guard --help`.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use jiff::SignedDuration;
use preprod_guard::commands::{self, Access, Credentials, Filter, Names, Removal, Scope, Tail};
use preprod_guard::config::Config;
use preprod_guard::install::{self, Place};
use preprod_guard::program::{self, BoxError, Settings};
use reeve_client::Client;
use reeve_client::connect;
use reeve_client::connect::location::Location;
use reeve_clock::Clock;
use reeve_controller::Manager;
use reeve_controller::options::{Options, Program};

const PROGRAM: Program = Program::new("preprod-guard", env!("CARGO_PKG_VERSION"));

/// The time between two reads of a followed file.
const BETWEEN_READS: Duration = Duration::from_millis(250);

/// Keeps pre-release callers from changing production objects.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the webhooks.
    Run(Box<Run>),
    /// Print the webhook configurations for `kubectl apply -f -`.
    Install(Install),
    /// Delete the webhook configurations.
    Uninstall(Uninstall),
    /// Make certificates in files.
    Certs(Certs),
    /// Write the kubeconfig of a pre-release caller.
    Kubeconfig(Kubeconfig),
    /// Decide about an AdmissionReview in a file, without a cluster. The exit status of a denial is 3.
    Check(Check),
    /// Check an installed guard, and the rights of its callers. The exit status of a problem is 1.
    Doctor(Doctor),
    /// Read the audit log.
    Audit(Audit),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    options: Options,
    /// The directory of tls.crt and tls.key; unset, the guard makes certificates and keeps them in a Secret.
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// A further name or address in the certificate that the guard makes, for an installation by URL.
    #[arg(long = "tls-name", value_name = "NAME")]
    tls_names: Vec<String>,
    /// The authorities of the API server's client certificate, if it has one for webhooks; unset, the webhooks answer every
    /// client that reaches their port.
    #[arg(long, value_name = "FILE")]
    webhook_client_ca_file: Option<PathBuf>,
    /// The file of the audit log, opened again after SIGHUP; unset, the standard output.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Hours to add to the time of the age rule, for demonstrations.
    #[arg(long, default_value_t = 0, value_name = "HOURS", hide = true)]
    later: u32,
    /// Seconds between two looks at the certificates.
    #[arg(long, value_name = "SECONDS", hide = true)]
    certificates_every: Option<u64>,
    /// Seconds that the webhooks go on after the start of a stop.
    #[arg(long, default_value_t = 15, value_name = "SECONDS")]
    linger: u64,
}

#[derive(Debug, clap::Args)]
struct Install {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The URL of the webhook server; unset, its Service.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The authorities of its certificate; unset, the guard writes them by itself.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Read the version of the API server first, and print nothing for one that has no conditions of webhooks (before 1.28).
    #[arg(long)]
    check_server: bool,
    #[command(flatten)]
    location: Location,
}

#[derive(Debug, clap::Args)]
struct Uninstall {
    #[command(flatten)]
    location: Location,
    /// The configuration of the guard.
    #[arg(long, value_name = "FILE", required_unless_present = "emergency")]
    config: Option<PathBuf>,
    /// Delete the webhook configurations of all guards, by their label or by the names and paths of their webhooks.
    #[arg(long, conflicts_with = "config")]
    emergency: bool,
}

#[derive(Debug, clap::Args)]
struct Certs {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(Debug, Subcommand)]
enum CertsCommand {
    /// Write ca.crt, ca.key, tls.crt and tls.key. The key of an authority that is there stays, and its certificate, if it is
    /// valid for another year.
    Init {
        /// The directory.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// A DNS name of the webhook server.
        #[arg(long, value_name = "NAME")]
        dns: Vec<String>,
        /// An address of the webhook server.
        #[arg(long, value_name = "ADDRESS")]
        ip: Vec<IpAddr>,
    },
}

#[derive(Debug, clap::Args)]
struct Kubeconfig {
    #[command(flatten)]
    location: Location,
    /// The configuration of the guard: the user, the group or the account must be one of its pre-release callers.
    #[arg(long, value_name = "FILE", required_unless_present = "unchecked")]
    config: Option<PathBuf>,
    /// Write a kubeconfig of any caller, which may be one of production.
    #[arg(long, conflicts_with = "config")]
    unchecked: bool,
    /// The user; with --service-account its name in the file.
    #[arg(long)]
    user: String,
    /// The group of the user in its client certificate.
    #[arg(long)]
    group: Option<String>,
    /// The namespace of the context, and of the ServiceAccount.
    #[arg(long)]
    namespace: String,
    /// The directory of ca.crt and ca.key, which the API server trusts for client certificates; unset, the signer of the
    /// cluster issues the certificate.
    #[arg(long, value_name = "DIR")]
    authority: Option<PathBuf>,
    /// Use a token of this ServiceAccount instead of a certificate.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["authority", "group"])]
    service_account: Option<String>,
    /// Seconds that the token, or the certificate of the cluster's signer, is valid.
    #[arg(long, default_value_t = 8 * 3600, value_name = "SECONDS", conflicts_with = "authority")]
    valid: u64,
    /// The file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Objects of the cluster, as `kubectl get -o json` prints them; unset, the Namespace of the request has no label, and
    /// there are no other objects.
    #[arg(long, value_name = "FILE")]
    objects: Option<PathBuf>,
    /// The AdmissionReview in JSON.
    review: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Doctor {
    #[command(flatten)]
    location: Location,
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The URL of the webhook server, if it was installed with one; unset, its Service.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Show new lines as they are written, for people. A file that is replaced is followed.
    Tail {
        /// The file of `run --audit-log`.
        file: PathBuf,
        /// Only lines of this caller.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// Only lines of this verdict.
        #[arg(long, value_parser = ["allow", "deny"])]
        verdict: Option<String>,
        /// Begin with the lines that are in the file.
        #[arg(long)]
        all: bool,
        /// End after the lines that are in the file, and begin with them.
        #[arg(long)]
        no_follow: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match perform(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "preprod-guard: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn perform(command: Command) -> Result<ExitCode, BoxError> {
    match command {
        Command::Run(arguments) => run(*arguments).await?,
        Command::Install(arguments) => {
            let config = configuration(&arguments.config)?;
            if arguments.check_server {
                let client = client(&arguments.location).await?;
                let version = commands::version(&client).await?;
                if !version.good {
                    return Err(version.text.into());
                }
            }
            let place = arguments.url.map_or(Place::Service, Place::Url);
            let authorities = arguments.ca.map(read).transpose()?.unwrap_or_default();
            for one in install::configurations(&config, &place, authorities.as_bytes()) {
                print(&format!("---\n{}", serde_saphyr::to_string(&one)?))?;
            }
        }
        Command::Uninstall(arguments) => {
            let config = arguments.config.as_deref().map(configuration).transpose()?;
            let scope = config.as_ref().map_or(Scope::Emergency, Scope::Of);
            let client = client(&arguments.location).await?;
            return removed(commands::uninstall(&client, scope).await?);
        }
        Command::Certs(Certs { command }) => {
            let CertsCommand::Init { dir, dns, ip } = command;
            let names = Names { dns, ips: ip };
            commands::authority_and_leaf(&dir, &names, &Clock::system())?;
        }
        Command::Kubeconfig(arguments) => kubeconfig(arguments).await?,
        Command::Check(arguments) => {
            let config = configuration(&arguments.config)?;
            let objects = arguments.objects.map(read).transpose()?;
            let review = read(arguments.review)?;
            let (allowed, answer) = commands::check(config, &review, objects.as_deref()).await?;
            print(&format!("{answer}\n"))?;
            return Ok(ExitCode::from(if allowed { 0 } else { 3 }));
        }
        Command::Doctor(arguments) => {
            let config = configuration(&arguments.config)?;
            let client = client(&arguments.location).await?;
            let place = arguments.url.map_or(Place::Service, Place::Url);
            let findings = commands::doctor(&client, &config, &place, &Clock::system()).await;
            for finding in &findings {
                let word = if finding.good { "good" } else { "PROBLEM" };
                print(&format!("{word}: {}\n", finding.text))?;
            }
            if findings.iter().any(|finding| !finding.good) {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Audit(Audit { command }) => tail(command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the result of each deletion. The exit status is that of a failure if one failed, or none was there.
fn removed(removals: Vec<Removal>) -> Result<ExitCode, BoxError> {
    let mut code = ExitCode::SUCCESS;
    let mut deleted = 0;
    for Removal { name, deleted: one } in removals {
        match one {
            Ok(true) => {
                deleted += 1;
                print(&format!("deleted {name}\n"))?;
            }
            Ok(false) => print(&format!("{name} does not exist\n"))?,
            Err(error) => {
                code = ExitCode::FAILURE;
                print(&format!("could not delete {name}: {error}\n"))?;
            }
        }
    }
    if deleted == 0 {
        print(
            "deleted nothing: `kubectl get validatingwebhookconfigurations` lists what is there\n",
        )?;
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

async fn run(arguments: Run) -> Result<(), BoxError> {
    let options = arguments.options;
    options.log.start();
    let settings = Settings {
        tls: arguments.tls,
        names: arguments.tls_names,
        client_authorities: arguments.webhook_client_ca_file,
        audit: arguments.audit_log,
        later: SignedDuration::from_hours(i64::from(arguments.later)),
        linger: Duration::from_secs(arguments.linger),
        certificates_every: arguments.certificates_every.map(Duration::from_secs),
        ..Settings::new(configuration(&arguments.config)?)
    };
    let client = client(&options.location).await?;
    let builder = Manager::from_options(&options, PROGRAM).await?;
    let manager = program::build(builder, options.webhook.server(), client, settings).await?;
    if let Some(address) = manager.webhook_address() {
        tracing::info!(%address, "serving webhooks");
    }
    Ok(manager.run_until_signal().await?)
}

async fn tail(command: AuditCommand) -> Result<(), BoxError> {
    let AuditCommand::Tail {
        file,
        user,
        verdict,
        all,
        no_follow,
    } = command;
    if no_follow && !file.exists() {
        return Err(format!("cannot read {}: it does not exist", file.display()).into());
    }
    let filter = Filter { user, verdict };
    let mut tail = Tail::new(file);
    if !all && !no_follow {
        tail.skip()?;
    }
    loop {
        for line in tail.lines()? {
            if let Some(line) = filter.readable(&line) {
                print(&format!("{line}\n"))?;
            }
        }
        if no_follow {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_READS).await;
    }
}

async fn kubeconfig(arguments: Kubeconfig) -> Result<(), BoxError> {
    let config = arguments.location.load().await?;
    let access: Access = commands::access_of(&config);
    let (user, group) = (&arguments.user, arguments.group.as_deref());
    if let Some(config) = &arguments.config {
        let account = arguments.service_account.as_deref();
        let account = account.map(|name| (arguments.namespace.as_str(), name));
        commands::verify(&configuration(config)?, user, group, account)?;
    }
    let certificate = |(certificate, key)| Credentials::Certificate { certificate, key };
    let credentials = if let Some(directory) = &arguments.authority {
        certificate(commands::client(directory, user, group, &Clock::system())?)
    } else {
        let client = client(&arguments.location).await?;
        match &arguments.service_account {
            Some(account) => {
                let namespace = &arguments.namespace;
                let token = commands::token(&client, namespace, account, arguments.valid);
                Credentials::Token(token.await?)
            }
            None => certificate(commands::signed(&client, user, group, arguments.valid).await?),
        }
    };
    let text = commands::kubeconfig(&access, &arguments.user, &arguments.namespace, &credentials)?;
    commands::write_key(&arguments.out, &text)?;
    let file = arguments.out.display();
    print(&format!(
        "Congratulations! The kubeconfig file is generated at {file}\n"
    ))
}

/// A client with the rights of the kubeconfig or of the Pod.
async fn client(location: &Location) -> Result<Client, BoxError> {
    let options = connect::Options::new().user_agent(PROGRAM.user_agent());
    Ok(Client::new(connect::locate(location, &options).await?))
}

fn configuration(path: impl AsRef<Path>) -> Result<Config, BoxError> {
    Ok(Config::parse(&read(path)?)?)
}

fn read(path: impl AsRef<Path>) -> Result<String, BoxError> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path);
    Ok(text.map_err(|error| format!("cannot read {}: {error}", path.display()))?)
}

fn print(text: &str) -> Result<(), BoxError> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_of_the_deployment_exist() {
        Arguments::command().debug_assert();
        let manifest = include_str!("../manifests/guard.yaml");
        let flags = manifest.lines().filter_map(|line| {
            let flag = line.trim().strip_prefix("- ")?;
            flag.starts_with("--").then_some(flag)
        });
        let all = ["preprod-guard", "run"].into_iter().chain(flags);
        let Command::Run(run) = Arguments::try_parse_from(all).unwrap().command else {
            panic!("another command")
        };
        assert!(run.tls.is_none() && !run.options.leader_elect);
        assert_eq!(run.options.webhook.port, 9443);
        assert_eq!(run.linger, 15);
    }
}
