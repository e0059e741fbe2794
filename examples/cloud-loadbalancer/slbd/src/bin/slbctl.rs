//! The admin port of slbd from a shell: see `slbctl --help`.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use reqwest::{Client, Method};
use serde_json::Value;
use slbd::ctl::{self, Shorthand};

/// The time of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Shows load balancers and calls of slbd, and makes calls fail.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The admin port.
    #[arg(
        long,
        value_name = "URL",
        env = "SLBD_ADMIN",
        default_value = "http://127.0.0.1:7002"
    )]
    admin: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load balancers.
    #[command(subcommand)]
    Lb(Balancers),
    /// The calls of clients, oldest first: number, action and outcome.
    Calls {
        /// Only calls with a larger number.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
        /// Leave out calls that only read.
        #[arg(long)]
        changes: bool,
        /// Print the number of the last call, and nothing else.
        #[arg(long, conflicts_with_all = ["after", "changes"])]
        last: bool,
    },
    /// Faults that wait for calls.
    #[command(subcommand)]
    Fault(Faults),
}

#[derive(Debug, Subcommand)]
enum Balancers {
    /// A line for each load balancer.
    List,
    /// One load balancer with its server groups, as JSON.
    Get {
        /// The id.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
enum Faults {
    /// Add a fault: ACTION=STATUS, as SetLoadBalancerName=500x3 for three calls; ACTION=lose-answer, and other names of
    /// faults; ACTION=delay:MILLIS. The action * is any.
    Set {
        /// The fault.
        fault: Shorthand,
    },
    /// The faults, as JSON.
    List,
    /// Remove all faults.
    Clear,
}

/// The admin port.
struct Admin {
    http: Client,
    url: String,
}

// === impl Admin ===

impl Admin {
    /// The body of the answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, Box<dyn Error>> {
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let mut request = self.http.request(method, &url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(format!("{url} answers {status}: {}", text.trim()).into())
        }
    }

    async fn get(&self, path: &str) -> Result<Value, Box<dyn Error>> {
        let text = self.send(Method::GET, path, None).await?;
        Ok(serde_json::from_str(&text)?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let printed = async {
        let text = run(Arguments::parse()).await?;
        std::io::stdout().write_all(text.as_bytes())?;
        Ok::<_, Box<dyn Error>>(())
    };
    match printed.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slbctl: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command prints.
async fn run(arguments: Arguments) -> Result<String, Box<dyn Error>> {
    // reqwest has no provider of cryptography of its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let admin = Admin {
        http: Client::builder().timeout(TIMEOUT).build()?,
        url: arguments.admin,
    };
    let pretty = |value: &Value| serde_json::to_string_pretty(value).map(|text| text + "\n");
    Ok(match arguments.command {
        Command::Lb(Balancers::List) => ctl::balancers(&admin.get("/state").await?),
        Command::Lb(Balancers::Get { id }) => {
            let found = ctl::balancer(&admin.get("/state").await?, &id);
            pretty(&found.ok_or_else(|| format!("there is no load balancer {id}"))?)?
        }
        Command::Calls {
            after,
            changes,
            last,
        } => {
            if last {
                let newest = admin.get("/calls?limit=1").await?;
                format!("{}\n", ctl::last(&newest))
            } else {
                // All that slbd remembers.
                let path = format!("/calls?after={after}&limit=10000");
                ctl::calls(&admin.get(&path).await?, after, changes)
            }
        }
        Command::Fault(Faults::Set { fault }) => {
            let rule = serde_json::to_value(&fault.0)?;
            admin.send(Method::POST, "/faults", Some(&rule)).await?
        }
        Command::Fault(Faults::List) => pretty(&admin.get("/faults").await?)?,
        Command::Fault(Faults::Clear) => admin.send(Method::DELETE, "/faults", None).await?,
    })
}
