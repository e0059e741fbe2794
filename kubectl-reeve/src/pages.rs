//! Gets the reports of one program over HTTP.

use std::error::Error as _;
use std::time::Duration;

use reqwest::{Certificate, Client, RequestBuilder, StatusCode};
use serde_json::{Map, Value};

use crate::command::{Access, Asked, Change};
use crate::error::Error;

/// The time limit of one page.
const LIMIT: Duration = Duration::from_secs(10);
/// The pages of a program that has no page of all reports.
const EARLIER: [&str; 2] = ["queues", "informers"];
/// The most characters of an answer in an error.
const EXCERPT: usize = 200;

/// Gets pages of programs.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    client: Client,
    token: Option<String>,
}

// === impl Pages ===

impl Pages {
    /// A client for the programs of `access`. The name of the server's certificate is resolved to 127.0.0.1.
    ///
    /// # Errors
    /// When the authorities cannot be read.
    pub(crate) fn new(access: &Access) -> Result<Self, Error> {
        // Another provider may be installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .timeout(LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_danger_accept_invalid_certs(access.insecure_skip_tls_verify)
            .user_agent(concat!("kubectl-reeve/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &access.certificate_authority {
            let failed = |message: String| Error::Authority {
                file: file.display().to_string(),
                message,
            };
            let pem = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
            let authorities = Certificate::from_pem_bundle(&pem);
            let authorities = authorities.map_err(|error| failed(chain(&error)))?;
            client = client.tls_certs_only(authorities);
        }
        if let Some(name) = &access.tls_server_name {
            // The port is that of the URL.
            client = client.resolve(name, ([127, 0, 0, 1], 0).into());
        }
        let client = client.build();
        Ok(Self {
            client: client.map_err(|error| Error::Request(chain(&error)))?,
            token: access.token.clone(),
        })
    }

    /// What the program at `base` answers.
    ///
    /// # Errors
    /// When no page answers, or the levels of the log are refused.
    pub(crate) async fn ask(&self, base: &str, asked: &Asked) -> Result<Value, Error> {
        match asked {
            Asked::Report(limit) => self.report(base, *limit).await,
            Asked::Log(change) => self.log(base, change.as_ref()).await,
        }
    }

    /// The levels of the log, after the change.
    async fn log(&self, base: &str, change: Option<&Change>) -> Result<Value, Error> {
        let url = format!("{base}/debug/log");
        let no_log = |error| match error {
            Error::NoPages => Error::NoLog,
            error => error,
        };
        if let Some(Change { levels, lasts }) = change {
            let url = match lasts {
                Some(lasts) => format!("{url}?for={lasts}"),
                None => url.clone(),
            };
            let put = self.client.put(&url).body(levels.clone());
            self.send(&url, put).await.map_err(no_log)?;
        }
        let shown = self.get(&format!("{url}?format=json")).await;
        shown.map_err(no_log)
    }

    /// All reports of the program, with at most `limit` keys of a queue. Of a program without the page of all reports,
    /// those of its pages.
    async fn report(&self, base: &str, limit: u16) -> Result<Value, Error> {
        let query = format!("format=json&limit={limit}");
        match self.get(&format!("{base}/debug?{query}")).await {
            Err(Error::NoPages) => {}
            answered => return answered,
        }
        let mut whole = Map::new();
        for page in EARLIER {
            match self.get(&format!("{base}/debug/{page}?{query}")).await {
                Ok(Value::Object(part)) => whole.extend(part),
                Ok(_) | Err(Error::NoPages) => {}
                Err(error) => return Err(error),
            }
        }
        if whole.is_empty() {
            return Err(Error::NoPages);
        }
        Ok(Value::Object(whole))
    }

    async fn get(&self, url: &str) -> Result<Value, Error> {
        let body = self.send(url, self.client.get(url)).await?;
        match serde_json::from_slice(&body) {
            Ok(report @ Value::Object(_)) => Ok(report),
            _ => Err(Error::NotReport(excerpt(&body))),
        }
    }

    async fn send(&self, url: &str, mut request: RequestBuilder) -> Result<Vec<u8>, Error> {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(|error| failed(url, &error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| failed(url, &error))?;
        match status {
            StatusCode::OK => Ok(body.to_vec()),
            StatusCode::NOT_FOUND => Err(Error::NoPages),
            StatusCode::UNAUTHORIZED => Err(Error::Unauthorized),
            StatusCode::FORBIDDEN => Err(Error::Forbidden(excerpt(&body))),
            _ => Err(Error::Status {
                code: status.as_u16(),
                text: excerpt(&body),
            }),
        }
    }
}

/// The first line of an answer.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(EXCERPT).collect()
}

fn failed(url: &str, error: &reqwest::Error) -> Error {
    let cause = chain(error);
    let mut link = error.source();
    while let Some(current) = link {
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            let place = url.split("/debug").next().unwrap_or(url);
            return Error::Refused(place.to_owned());
        }
        link = current.source();
    }
    if ["InvalidContentType", "corrupt message", "invalid HTTP"]
        .iter()
        .any(|mark| cause.contains(mark))
    {
        return Error::Scheme(cause);
    }
    Error::Request(cause)
}

/// The error and its causes, without the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut link = error.source();
    while let Some(current) = link {
        texts.push(current.to_string());
        link = current.source();
    }
    if texts.is_empty() {
        texts.push(error.to_string());
    }
    texts.join(": ")
}
