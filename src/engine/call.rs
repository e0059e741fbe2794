//! One GET to a gateway.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Request};

use super::error::excerpt;
use super::{Endpoint, Error};
use crate::outbound::{self, Outbound};

/// Calls one gateway.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    endpoint: Endpoint,
    outbound: Arc<dyn Outbound>,
}

// === impl Caller ===

impl Caller {
    pub(super) fn new(endpoint: Endpoint, outbound: Arc<dyn Outbound>) -> Self {
        Self { endpoint, outbound }
    }

    pub(super) fn endpoint(&self) -> &str {
        self.endpoint.as_str()
    }

    /// The text of a 200 answer to `GET path?query`.
    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, Error> {
        let url = self.endpoint.url(path, query);
        let mut request = Request::get(url.as_str()).header(ACCEPT, "application/json");
        if let Some(token) = self.endpoint.bearer() {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| {
                    self.no_answer(outbound::Error::Url("the token is no header".into()))
                })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request
            .body(Bytes::new())
            .map_err(|error| self.no_answer(outbound::Error::Url(error.to_string())))?;
        let answer = self
            .outbound
            .send(request)
            .await
            .map_err(|cause| self.no_answer(cause))?;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        if answer.status() == http::StatusCode::OK {
            Ok(text)
        } else {
            Err(Error::Status {
                gateway: self.endpoint.to_string(),
                code: answer.status().as_u16(),
                detail: excerpt(&text),
            })
        }
    }

    pub(super) fn failed(&self, detail: &str) -> Error {
        Error::Failed {
            gateway: self.endpoint.to_string(),
            detail: excerpt(detail),
        }
    }

    pub(super) fn undecodable(&self, answer: &str) -> Error {
        Error::Undecodable {
            gateway: self.endpoint.to_string(),
            detail: excerpt(answer),
        }
    }

    fn no_answer(&self, cause: outbound::Error) -> Error {
        Error::NoAnswer {
            gateway: self.endpoint.to_string(),
            cause,
        }
    }
}

/// What a gateway answers in tests: a status and a text for every request, which is recorded.
#[cfg(test)]
pub(super) mod scripted {
    use super::*;
    use crate::outbound::InProcess;
    use parking_lot::Mutex;

    /// The requests' URLs, as sent.
    pub(crate) type Sent = Arc<Mutex<Vec<String>>>;

    pub(crate) fn answering(code: u16, text: &str) -> (Endpoint, Arc<dyn Outbound>, Sent) {
        let sent = Sent::default();
        let (record, text) = (Arc::clone(&sent), text.to_owned());
        let outbound = InProcess::new(move |request| {
            record.lock().push(request.uri().to_string());
            let answer = http::Response::builder()
                .status(code)
                .body(Bytes::from(text.clone()))
                .unwrap();
            async move { Ok(answer) }
        });
        let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
        (endpoint, Arc::new(outbound), sent)
    }
}
