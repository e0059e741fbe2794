//! The API server, the gateway and the operator, started together.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipblock_simulator::Gateway;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use reeve_apiserver::{ApiServer, Serving};
use reeve_clock::Clock;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Arguments, Error};
use crate::api::{BlockList, IPBlock};
use crate::config::{CONFIG_MAP, keys};
use crate::mounted;
use crate::operator::{Operator, Settings};
use crate::page;

/// Where the blocks and the configuration live.
pub(super) const NAMESPACE: &str = "default";

/// The path of the Grafana trigger, the original's.
const TRIGGER_PATH: &str = "/trigger/grafana";

/// An address that is never banned, for trying that out.
pub(super) const ALLOWLISTED: &str = "203.0.113.10";

/// How long to wait for the parts to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The operator at work.
pub(super) type Running = AbortOnDropHandle<Result<(), crate::operator::Error>>;

/// Everything that runs beside the operator.
pub(super) struct Cluster {
    directory: Directory,
    server: ApiServer,
    serving: Serving,
    gateway: Gateway,
    gateway_address: SocketAddr,
    trigger: SocketAddr,
    page: Option<SocketAddr>,
    client: Client,
}

/// The directory for what is kept, removed at the end if it is ours.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    temporary: bool,
}

// === impl Cluster ===

impl Cluster {
    /// Starts all parts, in the order in which they need each other.
    pub(super) async fn start(
        arguments: &Arguments,
        clock: Clock,
        stop: &CancellationToken,
    ) -> Result<(Self, Running), Error> {
        let directory = Directory::open(arguments.data_dir.as_deref(), &clock)?;
        let mut builder = ApiServer::builder().clock(clock.clone());
        if arguments.data_dir.is_some() {
            builder = builder.data_dir(directory.path.join("objects"));
        }
        let server = builder.start().await.map_err(api_server)?;
        // The same ports as last time, if they are free: blocks name their gateway, terminals the server.
        let [last_server, last_gateway, last_trigger] = directory.ports();
        let serving = if arguments.port == 0 {
            match server.serve(loopback(last_server)).await {
                Ok(serving) => serving,
                Err(_) => server.serve(loopback(0)).await.map_err(api_server)?,
            }
        } else {
            let address = loopback(arguments.port);
            server.serve(address).await.map_err(api_server)?
        };
        directory.write("kubeconfig", &serving.kubeconfig())?;

        let gateway = Gateway::new(clock.clone());
        let gateway_address = gateway
            .listen(loopback(last_gateway))
            .or_else(|_| gateway.listen(loopback(0)))
            .map_err(|source| listen("the simulated gateway", source))?;
        let trigger =
            trigger_address(last_trigger).map_err(|source| listen("the trigger", source))?;
        directory.remember([
            serving.local_addr().port(),
            gateway_address.port(),
            trigger.port(),
        ])?;
        let token = directory.token(&clock)?;

        let client = connect(&serving)?;
        install_definitions(&client).await?;
        let configuration = configuration(&arguments.engine, gateway_address, trigger, &token);
        install_configuration(&client, &configuration).await?;

        let settings = Settings {
            allow_loopback: true,
            secrets: mounted::Directory::new(&directory.path),
            page: Some(page::Settings {
                address: loopback(0),
                token_file: None,
                certificates: None,
            }),
            ..Settings::new(clock)
        };
        let operator = Operator::build(client.clone(), settings)
            .await
            .map_err(|error| Error::Operator(error.to_string()))?;
        let page = operator.page_address();
        let stop = stop.child_token();
        let operator = tokio::spawn(async move { operator.run(stop).await });

        let mut operator = AbortOnDropHandle::new(operator);
        ready(trigger, &mut operator).await?;
        let cluster = Self {
            directory,
            server,
            serving,
            gateway,
            gateway_address,
            trigger,
            page,
            client,
        };
        Ok((cluster, operator))
    }

    /// Ends the servers. The operator has ended.
    pub(super) async fn end(self) {
        self.gateway.refuse().await;
        drop(self.serving);
        if let Err(error) = self.server.shutdown().await {
            tracing::error!(%error, "the API server's data may be incomplete");
        }
        self.directory.end();
    }

    /// A client of the API server, over HTTP.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn blocks(&self) -> Api<IPBlock> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(super) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    pub(super) fn gateway_address(&self) -> SocketAddr {
        self.gateway_address
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.path.join("kubeconfig")
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.directory.path.join("trigger-token")
    }

    /// The page of the operator.
    pub(super) fn page_url(&self) -> String {
        let address = self.page.map(|address| address.to_string());
        format!("http://{}/blocks", address.unwrap_or_default())
    }

    pub(super) fn trigger_url(&self) -> String {
        format!("http://{}{TRIGGER_PATH}", self.trigger)
    }
}

/// Waits until the trigger listens: then the configuration is in force.
async fn ready(trigger: SocketAddr, operator: &mut Running) -> Result<(), Error> {
    let listening = async {
        while tokio::net::TcpStream::connect(trigger).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        biased;
        ended = ended(operator) => ended,
        waited = tokio::time::timeout(PATIENCE, listening) => waited.map_err(|_| {
            Error::Operator("it does not listen for alerts; RUST_LOG=info shows why".into())
        }),
    }
}

