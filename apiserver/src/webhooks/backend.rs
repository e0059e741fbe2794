//! Where a webhook listens, and the connection to it.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, Uri, uri};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube_client::client::{Body, ConfigExt as _};
use kube_client::{Client, Config};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::time::{sleep, timeout_at};
use tower::{ServiceBuilder, ServiceExt};

use super::authorities;
use super::network::Network;
use super::redirect::{self, MOST_REDIRECTIONS};
use super::verifier;
use crate::field::quote;
use crate::meta::{items, string};

/// The longest answer of an admission webhook in bytes.
const LONGEST: usize = 16 << 20;
/// How often a webhook that asks for it is asked again. (client-go: `defaultMaxRetries`.)
const MOST_RETRIES: u32 = 10;
/// The beginnings of the TLS library's texts for a certificate out of its time.
const OUT_OF_TIME: [&str; 4] = [
    "certificate expired",
    "Expired",
    "certificate not valid yet",
    "NotValidYet",
];
/// The port of a Service, where the configuration has none.
const PORT: u64 = 443;

/// Where a webhook listens.
pub(crate) struct Backend {
    place: Place,
    /// The certificates of `caBundle` in DER, or why there are none; `None` without a bundle.
    authorities: Option<Result<Vec<Vec<u8>>, String>>,
    /// The client of the last call, and the address that it connects to.
    client: Mutex<Option<(String, Client)>>,
}

#[derive(Debug)]
enum Place {
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u64,
        path: String,
    },
}

// === impl Backend ===

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Backend").field(&self.place).finish()
    }
}

impl Backend {
    /// Reads `clientConfig`.
    pub(crate) fn read(config: &Value) -> Self {
        let service = &config["service"];
        let place = if service.is_object() {
            Place::Service {
                namespace: string(&service["namespace"]).to_owned(),
                name: string(&service["name"]).to_owned(),
                port: service["port"].as_u64().unwrap_or(PORT),
                path: string(&service["path"]).to_owned(),
            }
        } else {
            Place::Url(string(&config["url"]).to_owned())
        };
        let bundle = STANDARD.decode(string(&config["caBundle"]));
        let bundle = bundle.ok().filter(|bundle| !bundle.is_empty());
        let certificates = |bundle: Vec<u8>| authorities::certificates(&bundle);
        Self {
            place,
            authorities: bundle.map(|bundle| certificates(bundle).map(authorities::usable)),
            client: Mutex::default(),
        }
    }

