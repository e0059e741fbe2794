//! What becomes of a call: shaped by the client's settings, fenced, noted, sent within a deadline, and its answer
//! checked, bounded and decoded. Every request of a client goes through [`Client::perform`].

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_core::response::Status;
use serde::de::DeserializeOwned;

use super::call::Call;
use super::intercept::{Answer, Next};
use super::objects::AnyObject;
use super::outline::{Outline, Subject};
use super::writes::Begun;
use super::{Client, Error};
use crate::leader_election::Passage;

/// Says what a request is about, for messages: most requests need none.
type Describe<'a> = &'a (dyn Fn() -> String + Sync);

/// A write that is to be noted, and what it is about.
pub(super) type Writing = (Begun, Subject);

impl Client {
    /// Performs `call`, and reads the answer as `T`.
    pub(super) async fn answer<T: DeserializeOwned>(&self, mut call: Call) -> Result<T, Error> {
        let answer = self.perform_shaped(&mut call).await?;
        decode(|| call.describe(), &answer.0)
    }

    /// Performs `call`, and reads the answer as an object of the kind. Of a write the object itself says what it did, so
    /// that the answer is read once.
    pub(super) async fn object<K: AnyObject>(&self, mut call: Call) -> Result<K, Error> {
        let (answer, begun) = self.perform_begun(&mut call).await?;
        let object = decode::<K>(|| call.describe(), &answer.0);
        if let Some((begun, subject)) = begun {
            let outline = match &object {
                Ok(object) => Outline::of_object(object.meta(), &subject),
                Err(_) => None,
            };
            let outline = outline.or_else(|| Outline::of(&answer.0, &subject));
            settle(begun, &subject, outline);
        }
        object
    }

    /// Performs `call`.
    pub(super) async fn perform(&self, mut call: Call) -> Result<Answer, Error> {
        self.perform_shaped(&mut call).await
    }

    /// Performs `call`, which is left as it was sent.
    async fn perform_shaped(&self, call: &mut Call) -> Result<Answer, Error> {
        let (answer, begun) = self.perform_begun(call).await?;
        if let Some((begun, subject)) = begun {
            let outline = Outline::of(&answer.0, &subject);
            settle(begun, &subject, outline);
        }
        Ok(answer)
    }

    /// Performs `call`, the one way to the server. What a write that is to be noted did, is left to be settled.
    async fn perform_begun(&self, call: &mut Call) -> Result<(Answer, Option<Writing>), Error> {
        self.shape(call).await?;
        if call.verb.writes() {
            self.check_fence(|| call.describe())?;
        }
        let begun = self.begin(call);
        let answer = if self.intercepted.is_none() {
            self.send(call).await
        } else {
            Next::new(self.clone()).send(call.clone()).await
        };
        match answer {
            Ok(answer) => Ok((answer, begun)),
            Err(error) => {
                match begun {
                    // Some may be deleted when one is refused.
                    Some((begun, _))
                        if begun.is_about_many()
                            && error
                                .status()
                                .is_some_and(|status| !is_of_the_request(status)) =>
                    {
                        drop(begun);
                    }
                    Some((begun, _)) if !error.is_ambiguous() => begun.discard(),
                    begun => drop(begun),
                }
                Err(error)
            }
        }
    }

    /// Sends `call` as it is.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, Error> {
        let http = call.http()?;
        let (code, body) = self.within_deadline(&|| call.describe(), http).await?;
        if code.is_success() {
            return Ok(Answer(body));
        }
        let error = refusal(call.describe(), code, &body);
        if error.is_not_served() {
            // So what discovery told of the group is no longer so.
            self.known.forget(&call.resource().group);
        }
        Err(error)
    }

    /// Sends `http`, and reads the answer, within the deadline.
    pub(super) async fn within_deadline(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let deadline = self.settings.deadline;
        match tokio::time::timeout(deadline, self.exchange(request, http)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Deadline {
                request: request(),
                after: deadline,
            }),
        }
    }

    async fn exchange(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<(http::StatusCode, Bytes), Error> {
        let mut http = http.map(kube_client::client::Body::from);
        let mut passage = self
            .fence
            .as_ref()
            .and_then(|fenced| fenced.fence.gate(&mut http));
        let transport = |error: kube_client::Error| Error::Transport {
            request: request(),
            sent: !never_sent(&error),
            source: Box::new(error),
        };
        let answer = self.inner.counted.send(http).await.map_err(transport);
        if passage.as_ref().is_some_and(Passage::refused) {
            return Err(Error::NotLeader { request: request() });
        }
        if let Some(passage) = &mut passage {
            match &answer {
                Ok(answer) => passage.answered(answer.status()),
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
                        request: request(),
                        limit: self.settings.body_limit,
                    };
                }
                transport(kube_client::Error::Service(error))
            })?;
        Ok((status, body.to_bytes()))
    }
}

/// Whether the server refused a delete of many before it deleted any. What it checks of each object (admission, a
/// precondition) may be refused after others are gone.
fn is_of_the_request(status: &Status) -> bool {
    match status.code {
        // A webhook chooses its codes.
        _ if status.message.starts_with("admission webhook") => false,
        401 | 404 | 405 | 415 | 429 => true,
        // Of the account, and not of one of the objects.
        403 => status.message.contains(" cannot deletecollection "),
        _ => false,
    }
}

/// Notes what a write did, as its answer says.
fn settle(begun: Begun, subject: &Subject, outline: Option<Outline>) {
    match outline {
        Some(outline) => begun.settle(outline.effects(subject)),
        // Something happened; what, the server says when asked.
        None => drop(begun),
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

/// Reads `body`; `request` says what it answers, for the error.
pub(super) fn decode<T: DeserializeOwned>(
    request: impl FnOnce() -> String,
    body: &[u8],
) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        // serde's own text quotes the value, which may be a secret.
        let category = match error.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "not JSON",
            serde_json::error::Category::Data => "another type than declared",
            serde_json::error::Category::Eof => "cut short",
        };
        Error::Decode {
            request: request(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_each_object_is_no_refusal_of_the_request() {
        let account = "configmaps is forbidden: User \"me\" cannot deletecollection resource \"configmaps\" in API group \"\"";
        let webhook = "admission webhook \"guard.example.com\" denied the request: not now";
        let policy =
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' denied request";
        for (code, message, whole) in [
            (401, "Unauthorized", true),
            (403, account, true),
            (403, policy, false),
            (403, webhook, false),
            (
                404,
                "the server could not find the requested resource",
                true,
            ),
            (405, "method not allowed", true),
            (409, "the uid in the precondition does not match", false),
            (415, "unsupported media type", true),
            (422, "invalid", false),
            (429, "too many requests", true),
            (429, webhook, false),
            (500, "internal error", false),
        ] {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(is_of_the_request(&status), whole, "{code} {message}");
        }
    }
}