/// Returns when the operator ends by itself, which it should not.
pub(super) async fn ended(operator: &mut Running) -> Result<(), Error> {
    let why = match operator.await {
        Ok(Ok(())) => "it stopped by itself".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(Error::Operator(why))
}

// === impl Directory ===

impl Directory {
    fn open(given: Option<&Path>, clock: &Clock) -> Result<Self, Error> {
        let (path, temporary) = match given {
            Some(path) => (path.to_owned(), false),
            None => {
                let name = format!("ipblock-operator-{:08x}", clock.random().below(1 << 32));
                (std::env::temp_dir().join(name), true)
            }
        };
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(!temporary);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt;
            builder.mode(0o700);
        }
        builder.create(&path).map_err(|source| Error::Directory {
            path: path.clone(),
            source,
        })?;
        // kubectl and the trigger need it from anywhere.
        let path = path.canonicalize().map_err(|source| Error::Directory {
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, temporary })
    }

    /// Writes a file that only its owner may read.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        use std::io::Write;
        let path = self.path.join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let written = options
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Directory { path, source }),
        }
    }

    /// The token that senders of alerts show; made once a directory.
    fn token(&self, clock: &Clock) -> Result<PathBuf, Error> {
        let path = self.path.join("trigger-token");
        if !self.temporary && path.exists() {
            return Ok(path);
        }
        let random = clock.random();
        // A port on loopback, for the time of a trial.
        let token = format!("{:016x}{:016x}\n", random.next_u64(), random.next_u64());
        self.write("trigger-token", &token)
    }

    /// The ports of the last time, of the server, the gateway and the trigger; 0 where unknown.
    fn ports(&self) -> [u16; 3] {
        let text = std::fs::read_to_string(self.path.join("ports")).unwrap_or_default();
        let mut ports = text
            .split_whitespace()
            .map(|port| port.parse().unwrap_or(0));
        std::array::from_fn(|_| ports.next().unwrap_or(0))
    }

    fn remember(&self, ports: [u16; 3]) -> Result<(), Error> {
        let text = ports.map(|port| port.to_string()).join(" ");
        self.write("ports", &text).map(drop)
    }

    fn end(&self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.end();
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The address of the trigger: the configuration has to name a port.
fn trigger_address(last: u16) -> io::Result<SocketAddr> {
    if last != 0 && std::net::TcpListener::bind(loopback(last)).is_ok() {
        return Ok(loopback(last));
    }
    Ok(loopback(reeve_apiserver::free_port()?))
}

fn connect(serving: &Serving) -> Result<Client, Error> {
    let url = serving.url().parse::<http::Uri>().map_err(api_server)?;
    let mut config = kube_client::Config::new(url);
    config.default_namespace = NAMESPACE.to_owned();
    Client::try_from(config).map_err(|error| request("connecting to the API server", error))
}

async fn install_definitions(client: &Client) -> Result<(), Error> {
    for definition in crate::api::crds() {
        install(client, &definition).await?;
    }
    let blocks: Api<IPBlock> = Api::namespaced(client.clone(), NAMESPACE);
    let lists: Api<BlockList> = Api::namespaced(client.clone(), NAMESPACE);
    let one = ListParams::default().limit(1);
    let served = async {
        while blocks.list(&one).await.is_err() || lists.list(&one).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .map_err(|_| Error::ApiServer("it does not serve IPBlock objects".into()))
}

async fn install(client: &Client, definition: &CustomResourceDefinition) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.metadata.name.clone().unwrap_or_default();
    let installed = match api.create(&PostParams::default(), definition).await {
        Err(kube_client::Error::Api(status)) if status.reason == "AlreadyExists" => {
            // Kept from an earlier version: the spec is replaced, the objects stay.
            let patch = json!({ "spec": definition.spec });
            let patch = Patch::Merge(&patch);
            api.patch(&name, &PatchParams::default(), &patch).await
        }
        other => other,
    };
    installed
        .map(drop)
        .map_err(|error| request("installing the definitions of the operator's kinds", error))
}

/// What a newcomer needs; what they add to it later stays.
fn configuration(
    engine: &str,
    gateway: SocketAddr,
    trigger: SocketAddr,
    token: &Path,
) -> BTreeMap<String, String> {
    let triggers = json!([{
        "name": "grafana",
        "addr": trigger.to_string(),
        "path": TRIGGER_PATH,
        "bearerTokenFile": token,
    }]);
    BTreeMap::from([
        (keys::ENGINE.to_owned(), engine.to_owned()),
        (keys::GATEWAY_HOST.to_owned(), gateway.to_string()),
        // JSON is YAML.
        (keys::TRIGGER.to_owned(), triggers.to_string()),
    ])
}

async fn install_configuration(
    client: &Client,
    data: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut first = data.clone();
    first.insert(
        keys::WHITELIST.to_owned(),
        format!("{ALLOWLISTED}   # never banned\n"),
    );
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(CONFIG_MAP.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(first),
        ..ConfigMap::default()
    };
    let installed = match api.create(&PostParams::default(), &map).await {
        Err(kube_client::Error::Api(status)) if status.reason == "AlreadyExists" => {
            // The ports are new at each start.
            let patch = json!({ "data": data });
            let patch = Patch::Merge(&patch);
            api.patch(CONFIG_MAP, &PatchParams::default(), &patch).await
        }
        other => other,
    };
    installed.map_err(|error| request("writing the configuration", error))?;
    Ok(())
}

fn api_server(error: impl std::fmt::Display) -> Error {
    Error::ApiServer(error.to_string())
}

fn listen(what: &'static str, source: io::Error) -> Error {
    Error::Listen { what, source }
}

fn request(what: &str, source: kube_client::Error) -> Error {
    Error::Request {
        what: what.to_owned(),
        source: Box::new(source),
    }
}