    /// Checks the authorities.
    ///
    /// # Errors
    /// Why a bundle has none.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.authorities {
            Some(Err(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Posts an admission review and returns the answer.
    ///
    /// # Errors
    /// Why there is none, in the words of a real server as far as they are known.
    pub(crate) async fn admit(
        &self,
        network: Network<'_>,
        review: &Value,
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let url = format!("{}?timeout={}s", self.url(), in_seconds(timeout));
        self.post(network, &url, review, timeout, LONGEST).await
    }

    /// Posts a conversion review and returns the answer, of at most `longest` bytes.
    ///
    /// # Errors
    /// As of [`Backend::admit`].
    pub(super) async fn convert(
        &self,
        network: Network<'_>,
        review: &Value,
        timeout: Duration,
        longest: usize,
    ) -> Result<Bytes, String> {
        self.post(network, &self.url(), review, timeout, longest)
            .await
    }

    async fn post(
        &self,
        network: Network<'_>,
        url: &str,
        review: &Value,
        timeout: Duration,
        longest: usize,
    ) -> Result<Bytes, String> {
        let unreachable = |why: String| format!("Post {}: {why}", quote(url));
        let deadline = tokio::time::Instant::now() + timeout;
        let late = || unreachable("context deadline exceeded".to_owned());
        let review = review.to_string().into_bytes();
        let (code, body) = timeout_at(deadline, self.answer(network, url, &review, longest))
            .await
            .map_err(|_| late())?
            .map_err(unreachable)?;
        if !(200..=206).contains(&code) {
            return Err(refused(code, &body));
        }
        Ok(body)
    }

    /// The status and the body of the answer; asks again while an answer names a time for that. (client-go: `withRetry`.)
    async fn answer(
        &self,
        network: Network<'_>,
        url: &str,
        review: &[u8],
        longest: usize,
    ) -> Result<(u16, Bytes), String> {
        let (mut tries, mut redirections) = (0, 0);
        let (mut method, mut url) = (Method::POST, url.to_owned());
        loop {
            let body = if method == Method::POST { review } else { &[] };
            let request = Request::builder()
                .method(method.clone())
                .uri(&url)
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, */*")
                .header(USER_AGENT, "kube-apiserver-admission")
                .body(Body::from(body.to_vec()))
                .map_err(|error| error.to_string())?;
            let response = self.send(network, request).await?;
            if let Some(next) = redirect::next(&response, &method, &url)? {
                redirections += 1;
                if redirections >= MOST_REDIRECTIONS {
                    return Err(format!("stopped after {MOST_REDIRECTIONS} redirects"));
                }
                if !next.is_same {
                    method = Method::GET;
                }
                url = next.url;
                continue;
            }
            if let Some(pause) = retry_after(&response).filter(|_| tries < MOST_RETRIES) {
                tries += 1;
                sleep(pause).await;
                continue;
            }
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), longest).collect().await;
            let body = body.map_err(|error| error.to_string())?;
            return Ok((code, body.to_bytes()));
        }
    }

    /// The address as texts show it.
    fn url(&self) -> String {
        match &self.place {
            // Without a path the parameter would follow the host.
            Place::Url(url) => match url.split_once("://") {
                Some((_, rest)) if !rest.contains('/') => format!("{url}/"),
                _ => url.clone(),
            },
            Place::Service {
                namespace,
                name,
                port,
                path,
            } => {
                let slash = if path.starts_with('/') { "" } else { "/" };
                format!("https://{name}.{namespace}.svc:{port}{slash}{path}")
            }
        }
    }

    async fn send(
        &self,
        network: Network<'_>,
        request: Request<Body>,
    ) -> Result<Response<Body>, String> {
        if let Place::Service {
            namespace, name, ..
        } = &self.place
            && let Some(service) = network.backends.get(namespace, name)
        {
            let answer = service.oneshot(request).await;
            return answer.map_err(|error| error.to_string());
        }
        let (client, address) = match self.elsewhere(&request) {
            Some(address) => (self.connect(&address, None)?, address),
            None => self.client(network)?,
        };
        let (mut head, body) = request.into_parts();
        // The address may be that of an endpoint.
        let host = head.uri.authority().map_or("", |host| host.as_str());
        let host = HeaderValue::from_str(host).map_err(|error| error.to_string())?;
        head.headers.insert(HOST, host);
        let mut target = uri::Parts::default();
        target.path_and_query = head.uri.path_and_query().cloned();
        head.uri = Uri::from_parts(target).map_err(|error| error.to_string())?;
        let answer = client.send(Request::from_parts(head, body)).await;
        answer.map_err(|error| explain(&error, &address))
    }

    /// The address of a request that a redirection leads to another server.
    fn elsewhere(&self, request: &Request<Body>) -> Option<String> {
        let own: Uri = self.url().parse().ok()?;
        let address = request.uri().authority()?;
        (Some(address) != own.authority()).then(|| address.to_string())
    }

    /// A client of the webhook's present address, and that address.
    fn client(&self, network: Network<'_>) -> Result<(Client, String), String> {
        let (address, server_name) = match &self.place {
            Place::Url(url) => {
                let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
                let authority = url.authority().map_or("", |authority| authority.as_str());
                (authority.to_owned(), None)
            }
            Place::Service {
                namespace,
                name,
                port,
                ..
            } => {
                let address = resolve(network, namespace, name, *port)?;
                (address, Some(format!("{name}.{namespace}.svc")))
            }
        };
        let kept = self.client.lock().clone();
        if let Some((of, client)) = kept
            && of == address
        {
            return Ok((client, address));
        }
        let client = self.connect(&address, server_name)?;
        *self.client.lock() = Some((address.clone(), client.clone()));
        Ok((client, address))
    }

    fn connect(&self, address: &str, server_name: Option<String>) -> Result<Client, String> {
        let url = format!("https://{address}");
        let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
        let mut config = Config::new(url);
        config.tls_server_name = server_name;
        config.default_retry = false;
        config.disable_compression = true;
        let Some(certificates) = &self.authorities else {
            return Client::try_from(config).map_err(|error| explain(&error, address));
        };
        let tls = verifier::trusting(certificates.as_ref().map_err(String::clone)?)?;
        let mut connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only();
        if let Some(name) = &config.tls_server_name {
            let name = ServerName::try_from(name.clone()).map_err(|error| error.to_string())?;
            connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = connector.enable_http1().build();
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .service(client);
        Ok(Client::new(service, "default"))
    }
}

/// The time after which a busy webhook wants to be asked again.
fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let code = response.status().as_u16();
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let is_busy = code == 429 || (500..=599).contains(&code);
    is_busy.then(|| seconds.parse().ok().map(Duration::from_secs))?
}

/// The address of a port of a Service: a ready endpoint of its EndpointSlices, else its external name, else its cluster
/// address.
fn resolve(network: Network<'_>, namespace: &str, name: &str, port: u64) -> Result<String, String> {
    let key = format!("{namespace}/{name}");
    let Some(service) = network.store.get("services", &key) else {
        return Err(format!("service {} not found", quote(name)));
    };
    let service = service.value();
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(format!("{}:{port}", string(&spec["externalName"])));
    }
    let ports = items(&spec["ports"]);
    let Some(of_service) = ports.iter().find(|one| one["port"].as_u64() == Some(port)) else {
        return Err(format!(
            "no service port {port} found for service {}",
            quote(name)
        ));
    };
    if let Some(address) = endpoint(network, namespace, name, string(&of_service["name"])) {
        return Ok(address);
    }
    match string(&spec["clusterIP"]) {
        "" | "None" => Err(format!(
            "no endpoints available for service {}",
            quote(name)
        )),
        address => Ok(with_port(address, port)),
    }
}

/// A ready endpoint of the port `port` of a Service.
fn endpoint(network: Network<'_>, namespace: &str, name: &str, port: &str) -> Option<String> {
    let prefix = format!("{namespace}/");
    let slices = network
        .store
        .list("endpointslices.discovery.k8s.io", &prefix)
        .1;
    slices.iter().find_map(|slice| {
        let slice = slice.value();
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            return None;
        }
        let ports = items(&slice["ports"]);
        let port = ports.iter().find(|one| string(&one["name"]) == port)?;
        let port = port["port"].as_u64()?;
        let mut endpoints = items(&slice["endpoints"]).iter();
        let ready = endpoints.find(|one| one["conditions"]["ready"] != false)?;
        let address = items(&ready["addresses"]).first()?;
        Some(with_port(string(address), port))
    })
}

fn with_port(address: &str, port: u64) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// The text for an answer with a status that is none of success: client-go's `NewGenericServerResponse`.
fn refused(code: u16, body: &Bytes) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let message = serde_json::from_slice::<Value>(body).ok();
    let message = message.filter(|status| status["kind"] == "Status");
    if let Some(message) = message
        .as_ref()
        .and_then(|status| status["message"].as_str())
    {
        return message.to_owned();
    }
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later"
            .to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => format!(
            "an error on the server ({}) has prevented the request from succeeding",
            quote(text)
        ),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// The text for a connection that failed.
fn explain(error: &kube_client::Error, address: &str) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            if io.kind() == io::ErrorKind::ConnectionRefused {
                return format!("dial tcp {address}: connect: connection refused");
            }
            // rustls' error is inside of one of the system.
            if let Some(inner) = io.get_ref() {
                return of_certificate(&inner.to_string());
            }
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return of_certificate(&cause.to_string()),
        }
    }
}

fn of_certificate(why: &str) -> String {
    let Some(why) = why.strip_prefix("invalid peer certificate: ") else {
        return why.to_owned();
    };
    let why = match why {
        "UnknownIssuer" | "BadSignature" => "certificate signed by unknown authority",
        why if OUT_OF_TIME.iter().any(|start| why.starts_with(start)) => {
            "certificate has expired or is not yet valid"
        }
        "InvalidPurpose" => "certificate specifies an incompatible key usage",
        why => why,
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// A time in whole seconds, rounded up, as the parameter `timeout` has it.
fn in_seconds(timeout: Duration) -> u64 {
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}
