//! The command: it starts the parts, waits for a signal, and ends them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reeve_clock::Clock;
use tokio_util::sync::CancellationToken;

use super::cluster::{self, Cluster};
use super::narrator::Narrator;
use super::{demo, tour};

/// How long the operator may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// Runs an API server, a simulated gateway and the operator on this machine: no cluster needed.
///
/// Prints an `export KUBECONFIG=…` line and commands to try, and runs until Ctrl-C.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Walk through a demonstration, check every step, and exit (0 when all of it held).
    #[arg(long)]
    pub demo: bool,

    /// Keep objects, kubeconfig and token in this directory. Without it they are gone at the end.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Port of the API server on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,

    /// The API of the simulated gateway that the operator uses; xdp has IPv6 and time, iptables has a list.
    #[arg(long, value_name = "ENGINE", default_value = "xdp", value_parser = ["xdp", "iptables"])]
    pub engine: String,
}

// === impl Arguments ===

impl Arguments {
    /// The log level unless RUST_LOG is set: the demonstration prints everything itself.
    #[must_use]
    pub fn log_level(&self) -> &'static str {
        if self.demo { "off" } else { "warn" }
    }
}

/// Why the command ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory or a file in it cannot be used.
    #[error("cannot use {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The API server does not start.
    #[error("the API server does not start: {0}")]
    ApiServer(String),
    /// A part cannot listen.
    #[error("{what} cannot listen: {source}")]
    Listen {
        /// Which part.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A request to the API server of this process fails.
    #[error("{what}: {source}")]
    Request {
        /// The request.
        what: String,
        /// The error of the server.
        source: Box<kube_client::Error>,
    },
    /// The operator ended with an error.
    #[error("the operator ended: {0}")]
    Operator(String),
    /// Expectations of the demonstration did not hold.
    #[error("{broken} of {all} expectations of the demonstration did not hold")]
    Demo {
        /// How many.
        broken: usize,
        /// Of how many.
        all: usize,
    },
    /// Nothing can be printed, or signals not be awaited.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until Ctrl-C, SIGTERM or the end of the demonstration.
///
/// # Errors
/// See [`Error`]; for `--demo` also when an expectation did not hold.
pub async fn run(arguments: Arguments) -> Result<(), Error> {
    run_with(arguments, Narrator::new()).await
}

async fn run_with(arguments: Arguments, narrator: Narrator) -> Result<(), Error> {
    let clock = Clock::system();
    let stop = CancellationToken::new();
    let ended = signal();
    tokio::pin!(ended);
    let (cluster, mut operator) = tokio::select! {
        biased;
        // Also this early, so that no directory with a token in it stays behind.
        end = &mut ended => return end,
        started = Cluster::start(&arguments, clock, &stop) => started?,
    };
    let result = if arguments.demo {
        tokio::select! {
            biased;
            end = &mut ended => end,
            ended = cluster::ended(&mut operator) => ended,
            demo = demo::run(&cluster, narrator) => demo,
        }
    } else {
        tour::print(&cluster, arguments.data_dir.is_some())?;
        tokio::select! {
            biased;
            end = &mut ended => end,
            ended = cluster::ended(&mut operator) => ended,
        }
    };
    stop.cancel();
    // A handle that has been awaited to its end must not be awaited again.
    if !operator.is_finished() {
        let _ = tokio::time::timeout(GRACE, operator).await;
    }
    cluster.end().await;
    result
}

async fn signal() -> Result<(), Error> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            biased;
            _ = terminate.recv() => Ok(()),
            interrupt = tokio::signal::ctrl_c() => Ok(interrupt?),
        }
    }
    #[cfg(not(unix))]
    {
        Ok(tokio::signal::ctrl_c().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(engine: &str) -> Arguments {
        Arguments {
            demo: true,
            data_dir: None,
            port: 0,
            engine: engine.to_owned(),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_demonstration_holds_in_less_than_twenty_seconds() {
        let run = run_with(arguments("xdp"), Narrator::silent());
        let ended = tokio::time::timeout(Duration::from_secs(20), run).await;
        ended.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn with_a_data_directory_blocks_are_there_again_and_enforced() {
        let directory = std::env::temp_dir().join(format!("ipblock-{}-kept", std::process::id()));
        let arguments = Arguments {
            demo: false,
            data_dir: Some(directory.clone()),
            ..arguments("xdp")
        };
        let mut places = Vec::new();
        for first in [true, false] {
            let stop = CancellationToken::new();
            let (cluster, operator) = Cluster::start(&arguments, Clock::system(), &stop)
                .await
                .unwrap();
            if first {
                let spec = crate::api::IPBlockSpec {
                    ip: "192.0.2.7".into(),
                    ..Default::default()
                };
                let block = crate::api::IPBlock::new("kept", spec);
                cluster
                    .blocks()
                    .create(&Default::default(), &block)
                    .await
                    .unwrap();
            }
            let enforced = async {
                while cluster.gateway().targets() != ["192.0.2.7"] {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let active = |block: &crate::api::IPBlock| {
                    super::super::watcher::phase_of(block) == "active"
                };
                while !active(&cluster.blocks().get("kept").await.unwrap()) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), enforced)
                .await
                .unwrap();
            let status = cluster.blocks().get("kept").await.unwrap().status.unwrap();
            assert_eq!(status.bans(), 1);
            places.push((cluster.gateway_address(), cluster.kubeconfig()));
            stop.cancel();
            operator.await.unwrap().unwrap();
            cluster.end().await;
        }
        assert_eq!(places[0], places[1], "the same ports and files");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hook_that_is_configured_later_gets_one_card_a_transition() {
        use crate::inbound::{self, Budget, Request};
        use std::sync::{Arc, Mutex};

        let cards: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
        let received = Arc::clone(&cards);
        let handler = move |request: Request| {
            let received = Arc::clone(&received);
            async move {
                let body = Budget::mebibytes(1).read(request.into_body(), 65_536).await;
                let card = serde_json::from_slice(&body.unwrap()).unwrap();
                received.lock().unwrap().push(card);
                let good = serde_json::json!({ "code": 0 });
                inbound::json(http::StatusCode::OK, &good)
            }
        };
        let hook = ([127, 0, 0, 1], 0).into();
        let hook = inbound::serve(hook, inbound::limits(), handler).unwrap();

        let stop = CancellationToken::new();
        let started = Cluster::start(&arguments("iptables"), Clock::system(), &stop).await;
        let (cluster, operator) = started.unwrap();
        let block = |name: &str, ip: &str, duration: &str| {
            let spec = crate::api::IPBlockSpec {
                ip: ip.into(),
                duration: Some(duration.into()),
                reason: Some("<at id=all></at> scan".into()),
                ..Default::default()
            };
            crate::api::IPBlock::new(name, spec)
        };
        let create = async |block| {
            let blocks = cluster.blocks();
            blocks.create(&Default::default(), &block).await.unwrap();
        };
        let phase = async |name| {
            let block = cluster.blocks().get(name).await.unwrap();
            super::super::watcher::phase_of(&block)
        };
        // The first configuration is in force once a block is active: an edit before that is a part of it, and has no Event.
        create(block("before", "192.0.2.6", "1h")).await;
        let active = async {
            while phase("before").await != "active" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), active)
            .await
            .unwrap();
        let maps: kube_client::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube_client::Api::namespaced(cluster.client(), cluster::NAMESPACE);
        let data = serde_json::json!({ "data": {
            "notifyType": "lark",
            "notifyWebhookURL": format!("http://{}/hook/token", hook.local_addr()),
        }});
        let patch = kube_client::api::Patch::Merge(&data);
        maps.patch(crate::config::CONFIG_MAP, &Default::default(), &patch)
            .await
            .unwrap();
        // A block that is banned before the edit is in force has no card.
        let loaded = async {
            let events: kube_client::Api<k8s_openapi::api::events::v1::Event> =
                kube_client::Api::namespaced(cluster.client(), cluster::NAMESPACE);
            let is_it = |event: &k8s_openapi::api::events::v1::Event| {
                event.reason.as_deref() == Some("ConfigLoaded")
            };
            while !events
                .list(&Default::default())
                .await
                .unwrap()
                .iter()
                .any(is_it)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), loaded)
            .await
            .unwrap();
        create(block("carded", "192.0.2.7", "1s")).await;
        let sent = async {
            while cards.lock().unwrap().len() < 2 || phase("carded").await != "expired" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), sent)
            .await
            .unwrap();
        // The operator sends what is queued before it ends: a third card would be here.
        stop.cancel();
        operator.await.unwrap().unwrap();
        let cards = cards.lock().unwrap().clone();
        assert_eq!(cards.len(), 2, "{cards:?}");
        let titles: Vec<&str> = cards
            .iter()
            .filter_map(|card| card["card"]["header"]["title"]["content"].as_str())
            .collect();
        assert_eq!(titles, ["Banned: 192.0.2.7", "Lifted: 192.0.2.7"]);
        assert!(!cards[0].to_string().contains("<at"), "{}", cards[0]);
        cluster.end().await;
    }
}
