//! What becomes of a call: shaped by the client's settings, fenced, noted, sent within a deadline, and its answer
//! checked, bounded and decoded. Every request of a client goes through [`Client::perform`].

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_core::response::Status;
use serde::de::DeserializeOwned;

use super::call::Call;
use super::intercept::{Answer, Next};
use super::outline::{Outline, Subject};
use super::{Client, Error};
use crate::leader_election::Passage;

impl Client {
    /// Performs `call`, and reads the answer as `T`.
    pub(super) async fn answer<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let request = call.describe();
        let answer = self.perform(call).await?;
        decode(request, &answer.0)
    }

    /// Performs `call`, the one way to the server.
    pub(super) async fn perform(&self, mut call: Call) -> Result<Answer, Error> {
        self.shape(&mut call).await?;
        if call.verb.writes() {
            self.check_fence(&call.describe())?;
        }
        let begun = self.begin(&call).map(|begun| (begun, Subject::of(&call)));
        let answer = Next::new(self.clone()).send(call).await;
        if let Some((begun, subject)) = begun {
            match &answer {
                Ok(answer) => match Outline::of(&answer.0, &subject) {
                    Some(outline) => begun.settle(outline.effects(&subject)),
                    // Something happened; what, the server says when asked.
                    None => drop(begun),
                },
                Err(error) if error.is_ambiguous() => drop(begun),
                Err(_) => begun.discard(),
            }
        }
        answer
    }

    /// Sends `call` as it is.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, Error> {
        let request = call.describe();
        let http = call.http()?;
        let (code, body) = self.within_deadline(&request, http).await?;
        if code.is_success() {
            return Ok(Answer(body));
        }
        let error = refusal(request, code, &body);
        if error.is_not_served() {
            // So what discovery told of the group is no longer so.
            self.known.forget(&call.resource().group);
        }
        Err(error)
    }

    /// Sends `http`, and reads the answer, within the deadline.
    pub(super) async fn within_deadline(
        &self,
        request: &str,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let deadline = self.settings.deadline;
        match tokio::time::timeout(deadline, self.exchange(request, http)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Deadline {
                request: request.to_owned(),
                after: deadline,
            }),
        }
    }

    async fn exchange(
        &self,
        request: &str,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let mut http = http.map(kube_client::client::Body::from);
        let mut passage = self
            .fence
            .as_ref()
            .and_then(|fenced| fenced.fence.gate(&mut http));
        let transport = |error: kube_client::Error| Error::Transport {
            request: request.to_owned(),
            sent: !never_sent(&error),
            source: Box::new(error),
        };
        let answer = self.inner.send(http).await.map_err(transport);
        if passage.as_ref().is_some_and(Passage::refused) {
            return Err(Error::NotLeader {
                request: request.to_owned(),
            });
        }
        if let Some(passage) = &mut passage {
            match &answer {
                Ok(_) => passage.answered(),
                Err(error) if error.is_ambiguous() => {}
                Err(_) => passage.settle(),
            }
        }
        let response = answer?;
        let status = response.status();
        self.warnings.log(request, response.headers());
        let body = Limited::new(response.into_body(), self.settings.body_limit)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return Error::TooLarge {
                        request: request.to_owned(),
                        limit: self.settings.body_limit,
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

pub(super) fn decode<T: DeserializeOwned>(request: String, body: &[u8]) -> Result<T, Error> {
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

/// The error of an answer that is no success.
pub(super) fn refusal(request: String, code: http::StatusCode, body: &[u8]) -> Error {
    Error::Api {
        request,
        status: Box::new(status_of(code, body)),
    }
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
