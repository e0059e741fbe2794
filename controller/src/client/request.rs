//! One request: sent within a deadline, its status checked, its body bounded and decoded.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_core::ObjectMeta;
use kube_core::response::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::writes::Effect;
use super::{Client, Error};

/// What a server answers a delete with: a Status, or the object.
#[derive(Debug, Deserialize)]
pub(super) struct Deleted {
    kind: Option<String>,
    #[serde(default)]
    metadata: Option<ObjectMeta>,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    uid: Option<String>,
}

// === impl Deleted ===

impl Deleted {
    pub(super) fn effect(&self) -> Effect {
        match &self.metadata {
            Some(meta) if self.kind.as_deref() != Some("Status") => Effect::of_deleted(meta),
            _ => Effect::Gone {
                uid: self
                    .details
                    .as_ref()
                    .and_then(|details| details.uid.clone()),
            },
        }
    }
}

impl Client {
    /// Sends `http` and decodes the answer as `T`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        request: String,
        http: Result<http::Request<Vec<u8>>, kube_core::request::Error>,
    ) -> Result<T, Error> {
        let http = http.map_err(|error| Error::Invalid {
            request: request.clone(),
            message: error.to_string(),
        })?;
        let (status, body) = tokio::time::timeout(self.deadline, self.exchange(&request, http))
            .await
            .map_err(|_| Error::Deadline {
                request: request.clone(),
                after: self.deadline,
            })??;
        if status.is_success() {
            return decode(request, &body);
        }
        Err(Error::Api {
            request,
            status: Box::new(status_of(status, &body)),
        })
    }

    async fn exchange(
        &self,
        request: &str,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let transport = |error: kube_client::Error| Error::Transport {
            request: request.to_owned(),
            sent: !never_sent(&error),
            source: Box::new(error),
        };
        let response = self
            .inner
            .send(http.map(kube_client::client::Body::from))
            .await
            .map_err(transport)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), self.body_limit)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return Error::TooLarge {
                        request: request.to_owned(),
                        limit: self.body_limit,
                    };
                }
                transport(kube_client::Error::Service(error))
            })?;
        Ok((status, body.to_bytes()))
    }
}

/// Whether the connection was never made, so that a write certainly did not happen.
fn never_sent(error: &kube_client::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        next = error.source();
    }
    false
}

fn decode<T: DeserializeOwned>(request: String, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        // serde's own text quotes the value, which may be a secret.
        let category = match error.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "not JSON",
            serde_json::error::Category::Data => "another type than declared",
            serde_json::error::Category::Eof => "cut short",
        };
        Error::Decode {
            request,
            kind: short_name::<T>().to_owned(),
            line: error.line(),
            column: error.column(),
            category,
        }
    })
}

fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let end = name.find('<').unwrap_or(name.len());
    name[..end].rsplit("::").next().unwrap_or(name)
}

/// The Status in `body`, or one made of the code when a proxy answered with something else.
fn status_of(code: http::StatusCode, body: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(body) {
        Ok(mut status) if !status.message.is_empty() || !status.reason.is_empty() => {
            if status.code == 0 {
                status.code = code.as_u16();
            }
            status
        }
        _ => Status::failure(code.canonical_reason().unwrap_or("an unknown status"), "")
            .with_code(code.as_u16()),
    }
}
